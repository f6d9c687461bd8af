//! Tasks: calls that were answered by a handle and whose result comes later.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::Direction;
use crate::event::Asked;

/// Task ids longer than this are not tracked.
const MAX_TASK_ID: usize = 1024;

/// Tasks that wait for their result, with the request that began them.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    calls: HashMap<(Direction, Arc<str>), Asked>,
    order: VecDeque<(Direction, Arc<str>)>,
}

impl Tasks {
    /// Remembers which request began a task; keeps at most `cap`.
    pub(super) fn begin(&mut self, id: &str, call: Asked, cap: usize) {
        if id.len() > MAX_TASK_ID {
            return;
        }
        let key = (call.direction, Arc::from(id));
        if self.calls.insert(key.clone(), call).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > cap.max(1) {
            if let Some(oldest) = self.order.pop_front() {
                self.calls.remove(&oldest);
            }
        }
    }

    /// The request that began a task. It stays known: a result may be fetched twice.
    pub(super) fn call(&self, direction: Direction, id: &str) -> Option<&Asked> {
        self.calls.get(&(direction, Arc::from(id)))
    }
}
