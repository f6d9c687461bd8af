//! From options to loaded maps and programs.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::{Ebpf, EbpfLoader};
use kams_sensor_abi::function::{ITERATORS_SYMBOL, Iterators, SLOTS};
use kams_sensor_abi::offsets::OFFSETS_SYMBOL;
use kams_sensor_abi::stream::{StreamKey, StreamValue};

use crate::btf::{self, Btf};
use crate::heartbeat::Heartbeat;
use crate::hold::{self, HoldTable};
use crate::iterators;
use crate::marks::{self, MarkTable};
use crate::offsets;
use crate::options::{Backend, RING_MAX, RING_MIN, SensorError, SensorOptions};
use crate::placeholder;
use crate::programs::{Programs, Terms};
use crate::streams::StreamTable;

/// The kernel object that `cargo xtask ebpf` built; its manifest lies beside it.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../sensor-ebpf/kams-sensor.bpf.o");

/// The embedded kernel object.
pub(crate) fn embedded_object() -> &'static [u8] {
    OBJECT
}

/// What loading yields.
pub(crate) struct Loaded {
    pub(crate) programs: Programs,
    pub(crate) ring: RingBuf<MapData>,
    pub(crate) marks: MarkTable,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) counters: PerCpuArray<MapData, u64>,
    pub(crate) force: Array<MapData, u64>,
    pub(crate) holds: HoldTable,
    pub(crate) heartbeat: Heartbeat,
    /// Passes messages of a development build (`cargo xtask ebpf --log`) to the `log` facade.
    pub(crate) kernel_log: Option<KernelLog>,
}

/// Passes on what is there.
pub(crate) type KernelLog = Box<dyn FnMut() + Send>;

/// Bits of `CapEff` in `/proc/self/status`.
const CAPABILITIES: [(u32, &str); 4] = [
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
];

/// Names of capabilities that are missing to run the sensor.
pub(crate) fn missing_capabilities() -> Vec<&'static str> {
    let effective = std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0);
    CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective >> bit & 1 == 0)
        .map(|&(_, name)| name)
        .collect()
}

/// Loads everything; nothing is attached to `sys_exit` yet.
pub(crate) fn load(options: &SensorOptions) -> Result<Loaded, SensorError> {
    let size_is_valid = options.ring_bytes.is_power_of_two();
    if !size_is_valid || !(RING_MIN..=RING_MAX).contains(&options.ring_bytes) {
        return Err(SensorError::RingSize {
            bytes: options.ring_bytes,
        });
    }
    let missing = missing_capabilities();
    if !missing.is_empty() {
        return Err(SensorError::NotPermitted {
            missing: missing.join(", "),
        });
    }
    let mut object = match &options.object {
        None => OBJECT.to_vec(),
        Some(path) => std::fs::read(path).map_err(|source| SensorError::Object {
            path: path.clone(),
            source,
        })?,
    };
    let types = kernel_btf()?;
    let offsets = offsets::resolve(&types)?;
    let iterators = iterators::resolve(&types);
    raise_memlock();
    let marks_map = marks::create()?;
    placeholder::fill(&mut object, &types, options.force_bounded);
    placeholder::place_marks(&mut object, marks_map.as_raw_fd().cast_unsigned());
    let slots = if options.backend == Backend::Auto {
        SLOTS
    } else {
        1
    };
    let mut ebpf = EbpfLoader::new()
        .override_global(OFFSETS_SYMBOL, &offsets, true)
        .override_global(
            ITERATORS_SYMBOL,
            iterators.as_ref().unwrap_or(&Iterators::UNRESOLVED),
            true,
        )
        .map_max_entries("EVENTS", options.ring_bytes)
        .map_max_entries("STREAMS", options.max_streams.max(2))
        .map_max_entries("CARRY", slots)
        .load(&object)
        .map_err(|error| SensorError::Refused {
            what: "the kernel object".into(),
            detail: with_causes(&error),
            remedy: "run `kams doctor`; if it names nothing, please report the kernel's version",
        })?;
    let ring = RingBuf::try_from(take(&mut ebpf, "EVENTS")?).map_err(|error| map_error("EVENTS", &error))?;
    let marks = MarkTable::map(marks_map.as_fd())?;
    let streams: HashMap<MapData, StreamKey, StreamValue> = take(&mut ebpf, "STREAMS")?
        .try_into()
        .map_err(|error| map_error("STREAMS", &error))?;
    let force = take(&mut ebpf, "FORCE")?
        .try_into()
        .map_err(|error| map_error("FORCE", &error))?;
    let holds_map = take(&mut ebpf, "HOLDS")?;
    let heartbeat_map = take(&mut ebpf, "HEARTBEAT")?;
    if let Some(folder) = &options.pin {
        hold::pin(folder, &holds_map, &heartbeat_map)?;
    }
    let heartbeat = Heartbeat::map(&heartbeat_map)?;
    let holds = HoldTable::new(holds_map)?;
    let counters = take(&mut ebpf, "LOSSES")?
        .try_into()
        .map_err(|error| map_error("LOSSES", &error))?;
    // Only development builds have the map; its reader must exist before the programs are loaded.
    let kernel_log = aya_log::EbpfLogger::init(&mut ebpf).ok().map(|mut logger| {
        let flush: KernelLog = Box::new(move || logger.flush());
        flush
    });
    let duties = take(&mut ebpf, "DUTIES")?
        .try_into()
        .map_err(|error| map_error("DUTIES", &error))?;
    let terms = Terms {
        types: &types,
        iterators: iterators.map(|_resolved| ()),
        as_old_kernel: options.force_bounded,
        backend: options.backend,
    };
    let programs = Programs::load(ebpf, duties, marks_map, &terms)?;
    Ok(Loaded {
        programs,
        ring,
        marks,
        streams: Arc::new(StreamTable::new(streams, options.max_streams.max(2))),
        counters,
        force,
        holds,
        heartbeat,
        kernel_log,
    })
}

pub(crate) fn kernel_btf() -> Result<Btf, SensorError> {
    match Btf::of_running_kernel() {
        Ok(parsed) => Ok(parsed?),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(SensorError::NoBtf {
            path: btf::VMLINUX.into(),
        }),
        Err(source) => Err(SensorError::Io {
            what: "cannot read the kernel's type information",
            source,
        }),
    }
}

/// Locked-memory accounting of BPF maps ended with kernel 5.11; before, the default limit of 64 KiB is too small.
/// Where raising is not permitted the limit may still be enough, and if not, loading says so.
pub(crate) fn raise_memlock() {
    let limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid rlimit that the call only reads.
    let _best_effort = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
}

pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn map_error(name: &str, error: &dyn std::error::Error) -> SensorError {
    SensorError::Refused {
        what: format!("map {name}"),
        detail: with_causes(error),
        remedy: "rebuild the object with `cargo xtask ebpf`",
    }
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<aya::maps::Map, SensorError> {
    ebpf.take_map(name).ok_or_else(|| SensorError::Refused {
        what: format!("map {name}"),
        detail: "the kernel object does not hold it".into(),
        remedy: "rebuild the object with `cargo xtask ebpf`",
    })
}
