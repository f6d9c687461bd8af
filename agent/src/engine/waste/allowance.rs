//! How much of what one user's reports make true is told on: whoever makes reports up must not fill the store with
//! findings, push other findings out of it, or keep the thread busy that judges everybody's messages.

use std::num::NonZeroUsize;
use std::time::Instant;

use lru::LruCache;

use super::Output;

/// Users whose allowance is remembered.
const USERS: usize = 4_096;
/// Findings that may come at once, and a second in the long run (ten a minute).
const FINDINGS: (f64, f64) = (100.0, 10.0 / 60.0);
/// The same for true token counts: more than all agents of a person take turns.
const COUNTS: (f64, f64) = (200.0, 10.0);

/// What is left to each user.
pub(super) struct Allowances(LruCache<u32, Left>);

struct Left {
    findings: f64,
    counts: f64,
    at: Instant,
}

impl Default for Allowances {
    fn default() -> Self {
        Self(LruCache::new(
            NonZeroUsize::new(USERS).unwrap_or(NonZeroUsize::MIN),
        ))
    }
}

impl Allowances {
    /// Whether an output of a user's reports is told on; takes it from what is left.
    pub(super) fn admits(&mut self, uid: u32, output: &Output, now: Instant) -> bool {
        let left = self.0.get_or_insert_mut(uid, || Left {
            findings: FINDINGS.0,
            counts: COUNTS.0,
            at: now,
        });
        let seconds = now.saturating_duration_since(left.at).as_secs_f64();
        left.at = now;
        left.findings = (left.findings + seconds * FINDINGS.1).min(FINDINGS.0);
        left.counts = (left.counts + seconds * COUNTS.1).min(COUNTS.0);
        let purse = match output {
            Output::Found { .. } => &mut left.findings,
            Output::Usage(_) | Output::Passed { .. } => &mut left.counts,
        };
        let admitted = *purse >= 1.0;
        if admitted {
            *purse -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kams_export::view::Time;

    use super::*;

    #[test]
    fn a_flood_is_cut_and_others_are_not() {
        let mut allowances = Allowances::default();
        let start = Instant::now();
        let output = Output::Passed {
            uid: 1,
            agent_pid: 1,
            before: Time::from_unix_nanos(0),
        };
        let told = |allowances: &mut Allowances, uid, now| {
            (0..1_000)
                .filter(|_| allowances.admits(uid, &output, now))
                .count()
        };
        assert_eq!(told(&mut allowances, 1, start), 200);
        assert_eq!(told(&mut allowances, 2, start), 200);
        assert_eq!(told(&mut allowances, 1, start + Duration::from_secs(3)), 30);
    }
}
