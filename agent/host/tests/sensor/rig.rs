//! A started sensor, streams whose agent's end the test holds, and what arrives on them.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kams_host::{
    Chunk, ForcedStage, LossReason, Marks, Op, Sensor, SensorControl, SensorEvent, SensorEvents,
    SensorOptions, StreamId, StreamKey, Watch,
};

/// No event takes longer, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One test at a time: they share a process, and its mark byte stands for all of them.
static ONE: Mutex<()> = Mutex::new(());
/// A sensor with default options, which a test left as it found it. Starting one takes seconds on an emulated machine.
static SPARE: Mutex<Option<(Sensor, SensorEvents)>> = Mutex::new(None);

/// Whether the tests can run here; a skipped test is a failure where the environment says so.
pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return true;
    }
    let required = ["CI", "KAMS_REQUIRE_ROOT"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    assert!(
        !required,
        "this test needs root, and CI or KAMS_REQUIRE_ROOT forbids skipping it"
    );
    println!("skipped: needs root");
    false
}

pub(crate) struct Rig {
    pub(crate) control: SensorControl,
    /// Always there but in `drop` and `into_parts`.
    parts: Option<(Sensor, SensorEvents)>,
    /// Goes to the next test that wants the defaults.
    lend: bool,
    /// Losses at the start of the test.
    before: HashMap<LossReason, u64>,
    _one: MutexGuard<'static, ()>,
}

/// A stream of which the test, as the agent, holds `agent`.
pub(crate) struct Stream {
    pub(crate) agent: File,
    pub(crate) far: File,
    pub(crate) key: StreamKey,
    pub(crate) id: StreamId,
}

/// What arrived on one stream.
#[derive(Default, Debug)]
pub(crate) struct Arrived {
    pub(crate) data: Vec<u8>,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) lost: u64,
    pub(crate) reasons: Vec<LossReason>,
}

impl Rig {
    /// A sensor with this process as an endpoint and the payload probe attached; `None` when not root.
    pub(crate) fn start(options: SensorOptions) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        drop(spare().take());
        Some(Self::with(
            Sensor::start(options).expect("the sensor starts"),
            false,
            one,
        ))
    }

    /// The same with default options; the sensor may have served an earlier test.
    pub(crate) fn with_defaults() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = spare()
            .take()
            .unwrap_or_else(|| Sensor::start(SensorOptions::default()).expect("the sensor starts"));
        Some(Self::with(parts, true, one))
    }

    fn with(parts: (Sensor, SensorEvents), lend: bool, one: MutexGuard<'static, ()>) -> Self {
        let control = parts.0.control();
        control
            .mark(std::process::id(), None, Marks::TREE.with(Marks::ENDPOINT))
            .expect("own process");
        control.attach_payload().expect("attach");
        let before = control.losses().into_iter();
        Self {
            before: before.map(|loss| (loss.reason, loss.count)).collect(),
            control,
            parts: Some(parts),
            lend,
            _one: one,
        }
    }

    /// The sensor itself; the test does with it what it wants.
    pub(crate) fn into_parts(mut self) -> (Sensor, SensorEvents) {
        self.parts.take().expect("taken only here and in drop")
    }

    /// The next event, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<SensorEvent> {
        self.parts.as_mut().expect("taken only in drop").1.try_recv()
    }

    /// A pipe whose end for `op` is the agent's.
    pub(crate) fn pipe(&self, op: Op) -> Stream {
        let (reader, writer) = std::io::pipe().expect("pipe");
        let (reader, writer) = (
            File::from(OwnedFd::from(reader)),
            File::from(OwnedFd::from(writer)),
        );
        match op {
            Op::Read => self.watch(reader, writer, op),
            Op::Write => self.watch(writer, reader, op),
        }
    }

    /// A socket pair of which one socket is the agent's.
    pub(crate) fn socketpair(&self, op: Op) -> Stream {
        let (agent, far) = std::os::unix::net::UnixStream::pair().expect("socketpair");
        self.watch(
            File::from(OwnedFd::from(agent)),
            File::from(OwnedFd::from(far)),
            op,
        )
    }

    fn watch(&self, agent: File, far: File, op: Op) -> Stream {
        let own = std::process::id();
        let fd = u32::try_from(agent.as_raw_fd()).expect("descriptor");
        let descriptors = self.control.adopt().expect("descriptors");
        let open = descriptors
            .of(own)
            .iter()
            .find(|open| open.fd == fd)
            .expect("own descriptor");
        let key = StreamKey {
            object: open.shape.object.expect("pipe or socket"),
            op,
        };
        let watch = Watch {
            key,
            ino: open.shape.ino,
            server: own,
            agent: own,
        };
        let id = self.control.watch(&watch).expect("watched");
        Stream { agent, far, key, id }
    }

    /// The next event; fails after [`PATIENCE`].
    pub(crate) fn next(&mut self) -> SensorEvent {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            assert!(
                Instant::now() < deadline,
                "no event in {PATIENCE:?}; losses: {:?}",
                self.losses()
            );
            std::thread::yield_now();
        }
    }

    /// Waits for an event that `pick` accepts; others are dropped.
    pub(crate) fn wait_for<T>(&mut self, mut pick: impl FnMut(SensorEvent) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = pick(self.next()) {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "the awaited event did not come in {PATIENCE:?}"
            );
        }
    }

    /// Everything on a stream until `total` bytes are accounted for, delivered or told as lost.
    pub(crate) fn arrived(&mut self, key: StreamKey, total: u64) -> Arrived {
        let mut arrived = Arrived::default();
        let deadline = Instant::now() + PATIENCE;
        while arrived.accounted() < total {
            assert!(
                Instant::now() < deadline,
                "{} of {total} bytes came, {} were told as lost; {:?}",
                arrived.data.len(),
                arrived.lost,
                self.losses()
            );
            arrived.take(self.next(), key);
        }
        arrived
    }

    /// Losses of this test that are not zero.
    pub(crate) fn losses(&self) -> Vec<(&'static str, &'static str, u64)> {
        let losses = self.control.losses().into_iter();
        losses
            .map(|loss| {
                (
                    loss.reason,
                    loss.count - self.before.get(&loss.reason).unwrap_or(&0),
                )
            })
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.stage.as_str(), reason.reason, count))
            .collect()
    }

    pub(crate) fn loss(&self, stage: &str, reason: &str) -> u64 {
        let all = self.losses();
        all.iter()
            .find(|loss| loss.0 == stage && loss.1 == reason)
            .map_or(0, |loss| loss.2)
    }
}

fn spare() -> MutexGuard<'static, Option<(Sensor, SensorEvents)>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Rig {
    /// Leaves the sensor as if it had just started, for the next test; one that served a failed test is not lent.
    fn drop(&mut self) {
        let Some((sensor, mut events)) = self.parts.take() else {
            return;
        };
        if !self.lend || std::thread::panicking() {
            return;
        }
        let all = [
            ForcedStage::Ring,
            ForcedStage::Map,
            ForcedStage::Read,
            ForcedStage::Queue,
        ];
        let forced = all
            .into_iter()
            .all(|stage| self.control.force_loss(stage, None).is_ok());
        for stream in self.control.streams() {
            self.control.unwatch(stream.watch.key, None);
        }
        for (pid, marks) in self.control.marked() {
            self.control.unmark(pid, marks);
        }
        // The payload probes stay attached, which harms nobody: attaching takes seconds on an emulated machine.
        if !forced {
            return;
        }
        while events.try_recv().is_some() {}
        *spare() = Some((sensor, events));
    }
}

impl Arrived {
    pub(crate) fn accounted(&self) -> u64 {
        u64::try_from(self.data.len()).expect("fits") + self.lost
    }

    pub(crate) fn take(&mut self, event: SensorEvent, on: StreamKey) {
        match event {
            SensorEvent::Payload(mut chunk) if chunk.key == on => {
                self.data.extend_from_slice(&chunk.data);
                // A copy: what is kept of the queue counts as still in it.
                chunk.data = bytes::Bytes::copy_from_slice(&chunk.data);
                self.chunks.push(chunk);
            }
            SensorEvent::StreamGap {
                key,
                lost_bytes,
                reasons,
                ..
            } if key == on => {
                self.lost += lost_bytes;
                self.reasons.extend(reasons);
            }
            _ => {}
        }
    }

    pub(crate) fn has_reason(&self, stage: &str) -> bool {
        self.reasons.iter().any(|reason| reason.stage.as_str() == stage)
    }

    /// Chunks of each call follow each other without a hole and the last says so.
    pub(crate) fn assert_whole_calls(&self) {
        let mut expected = 0;
        for chunk in &self.chunks {
            assert_eq!(chunk.offset, expected, "chunk in order: {chunk:?}");
            expected += u64::try_from(chunk.data.len()).expect("fits");
            assert_eq!(
                chunk.last,
                expected == chunk.total,
                "last flag of {} of {}",
                expected,
                chunk.total
            );
            if chunk.last {
                expected = 0;
            }
        }
        assert_eq!(expected, 0, "the last call is complete");
    }
}

/// Bytes without a pattern that a misplaced chunk would keep.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Reads everything from a file in the background, until `len` bytes came.
pub(crate) fn drain(mut file: File, len: usize) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; len];
        std::io::Read::read_exact(&mut file, &mut bytes).expect("the far end reads");
        bytes
    })
}

/// Takes ownership of a descriptor that a system call returned.
pub(crate) fn owned(fd: i32) -> File {
    assert!(fd >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `fd` was just returned by the kernel and is owned by nobody else.
    unsafe { File::from_raw_fd(fd) }
}
