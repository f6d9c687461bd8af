//! Settings of the sensor and the errors of its start.

use std::path::PathBuf;

/// Ring buffer size that is enough for most hosts, bytes. A call that moves 16 MiB is told in one go when it ends, by
/// several processors at once: half of this was seen to lose such calls. The kernel maps the ring twice, and all of that
/// counts as file pages of the process.
pub const RING_USUAL: u32 = 64 * 1024 * 1024;
/// Least ring buffer size that is accepted, bytes: room for sixteen full chunks and a burst of exec records.
pub const RING_MIN: u32 = 1024 * 1024;
/// Most ring buffer size that is accepted, bytes.
pub const RING_MAX: u32 = 1024 * 1024 * 1024;
/// Name of the environment variable that replaces the embedded kernel object by a file.
pub const OBJECT_ENV: &str = "KAMS_SENSOR_OBJECT";

/// Name of the environment variable that, set to `system-calls`, keeps the sensor from using programs at functions.
pub const BACKEND_ENV: &str = "KAMS_SENSOR_BACKEND";

/// How payload is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// At the ends of the functions of pipes and AF_UNIX streams where this kernel allows it and each proves to work;
    /// for the rest at the exit of system calls.
    #[default]
    Auto,
    /// At the exit of system calls only (tests).
    SystemCalls,
}

impl Backend {
    fn of_environment() -> Self {
        match std::env::var(BACKEND_ENV).as_deref() {
            Ok("system-calls") => Self::SystemCalls,
            _ => Self::Auto,
        }
    }
}

/// Settings of the sensor.
#[derive(Clone, Debug)]
pub struct SensorOptions {
    /// Ring buffer size, bytes: a power of two, [`RING_MIN`] to [`RING_MAX`].
    pub ring_bytes: u32,
    /// Bound of the queue towards the engine, bytes of payload and records.
    pub queue_bytes: usize,
    /// Most watched streams (a server has two).
    pub max_streams: u32,
    /// Kernel object to load instead of the embedded one. Defaults to the file named by [`OBJECT_ENV`].
    pub object: Option<PathBuf>,
    /// Folder of a BPF filesystem in which the map of held processes is pinned, so that [`crate::hold::heal`] can let
    /// them go after this process has died. `None`: nothing is pinned.
    pub pin: Option<PathBuf>,
    /// Do without `bpf_loop` and `sched_prepare_exec` even where the kernel has them (tests).
    pub force_bounded: bool,
    /// How payload is read. Defaults to what [`BACKEND_ENV`] says.
    pub backend: Backend,
}

impl Default for SensorOptions {
    fn default() -> Self {
        Self {
            ring_bytes: 64 * 1024 * 1024,
            queue_bytes: 768 * 1024 * 1024,
            max_streams: 16 * 1024,
            object: std::env::var_os(OBJECT_ENV).map(PathBuf::from),
            pin: None,
            force_bounded: false,
            backend: Backend::of_environment(),
        }
    }
}

/// Why the sensor did not start or an operation failed. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SensorError {
    /// Not root, or capabilities are missing.
    #[error(
        "the sensor needs root (or the capabilities {missing}); start it with sudo or as the systemd service"
    )]
    NotPermitted {
        /// Names of the missing capabilities.
        missing: String,
    },
    /// The kernel has no type information.
    #[error(
        "this kernel has no type information at {path}; use a kernel built with CONFIG_DEBUG_INFO_BTF=y \
         (Debian 11 and later, Ubuntu 20.10 and later, RHEL 8.2 and later have it)"
    )]
    NoBtf {
        /// Where it was looked for.
        path: String,
    },
    /// The type information lacks a member that the sensor reads.
    #[error(
        "this kernel's type information has no {structure}.{member}: this kernel is not supported; please report its version"
    )]
    NoMember {
        /// Structure.
        structure: &'static str,
        /// Member path.
        member: &'static str,
    },
    /// The type information could not be read.
    #[error("the kernel's type information is damaged: {0}")]
    Btf(#[from] crate::btf::BtfError),
    /// Running in a pid namespace of its own.
    #[error(
        "the sensor must run in the host's pid namespace (here process {own} is process {host} on the host); run it outside the container or with the host's pid namespace"
    )]
    PidNamespace {
        /// Own process id.
        own: u32,
        /// Process id that the kernel reports.
        host: u32,
    },
    /// Unusable ring size.
    #[error(
        "ring buffer of {bytes} bytes cannot be used: it must be a power of two from {RING_MIN} to {RING_MAX}; the default is {RING_USUAL}"
    )]
    RingSize {
        /// The size asked for.
        bytes: u32,
    },
    /// The object file could not be read.
    #[error("cannot read the kernel object {path}: {source}")]
    Object {
        /// Its path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The kernel refused to load or create something.
    #[error("the kernel refused {what}: {detail}; {remedy}")]
    Refused {
        /// What was refused.
        what: String,
        /// The kernel's answer.
        detail: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A probe is attached but does not report.
    #[error(
        "probe {probe} is attached but reported nothing in {waited_ms} ms when it was provoked; another tracing tool or a kernel fault may be the cause: run `kams doctor`"
    )]
    ProbeSilent {
        /// Name of the probe.
        probe: &'static str,
        /// How long was waited.
        waited_ms: u64,
    },
    /// The provoked event came back wrong: the offsets do not fit this kernel.
    #[error("probe {probe} reports {what}: the offsets do not fit this kernel; please report its version")]
    ProbeWrong {
        /// Name of the probe.
        probe: &'static str,
        /// What was wrong.
        what: String,
    },
    /// The stream table has no room.
    #[error("the stream table is full ({max} entries); raise `sensor.max_streams`")]
    StreamsFull {
        /// Its capacity.
        max: u32,
    },
    /// A process id outside the table of marks.
    #[error("process id {0} is outside the kernel's range")]
    Pid(u32),
    /// An operation of the operating system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Cause.
        source: std::io::Error,
    },
}
