//! A server that was to be under a filter of system calls and is not: `KAMS-NET-003` (DESIGN section 6). A run without
//! the protection that policy asks for is never silent.

use crate::finding::{Evidence, Finding, Kind, Severity};

/// No filter holds; `why` as the host names it. `ended`: the server was killed for it (`fail: closed`).
pub fn unfiltered(why: &str, ended: bool) -> Finding {
    Finding {
        code: "KAMS-NET-003",
        detector: "network.unfiltered",
        kind: Kind::Behaviour,
        severity: if ended { Severity::Medium } else { Severity::High },
        confidence: 1.0,
        tool: None,
        cause: format!("unfiltered {why} {ended}"),
        evidence: Evidence::Behaviour {
            count: 1,
            seconds: 0.0,
            ratio: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_runs_on_is_worse_than_one_that_was_ended() {
        assert!(unfiltered("busy", false).severity > unfiltered("busy", true).severity);
        assert_ne!(
            unfiltered("busy", false).cause,
            unfiltered("launcher", false).cause
        );
    }
}
