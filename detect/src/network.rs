//! What a server that is cut off the network does all the same, as findings: `KAMS-NET-001` it tried to use it,
//! `KAMS-NET-002` something is still open that could not be closed (DESIGN section 6).

use crate::finding::{Evidence, Finding, Kind, Severity};

/// Attempts that were refused in so many seconds. `restricted`: a decision about this server cut it off, not a setting for
/// many.
pub fn refused(count: u64, seconds: f64, restricted: bool) -> Finding {
    Finding {
        code: "KAMS-NET-001",
        detector: "network.refused",
        kind: Kind::Behaviour,
        severity: if restricted {
            Severity::High
        } else {
            Severity::Medium
        },
        confidence: 1.0,
        tool: None,
        cause: "network refused".to_owned(),
        evidence: behaviour(count, seconds),
    }
}

/// So many sockets or rings of a server that is cut off are open and could be used. `why` as the host names it.
pub fn left_open(count: u64, why: &str) -> Finding {
    Finding {
        code: "KAMS-NET-002",
        detector: "network.left_open",
        kind: Kind::Behaviour,
        severity: Severity::High,
        confidence: 1.0,
        tool: None,
        cause: format!("network left open: {why}"),
        evidence: behaviour(count, 0.0),
    }
}

fn behaviour(count: u64, seconds: f64) -> Evidence {
    Evidence::Behaviour {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        seconds,
        ratio: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_under_a_restriction_weighs_more() {
        assert!(refused(1, 1.0, true).severity > refused(1, 1.0, false).severity);
        assert_ne!(left_open(1, "a").cause, left_open(1, "b").cause);
        assert!(matches!(
            refused(u64::MAX, 0.5, true).evidence,
            Evidence::Behaviour { count: u32::MAX, .. }
        ));
    }
}
