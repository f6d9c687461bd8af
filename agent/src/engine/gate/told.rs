//! What rules about calls and server starts decided, as events: no detector stands behind them, so no finding does.

use kams_export::view::{EventKind, EventView, Time};
use kams_policy::{CallVerdict, Decision, Now};

use crate::engine::conversation::Party;
use crate::engine::describe;

/// The event of a call's decision; none where no rule or restriction decided, or where a run-level rule did (it makes
/// a finding).
pub(super) fn of_call(
    party: &Party,
    tool: &str,
    id: &str,
    verdict: &CallVerdict,
    now: Now,
) -> Option<EventView> {
    let rule = verdict.decision.rule.as_deref()?;
    let chain = verdict
        .checkpoint
        .iter()
        .flat_map(|checkpoint| &checkpoint.matches);
    if chain.into_iter().any(|hit| hit.rule_id == rule) {
        return None;
    }
    Some(EventView {
        tool: Some(tool.to_owned()),
        request_id: Some(id.to_owned()).filter(|id| !id.is_empty()),
        ..of(party, &verdict.decision, now)
    })
}

/// The event of a server start's decision; none where no rule or restriction decided.
pub(super) fn of_start(party: &Party, decision: &Decision, now: Now) -> Option<EventView> {
    decision.rule.as_ref()?;
    Some(of(party, decision, now))
}

fn of(party: &Party, decision: &Decision, now: Now) -> EventView {
    let nanos = i64::try_from(now.wall_ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
    EventView {
        rule: decision.rule.clone(),
        action: decision.action.map(|action| action.name().to_owned()),
        would: decision.would.map(|action| action.name().to_owned()),
        detail: decision.reason.clone(),
        ..describe::base(party, EventKind::Decision, Time::from_unix_nanos(nanos))
    }
}
