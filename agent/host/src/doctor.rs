//! What the kernel offers, what is used, what is missing and what to do, in words.

use std::path::Path;

use aya::programs::FExit;
use aya::{Ebpf, EbpfLoader};
use kams_sensor_abi::offsets::OFFSETS_SYMBOL;

use crate::btf::Btf;
use crate::control::SensorControl;
use crate::loader::{self, embedded_object};
use crate::offsets;
use crate::preemption::Preemption;
use crate::programs::PayloadMethod;

/// How a fact stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There and used.
    Used,
    /// There, and not needed.
    Offered,
    /// Not there; Kams works without it, with the limit that the text names.
    Missing,
    /// Not there, and Kams cannot work without it.
    Fatal,
}

/// One fact about this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Short name, stable.
    pub name: &'static str,
    /// How it stands.
    pub standing: Standing,
    /// What was found, in words.
    pub found: String,
    /// What to do, where something can be done.
    pub remedy: Option<&'static str>,
}

impl Fact {
    fn new(name: &'static str, standing: Standing, found: impl Into<String>) -> Self {
        Self {
            name,
            standing,
            found: found.into(),
            remedy: None,
        }
    }

    const fn with_remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }
}

/// Looks at this host. With `running`, also at the sensor that runs. Tries loads that it undoes; attaches nothing.
pub fn examine(running: Option<&SensorControl>) -> Vec<Fact> {
    let mut facts = vec![kernel(), privileges()];
    let btf = kernel_types();
    let types_usable = btf.standing == Standing::Used;
    facts.push(btf);
    if types_usable {
        facts.push(trampolines());
        facts.push(kprobes());
    }
    facts.push(kernel_build(
        "bpf_stats_enabled",
        "/proc/sys/kernel/bpf_stats_enabled",
    ));
    facts.push(ptrace_scope());
    facts.push(lockdown());
    if let Some(control) = running {
        facts.extend(of_sensor(control));
    }
    facts
}

fn kernel() -> Fact {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let version = version_of(release);
    match version {
        Some(version) if version >= (5, 10) => Fact::new("kernel", Standing::Used, release),
        Some(_) => Fact::new("kernel", Standing::Fatal, format!("{release}, older than 5.10"))
            .with_remedy("use kernel 5.10 or later"),
        None => Fact::new(
            "kernel",
            Standing::Missing,
            format!("version {release:?} is not understood"),
        ),
    }
}

/// Major and minor number of a kernel release.
pub(crate) fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn privileges() -> Fact {
    let missing = loader::missing_capabilities();
    if missing.is_empty() {
        Fact::new(
            "privileges",
            Standing::Used,
            "every capability that the sensor needs",
        )
    } else {
        Fact::new(
            "privileges",
            Standing::Fatal,
            format!("missing: {}", missing.join(", ")),
        )
        .with_remedy("start kamsd as root, or give its unit these capabilities")
    }
}

fn kernel_types() -> Fact {
    const REMEDY: &str = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y";
    let name = "kernel types (BTF)";
    match Btf::of_running_kernel() {
        Err(error) => Fact::new(name, Standing::Fatal, error.to_string()).with_remedy(REMEDY),
        Ok(Err(error)) => Fact::new(name, Standing::Fatal, error.to_string()).with_remedy(REMEDY),
        Ok(Ok(btf)) => match offsets::resolve(&btf) {
            Ok(_) => Fact::new(
                name,
                Standing::Used,
                format!("{} types, every member found", btf.len()),
            ),
            Err(error) => Fact::new(name, Standing::Fatal, error.to_string())
                .with_remedy("this kernel is not supported; please report its version"),
        },
    }
}

/// Loads an empty fexit program: a kernel's configuration does not tell whether it may. One that may be loaded is
/// not used where it would lose what passes ([`Preemption`]).
fn trampolines() -> Fact {
    let preemption = Btf::of_running_kernel()
        .ok()
        .and_then(Result::ok)
        .map(|types| Preemption::of_running_kernel(&types));
    trampolines_by(
        try_trampoline(),
        preemption.and_then(Preemption::forbids_functions),
    )
}

fn trampolines_by(loaded: Result<(), String>, forbidden: Option<&str>) -> Fact {
    let name = "trampolines (fentry, fexit)";
    let why = match (loaded, forbidden) {
        (Ok(()), None) => {
            return Fact::new(
                name,
                Standing::Offered,
                "the kernel accepts them: payload is read at the functions of pipes and sockets",
            );
        }
        (Ok(()), Some(why)) => format!("accepted and not used, for {why}"),
        (Err(error), _) => format!("refused ({error})"),
    };
    let instead = "payload is read at system call exit, which costs every process of the host about 0.1 us per system \
                   call while an agent with an unrelayed server runs";
    Fact::new(name, Standing::Missing, format!("{why}; {instead}"))
}

/// The third way of reading payload that there could be.
fn kprobes() -> Fact {
    Fact::new(
        "kprobes",
        Standing::Offered,
        "not used: where programs at functions cannot be, the one at system call exit reads every form of a message",
    )
}

fn try_trampoline() -> Result<(), String> {
    let words = |error: &dyn std::error::Error| {
        let source = error
            .source()
            .map(|source| format!(": {source}"))
            .unwrap_or_default();
        format!("{error}{source}")
    };
    let mut ebpf: Ebpf = EbpfLoader::new()
        .override_global(
            OFFSETS_SYMBOL,
            &kams_sensor_abi::offsets::Offsets::UNRESOLVED,
            true,
        )
        .map_max_entries("CARRY", 1)
        .map_max_entries("EVENTS", crate::options::RING_MIN)
        .map_max_entries("STREAMS", 2)
        .load(embedded_object())
        .map_err(|error| words(&error))?;
    let btf = aya::Btf::from_sys_fs().map_err(|error| words(&error))?;
    let program = ebpf
        .program_mut("trampoline")
        .ok_or("the kernel object does not hold the trial program")?;
    let program: &mut FExit = program.try_into().map_err(|error| words(&error))?;
    program.load("vfs_read", &btf).map_err(|error| match error {
        aya::programs::ProgramError::LoadError { io_error, .. } => io_error.to_string(),
        other => words(&other),
    })
}

fn kernel_build(name: &'static str, path: &str) -> Fact {
    let value = std::fs::read_to_string(path).unwrap_or_default();
    let on = value.trim() == "1";
    let found = if on {
        "on: the kernel measures every program, which costs about 20 ns each"
    } else {
        "off"
    };
    let fact = Fact::new(name, Standing::Offered, found);
    if on {
        fact.with_remedy("sysctl kernel.bpf_stats_enabled=0, unless it is measured now")
    } else {
        fact
    }
}

fn ptrace_scope() -> Fact {
    let name = "ptrace";
    let path = Path::new("/proc/sys/kernel/yama/ptrace_scope");
    match std::fs::read_to_string(path) {
        Err(_) => Fact::new(name, Standing::Offered, "not restricted (no Yama)"),
        Ok(text) if text.trim() == "3" => Fact::new(
            name,
            Standing::Missing,
            "forbidden for everyone (ptrace_scope 3): servers can be observed, not relayed",
        )
        .with_remedy("set kernel.yama.ptrace_scope to 2 or less; it takes a restart"),
        Ok(text) => Fact::new(
            name,
            Standing::Offered,
            format!("ptrace_scope {}: enough for root", text.trim()),
        ),
    }
}

fn lockdown() -> Fact {
    let name = "kernel lockdown";
    let text = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(mode, _)| mode);
    match mode {
        None | Some("none") => Fact::new(name, Standing::Offered, "none"),
        Some("confidentiality") => Fact::new(
            name,
            Standing::Fatal,
            "confidentiality: programs may not read kernel memory",
        )
        .with_remedy("start the kernel with lockdown=integrity or without it"),
        Some(mode) => Fact::new(name, Standing::Offered, format!("{mode}: enough for the sensor")),
    }
}

fn of_sensor(control: &SensorControl) -> Vec<Fact> {
    let mut facts: Vec<Fact> = control
        .probes()
        .into_iter()
        .map(|probe| {
            let proved = if probe.proved {
                "proved at start"
            } else {
                "not proved"
            };
            let attached = if probe.attached {
                "attached"
            } else {
                "not attached now"
            };
            let standing = if probe.attached || probe.proved {
                Standing::Used
            } else {
                Standing::Missing
            };
            Fact::new(
                probe.name,
                standing,
                format!("{}: {attached}, {proved}", probe.tracepoint),
            )
        })
        .collect();
    facts.push(payload_method(&control.payload_method()));
    if let Some(why) = control.loop_refused() {
        facts.push(Fact::new(
            "bpf_loop",
            Standing::Missing,
            format!(
                "not usable here (5.17 and later have it): what a single call moves beyond 16 MiB is counted as \
                 lost; {why}"
            ),
        ));
    }
    match control.adopt_refused() {
        None => facts.push(Fact::new(
            "descriptor iterator",
            Standing::Used,
            "finds servers that already run",
        )),
        Some(why) => facts.push(Fact::new(
            "descriptor iterator",
            Standing::Missing,
            format!("refused ({why}): servers that ran before kamsd are found when they start again"),
        )),
    }
    facts
}

fn payload_method(method: &PayloadMethod) -> Fact {
    let name = "payload is read at";
    if method.at_functions && !method.at_system_calls {
        return Fact::new(
            name,
            Standing::Used,
            "the functions of pipes and AF_UNIX streams, each proved: other system calls cost nobody anything",
        );
    }
    let place = if method.at_functions {
        "the functions of pipes and AF_UNIX streams and, for the rest, the exit of every system call"
    } else {
        "the exit of every system call"
    };
    Fact::new(
        name,
        Standing::Used,
        format!(
            "{place}, which costs every process of the host about 0.1 us per call while an agent runs, because: {}",
            method.reasons.join("; ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions() {
        assert_eq!(version_of("6.1.0-50-cloud-amd64"), Some((6, 1)));
        assert_eq!(version_of("5.10.0"), Some((5, 10)));
        assert_eq!(version_of("6.18-rc1"), Some((6, 18)));
        assert_eq!(version_of("unknown"), None);
    }

    #[test]
    fn what_is_used_in_place_of_trampolines_is_said_with_the_reason() {
        let used = trampolines_by(Ok(()), None);
        assert_eq!(used.standing, Standing::Offered);
        assert!(!used.found.contains("system call exit"), "{}", used.found);
        for (loaded, forbidden, why) in [
            (Ok(()), Some("it would lose"), "not used, for it would lose"),
            (Err("EPERM".to_owned()), None, "refused (EPERM)"),
            (Err("EPERM".to_owned()), Some("it would lose"), "refused (EPERM)"),
        ] {
            let fact = trampolines_by(loaded, forbidden);
            assert_eq!(fact.standing, Standing::Missing);
            let said = fact.found.contains(why) && fact.found.contains("system call exit");
            assert!(said, "{}", fact.found);
        }
    }

    #[test]
    fn the_way_of_reading_payload_is_said_with_the_reason() {
        let method = |at_functions, at_system_calls, reasons: &[&str]| {
            let reasons = reasons.iter().map(|&reason| reason.to_owned()).collect();
            payload_method(&PayloadMethod {
                at_functions,
                at_system_calls,
                reasons,
            })
            .found
        };
        assert!(method(true, false, &[]).starts_with("the functions of pipes"));
        let both = method(true, true, &["no program for pipes"]);
        assert!(both.contains("functions") && both.contains("for the rest, the exit of every system call"));
        assert!(both.ends_with("because: no program for pipes"), "{both}");
        let calls = method(false, true, &["refused", "preempted"]);
        assert!(calls.starts_with("the exit of every system call"), "{calls}");
        assert!(calls.ends_with("because: refused; preempted"), "{calls}");
    }

    #[test]
    fn this_host_can_be_examined() {
        let facts = examine(None);
        assert!(
            facts
                .iter()
                .any(|fact| fact.name == "kernel" && fact.standing == Standing::Used)
        );
        assert!(facts.iter().all(|fact| !fact.found.is_empty()));
    }
}
