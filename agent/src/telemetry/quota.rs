//! How much one user may report: so many requests and bytes a second in the long run, and five seconds' worth at once.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use lru::LruCache;

/// Users whose share is remembered; one that is forgotten begins with a full share.
const USERS: usize = 4_096;
/// Seconds' worth that may come at once.
const BURST: f64 = 5.0;

/// The shares of all users.
#[derive(Debug)]
pub struct Quota {
    requests: f64,
    bytes: f64,
    users: Mutex<LruCache<u32, Share>>,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    requests: f64,
    /// Below zero after a request that was larger than what was left.
    bytes: f64,
    at: Instant,
}

impl Quota {
    /// Shares of so many requests and bytes a second.
    pub fn new(requests: usize, bytes: usize) -> Self {
        let float = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        Self {
            requests: float(requests),
            bytes: float(bytes),
            users: Mutex::new(LruCache::new(
                NonZeroUsize::new(USERS).unwrap_or(NonZeroUsize::MIN),
            )),
        }
    }

    /// Whether a user may make a request now; takes it from their share.
    pub fn admits(&self, uid: u32, now: Instant) -> bool {
        self.with(uid, now, |share| {
            let admitted = share.requests >= 1.0 && share.bytes > 0.0;
            if admitted {
                share.requests -= 1.0;
            }
            admitted
        })
    }

    /// Takes the bytes of a request from the user's share.
    pub fn spend(&self, uid: u32, bytes: usize, now: Instant) {
        let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.with(uid, now, |share| share.bytes -= bytes);
    }

    fn with<T>(&self, uid: u32, now: Instant, work: impl FnOnce(&mut Share) -> T) -> T {
        let full = Share {
            requests: self.requests * BURST,
            bytes: self.bytes * BURST,
            at: now,
        };
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let share = users.get_or_insert_mut(uid, || full);
        let seconds = now.saturating_duration_since(share.at).as_secs_f64();
        share.requests = (share.requests + seconds * self.requests).min(full.requests);
        share.bytes = (share.bytes + seconds * self.bytes).min(full.bytes);
        share.at = now;
        work(share)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_is_cut_to_the_share_and_others_are_not() {
        let quota = Quota::new(10, 1_000);
        let start = Instant::now();
        let admitted = (0..1_000).filter(|_| quota.admits(1000, start)).count();
        assert_eq!(admitted, 50);
        assert!(quota.admits(1001, start), "another user");
        let later = start + Duration::from_secs(1);
        let admitted = (0..1_000).filter(|_| quota.admits(1000, later)).count();
        assert_eq!(admitted, 10);
    }

    #[test]
    fn bytes_count_and_a_debt_is_paid_by_time() {
        let quota = Quota::new(10, 1_000);
        let start = Instant::now();
        assert!(quota.admits(1000, start));
        quota.spend(1000, 7_000, start);
        assert!(!quota.admits(1000, start + Duration::from_secs(1)));
        assert!(quota.admits(1000, start + Duration::from_secs(3)));
    }
}
