//! `zombie`: calls go on while the person has heard nothing for long. Without any earlier word to the person the silence
//! counts from the first call kept (as token-sentinel 1.0.3 does, against the seed's text). Confidence 0.75.
//!
//! Where the source does not tell what the person sees (MCP traffic, spans), a pause longer than the mean distance of the
//! calls that the rule asks for is taken for the person's turn, and the confidence is 0.6. A prompt that the person typed
//! counts as a word to them: who types has heard. Tools that ran and side calls are no calls here.

use super::config::Config;
use super::rule::{Firing, Rule};
use super::session::{Session, elapsed};
use super::similarity::as_f64;

pub(super) fn evaluate(session: &Session, name: &str, config: &Config) -> Option<Firing> {
    let knobs = &config.zombie;
    let last = session.records().next_back()?;
    let heard = session.records().rev().find(|record| record.user_facing);
    let mut since = heard.or_else(|| session.records().next())?.at;
    if let Some(busy) = session.busy_since {
        // The first call kept stands for nothing where the busy spell is known from its start.
        since = if heard.is_some() { since.max(busy) } else { busy };
    }
    let silence = elapsed(last.at, since);
    let threshold = knobs.threshold_minutes * 60.0;
    let recent = session.window(threshold).filter(|record| !record.side).count();
    let expected = knobs.long_running_sessions.iter().any(|session| session == name);
    (silence >= threshold && recent >= knobs.min_recent_calls && !expected).then(|| Firing {
        rule: Rule::Zombie,
        confidence: if session.busy_since.is_some() { 0.6 } else { 0.75 },
        suggested_action: "kill_session_or_request_user_input",
        tool: None,
        subject: 0,
        numbers: vec![
            ("minutes_since_user_facing_output", silence / 60.0),
            ("recent_calls", as_f64(recent)),
            ("never_user_facing", f64::from(u8::from(heard.is_none()))),
            (
                "told_from_pauses",
                f64::from(u8::from(session.busy_since.is_some())),
            ),
        ],
    })
}

/// The pause, in nanoseconds, that stands for the person's turn where nothing else tells of it: a steady row of calls
/// that the rule would count never pauses that long.
pub(super) fn pause(config: &Config) -> u64 {
    let knobs = &config.zombie;
    let gaps = knobs.min_recent_calls.saturating_sub(1).max(1);
    let seconds = knobs.threshold_minutes * 60.0 / as_f64(gaps);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate"
    )]
    let nanos = (seconds * 1e9) as u64;
    nanos
}

#[cfg(test)]
mod tests {
    use super::super::testing::{calls, fires};
    use super::*;
    use serde_json::json;

    fn silent(times: &[f64], heard_at: Option<usize>) -> bool {
        let calls = calls(
            times
                .iter()
                .enumerate()
                .map(|(i, t)| json!({"t": t, "user_facing_output": heard_at == Some(i)})),
        );
        fires(Rule::Zombie, &calls, &json!({})).is_some()
    }

    #[test]
    fn five_minutes_and_five_calls() {
        assert!(silent(&[0.0, 100.0, 150.0, 200.0, 250.0, 300.0], Some(0)));
        assert!(!silent(&[0.0, 100.0, 150.0, 200.0, 250.0, 299.9], Some(0)));
        assert!(
            !silent(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 400.0], Some(0)),
            "few calls lately"
        );
        assert!(
            !silent(&[0.0, 100.0, 150.0, 200.0, 250.0, 301.0], Some(5)),
            "just heard"
        );
    }

    #[test]
    fn a_session_that_never_spoke_counts_from_its_start() {
        assert!(silent(&[0.0, 100.0, 150.0, 200.0, 300.0], None));
    }

    #[test]
    fn pauses_stand_for_the_person_where_nothing_else_is_known() {
        let told = |gaps: &[u64]| {
            let (config, mut session, mut at) = (Config::default(), Session::default(), 0);
            gaps.iter().any(|gap| {
                at += gap * 1_000_000_000;
                session.push(&super::super::LlmCall {
                    at,
                    unheard_pause: Some(pause(&config)),
                    ..Default::default()
                });
                evaluate(&session, "s", &config).is_some()
            })
        };
        assert!(told(&[75; 8]), "a steady row of calls");
        assert!(told(&[1; 400]), "also where it outgrows what is kept");
        let turns: Vec<u64> = (0..200).map(|i| if i % 10 == 0 { 90 } else { 8 }).collect();
        assert!(!told(&turns), "somebody reads and types in between");
    }
}
