//! What a relay could not have judged, as findings: `KAMS-REL-001` messages that passed or were refused without a
//! verdict, `KAMS-REL-002` a message longer than what is inspected (DESIGN section 6).

use crate::finding::{Evidence, Finding, Kind, Severity};

/// Messages that a relay decided on by its fail mode. `passed`: they were let through (`fail: open`).
pub fn unjudged(why: &str, passed: bool, to_server: bool, count: u64, tool: Option<String>) -> Finding {
    let way = if to_server {
        "to the server"
    } else {
        "to the agent"
    };
    Finding {
        code: "KAMS-REL-001",
        detector: "relay.unjudged",
        kind: Kind::Behaviour,
        severity: if passed { Severity::High } else { Severity::Medium },
        confidence: 1.0,
        tool,
        cause: format!("unjudged {why} {way} {passed}"),
        evidence: Evidence::Behaviour {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            seconds: 0.0,
            ratio: None,
        },
    }
}

/// A message over the limit of inspection; of its `bytes` only the beginning was seen.
pub fn oversize(bytes: u64, to_server: bool) -> Finding {
    let way = if to_server {
        "to the server"
    } else {
        "to the agent"
    };
    Finding {
        code: "KAMS-REL-002",
        detector: "relay.oversize",
        kind: Kind::Behaviour,
        severity: Severity::High,
        confidence: 1.0,
        tool: None,
        cause: format!("oversize {way}"),
        evidence: Evidence::Cost {
            tokens: bytes / 4,
            bytes,
            estimated: true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_is_worse_than_what_was_refused() {
        let passed = unjudged("deadline", true, false, 3, None);
        let refused = unjudged("deadline", false, false, 3, None);
        assert!(passed.severity > refused.severity);
        assert_ne!(passed.cause, refused.cause);
        assert!(matches!(
            oversize(40, true).evidence,
            Evidence::Cost { bytes: 40, .. }
        ));
    }
}
