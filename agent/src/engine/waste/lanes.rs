//! What waits for the desk: a lane for each user's traffic and one for each user's reports, taken in turn.
//!
//! Whoever reports more than can be looked at fills their own lane and is told so; what others do waits for one piece of
//! it at most. A large report is taken in pieces for the same reason.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use kams_detect::waste::LlmCall;

use super::{Input, Sender, call_cost};

/// Observations of one lane that may wait.
const WAITING: usize = 8_192;
/// Bytes of one lane that may wait. The largest export that the receiver reads is below that.
pub const LANE_BYTES: usize = 24 << 20;
/// Bytes of all users' traffic that may wait.
const TRAFFIC_BYTES: usize = 48 << 20;
/// The same of their reports.
const REPORTS_BYTES: usize = 72 << 20;
/// Calls of a report that are taken at once, and bytes after which no other is added.
const PIECE: usize = 16;
const PIECE_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Lane {
    /// The daemon's own: other knobs.
    Own,
    Traffic(u32),
    Reports(u32),
}

impl Lane {
    fn of(input: &Input) -> Self {
        match input {
            Input::Knobs(_) => Self::Own,
            Input::Calls { sender, .. } => Self::Reports(sender.uid),
            Input::Called { about, .. } | Input::Answered { about, .. } | Input::Listed { about, .. } => {
                Self::Traffic(about.party.uid)
            }
            Input::Left { uid, .. } | Input::Gone { uid, .. } => Self::Traffic(*uid),
        }
    }
}

/// One entry of a lane.
enum Waiting {
    Whole(usize, Box<Input>),
    Calls(Sender, VecDeque<LlmCall>),
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

#[derive(Default)]
struct Inner {
    lanes: HashMap<Lane, Queue>,
    /// Lanes in which something waits, in their order.
    turns: VecDeque<Lane>,
    traffic: usize,
    reports: usize,
    closed: bool,
}

impl Inner {
    fn sum(&mut self, lane: Lane) -> &mut usize {
        match lane {
            Lane::Reports(_) => &mut self.reports,
            _ => &mut self.traffic,
        }
    }
}

/// All lanes.
#[derive(Default)]
pub(super) struct Lanes {
    inner: Mutex<Inner>,
    more: Condvar,
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an observation into its lane; false where there is no room.
    pub(super) fn put(&self, input: Input) -> bool {
        let (lane, cost) = (Lane::of(&input), input.cost());
        let mut inner = self.lock();
        let most = match lane {
            Lane::Reports(_) => REPORTS_BYTES,
            _ => TRAFFIC_BYTES,
        };
        let all = inner.sum(lane).saturating_add(cost);
        let queue = inner.lanes.entry(lane).or_default();
        let full =
            queue.waiting.len() >= WAITING || queue.bytes.saturating_add(cost) > LANE_BYTES || all > most;
        if full && lane != Lane::Own {
            return false;
        }
        let first = queue.waiting.is_empty();
        queue.bytes = queue.bytes.saturating_add(cost);
        queue.waiting.push_back(match input {
            Input::Calls { sender, calls } => Waiting::Calls(sender, calls.into()),
            other => Waiting::Whole(cost, Box::new(other)),
        });
        if first {
            inner.turns.push_back(lane);
        }
        *inner.sum(lane) = all;
        drop(inner);
        self.more.notify_one();
        true
    }

    /// Nothing comes any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_all();
    }

    /// The next piece, waiting for one; none once closed and empty.
    pub(super) fn next(&self) -> Option<Input> {
        let mut inner = self.lock();
        loop {
            if let Some(lane) = inner.turns.pop_front() {
                return inner.take(lane);
            }
            if inner.closed {
                return None;
            }
            inner = self.more.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Inner {
    fn take(&mut self, lane: Lane) -> Option<Input> {
        let queue = self.lanes.get_mut(&lane)?;
        let (cost, input) = match queue.waiting.pop_front()? {
            Waiting::Whole(cost, input) => (cost, *input),
            Waiting::Calls(sender, mut calls) => {
                let (mut bytes, mut number) = (0, 0);
                for call in calls.iter().take(PIECE) {
                    bytes += call_cost(call);
                    number += 1;
                    if bytes >= PIECE_BYTES {
                        break;
                    }
                }
                let piece = calls.drain(..number).collect();
                if !calls.is_empty() {
                    queue.waiting.push_front(Waiting::Calls(sender.clone(), calls));
                }
                (bytes, Input::Calls { sender, calls: piece })
            }
        };
        queue.bytes = queue.bytes.saturating_sub(cost);
        if queue.waiting.is_empty() {
            // Costs are summed up in another way than taken; an empty lane holds nothing.
            let left = queue.bytes;
            self.lanes.remove(&lane);
            let sum = self.sum(lane);
            *sum = sum.saturating_sub(cost + left);
        } else {
            self.turns.push_back(lane);
            let sum = self.sum(lane);
            *sum = sum.saturating_sub(cost);
        }
        Some(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(uid: u32, calls: usize) -> Input {
        let sender = Sender {
            uid,
            ..Sender::default()
        };
        let calls = vec![LlmCall::default(); calls];
        Input::Calls { sender, calls }
    }

    fn taken(lanes: &Lanes) -> Option<(u32, usize)> {
        match lanes.next()? {
            Input::Calls { sender, calls } => Some((sender.uid, calls.len())),
            Input::Gone { uid, .. } => Some((uid, 0)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn others_wait_for_one_piece_and_a_full_lane_is_full_for_its_user_only() {
        let lanes = Lanes::default();
        assert!(lanes.put(report(1, 1_000)));
        while lanes.put(report(1, 1_000)) {}
        assert!(lanes.put(report(2, 1)), "another user has room");
        let agent_pid = 7;
        assert!(
            lanes.put(Input::Gone { uid: 1, agent_pid }),
            "traffic has its own lane"
        );
        let first: Vec<_> = (0..4).filter_map(|_| taken(&lanes)).collect();
        assert_eq!(first, [(1, PIECE), (2, 1), (1, 0), (1, PIECE)]);
        lanes.close();
        while lanes.next().is_some() {}
        let inner = lanes.lock();
        assert_eq!((inner.reports, inner.traffic, inner.lanes.len()), (0, 0, 0));
    }

    #[test]
    fn a_report_comes_out_whole_and_in_order() {
        let lanes = Lanes::default();
        let sender = Sender::default();
        let calls: Vec<LlmCall> = (0..100)
            .map(|at| LlmCall {
                at,
                ..LlmCall::default()
            })
            .collect();
        assert!(lanes.put(Input::Calls { sender, calls }));
        lanes.close();
        let mut ats = Vec::new();
        while let Some(Input::Calls { calls, .. }) = lanes.next() {
            ats.extend(calls.iter().map(|call| call.at));
        }
        assert_eq!(ats, (0..100).collect::<Vec<_>>());
    }
}
