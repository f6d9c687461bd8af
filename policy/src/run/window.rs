//! The same facts over a sliding window across a user's runs: a chain split over two runs.

use std::collections::VecDeque;

use super::accumulator::Accumulator;
use super::fact::Contribution;
use crate::time::Now;

/// Slices of a window. What is older than the window goes a slice at a time, so facts stay up to 1/12 longer.
const SLICES: u64 = 12;

/// A window over completed calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    slices: VecDeque<(u64, Accumulator)>,
}

impl Window {
    const fn slice(now: Now, length_ms: u64) -> u64 {
        let width = length_ms / SLICES;
        now.mono_ms / if width == 0 { 1 } else { width }
    }

    /// Adds a completed call. A clock that went backwards adds to the newest slice.
    pub(crate) fn add(&mut self, contributions: &[Contribution], seq: u64, now: Now, length_ms: u64) {
        self.trim(now, length_ms);
        let slice = Self::slice(now, length_ms);
        let newest = self.slices.back().map_or(0, |(n, _)| *n);
        if self.slices.is_empty() || slice > newest {
            self.slices.push_back((slice, Accumulator::default()));
        }
        if let Some((_, accumulator)) = self.slices.back_mut() {
            for contribution in contributions {
                accumulator.add(contribution, seq);
            }
        }
    }

    /// Drops slices that lie wholly outside.
    pub(crate) fn trim(&mut self, now: Now, length_ms: u64) {
        let oldest = Self::slice(now, length_ms).saturating_sub(SLICES);
        while self.slices.front().is_some_and(|(n, _)| *n < oldest) {
            self.slices.pop_front();
        }
    }

    /// The facts under the named keys.
    pub(crate) fn facts(&self, keys: &[&str], now: Now, length_ms: u64) -> Accumulator {
        let oldest = Self::slice(now, length_ms).saturating_sub(SLICES);
        let mut out = Accumulator::default();
        for (_, accumulator) in self.slices.iter().filter(|(n, _)| *n >= oldest) {
            out.join(accumulator, keys.iter().copied());
        }
        out
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Vec<Contribution> {
        vec![Contribution {
            key: "k".to_owned(),
            named: true,
            values: vec![],
            numbers: vec![("n".to_owned(), 1.0)],
        }]
    }

    #[test]
    fn facts_leave_with_time_and_not_before() {
        let mut window = Window::default();
        let hour = 3_600_000;
        let start = Now::at(100 * hour);
        window.add(&call(), 1, start, hour);
        window.add(&call(), 2, start.plus(hour / 2), hour);
        let calls = |w: &Window, now: Now| w.facts(&["k"], now, hour).get("k").map_or(0, |f| f.calls);
        assert_eq!(calls(&window, start.plus(hour)), 2);
        assert_eq!(calls(&window, start.plus(hour + hour / 6)), 1);
        assert_eq!(calls(&window, start.plus(2 * hour)), 0);
        assert_eq!(calls(&window, Now::at(0)), 2, "a clock set back forgets nothing");
    }

    #[test]
    fn memory_is_bounded_by_slices() {
        let mut window = Window::default();
        for i in 0..10_000 {
            window.add(&call(), i, Now::at(i * 60_000), 3_600_000);
        }
        assert!(window.slices.len() <= 14);
    }
}
