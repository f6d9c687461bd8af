//! The kernel programs: loading, attaching, detaching, and what the kernel counts about them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::{FExit, Iter, ProgramError, RawTracePoint};
use kams_sensor_abi::function::DUTY_ALL;

use crate::at_exit::{self, AtExit};
use crate::btf::Btf;
use crate::control::{ProbeRole, ProbeState};
use crate::functions::{self, Functions};
use crate::options::{Backend, SensorError};
use crate::preemption::Preemption;
use crate::priority;
use crate::recursion;

/// The lifecycle programs: name in the object, tracepoint.
pub(crate) const LIFECYCLE: [(&str, &str); 3] = [
    ("process_exec", "sched_process_exec"),
    ("process_fork", "sched_process_fork"),
    ("process_exit", "sched_process_exit"),
];
/// Watches the streams of a new server before its exec closes anything (kernel 6.10 and later).
pub(crate) const PREPARE: (&str, &str) = ("prepare_exec", "sched_prepare_exec");
/// Iterator over the descriptors of every process.
pub(crate) const DESCRIPTORS: &str = "descriptors";

pub(crate) const REMEDY_VERIFIER: &str =
    "this kernel is not supported by this build; please report its version with the output of `kams doctor`";
pub(crate) const REMEDY_ATTACH: &str = "check that the kernel has CONFIG_BPF_EVENTS and CONFIG_TRACEPOINTS";

/// What is known of the kernel and asked for.
pub(crate) struct Terms<'a> {
    pub(crate) types: &'a Btf,
    /// Whether programs at functions know their way, or why not.
    pub(crate) iterators: Result<(), String>,
    /// Without `bpf_loop` and `sched_prepare_exec`.
    pub(crate) as_old_kernel: bool,
    pub(crate) backend: Backend,
}

struct Loaded {
    ebpf: Ebpf,
    functions: Functions,
    /// Loaded when there is something left for it to do.
    at_exit: Option<AtExit>,
    duties: Array<MapData, u64>,
    /// A map must stay open as long as programs that name it may be loaded.
    _marks: OwnedFd,
    /// Payload programs are attached.
    on: bool,
    /// Everything was unloaded.
    gone: bool,
}

/// Every loaded program.
pub(crate) struct Programs {
    loaded: Mutex<Loaded>,
    as_old_kernel: bool,
    preemption: Preemption,
    prepare: bool,
    iterator: Option<String>,
}

/// How payload is read, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadMethod {
    /// Some of it is read at the ends of functions.
    pub at_functions: bool,
    /// Some of it is read at the exit of system calls.
    pub at_system_calls: bool,
    /// Why it is not all read at functions.
    pub reasons: Vec<String>,
}

impl PayloadMethod {
    /// Kind of the kernel's programs, in a word.
    pub const fn name(&self) -> &'static str {
        match (self.at_functions, self.at_system_calls) {
            (true, false) => "fexit",
            (true, true) => "fexit and tracepoint",
            (false, _) => "tracepoint",
        }
    }
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs")
            .field("prepare", &self.prepare)
            .finish_non_exhaustive()
    }
}

pub(crate) fn refused(what: &str, error: &ProgramError, remedy: &'static str) -> SensorError {
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

pub(crate) fn raw_tracepoint<'a>(
    ebpf: &'a mut Ebpf,
    name: &str,
) -> Result<&'a mut RawTracePoint, SensorError> {
    let missing = || SensorError::Refused {
        what: format!("program {name}"),
        detail: "the kernel object does not hold it".into(),
        remedy: "rebuild the object with `cargo xtask ebpf`",
    };
    let program = ebpf.program_mut(name).ok_or_else(missing)?;
    program.try_into().map_err(|_wrong_type: ProgramError| missing())
}

pub(crate) fn load_raw_tracepoint(ebpf: &mut Ebpf, name: &str) -> Result<(), SensorError> {
    let what = format!("program {name}");
    raw_tracepoint(ebpf, name)?
        .load()
        .map_err(|error| refused(&what, &error, REMEDY_VERIFIER))
}

impl Programs {
    /// Loads every program and attaches the lifecycle ones.
    pub(crate) fn load(
        mut ebpf: Ebpf,
        duties: Array<MapData, u64>,
        marks: OwnedFd,
        terms: &Terms<'_>,
    ) -> Result<Self, SensorError> {
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
        }
        // Optional: without it streams are watched at dup2.
        let (name, tracepoint) = PREPARE;
        load_raw_tracepoint(&mut ebpf, name)?;
        let prepare = !terms.as_old_kernel && raw_tracepoint(&mut ebpf, name)?.attach(tracepoint).is_ok();
        let aya_types = aya::Btf::from_sys_fs().map_err(|error| error.to_string());
        let preemption = Preemption::of_running_kernel(terms.types);
        if preemption.at_tracepoints {
            priority::map_calls_disturb();
        }
        let functions = load_functions(&mut ebpf, terms, aya_types.as_ref(), prepare, preemption);
        let iterator = aya_types.and_then(|types| load_iterator(&mut ebpf, &types)).err();
        let programs = Self {
            loaded: Mutex::new(Loaded {
                ebpf,
                functions,
                at_exit: None,
                duties,
                _marks: marks,
                on: false,
                gone: false,
            }),
            as_old_kernel: terms.as_old_kernel,
            preemption,
            prepare,
            iterator,
        };
        programs.settle()?;
        Ok(programs)
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        // A panic while holding it leaves at worst a link attached; going on is right.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Divides the duties: what programs at functions do not take over, the one at the exit of system calls does.
    fn settle(&self) -> Result<(), SensorError> {
        let mut loaded = self.lock();
        let loaded = &mut *loaded;
        let taken = loaded.functions.possible();
        loaded
            .duties
            .set(0, taken, 0)
            .map_err(|error| SensorError::Refused {
                what: "to divide the duties of the payload programs".into(),
                detail: error.to_string(),
                remedy: "run `kams doctor`",
            })?;
        if taken != DUTY_ALL && loaded.at_exit.is_none() {
            loaded.at_exit = Some(at_exit::load(
                &mut loaded.ebpf,
                self.as_old_kernel,
                self.preemption.at_tracepoints,
            )?);
        }
        Ok(())
    }

    /// Duties that programs at functions have, or are to prove that they can have.
    pub(crate) fn function_duties(&self) -> u64 {
        self.lock().functions.possible()
    }

    /// Attaches the programs at functions, to prove them; those for named pipes if `fifos`.
    pub(crate) fn attach_functions(&self, fifos: bool) -> Result<(), SensorError> {
        let mut loaded = self.lock();
        let Loaded { functions, ebpf, .. } = &mut *loaded;
        functions.attach(ebpf, fifos)
    }

    /// Detaches them.
    pub(crate) fn detach_functions(&self) -> Result<(), SensorError> {
        let mut loaded = self.lock();
        let Loaded { functions, ebpf, .. } = &mut *loaded;
        functions.detach(ebpf)
    }

    /// Whether there are programs for named pipes.
    pub(crate) fn have_fifos(&self) -> bool {
        self.lock().functions.have_fifos()
    }

    /// Does without the programs for named pipes.
    pub(crate) fn drop_fifos(&self) {
        let mut loaded = self.lock();
        let Loaded { functions, ebpf, .. } = &mut *loaded;
        functions.drop_fifos(ebpf);
    }

    /// Leaves duties to the program at the exit of system calls.
    pub(crate) fn refuse_functions(&self, duties: u64, why: &str) -> Result<(), SensorError> {
        {
            let mut loaded = self.lock();
            let Loaded { functions, ebpf, .. } = &mut *loaded;
            functions.refuse(ebpf, duties, why);
        }
        self.settle()
    }

    /// How payload is read.
    pub(crate) fn payload_method(&self) -> PayloadMethod {
        let loaded = self.lock();
        PayloadMethod {
            at_functions: loaded.functions.possible() != 0,
            at_system_calls: loaded.at_exit.is_some(),
            reasons: loaded.functions.reasons().map(str::to_owned).collect(),
        }
    }

    /// The state of every payload program; `proved` says whether the self-test is over.
    pub(crate) fn payload_states(&self, proved: bool) -> Vec<ProbeState> {
        let loaded = self.lock();
        let at_exit = loaded.at_exit.iter().map(|one| ProbeState {
            name: one.name,
            tracepoint: at_exit::TRACEPOINT,
            attached: one.link.is_some(),
            proved,
            role: ProbeRole::Payload,
        });
        loaded.functions.states(proved).chain(at_exit).collect()
    }

    /// Whether [`PREPARE`] is attached.
    pub(crate) const fn has_prepare(&self) -> bool {
        self.prepare
    }

    /// Why single calls are carried in part only, if they are.
    pub(crate) fn loop_refused(&self) -> Option<String> {
        let loaded = self.lock();
        let at_exit = loaded.at_exit.as_ref().and_then(|one| one.without_loop.clone());
        let bounded = loaded.functions.names().any(|name| name.ends_with("_bounded"));
        at_exit.or_else(|| bounded.then(|| "the kernel refused it".to_owned()))
    }

    /// Why the descriptor iterator is not available, if it is not.
    pub(crate) fn iterator_refused(&self) -> Option<&str> {
        self.iterator.as_deref()
    }

    /// Attaches the payload programs; `false` if they were attached already.
    pub(crate) fn attach_payload(&self) -> Result<bool, SensorError> {
        let mut loaded = self.lock();
        if loaded.on {
            return Ok(false);
        }
        if loaded.gone {
            return Err(SensorError::Refused {
                what: "to attach the payload programs".into(),
                detail: "they were unloaded".into(),
                remedy: "start the sensor again",
            });
        }
        let Loaded {
            ebpf,
            functions,
            at_exit,
            on,
            ..
        } = &mut *loaded;
        functions.attach(ebpf, true)?;
        if let Some(at_exit) = at_exit {
            at_exit.link = Some(at_exit::attach(ebpf, at_exit.name)?);
        }
        *on = true;
        Ok(true)
    }

    /// Detaches the payload programs; `false` if they were not attached.
    pub(crate) fn detach_payload(&self) -> Result<bool, SensorError> {
        let mut loaded = self.lock();
        let Loaded {
            ebpf,
            functions,
            at_exit,
            on,
            ..
        } = &mut *loaded;
        if !std::mem::take(on) {
            return Ok(false);
        }
        functions.detach(ebpf)?;
        if let Some(at_exit) = at_exit
            && let Some(link) = at_exit.link.take()
        {
            at_exit::detach(ebpf, at_exit.name, link)?;
        }
        Ok(true)
    }

    pub(crate) fn payload_attached(&self) -> bool {
        self.lock().on
    }

    /// Detaches and unloads every program.
    pub(crate) fn unload(&self) {
        let mut loaded = self.lock();
        let Loaded {
            ebpf,
            functions,
            at_exit,
            on,
            gone,
            ..
        } = &mut *loaded;
        (*on, *gone) = (false, true);
        functions.unload(ebpf);
        if let Some(at_exit) = at_exit {
            at_exit.link = None;
        }
        at_exit::unload(ebpf);
        for name in lifecycle_names() {
            if let Ok(program) = raw_tracepoint(ebpf, name) {
                // Unloading a second time answers with an error; there is nothing to do then.
                let _unloaded_before = program.unload();
            }
        }
    }

    /// Runs the kernel skipped because the program was already running on that CPU.
    pub(crate) fn recursion_misses(&self) -> u64 {
        let loaded = self.lock();
        let raw = lifecycle_names().filter_map(|name| {
            let program: &RawTracePoint = loaded.ebpf.program(name)?.try_into().ok()?;
            program.fd().ok().map(|fd| recursion::misses(fd.as_fd()))
        });
        let functions = loaded.functions.names().filter_map(|name| {
            let program: &FExit = loaded.ebpf.program(name)?.try_into().ok()?;
            program.fd().ok().map(|fd| recursion::misses(fd.as_fd()))
        });
        raw.chain(functions).sum::<u64>() + at_exit::skipped(&loaded.ebpf)
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

fn lifecycle_names() -> impl Iterator<Item = &'static str> {
    LIFECYCLE.iter().map(|&(name, _)| name).chain([PREPARE.0])
}

fn load_functions(
    ebpf: &mut Ebpf,
    terms: &Terms<'_>,
    aya_types: Result<&aya::Btf, &String>,
    prepare: bool,
    preemption: Preemption,
) -> Functions {
    let usable = match (terms.backend, &terms.iterators, aya_types) {
        (Backend::SystemCalls, ..) => Err("they are not to be used".to_owned()),
        (_, Err(why), _) | (_, _, Err(why)) => Err(why.clone()),
        (_, Ok(()), Ok(types)) => match preemption.forbids_functions() {
            Some(why) => Err(why.to_owned()),
            None => Ok(types),
        },
    };
    match usable {
        Err(why) => Functions::none(why),
        Ok(aya_types) => Functions::load(
            ebpf,
            &functions::Terms {
                types: terms.types,
                aya_types,
                bounded: terms.as_old_kernel,
                prepare,
            },
        ),
    }
}

fn load_iterator(ebpf: &mut Ebpf, types: &aya::Btf) -> Result<(), String> {
    let program = ebpf
        .program_mut(DESCRIPTORS)
        .ok_or("the kernel object does not hold it")?;
    let iterator: &mut Iter = program
        .try_into()
        .map_err(|error: ProgramError| error.to_string())?;
    iterator
        .load("task_file", types)
        .map_err(|error| refused("program descriptors", &error, REMEDY_VERIFIER).to_string())
}
