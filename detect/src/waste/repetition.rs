//! What tool loops and retrieval thrash share: calls by tool, and how alike their arguments are.

use std::sync::Arc;

use super::call::{Compared, ToolCall};
use super::session::Session;
use super::similarity::{Metric, Pieces, as_f64, mean_pairwise};

/// Calls of one tool in a window, oldest first.
pub(super) struct Group<'a> {
    pub(super) tool: &'a Arc<str>,
    pub(super) calls: Vec<&'a ToolCall>,
}

/// The window's tool calls by tool, in the order in which the tools first stand there.
pub(super) fn by_tool(session: &Session, seconds: f64) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let mut last = 0;
    for record in session.window(seconds) {
        for call in &record.tool_calls {
            // A tool is mostly called several times in a row.
            let place = match groups.get(last) {
                Some(group) if *group.tool == call.name => last,
                _ => *places.entry(&*call.name).or_insert(groups.len()),
            };
            last = place;
            match groups.get_mut(place) {
                Some(group) => group.calls.push(call),
                None => groups.push(Group {
                    tool: &call.name,
                    calls: vec![call],
                }),
            }
        }
    }
    groups
}

/// Mean similarity of the group's arguments. Only what fits into `max_total` bytes is compared, oldest first.
pub(super) fn similarity(
    group: &Group<'_>,
    metric: Metric,
    max_total: usize,
    compared: impl Fn(&ToolCall) -> &Compared,
) -> f64 {
    let mut total = 0_usize;
    let pieces: Vec<&Pieces> = group
        .calls
        .iter()
        .map(|call| compared(call))
        .take_while(|compared| {
            total = total.saturating_add(compared.bytes);
            total <= max_total
        })
        .map(|compared| &compared.pieces)
        .collect();
    mean_pairwise(metric, &pieces)
}

/// Figures of both rules.
pub(super) fn numbers(group: &Group<'_>, seconds: f64, mean: f64) -> Vec<(&'static str, f64)> {
    vec![
        ("call_count", as_f64(group.calls.len())),
        ("window_seconds", seconds),
        ("mean_similarity", mean),
    ]
}
