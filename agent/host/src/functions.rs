//! Programs at the ends of kernel functions: which there are, which this kernel takes, and their links.
//!
//! They replace the program at the exit of every system call, which all processes of the host pay for. Each has
//! duties; what no program here has taken over stays with that one.

use aya::programs::fexit::FExitLinkId;
use aya::programs::{FExit, ProgramError};
use aya::{Btf as AyaBtf, Ebpf};
use kams_sensor_abi::function::{
    DUTY_ALL, DUTY_CALLS, DUTY_PIPE_READ, DUTY_PIPE_WRITE, DUTY_UNIX_READ, DUTY_UNIX_WRITE,
};

use crate::arch::call;
use crate::btf::Btf;
use crate::control::{ProbeRole, ProbeState};
use crate::options::SensorError;
use crate::programs::{REMEDY_ATTACH, REMEDY_VERIFIER, refused};

/// A program that there is.
struct Known {
    /// In the object, with `bpf_loop` and without; the same where it does not carry bytes.
    names: [&'static str; 2],
    /// Functions that it can be at, in order of preference.
    targets: &'static [&'static str],
    /// What it takes over.
    duty: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Carries bytes, or tells of calls that are not carried.
    Needed,
    /// Watches the streams of a new server at its dup2 calls; where `sched_prepare_exec` is, that is earlier.
    WithoutPrepare,
    /// Carries what passes on named pipes, where the program for pipes does not see that (proved at start).
    Fifo,
}

const fn bytes(names: [&'static str; 2], targets: &'static [&'static str], duty: u64) -> Known {
    Known {
        names,
        targets,
        duty,
        kind: Kind::Needed,
    }
}

const fn fifo(names: [&'static str; 2], targets: &'static [&'static str], duty: u64) -> Known {
    Known {
        kind: Kind::Fifo,
        ..bytes(names, targets, duty)
    }
}

const fn at_call(name: &'static str, targets: &'static [&'static str], kind: Kind) -> Known {
    Known {
        names: [name; 2],
        targets,
        duty: DUTY_CALLS,
        kind,
    }
}

/// Names before and after 6.16, where pipes got functions of their own beside named pipes.
const KNOWN: [Known; 14] = [
    bytes(
        ["pipe_read_loop", "pipe_read_bounded"],
        &["anon_pipe_read", "pipe_read"],
        DUTY_PIPE_READ,
    ),
    bytes(
        ["pipe_write_loop", "pipe_write_bounded"],
        &["anon_pipe_write", "pipe_write"],
        DUTY_PIPE_WRITE,
    ),
    bytes(
        ["unix_read_loop", "unix_read_bounded"],
        &["unix_stream_recvmsg"],
        DUTY_UNIX_READ,
    ),
    bytes(
        ["unix_write_loop", "unix_write_bounded"],
        &["unix_stream_sendmsg"],
        DUTY_UNIX_WRITE,
    ),
    fifo(
        ["fifo_read_loop", "fifo_read_bounded"],
        &["fifo_pipe_read"],
        DUTY_PIPE_READ,
    ),
    fifo(
        ["fifo_write_loop", "fifo_write_bounded"],
        &["fifo_pipe_write"],
        DUTY_PIPE_WRITE,
    ),
    at_call("call_splice", &[call!("splice")], Kind::Needed),
    at_call("call_tee", &[call!("tee")], Kind::Needed),
    at_call("call_vmsplice", &[call!("vmsplice")], Kind::Needed),
    at_call("call_sendfile", &[call!("sendfile64")], Kind::Needed),
    at_call("call_uring_setup", &[call!("io_uring_setup")], Kind::Needed),
    at_call("call_uring_enter", &[call!("io_uring_enter")], Kind::Needed),
    at_call("call_dup2", &[call!("dup2")], Kind::WithoutPrepare),
    at_call("call_dup3", &[call!("dup3")], Kind::WithoutPrepare),
];

/// Programs that the self-test does not provoke: io_uring's calls, and dup2, after which nothing is reported.
const UNPROVOKED: [&str; 4] = ["call_uring_setup", "call_uring_enter", "call_dup2", "call_dup3"];

/// What is known of this kernel before the first program is loaded.
pub(crate) struct Terms<'a> {
    pub(crate) types: &'a Btf,
    pub(crate) aya_types: &'a AyaBtf,
    /// Not to use `bpf_loop`.
    pub(crate) bounded: bool,
    /// `sched_prepare_exec` is attached.
    pub(crate) prepare: bool,
}

/// A loaded program.
struct Loaded {
    name: &'static str,
    target: &'static str,
    duty: u64,
    kind: Kind,
    link: Option<FExitLinkId>,
}

/// Every program of this kind.
#[derive(Default)]
pub(crate) struct Functions {
    loaded: Vec<Loaded>,
    /// Duties that this kernel refuses or that were not proved, and why.
    refused: Vec<(u64, String)>,
    /// A program can be attached only once (5.10): it is loaded anew when it is detached.
    only_once: bool,
}

fn fexit<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut FExit, String> {
    let program = ebpf
        .program_mut(name)
        .ok_or("the kernel object does not hold it")?;
    program
        .try_into()
        .map_err(|error: ProgramError| error.to_string())
}

fn load(ebpf: &mut Ebpf, name: &str, target: &str, types: &AyaBtf) -> Result<(), String> {
    fexit(ebpf, name)?
        .load(target, types)
        .map_err(|error| match &error {
            // A host that refuses trampolines says no more than this.
            ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() == Some(libc::EPERM) => {
                format!("this host refuses programs at functions ({io_error})")
            }
            _ => refused(&format!("program {name} at {target}"), &error, REMEDY_VERIFIER).to_string(),
        })
}

/// Before 5.13 a program that was attached and detached cannot be attached again.
fn is_spent(error: &ProgramError) -> bool {
    match error {
        ProgramError::SyscallError(call) => call.io_error.raw_os_error() == Some(libc::ENOENT),
        _ => false,
    }
}

fn reload(ebpf: &mut Ebpf, one: &Loaded) -> Result<(), String> {
    let types = AyaBtf::from_sys_fs().map_err(|error| error.to_string())?;
    fexit(ebpf, one.name)?
        .unload()
        .map_err(|error| error.to_string())?;
    load(ebpf, one.name, one.target, &types)
}

impl Functions {
    /// None, for this reason.
    pub(crate) fn none(why: impl Into<String>) -> Self {
        Self {
            refused: vec![(DUTY_ALL, why.into())],
            ..Self::default()
        }
    }

    /// Loads what this kernel takes. Stops at the first refusal of the kind that meets all.
    pub(crate) fn load(ebpf: &mut Ebpf, terms: &Terms<'_>) -> Self {
        let mut functions = Self::default();
        // `bpf_loop` is tried once.
        let mut bounded = terms.bounded;
        for known in &KNOWN {
            if known.kind == Kind::WithoutPrepare && terms.prepare {
                continue;
            }
            let target = known
                .targets
                .iter()
                .find(|name| terms.types.function(name).is_some());
            let Some(&target) = target else {
                if known.kind != Kind::Fifo {
                    let why = format!("this kernel has no function {}", known.targets.join(" or "));
                    functions.refused.push((known.duty, why));
                }
                continue;
            };
            let [with_loop, without] = known.names;
            let mut name = with_loop;
            let mut result = if bounded {
                Err(String::new())
            } else {
                load(ebpf, name, target, terms.aya_types)
            };
            if result.is_err() && name != without {
                name = without;
                result = load(ebpf, name, target, terms.aya_types);
                bounded |= result.is_ok();
            } else if bounded {
                result = load(ebpf, name, target, terms.aya_types);
            }
            match result {
                Ok(()) => functions.loaded.push(Loaded {
                    name,
                    target,
                    duty: known.duty,
                    kind: known.kind,
                    link: None,
                }),
                Err(why) if functions.loaded.is_empty() => return Self::none(why),
                Err(why) => functions.refused.push((known.duty, why)),
            }
        }
        functions
    }

    /// Duties that some program could take over, if it proves to work.
    pub(crate) fn possible(&self) -> u64 {
        let offered = self.loaded.iter().fold(0, |duties, one| duties | one.duty);
        self.refused
            .iter()
            .fold(offered, |duties, (refused, _)| duties & !refused)
    }

    /// Why duties stay with the program at the exit of system calls.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &str> {
        self.refused.iter().map(|(_, why)| why.as_str())
    }

    /// Whether programs for named pipes are loaded.
    pub(crate) fn have_fifos(&self) -> bool {
        self.loaded.iter().any(|one| one.kind == Kind::Fifo)
    }

    /// Drops the programs for named pipes.
    pub(crate) fn drop_fifos(&mut self, ebpf: &mut Ebpf) {
        self.drop_where(ebpf, |one| one.kind == Kind::Fifo);
    }

    /// Drops what has these duties.
    pub(crate) fn refuse(&mut self, ebpf: &mut Ebpf, duties: u64, why: &str) {
        for bit in (0..u64::BITS).map(|bit| 1 << bit) {
            if duties & bit != 0 {
                self.refused.push((bit, why.to_owned()));
            }
        }
        self.drop_where(ebpf, |one| one.duty & duties != 0);
    }

    fn drop_where(&mut self, ebpf: &mut Ebpf, dropped: impl Fn(&Loaded) -> bool) {
        for one in self.loaded.extract_if(.., |one| dropped(one)) {
            if let Ok(program) = fexit(ebpf, one.name) {
                // Takes its link along. Unloading twice answers with an error; there is nothing to do then.
                let _unloaded_before = program.unload();
            }
        }
    }

    /// Attaches every program, those for named pipes only `with_fifos`.
    pub(crate) fn attach(&mut self, ebpf: &mut Ebpf, with_fifos: bool) -> Result<(), SensorError> {
        for one in &mut self.loaded {
            if one.link.is_some() || (one.kind == Kind::Fifo && !with_fifos) {
                continue;
            }
            let what = format!("to attach {} to {}", one.name, one.target);
            let words = |detail| SensorError::Refused {
                what: what.clone(),
                detail,
                remedy: REMEDY_ATTACH,
            };
            let mut attached = fexit(ebpf, one.name).map_err(words)?.attach();
            if attached.as_ref().is_err_and(is_spent) {
                self.only_once = true;
                reload(ebpf, one).map_err(words)?;
                attached = fexit(ebpf, one.name).map_err(words)?.attach();
            }
            one.link = Some(attached.map_err(|error| refused(&what, &error, REMEDY_ATTACH))?);
        }
        Ok(())
    }

    /// Detaches every program.
    pub(crate) fn detach(&mut self, ebpf: &mut Ebpf) -> Result<(), SensorError> {
        for one in &mut self.loaded {
            let (Some(link), Ok(program)) = (one.link.take(), fexit(ebpf, one.name)) else {
                continue;
            };
            program
                .detach(link)
                .map_err(|error| refused(&format!("to detach {}", one.name), &error, REMEDY_ATTACH))?;
            if self.only_once {
                // Now, because the next attaching is in a hurry. It tells what does not work.
                let _told_then = reload(ebpf, one);
            }
        }
        Ok(())
    }

    /// Unloads every program.
    pub(crate) fn unload(&mut self, ebpf: &mut Ebpf) {
        self.drop_where(ebpf, |_| true);
    }

    /// The state of every program. `proved`: the self-test is over, which provokes what carries bytes and what tells
    /// of splice and its kin, and not the rest.
    pub(crate) fn states(&self, proved: bool) -> impl Iterator<Item = ProbeState> {
        self.loaded.iter().map(move |one| ProbeState {
            name: one.name,
            tracepoint: one.target,
            attached: one.link.is_some(),
            proved: proved && !UNPROVOKED.contains(&one.name),
            role: ProbeRole::Payload,
        })
    }

    /// Names of the programs.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.loaded.iter().map(|one| one.name)
    }
}
