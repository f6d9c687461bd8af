//! The kernel programs: loading, attaching, detaching, and what the kernel counts about them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::Ebpf;
use aya::programs::raw_trace_point::RawTracePointLinkId;
use aya::programs::{Iter, ProgramError, RawTracePoint};

use crate::options::SensorError;

/// The lifecycle programs: name in the object, tracepoint.
pub(crate) const LIFECYCLE: [(&str, &str); 3] = [
    ("process_exec", "sched_process_exec"),
    ("process_fork", "sched_process_fork"),
    ("process_exit", "sched_process_exit"),
];
/// Watches the streams of a new server before its exec closes anything (kernel 6.10 and later).
pub(crate) const PREPARE: (&str, &str) = ("prepare_exec", "sched_prepare_exec");
/// Payload program that uses `bpf_loop` (kernel 5.17 and later).
pub(crate) const PAYLOAD_LOOP: &str = "payload_loop";
/// Payload program with bounded loops only.
pub(crate) const PAYLOAD_BOUNDED: &str = "payload_bounded";
/// Tracepoint of the payload programs.
pub(crate) const PAYLOAD_TRACEPOINT: &str = "sys_exit";
/// Iterator over the descriptors of every process.
pub(crate) const DESCRIPTORS: &str = "descriptors";

const REMEDY_VERIFIER: &str =
    "this kernel is not supported by this build; please report its version with the output of `kams doctor`";
const REMEDY_ATTACH: &str = "check that the kernel has CONFIG_BPF_EVENTS and CONFIG_TRACEPOINTS";

struct Loaded {
    ebpf: Ebpf,
    payload_link: Option<RawTracePointLinkId>,
    /// Programs whose skipped runs count as loss.
    watched: Vec<&'static str>,
}

/// Every loaded program.
pub(crate) struct Programs {
    loaded: Mutex<Loaded>,
    payload: &'static str,
    prepare: bool,
    without_loop: Option<String>,
    iterator: Option<String>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs")
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

fn refused(what: &str, error: &ProgramError, remedy: &'static str) -> SensorError {
    let detail = match error {
        // The verifier's log can be megabytes; its end says what was wrong.
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            let tail: Vec<&str> = log.lines().rev().take(12).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            format!("{io_error}; the verifier says: {}", tail.join(" | "))
        }
        other => format!(
            "{other}: {:?}",
            std::error::Error::source(other).map(ToString::to_string)
        ),
    };
    SensorError::Refused {
        what: what.to_owned(),
        detail,
        remedy,
    }
}

fn raw_tracepoint<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut RawTracePoint, SensorError> {
    let missing = || SensorError::Refused {
        what: format!("program {name}"),
        detail: "the kernel object does not hold it".into(),
        remedy: "rebuild the object with `cargo xtask ebpf`",
    };
    let program = ebpf.program_mut(name).ok_or_else(missing)?;
    program.try_into().map_err(|_wrong_type: ProgramError| missing())
}

fn load_raw_tracepoint(ebpf: &mut Ebpf, name: &str) -> Result<(), SensorError> {
    let what = format!("program {name}");
    raw_tracepoint(ebpf, name)?
        .load()
        .map_err(|error| refused(&what, &error, REMEDY_VERIFIER))
}

impl Programs {
    /// Loads every program and attaches the lifecycle ones.
    pub(crate) fn load(mut ebpf: Ebpf, as_old_kernel: bool) -> Result<Self, SensorError> {
        let mut watched = Vec::with_capacity(4);
        for (name, tracepoint) in LIFECYCLE {
            load_raw_tracepoint(&mut ebpf, name)?;
            raw_tracepoint(&mut ebpf, name)?
                .attach(tracepoint)
                .map_err(|error| {
                    refused(
                        &format!("to attach {name} to {tracepoint}"),
                        &error,
                        REMEDY_ATTACH,
                    )
                })?;
            watched.push(name);
        }
        // Optional: without it the payload program watches at dup2.
        let (name, tracepoint) = PREPARE;
        load_raw_tracepoint(&mut ebpf, name)?;
        let prepare = !as_old_kernel && raw_tracepoint(&mut ebpf, name)?.attach(tracepoint).is_ok();
        if prepare {
            watched.push(name);
        }
        let with_loop = if as_old_kernel {
            Err("not tried".to_owned())
        } else {
            load_raw_tracepoint(&mut ebpf, PAYLOAD_LOOP).map_err(|error| error.to_string())
        };
        let payload = match &with_loop {
            Ok(()) => PAYLOAD_LOOP,
            Err(_) => {
                load_raw_tracepoint(&mut ebpf, PAYLOAD_BOUNDED)?;
                PAYLOAD_BOUNDED
            }
        };
        watched.push(payload);
        let iterator = load_iterator(&mut ebpf).err();
        Ok(Self {
            loaded: Mutex::new(Loaded {
                ebpf,
                payload_link: None,
                watched,
            }),
            payload,
            prepare,
            without_loop: with_loop.err(),
            iterator,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        // A panic while holding it leaves at worst a link attached; going on is right.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which payload program is used.
    pub(crate) const fn payload_program(&self) -> &'static str {
        self.payload
    }

    /// Whether [`PREPARE`] is attached.
    pub(crate) const fn has_prepare(&self) -> bool {
        self.prepare
    }

    /// Why the program with `bpf_loop` is not used, if it is not.
    pub(crate) fn loop_refused(&self) -> Option<&str> {
        self.without_loop.as_deref()
    }

    /// Why the descriptor iterator is not available, if it is not.
    pub(crate) fn iterator_refused(&self) -> Option<&str> {
        self.iterator.as_deref()
    }

    /// Attaches the payload program; `false` if it was attached already.
    pub(crate) fn attach_payload(&self) -> Result<bool, SensorError> {
        let mut loaded = self.lock();
        if loaded.payload_link.is_some() {
            return Ok(false);
        }
        let link = raw_tracepoint(&mut loaded.ebpf, self.payload)?
            .attach(PAYLOAD_TRACEPOINT)
            .map_err(|error| refused("to attach the payload program to sys_exit", &error, REMEDY_ATTACH))?;
        loaded.payload_link = Some(link);
        Ok(true)
    }

    /// Detaches the payload program; `false` if it was not attached.
    pub(crate) fn detach_payload(&self) -> Result<bool, SensorError> {
        let mut loaded = self.lock();
        let Some(link) = loaded.payload_link.take() else {
            return Ok(false);
        };
        raw_tracepoint(&mut loaded.ebpf, self.payload)?
            .detach(link)
            .map_err(|error| refused("to detach the payload program", &error, REMEDY_ATTACH))?;
        Ok(true)
    }

    pub(crate) fn payload_attached(&self) -> bool {
        self.lock().payload_link.is_some()
    }

    /// Detaches and unloads every program.
    pub(crate) fn unload(&self) {
        let mut loaded = self.lock();
        loaded.payload_link = None;
        let names: Vec<&str> = LIFECYCLE
            .iter()
            .map(|&(name, _)| name)
            .chain([self.payload])
            .collect();
        for name in names {
            if let Ok(program) = raw_tracepoint(&mut loaded.ebpf, name) {
                // Unloading a second time answers with an error; there is nothing to do then.
                let _unloaded_before = program.unload();
            }
        }
    }

    /// Runs the kernel skipped because the program was already running on that CPU.
    pub(crate) fn recursion_misses(&self) -> u64 {
        let loaded = self.lock();
        loaded
            .watched
            .iter()
            .filter_map(|name| {
                let program: &RawTracePoint = loaded.ebpf.program(name)?.try_into().ok()?;
                program.fd().ok().map(|fd| recursion_misses(fd.as_fd()))
            })
            .sum()
    }

    /// One pass of the descriptor iterator, raw.
    pub(crate) fn iterate_descriptors(&self) -> Result<Vec<u8>, SensorError> {
        use std::io::Read;
        let mut loaded = self.lock();
        let program = loaded.ebpf.program_mut(DESCRIPTORS);
        let missing = SensorError::Refused {
            what: "the descriptor iterator".into(),
            detail: self.iterator.clone().unwrap_or_else(|| "not loaded".into()),
            remedy: "servers that already run are found only when they start again",
        };
        let Some(Ok(iterator)) = program.map(<&mut Iter>::try_from) else {
            return Err(missing);
        };
        if self.iterator.is_some() {
            return Err(missing);
        }
        let attach =
            |error: &ProgramError| refused("to attach the descriptor iterator", error, REMEDY_ATTACH);
        let id = iterator.attach().map_err(|error| attach(&error))?;
        let link = iterator.take_link(id).map_err(|error| attach(&error))?;
        drop(loaded);
        let mut file = link.into_file().map_err(|error| SensorError::Refused {
            what: "to run the descriptor iterator".into(),
            detail: error.to_string(),
            remedy: REMEDY_ATTACH,
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|source| SensorError::Io {
            what: "cannot read the descriptor iterator",
            source,
        })?;
        Ok(bytes)
    }
}

fn load_iterator(ebpf: &mut Ebpf) -> Result<(), String> {
    let btf = aya::Btf::from_sys_fs().map_err(|error| error.to_string())?;
    let program = ebpf
        .program_mut(DESCRIPTORS)
        .ok_or("the kernel object does not hold it")?;
    let iterator: &mut Iter = program
        .try_into()
        .map_err(|error: ProgramError| error.to_string())?;
    iterator
        .load("task_file", &btf)
        .map_err(|error| refused("program descriptors", &error, REMEDY_VERIFIER).to_string())
}

/// `bpf_prog_info.recursion_misses` (kernel 5.12 and later; 0 before).
fn recursion_misses(program: BorrowedFd<'_>) -> u64 {
    const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
    /// Position of `recursion_misses` in the kernel's `struct bpf_prog_info`, a stable interface.
    const RECURSION_MISSES_AT: usize = 208;
    const INFO_LEN: usize = 232;

    #[repr(C)]
    struct InfoByFd {
        fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut info = [0u64; INFO_LEN / 8];
    let Ok(fd) = u32::try_from(program.as_raw_fd()) else {
        return 0;
    };
    let Ok(info_len) = u32::try_from(INFO_LEN) else {
        return 0;
    };
    let mut attr = InfoByFd {
        fd,
        info_len,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: BPF_OBJ_GET_INFO_BY_FD reads `attr` (its size is given) and writes at most `info_len` bytes to
    // `info`, which is that long and zeroed, as the call demands.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_OBJ_GET_INFO_BY_FD,
            &raw mut attr,
            size_of::<InfoByFd>(),
        )
    };
    if result == 0 {
        info[RECURSION_MISSES_AT / 8]
    } else {
        0
    }
}
