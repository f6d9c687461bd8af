//! The program at the exit of every system call, for what no program at a function does.
//!
//! It is at the raw tracepoint, which costs others least, and at perf's event of it where the kernel preempts programs at raw
//! tracepoints (6.19 and later): a run that comes to a program that is not over is skipped, and what it was to carry lost.

use std::os::fd::AsFd;

use aya::Ebpf;
use aya::programs::raw_trace_point::RawTracePointLinkId;
use aya::programs::trace_point::TracePointLinkId;
use aya::programs::{ProgramError, RawTracePoint, TracePoint};

use crate::options::SensorError;
use crate::programs::{REMEDY_ATTACH, REMEDY_VERIFIER, load_raw_tracepoint, raw_tracepoint, refused};
use crate::recursion;

/// Names in the object, with `bpf_loop` (5.17 and later) and with bounded loops only.
const RAW: [&str; 2] = ["payload_loop", "payload_bounded"];
/// The same at perf's event.
const EVENTS: [&str; 2] = ["payload_event", "payload_event_bounded"];
/// The tracepoint.
pub(crate) const TRACEPOINT: &str = "sys_exit";

/// The program at the exit of system calls.
pub(crate) struct AtExit {
    pub(crate) name: &'static str,
    /// Why it does without `bpf_loop`, if it does.
    pub(crate) without_loop: Option<String>,
    pub(crate) link: Option<AtExitLink>,
}

/// Keeps it attached.
pub(crate) enum AtExitLink {
    Raw(RawTracePointLinkId),
    Event(TracePointLinkId),
}

fn event<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut TracePoint, SensorError> {
    let missing = || SensorError::Refused {
        what: format!("program {name}"),
        detail: "the kernel object does not hold it".into(),
        remedy: "rebuild the object with `cargo xtask ebpf`",
    };
    let program = ebpf.program_mut(name).ok_or_else(missing)?;
    program.try_into().map_err(|_wrong_type: ProgramError| missing())
}

/// Loads an event, and attaches it for a moment: that takes the tracing file system, which may not be there.
fn load_event(ebpf: &mut Ebpf, name: &str) -> Result<(), SensorError> {
    event(ebpf, name)?
        .load()
        .map_err(|error| refused(&format!("program {name}"), &error, REMEDY_VERIFIER))?;
    let link = attach(ebpf, name)?;
    detach(ebpf, name, link)
}

fn is_event(name: &str) -> bool {
    EVENTS.contains(&name)
}

pub(crate) fn attach(ebpf: &mut Ebpf, name: &str) -> Result<AtExitLink, SensorError> {
    let attached = if is_event(name) {
        let program = event(ebpf, name)?;
        program.attach("raw_syscalls", TRACEPOINT).map(AtExitLink::Event)
    } else {
        let program = raw_tracepoint(ebpf, name)?;
        program.attach(TRACEPOINT).map(AtExitLink::Raw)
    };
    attached.map_err(|error| refused(&format!("to attach {name} to sys_exit"), &error, REMEDY_ATTACH))
}

pub(crate) fn detach(ebpf: &mut Ebpf, name: &str, link: AtExitLink) -> Result<(), SensorError> {
    let detached = match link {
        AtExitLink::Raw(link) => raw_tracepoint(ebpf, name)?.detach(link),
        AtExitLink::Event(link) => event(ebpf, name)?.detach(link),
    };
    detached.map_err(|error| refused(&format!("to detach {name}"), &error, REMEDY_ATTACH))
}

/// Loads one of two programs, by the first with `bpf_loop`; why without, if so.
fn load_either(
    ebpf: &mut Ebpf,
    [with_loop, bounded]: [&'static str; 2],
    as_old_kernel: bool,
    load_one: fn(&mut Ebpf, &str) -> Result<(), SensorError>,
) -> Result<(&'static str, Option<String>), SensorError> {
    let refused = if as_old_kernel {
        "not to be used".to_owned()
    } else {
        match load_one(ebpf, with_loop) {
            Ok(()) => return Ok((with_loop, None)),
            Err(error) => error.to_string(),
        }
    };
    load_one(ebpf, bounded).map(|()| (bounded, Some(refused)))
}

/// Loads what this kernel takes. `preempted`: others may come to a program at a raw tracepoint that is not over.
pub(crate) fn load(ebpf: &mut Ebpf, as_old_kernel: bool, preempted: bool) -> Result<AtExit, SensorError> {
    let loaded = if preempted {
        // Where there are no events, runs may be skipped, which is told.
        load_either(ebpf, EVENTS, as_old_kernel, load_event)
            .or_else(|_no_events| load_either(ebpf, RAW, as_old_kernel, load_raw_tracepoint))
    } else {
        load_either(ebpf, RAW, as_old_kernel, load_raw_tracepoint)
    };
    let (name, without_loop) = loaded?;
    Ok(AtExit {
        name,
        without_loop,
        link: None,
    })
}

/// Unloads every one.
pub(crate) fn unload(ebpf: &mut Ebpf) {
    for name in EVENTS {
        if let Ok(program) = event(ebpf, name) {
            // Unloading a second time answers with an error; there is nothing to do then.
            let _unloaded_before = program.unload();
        }
    }
    for name in RAW {
        if let Ok(program) = raw_tracepoint(ebpf, name) {
            let _unloaded_before = program.unload();
        }
    }
}

/// Runs that the kernel skipped.
pub(crate) fn skipped(ebpf: &Ebpf) -> u64 {
    let events = EVENTS.iter().filter_map(|name| {
        let program: &TracePoint = ebpf.program(name)?.try_into().ok()?;
        program.fd().ok().map(|fd| recursion::misses(fd.as_fd()))
    });
    let raw = RAW.iter().filter_map(|name| {
        let program: &RawTracePoint = ebpf.program(name)?.try_into().ok()?;
        program.fd().ok().map(|fd| recursion::misses(fd.as_fd()))
    });
    events.chain(raw).sum()
}
