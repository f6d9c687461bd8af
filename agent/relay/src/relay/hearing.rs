//! What the engine says, and what follows from it.

use std::time::Instant;

use super::{FromEngine, Head, Onward, Relay, State, Verdict, Way, denial, way_of};

impl Relay {
    /// Takes what the engine says.
    pub(super) fn hear(&mut self, now: Instant) {
        while let Some(said) = self.link.receive(now) {
            self.silent = false;
            match said {
                FromEngine::Welcome(welcome) => {
                    if let Some(server) = &welcome.server {
                        self.meta.server.clone_from(server);
                    }
                    self.welcome = welcome;
                }
                FromEngine::Verdict(seq, verdict) => self.apply(seq, verdict, now),
                FromEngine::Refuse(seq, text) => {
                    self.refuse(way_of(seq), seq, denial::DENIED, text, now);
                }
                FromEngine::Hold(seq, millis, text) => {
                    let way = way_of(seq);
                    let Some(item) = self.lane(way).remove(seq) else {
                        continue;
                    };
                    if let Some(item) = self.held.add(way, item, millis, text, now) {
                        let form = self.form(
                            denial::DENIED,
                            "Kams refused this call: too many wait for approval.",
                        );
                        if let Some(answer) = denial::answer_to(&item.head, form) {
                            self.lane(way.back()).say(answer);
                        }
                    }
                }
                FromEngine::Inject(way, line) => self.lane(way).say(line),
                FromEngine::End => self.ordered = true,
            }
            if self.lanes.iter().all(|lane| lane.unsettled() == 0) {
                // Nothing was asked that is not answered: what else it says is seen by the next wait.
                return;
            }
        }
    }

    pub(super) fn apply(&mut self, seq: u64, verdict: Verdict, now: Instant) {
        let way = way_of(seq);
        if let Some(held) = self.held.take(seq) {
            match verdict.onward {
                Onward::Same => self.release(way, &held.item.head, held.item.bytes),
                Onward::Instead(bytes) => self.release(way, &Head::of(&bytes), bytes),
                Onward::Nothing => {}
            }
            self.lane(way.back()).say(verdict.back);
            return;
        }
        let Some(item) = self.lane(way).get_mut(seq) else {
            // Too late: the fail mode was applied.
            return;
        };
        if item.state == State::Ready {
            return;
        }
        let cancels = item
            .head
            .cancels
            .clone()
            .filter(|_| verdict.onward == Onward::Nothing);
        match verdict.onward {
            Onward::Same => {
                item.state = State::Ready;
                if item.oversize {
                    self.lane(way).decide_over(None);
                }
            }
            Onward::Instead(bytes) => self.lane(way).replace(seq, bytes),
            Onward::Nothing => self.lane(way).replace(seq, Vec::new()),
        }
        self.lane(way.back()).say(verdict.back);
        if let Some(id) = cancels {
            // Consumed with the request that it ends.
            self.held.cancelled(&id);
        }
        self.move_on(now);
    }

    /// A held message goes on, between two others.
    pub(super) fn release(&mut self, way: Way, head: &Head, bytes: Vec<u8>) {
        self.open.passed(way, head, &bytes);
        self.lane(way).say(bytes);
    }
}
