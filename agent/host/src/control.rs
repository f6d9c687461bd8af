//! The handle that changes what is watched while the sensor runs.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aya::maps::{Array, MapData, PerCpuArray};
use kams_sensor_abi::hold::HOLDS_MAX;
use kams_sensor_abi::loss::{FORCE_MAP, FORCE_READ, FORCE_RING, Loss};

use crate::adopt::Descriptors;
use crate::event::{FdShape, Marks, StreamId, StreamKey, far_keys};
use crate::heartbeat::Heartbeat;
use crate::hold::{Hold, HoldTable};
use crate::losses::{ForcedStage, LossCount, PROGRAM_RECURSION, UserLosses, reason_of};
use crate::marks::MarkTable;
use crate::options::SensorError;
use crate::priority::undisturbed;
use crate::procs;
use crate::programs::{LIFECYCLE, PREPARE, PayloadMethod, Programs};
use crate::streams::{StreamTable, Watch, WatchedStream};

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeRole {
    /// Processes that come and go. Always attached.
    Lifecycle,
    /// Watches a new server's streams a little earlier. Kernels before 6.10 do not have its tracepoint, and there
    /// dup2 serves.
    Early,
    /// What passes on watched streams. Attached while there may be something to see.
    Payload,
}

/// State of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeState {
    /// Program name.
    pub name: &'static str,
    /// Where it attaches: a tracepoint or a function of the kernel.
    pub tracepoint: &'static str,
    /// Attached now.
    pub attached: bool,
    /// An event was provoked and came back right at start.
    pub proved: bool,
    /// What it is for.
    pub role: ProbeRole,
}

/// Use of one bounded table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapUse {
    /// Name of the table.
    pub name: &'static str,
    /// Entries (or bytes, for queues) in use.
    pub used: usize,
    /// Capacity in the same unit.
    pub capacity: usize,
}

/// Shared state behind [`SensorControl`].
pub(crate) struct Inner {
    pub(crate) programs: Programs,
    pub(crate) marks: Arc<MarkTable>,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) counters: Arc<PerCpuArray<MapData, u64>>,
    pub(crate) force: Mutex<Array<MapData, u64>>,
    pub(crate) holds: Arc<HoldTable>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) user_losses: Arc<UserLosses>,
    pub(crate) queue_used: Arc<AtomicUsize>,
    pub(crate) queue_bound: usize,
    pub(crate) payload_on: Arc<AtomicBool>,
    pub(crate) wake: OwnedFd,
    pub(crate) proved: AtomicBool,
    /// Losses that the self-test provoked: calls that move bytes past memory.
    pub(crate) provoked: AtomicU64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("programs", &self.programs)
            .finish_non_exhaustive()
    }
}

/// Changes what the sensor watches. Clones share one sensor; every method may be called from any thread.
///
/// No method blocks on the ring or the queue. [`SensorControl::adopt`], [`SensorControl::marked`] and
/// [`SensorControl::streams`] do work in proportion to what exists on the host; the rest is constant.
#[derive(Clone, Debug)]
pub struct SensorControl(pub(crate) Arc<Inner>);

impl SensorControl {
    /// Sets marks of a process; `Ok(false)`, with nothing marked, if it is gone or is another process.
    ///
    /// `start_ns` (of the exec or fork report, or the descriptor list) makes sure that the process id was not
    /// given to another process meanwhile; `None` skips that.
    pub fn mark(&self, pid: u32, start_ns: Option<u64>, marks: Marks) -> Result<bool, SensorError> {
        self.0.marks.set(pid, marks)?;
        // Looked at after the mark is set: had the process ended in between, its exit could not clear it.
        let same = procs::is_alive(pid, start_ns);
        if !same {
            self.0.marks.clear(pid, marks);
        }
        Ok(same)
    }

    /// Clears marks of a process.
    pub fn unmark(&self, pid: u32, marks: Marks) {
        self.0.marks.clear(pid, marks);
    }

    /// Marks of a process.
    pub fn marks(&self, pid: u32) -> Marks {
        self.0.marks.get(pid)
    }

    /// Every marked process.
    pub fn marked(&self) -> Vec<(u32, Marks)> {
        self.0.marks.marked(procs::pid_max())
    }

    /// Begins to watch a stream. Watching the same object for the same server again keeps the old watch.
    ///
    /// A watch ends with [`SensorControl::unwatch`], and by itself when the server's process is gone and no endpoint
    /// has the object open any more. Nothing is captured unless the process that reads or writes is an endpoint
    /// ([`SensorControl::mark`]) and the payload probe is attached.
    pub fn watch(&self, watch: &Watch) -> Result<StreamId, SensorError> {
        let id = self.0.streams.insert(watch)?;
        // Has the server's end reported. A server that is gone already is found by the next full look.
        self.mark(watch.server, None, Marks::SERVER)?;
        Ok(id)
    }

    /// Begins to watch both streams of a server by its descriptors 0, 1, 2 (of an exec report or the descriptor
    /// list); `Ok(None)` when they cannot carry MCP. Returns the watches (to standard input, from standard output).
    pub fn watch_server(
        &self,
        fds: &[FdShape; 3],
        server: u32,
        agent: u32,
    ) -> Result<Option<(StreamId, StreamId)>, SensorError> {
        let Some((input, output)) = far_keys(fds) else {
            return Ok(None);
        };
        let input = self.watch(&Watch {
            key: input,
            ino: fds[0].far_ino(),
            server,
            agent,
        })?;
        let output = self.watch(&Watch {
            key: output,
            ino: fds[1].far_ino(),
            server,
            agent,
        })?;
        Ok(Some((input, output)))
    }

    /// Ends a watch; with `id` only if the key still has that watch. `false` if there was nothing to end.
    pub fn unwatch(&self, key: StreamKey, id: Option<StreamId>) -> bool {
        self.0.streams.remove(key, id)
    }

    /// Ends every watch of a server, by the process that the watches name; returns how many there were. Looks at
    /// the whole table: where the keys are known, [`SensorControl::unwatch`] costs less.
    pub fn unwatch_server(&self, server: u32) -> usize {
        let of_server = self
            .streams()
            .into_iter()
            .filter(|stream| stream.watch.server == server);
        of_server
            .filter(|stream| self.unwatch(stream.watch.key, Some(stream.id)))
            .count()
    }

    /// One watched stream.
    pub fn stream(&self, key: StreamKey) -> Option<WatchedStream> {
        self.0.streams.get(key)
    }

    /// Every watched stream.
    pub fn streams(&self) -> Vec<WatchedStream> {
        self.0.streams.all()
    }

    /// Attaches the payload probe (about 0.3 ms); does nothing if it is attached.
    ///
    /// While it is attached every system call of the host takes the slow path (about 0.1 us each).
    pub fn attach_payload(&self) -> Result<(), SensorError> {
        if self.0.programs.attach_payload()? {
            self.0.payload_on.store(true, Ordering::Release);
            self.wake();
        }
        Ok(())
    }

    /// Detaches the payload probe; does nothing if it is not attached.
    pub fn detach_payload(&self) -> Result<(), SensorError> {
        if self.0.programs.detach_payload()? {
            self.0.payload_on.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Whether the payload probe is attached.
    pub fn payload_attached(&self) -> bool {
        self.0.programs.payload_attached()
    }

    /// Losses by stage and reason, zero rows included. Exported as `kams_sensor_lost_total{stage,reason}`.
    pub fn losses(&self) -> Vec<LossCount> {
        let kernel = Loss::ALL.iter().map(|&loss| {
            let values = undisturbed(|| self.0.counters.get(&(loss as u32), 0));
            let counted = values.map_or(0, |cpus| cpus.iter().sum());
            let provoked = if loss == Loss::UnsupportedSplice {
                self.0.provoked.load(Ordering::Relaxed)
            } else {
                0
            };
            LossCount {
                reason: reason_of(loss),
                count: u64::saturating_sub(counted, provoked),
            }
        });
        let recursion = LossCount {
            reason: PROGRAM_RECURSION,
            count: self.0.programs.recursion_misses(),
        };
        kernel
            .chain([recursion])
            .chain(self.0.user_losses.rows())
            .collect()
    }

    /// Use of the bounded tables.
    pub fn maps(&self) -> Vec<MapUse> {
        vec![
            MapUse {
                name: "streams",
                used: self.0.streams.len(),
                capacity: usize::try_from(self.0.streams.capacity()).unwrap_or(usize::MAX),
            },
            MapUse {
                name: "queue_bytes",
                used: self.0.queue_used.load(Ordering::Relaxed),
                capacity: self.0.queue_bound,
            },
            MapUse {
                name: "holds",
                used: self.held().len(),
                capacity: usize::try_from(HOLDS_MAX).unwrap_or(usize::MAX),
            },
        ]
    }

    /// Makes every n-th operation of a stage fail; `None` ends it. For tests: a forced loss must show on the
    /// stream, not only in a counter.
    pub fn force_loss(&self, stage: ForcedStage, every: Option<u32>) -> Result<(), SensorError> {
        let every = u64::from(every.unwrap_or(0));
        let index = match stage {
            ForcedStage::Ring => FORCE_RING,
            ForcedStage::Map => FORCE_MAP,
            ForcedStage::Read => FORCE_READ,
            ForcedStage::Queue => {
                self.0.user_losses.force_queue.store(every, Ordering::Relaxed);
                return Ok(());
            }
        };
        let mut force = self.0.force.lock().unwrap_or_else(PoisonError::into_inner);
        force.set(index, every, 0).map_err(|error| SensorError::Refused {
            what: "to set the forced loss".into(),
            detail: error.to_string(),
            remedy: "run `kams doctor`",
        })
    }

    /// State of every probe.
    pub fn probes(&self) -> Vec<ProbeState> {
        let proved = self.0.proved.load(Ordering::Acquire);
        let lifecycle = LIFECYCLE.iter().map(|&(name, tracepoint)| ProbeState {
            name,
            tracepoint,
            attached: true,
            proved,
            role: ProbeRole::Lifecycle,
        });
        let payload = self.0.programs.payload_states(proved);
        let prepare = ProbeState {
            name: PREPARE.0,
            tracepoint: PREPARE.1,
            attached: self.0.programs.has_prepare(),
            proved: proved && self.0.programs.has_prepare(),
            role: ProbeRole::Early,
        };
        lifecycle.chain([prepare]).chain(payload).collect()
    }

    /// What every running process has open (descriptors 0 to 2, and every pipe and AF_UNIX socket), for servers
    /// that run already and for who holds the far end of what. Walks every descriptor of the host.
    pub fn adopt(&self) -> Result<Descriptors, SensorError> {
        Ok(Descriptors::from_records(&self.0.programs.iterate_descriptors()?))
    }

    /// How payload is read, and why so.
    pub fn payload_method(&self) -> PayloadMethod {
        self.0.programs.payload_method()
    }

    /// Why single calls are carried up to about 16 MiB only, if they are: the kernel's refusal of `bpf_loop`.
    pub fn loop_refused(&self) -> Option<String> {
        self.0.programs.loop_refused()
    }

    /// Why [`SensorControl::adopt`] cannot work here, if it cannot.
    pub fn adopt_refused(&self) -> Option<&str> {
        self.0.programs.iterator_refused()
    }

    /// Processes that are held at their exec now.
    pub fn held(&self) -> Vec<Hold> {
        self.0.holds.all()
    }

    /// Makes the reader look at its conditions.
    pub(crate) fn wake(&self) {
        let one = 1u64;
        // SAFETY: writes eight bytes from a local to our own eventfd. A full counter (EAGAIN) means it is awake.
        let _written = unsafe { libc::write(self.0.wake.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}
