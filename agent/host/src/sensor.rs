//! The running sensor.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::control::{Inner, SensorControl};
use crate::loader;
use crate::losses::UserLosses;
use crate::options::{SensorError, SensorOptions};
use crate::order::Order;
use crate::priority;
use crate::queue::{self, SensorEvents};
use crate::ring::{Reader, SkippedRuns, Told};
use crate::selftest;
use crate::sweep::Sweeper;

/// The running sensor. Dropping it stops the reader and unloads every program.
#[derive(Debug)]
pub struct Sensor {
    control: SensorControl,
    stop: Arc<AtomicBool>,
    /// The reader, then the sweeper, which ends when the reader has.
    threads: Vec<JoinHandle<()>>,
}

impl Sensor {
    /// Loads the kernel side, proves every probe by provoking one event each, and begins to deliver.
    ///
    /// From the return on, every exec of the host and everything about marked processes is in the events. Takes
    /// about half a second; blocking.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "options are used up: nothing is to be changed after the start"
    )]
    pub fn start(options: SensorOptions) -> Result<(Self, SensorEvents), SensorError> {
        let loaded = loader::load(&options)?;
        let marks = Arc::new(loaded.marks);
        let counters = Arc::new(loaded.counters);
        let user_losses = Arc::new(UserLosses::default());
        let (sender, events, queue_used) = queue::channel(options.queue_bytes, Arc::clone(&user_losses));
        let wake = eventfd()?;
        let reader_wake = wake.try_clone().map_err(|source| SensorError::Io {
            what: "cannot duplicate a descriptor",
            source,
        })?;
        let payload_on = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        let control = SensorControl(Arc::new(Inner {
            programs: loaded.programs,
            marks: Arc::clone(&marks),
            streams: Arc::clone(&loaded.streams),
            counters: Arc::clone(&counters),
            force: Mutex::new(loaded.force),
            holds: Arc::new(loaded.holds),
            heartbeat: Arc::new(loaded.heartbeat),
            user_losses: Arc::clone(&user_losses),
            queue_used,
            queue_bound: options.queue_bytes,
            payload_on: Arc::clone(&payload_on),
            wake,
            proved: AtomicBool::new(false),
            provoked: AtomicU64::new(0),
        }));
        let (hints, hints_receiver) = std::sync::mpsc::channel();
        let sweeper = Sweeper {
            hints: hints_receiver,
            streams: Arc::clone(&loaded.streams),
            marks,
        };
        let mut reader = Reader {
            ring: loaded.ring,
            sender,
            streams: loaded.streams,
            counters,
            losses: user_losses,
            wake: reader_wake,
            stop: Arc::clone(&stop),
            payload_on,
            told: Told::default(),
            hints,
            order: Order::default(),
            kernel_log: loaded.kernel_log,
            skipped: SkippedRuns::new(control.clone()),
        };
        selftest::prove(&control, &mut reader)?;
        control.0.proved.store(true, Ordering::Release);
        let reader = thread("kams-sensor", move || {
            if let Err(error) = priority::first_in_line() {
                tracing::warn!(%error, "the ring's reader has no real-time priority: it may fill on a busy host");
            }
            reader.run();
        })?;
        let sweeper = thread("kams-sweep", move || sweeper.run())?;
        Ok((
            Self {
                control,
                stop,
                threads: vec![reader, sweeper],
            },
            events,
        ))
    }

    /// A handle to change what is watched.
    pub fn control(&self) -> SensorControl {
        self.control.clone()
    }

    /// Stops: detaches and unloads every program and ends the reader. Handles that remain can no longer watch.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Sensor {
    fn drop(&mut self) {
        self.control.0.programs.unload();
        self.stop.store(true, Ordering::Release);
        self.control.wake();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to tell than its panic message.
            let _panicked = thread.join();
        }
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, SensorError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|source| SensorError::Io {
            what: "cannot start a thread",
            source,
        })
}

fn eventfd() -> Result<OwnedFd, SensorError> {
    // SAFETY: no memory is passed; a non-negative result is a new descriptor that nobody else owns.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(SensorError::Io {
            what: "cannot create an event descriptor",
            source: std::io::Error::last_os_error(),
        });
    }
    // SAFETY: `fd` was just created and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
