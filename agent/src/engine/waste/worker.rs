//! The thread that owns the desk, and the bounded way to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arc_swap::ArcSwap;
use kams_detect::waste::{Config, MAX_SESSIONS};
use kams_export::metrics::Metrics;
use tokio::sync::mpsc;

use super::Input;
use super::desk::Desk;
use crate::engine::Command;

/// Observations that may wait.
const WAITING: usize = 8_192;
/// Bytes that may wait.
const WAITING_BYTES: usize = 32 << 20;

/// Where observations go. Never waits: what finds no room is dropped and counted.
#[derive(Clone)]
pub struct Handle {
    queue: SyncSender<(usize, Input)>,
    bytes: Arc<AtomicUsize>,
    config: Arc<ArcSwap<Config>>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    /// Hands over; false where there was no room. `source` is a label value of `kams_waste_dropped_total`.
    pub fn put(&self, input: Input, source: &'static str) -> bool {
        if let Input::Knobs(config) = &input {
            self.config.store(Arc::new((**config).clone()));
        }
        let cost = input.cost();
        let waiting = self.bytes.fetch_add(cost, Ordering::AcqRel);
        let sent = if waiting.saturating_add(cost) > WAITING_BYTES {
            Err(())
        } else {
            self.queue.try_send((cost, input)).map_err(|_refused| ())
        };
        if sent.is_err() {
            self.bytes.fetch_sub(cost, Ordering::AcqRel);
            self.metrics.waste_dropped(source);
        }
        sent.is_ok()
    }

    /// The knobs in force: with them calls are measured at the door.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }
}

/// Starts the thread. It ends when nobody can hand over any more, or the engine has ended.
pub fn start(
    config: Config,
    commands: mpsc::Sender<Command>,
    metrics: Arc<Metrics>,
) -> std::io::Result<Handle> {
    let (queue, observations) = sync_channel(WAITING);
    let bytes = Arc::new(AtomicUsize::new(0));
    let handle = Handle {
        queue,
        bytes: Arc::clone(&bytes),
        config: Arc::new(ArcSwap::from_pointee(config.clone())),
        metrics: Arc::clone(&metrics),
    };
    std::thread::Builder::new()
        .name("waste".to_owned())
        .spawn(move || {
            work(&observations, &bytes, Desk::new(config), &commands, &metrics);
        })?;
    Ok(handle)
}

fn work(
    observations: &Receiver<(usize, Input)>,
    bytes: &AtomicUsize,
    mut desk: Desk,
    commands: &mpsc::Sender<Command>,
    metrics: &Metrics,
) {
    while let Ok((cost, input)) = observations.recv() {
        let outputs = desk.take(input);
        bytes.fetch_sub(cost, Ordering::AcqRel);
        metrics.set_map("waste_sessions", desk.sessions(), 2 * MAX_SESSIONS);
        for output in outputs {
            if commands.blocking_send(Command::Waste(output)).is_err() {
                return;
            }
        }
    }
}
