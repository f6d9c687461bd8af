//! A server must not drown what was found elsewhere: what is kept of findings is bounded per user, and one list can be bad
//! twenty thousand times over.

/// Findings of one server instance that are recorded within [`WINDOW`].
const MOST: u32 = 300;
/// Nanoseconds.
const WINDOW: u64 = 60_000_000_000;

/// What is told when more come.
pub(super) const TOLD: &str =
    "more than 300 findings within a minute: further ones of this server are decided on, and not recorded";

/// Counts the findings of one server instance.
#[derive(Debug, Default)]
pub(super) struct Flood {
    began: u64,
    count: u32,
}

/// What to do with a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Record it.
    Tell,
    /// Do not; `first` of its window.
    LeaveOut { first: bool },
}

impl Flood {
    /// Counts a finding at this time, nanoseconds since boot.
    pub(super) const fn count(&mut self, now: u64) -> Verdict {
        if now.saturating_sub(self.began) >= WINDOW {
            self.began = now;
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        if self.count <= MOST {
            Verdict::Tell
        } else {
            Verdict::LeaveOut {
                first: self.count == MOST + 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ones_are_told_then_one_word_then_none_until_the_next_window() {
        let mut flood = Flood::default();
        for n in 0..MOST {
            assert_eq!(flood.count(WINDOW + u64::from(n)), Verdict::Tell);
        }
        assert_eq!(flood.count(WINDOW + 500), Verdict::LeaveOut { first: true });
        assert_eq!(flood.count(WINDOW + 501), Verdict::LeaveOut { first: false });
        assert_eq!(flood.count(3 * WINDOW), Verdict::Tell);
    }
}
