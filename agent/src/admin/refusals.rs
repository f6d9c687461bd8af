//! What is said of refused connections: now and then, with their number. Whoever may connect can be refused as often
//! as they like, and the log has other things to say.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Refusals that no line has told yet.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    count: u64,
    told: Option<Instant>,
}

impl Refusals {
    /// One more; where a line is due, how many it stands for.
    pub(super) fn note(&self, now: Instant) -> Option<u64> {
        let mut untold = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        untold.count += 1;
        let due = untold
            .told
            .is_none_or(|told| now.saturating_duration_since(told) >= PAUSE);
        due.then(|| {
            untold.told = Some(now);
            std::mem::take(&mut untold.count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_makes_few_lines_and_every_refusal_is_in_one() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let told: Vec<u64> = (0..=30_000_u64)
            .filter_map(|ms| refusals.note(start + Duration::from_millis(ms)))
            .collect();
        assert_eq!(told, [1, 10_000, 10_000, 10_000]);
    }
}
