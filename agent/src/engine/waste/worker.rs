//! The thread that owns the desk, and the bounded way to it.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use kams_detect::waste::{Config, MAX_SESSIONS};
use kams_export::metrics::Metrics;
use tokio::sync::mpsc;

use super::Input;
use super::allowance::Allowances;
use super::desk::Desk;
use super::lanes::Lanes;
use crate::engine::Command;

/// Where observations go. Never waits: what finds no room is dropped and counted.
#[derive(Clone)]
pub struct Handle {
    open: Arc<Open>,
    config: Arc<ArcSwap<Config>>,
    metrics: Arc<Metrics>,
}

/// Closes the lanes when the last handle is gone.
struct Open(Arc<Lanes>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
    }
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
        let admitted = self.open.0.put(input);
        if !admitted {
            self.metrics.waste_dropped(source);
        }
        admitted
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
    let lanes = Arc::new(Lanes::default());
    let handle = Handle {
        open: Arc::new(Open(Arc::clone(&lanes))),
        config: Arc::new(ArcSwap::from_pointee(config.clone())),
        metrics: Arc::clone(&metrics),
    };
    std::thread::Builder::new()
        .name("waste".to_owned())
        .spawn(move || work(&lanes, Desk::new(config), &commands, &metrics))?;
    Ok(handle)
}

fn work(lanes: &Lanes, mut desk: Desk, commands: &mpsc::Sender<Command>, metrics: &Metrics) {
    let mut allowances = Allowances::default();
    while let Some(input) = lanes.next() {
        let reporter = match &input {
            Input::Calls { sender, .. } => Some(sender.uid),
            _ => None,
        };
        let outputs = desk.take(input);
        metrics.set_map("waste_sessions", desk.sessions(), 2 * MAX_SESSIONS);
        for output in outputs {
            if reporter.is_some_and(|uid| !allowances.admits(uid, &output, Instant::now())) {
                metrics.waste_dropped("findings");
            } else if commands.blocking_send(Command::Waste(output)).is_err() {
                return;
            }
        }
    }
}
