//! Verdicts in words: refusals, batches, what is held.

use kams_detect::redact::{self, redact_message};
use kams_mcp::Direction;

use super::{
    Bench, Fate, FromEngine, Head, HeldCall, Kind, Onward, Part, Relayed, RequestId, Verdict, Way, all_there,
    as_written, denial, describe, direction, elements, fate, line_frame, policy_now, rewrite,
};

impl Relayed {
    /// A batch goes on with what may pass; the rest is answered in one batch.
    pub(super) fn batch(
        &mut self,
        way: Way,
        line: &[u8],
        parts: Vec<Part>,
        bench: &mut Bench<'_>,
    ) -> Verdict {
        let (mut onward, mut back) = (Vec::new(), Vec::new());
        for (element, mut part) in elements(line).into_iter().zip(parts) {
            if let Fate::Hold(held) = &part.fate {
                let now = policy_now(self.to_wall, bench.now);
                if let Some(number) = held.approval {
                    let id = part.id.as_ref();
                    bench.judge.gate.give_up(number, &self.party, id, now, bench.sink);
                }
                part.fate = Fate::Refuse(format!(
                    "{} A call within a batch cannot wait: send it alone.",
                    held.decision.denial_for(self.remedy)
                ));
            }
            let (goes, answer) = self.single(way, element, &part, bench);
            match goes {
                Onward::Same => onward.push(element.to_vec()),
                Onward::Instead(bytes) => onward.push(bytes),
                Onward::Nothing => {}
            }
            back.extend(answer);
        }
        Verdict {
            onward: denial::array(onward.into_iter()).map_or(Onward::Nothing, Onward::Instead),
            back: denial::array(back.into_iter()).unwrap_or_default(),
        }
    }

    pub(super) fn single(
        &mut self,
        way: Way,
        line: &[u8],
        part: &Part,
        bench: &mut Bench<'_>,
    ) -> (Onward, Option<Vec<u8>>) {
        if part.consumed {
            return (Onward::Nothing, None);
        }
        let text = std::str::from_utf8(line).unwrap_or_default();
        let changed = match &part.fate {
            Fate::Pass | Fate::Hold(_) => return (Onward::Same, None),
            Fate::Redact(classes) => redact_message(line, *classes),
            Fate::Without(names, _) => part
                .list
                .filter(|list| all_there(text, *list, names))
                .and_then(|list| rewrite::without(text, list, names))
                .map(String::into_bytes),
            Fate::WithoutInstructions(why) => rewrite::other_instructions(text, why).map(String::into_bytes),
            Fate::Refuse(_) => None,
        };
        if let Some(bytes) = changed {
            // What a server says of itself may be quoted; what goes to it may not.
            let (how, shown) = match part.fate {
                Fate::Redact(_) => ("redacted", None),
                _ => ("edited", Some(bytes.as_slice())),
            };
            self.on_record(way, how, bytes.len(), shown, bench);
            return (Onward::Instead(bytes), None);
        }
        // What cannot be changed as policy wants it does not pass.
        let why = match &part.fate {
            Fate::Refuse(why) | Fate::WithoutInstructions(why) => why.as_str(),
            Fate::Without(_, why) if !why.is_empty() => why,
            _ => "Kams refused this message: policy wants a part of it removed, and it could not be.",
        };
        self.refuse(way, line, part, why, bench)
    }

    pub(super) fn refuse(
        &mut self,
        way: Way,
        line: &[u8],
        part: &Part,
        why: &str,
        bench: &mut Bench<'_>,
    ) -> (Onward, Option<Vec<u8>>) {
        let head = Head::of(line);
        let form = self.form(why);
        if head.is_answer() {
            let id = head.id.as_deref().unwrap_or("null");
            let answer = if part.answers_call {
                denial::tool_error(id, form)
            } else {
                denial::error(id, form)
            };
            self.on_record(way, "refused", answer.len(), Some(&answer), bench);
            return (Onward::Instead(answer), None);
        }
        let answer = denial::answer_to(&head, form);
        let length = answer.as_ref().map_or(0, Vec::len);
        self.on_record(way, "refused", length, answer.as_deref(), bench);
        if let (Some(answer), Some(id), Way::ToServer) = (&answer, &part.id, way) {
            self.answered_by_us(answer, id, bench);
        }
        (Onward::Nothing, answer)
    }

    /// What was sent in a message's place is on record, to the byte where it may be quoted.
    pub(super) fn on_record(
        &self,
        way: Way,
        how: &str,
        bytes: usize,
        shown: Option<&[u8]>,
        bench: &mut Bench<'_>,
    ) {
        let mut event = self.event(Kind::Replaced, bench.now);
        event.direction = Some(describe::direction(direction(way)));
        event.reason = Some(how.to_owned());
        event.bytes = Some(bytes as u64);
        event.enforced = true;
        event.detail = shown.map(|bytes| redact::shown(&String::from_utf8_lossy(bytes)).into_owned());
        bench.sink.event(event);
    }

    /// The session learns what the agent is told in the server's place; nobody judges our own words.
    pub(super) fn answered_by_us(&mut self, answer: &[u8], id: &RequestId, bench: &mut Bench<'_>) {
        let now = policy_now(self.to_wall, bench.now);
        bench.judge.refused(&self.party, id, now);
        let frame = line_frame(answer, answer.len() as u64, false);
        for event in self.session.feed(Direction::ToClient, frame, bench.now) {
            let time = (self.to_wall)(event.time);
            describe::describe(
                &self.party,
                time,
                &self.session,
                &event,
                &mut self.tally,
                bench.sink,
            );
        }
    }

    pub(super) fn hold(
        &mut self,
        seq: u64,
        line: &[u8],
        held: &fate::Held,
        part: &Part,
        bench: &mut Bench<'_>,
    ) -> FromEngine {
        let now = policy_now(self.to_wall, bench.now);
        let mut decision = held.decision.clone();
        let mut number = held.approval;
        if let (None, Some(id)) = (number, &part.id) {
            (decision, number) = bench
                .judge
                .gate
                .ask_for(&self.party, id, decision, now, bench.sink);
        }
        let (Some(number), Some(id)) = (number, part.id.clone()) else {
            if decision.passes() {
                return FromEngine::Verdict(seq, Verdict::default());
            }
            let (onward, back) = self.refuse(
                Way::ToServer,
                line,
                part,
                &decision.denial_for(self.remedy),
                bench,
            );
            let back = back.unwrap_or_default();
            return FromEngine::Verdict(seq, Verdict { onward, back });
        };
        let mut head = Head::of(line);
        head.id = head.id.or_else(|| as_written(&id).map(String::into_boxed_str));
        let token = part.token.clone();
        self.held
            .push(HeldCall::new(seq, number, id, head, token, bench.now));
        let limit = bench.judge.gate.policy().approvals().timeout_ms;
        FromEngine::Hold(seq, limit, decision.denial_for(self.remedy))
    }
}
