//! `zombie`: calls go on while the person has heard nothing for long. Without any earlier word to the person the silence
//! counts from the first call kept (as token-sentinel 1.0.3 does, against the seed's text). Confidence 0.75.

use super::config::Config;
use super::rule::{Firing, Rule};
use super::session::{Session, elapsed};
use super::similarity::as_f64;

pub(super) fn evaluate(session: &Session, name: &str, config: &Config) -> Option<Firing> {
    let knobs = &config.zombie;
    let last = session.records().next_back()?;
    let heard = session.records().rev().find(|record| record.user_facing);
    let silence = elapsed(last.at, heard.or_else(|| session.records().next())?.at);
    let threshold = knobs.threshold_minutes * 60.0;
    let recent = session.window(threshold).count();
    let expected = knobs.long_running_sessions.iter().any(|session| session == name);
    (silence >= threshold && recent >= knobs.min_recent_calls && !expected).then(|| Firing {
        rule: Rule::Zombie,
        confidence: 0.75,
        suggested_action: "kill_session_or_request_user_input",
        tool: None,
        subject: 0,
        numbers: vec![
            ("minutes_since_user_facing_output", silence / 60.0),
            ("recent_calls", as_f64(recent)),
            ("never_user_facing", f64::from(u8::from(heard.is_none()))),
        ],
    })
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
}
