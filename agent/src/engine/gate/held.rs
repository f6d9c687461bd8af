//! Calls that a relay holds until a person has decided, and calls that were admitted and did not pass after all.

use kams_mcp::RequestId;
use kams_policy::{Baseline, Completion, Decision, Now, Outcome, ProposedCall, State};

use super::{Gatekeeper, Open, Party, Sink, subject};

/// A call that waits.
#[derive(Debug)]
pub(super) struct Waits {
    open: Open,
    baseline: Option<Baseline>,
    /// A finding asked for approval: the call itself was admitted.
    admitted: Option<Decision>,
}

impl Waits {
    pub(super) const fn proposed(open: Open, baseline: Option<Baseline>) -> Self {
        Self {
            open,
            baseline,
            admitted: None,
        }
    }

    fn call<'a>(&'a self, party: &'a Party) -> ProposedCall<'a> {
        ProposedCall {
            subject: subject(party, &self.open.tool),
            run: &self.open.run,
            operation: &self.open.operation,
            arguments: &self.open.declared,
            args_digest: &self.open.digest,
            target: None,
            baseline: self.baseline,
        }
    }
}

/// How a request for approval stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Settled {
    /// Nobody has decided.
    Waiting,
    /// The call may pass.
    Passes,
    /// It may not; why, in words.
    Refused(String),
}

impl Gatekeeper {
    /// Asks for approval of an admitted call because of a finding. Gives the number of the request, or none where an
    /// approval was there or none can be asked for; then the decision says which.
    pub(in crate::engine) fn ask_for(
        &mut self,
        party: &Party,
        id: &RequestId,
        decision: Decision,
        now: Now,
        sink: &mut dyn Sink,
    ) -> (Decision, Option<u64>) {
        let Some(open) = self.open.get(&party.server_id).and_then(|calls| calls.get(id)) else {
            return (decision, None);
        };
        let waits = Waits {
            open: open.clone(),
            baseline: None,
            admitted: Some(decision.clone()),
        };
        let verdict = self.gate.ask_approval(decision, &waits.call(party), now);
        let holds = verdict.decision.outcome == Outcome::RequireApproval;
        let number = verdict.approval.filter(|_| holds);
        if let Some(number) = number {
            self.waiting.insert(number, waits);
        }
        self.drain(now, sink);
        (verdict.decision, number)
    }

    /// Looks whether a call that is held may go on.
    pub(in crate::engine) fn settle(
        &mut self,
        number: u64,
        party: &Party,
        id: Option<&RequestId>,
        now: Now,
        sink: &mut dyn Sink,
    ) -> Settled {
        let state = self.gate.approvals.get(number).map(|one| one.state.clone());
        let why = match state {
            Some(State::Pending) => return Settled::Waiting,
            Some(State::Approved { .. }) => None,
            Some(State::Denied { .. }) => Some("it was denied"),
            Some(State::TimedOut | State::Lapsed) => Some("nobody decided in time"),
            _ => Some("the request for approval has ended"),
        };
        let Some(waits) = self.waiting.remove(&number) else {
            return Settled::Refused("Kams refused this call: its request for approval is gone.".to_owned());
        };
        let settled = if let Some(why) = why {
            if waits.admitted.is_some() {
                self.refused(party, id, now);
            }
            let rule = self
                .gate
                .approvals
                .get(number)
                .map(|one| one.request.rule.clone());
            Settled::Refused(format!(
                "Kams refused this call: policy rule `{}` wants it approved, and {why}.",
                rule.unwrap_or_default()
            ))
        } else {
            let call = waits.call(party);
            let verdict = match waits.admitted.clone() {
                Some(decision) => self.gate.ask_approval(decision, &call, now),
                None => self.gate.propose(&call, now),
            };
            if verdict.decision.passes() {
                if waits.admitted.is_none() {
                    self.keep_open(party.server_id, id, waits.open, now);
                }
                Settled::Passes
            } else {
                Settled::Refused(verdict.decision.denial())
            }
        };
        self.drain(now, sink);
        settled
    }

    /// The client gave up a call that is held.
    pub(in crate::engine) fn give_up(
        &mut self,
        number: u64,
        party: &Party,
        id: Option<&RequestId>,
        now: Now,
        sink: &mut dyn Sink,
    ) {
        self.gate.cancel(number, now);
        if self
            .waiting
            .remove(&number)
            .is_some_and(|waits| waits.admitted.is_some())
        {
            self.refused(party, id, now);
        }
        self.drain(now, sink);
    }

    /// A call that the gate admitted was refused for another reason: it did not happen.
    pub(in crate::engine) fn refused(&mut self, party: &Party, id: Option<&RequestId>, now: Now) {
        let open = id.and_then(|id| self.open.get_mut(&party.server_id)?.remove(id));
        if let Some(open) = open {
            self.end(&open, Completion::Failed, now);
        }
    }
}
