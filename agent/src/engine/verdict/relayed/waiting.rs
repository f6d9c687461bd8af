//! Calls that wait for a person: until they may go on, or nobody is asked any more.

use super::{
    Bench, Direction, FromEngine, Judge, Nanos, Onward, Relayed, Settled, Sink, Verdict, Way, denial,
    policy_now,
};

impl Relayed {
    /// Looks whether calls that are held may go on; tells their clients that they wait.
    pub fn settle(&mut self, judge: &mut Judge, sink: &mut dyn Sink, now: Nanos) -> Vec<FromEngine> {
        let mut bench = Bench { judge, sink, now };
        let mut said = Vec::new();
        for mut held in std::mem::take(&mut self.held) {
            let at = policy_now(self.to_wall, now);
            let id = Some(&held.id);
            let settled = bench
                .judge
                .gate
                .settle(held.approval, &self.party, id, at, bench.sink);
            match settled {
                Settled::Waiting => {
                    if let Some(line) = held.progress(now) {
                        said.push(FromEngine::Inject(Way::ToAgent, line));
                    }
                    self.held.push(held);
                }
                Settled::Passes => {
                    // A person took this time, not the server.
                    self.session.goes_on(Direction::ToServer, &held.id, now);
                    said.push(FromEngine::Verdict(held.seq, Verdict::default()));
                }
                Settled::Refused(why) => {
                    let back = denial::answer_to(&held.head, self.form(&why)).unwrap_or_default();
                    self.answered_by_us(&back, &held.id, &mut bench);
                    let onward = Onward::Nothing;
                    said.push(FromEngine::Verdict(held.seq, Verdict { onward, back }));
                }
            }
        }
        said
    }

    /// Refuses what waits for a person: nobody will be asked.
    pub fn give_up_held(
        &mut self,
        why: &str,
        judge: &mut Judge,
        sink: &mut dyn Sink,
        now: Nanos,
    ) -> Vec<FromEngine> {
        let mut bench = Bench { judge, sink, now };
        let at = policy_now(self.to_wall, now);
        let mut said = Vec::new();
        for held in std::mem::take(&mut self.held) {
            let id = Some(&held.id);
            bench
                .judge
                .gate
                .give_up(held.approval, &self.party, id, at, bench.sink);
            let back = denial::answer_to(&held.head, self.form(why)).unwrap_or_default();
            self.answered_by_us(&back, &held.id, &mut bench);
            let onward = Onward::Nothing;
            said.push(FromEngine::Verdict(held.seq, Verdict { onward, back }));
        }
        said
    }
}
