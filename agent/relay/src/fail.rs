//! The one place where it is decided what happens to a message that nobody judged.

use serde::{Deserialize, Serialize};

/// The choice that policy makes for a server (`fail: open | closed`).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// Messages pass, and a finding says so.
    #[default]
    Open,
    /// Messages are refused, and a finding says so.
    Closed,
}

/// Why a message was not judged.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The engine did not answer in time.
    Deadline,
    /// There is no engine.
    Gone,
    /// It is longer than what is inspected.
    Oversize,
    /// It waited for a person, and the engine that would have told of the decision is gone.
    Held,
}

impl Why {
    /// The name in findings and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Gone => "gone",
            Self::Oversize => "oversize",
            Self::Held => "held",
        }
    }
}

/// What happens to the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fallback {
    /// It goes on as it is.
    Pass,
    /// It is refused.
    Refuse,
}

/// Decides. A request that policy held was refused already unless a person said otherwise, so it never passes.
pub const fn decide(mode: FailMode, why: Why) -> Fallback {
    match (mode, why) {
        (FailMode::Open, Why::Deadline | Why::Gone | Why::Oversize) => Fallback::Pass,
        (FailMode::Closed, _) | (_, Why::Held) => Fallback::Refuse,
    }
}

/// How long a verdict on a message of `bytes` may take: 250 ms and 50 ms for each MB.
pub const fn patience(bytes: usize) -> std::time::Duration {
    let millis = 250 + (bytes as u64).saturating_mul(50) / 1_000_000;
    std::time::Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_for_a_person_never_passes_by_itself() {
        assert_eq!(decide(FailMode::Open, Why::Held), Fallback::Refuse);
        assert_eq!(decide(FailMode::Open, Why::Deadline), Fallback::Pass);
        assert_eq!(decide(FailMode::Closed, Why::Gone), Fallback::Refuse);
        assert_eq!(patience(16_000_000).as_millis(), 1_050);
    }
}
