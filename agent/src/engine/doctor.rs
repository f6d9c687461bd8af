//! `kams doctor`: the sensor's own facts, and what the daemon knows besides, in words.

use kams_export::view::{CheckResult, CheckView, DoctorView, SCHEMA};
use kams_host::doctor::{Fact, Standing};
use kams_host::netblock::{self, Blocks};
use kams_host::{ProbeRole, SensorControl};

use crate::config::Config;

/// Looks at the host, and at the running sensor where there is one.
pub fn examine(sensor: Option<&SensorControl>, blocks: Option<&Blocks>, config: &Config) -> DoctorView {
    let mut checks = host(sensor);
    checks.push(network(blocks));
    match sensor {
        None => checks.push(check(
            "sensor",
            "running",
            CheckResult::Fail,
            "Kams is off; nothing is watched".to_owned(),
            Some("kams on"),
        )),
        Some(sensor) => of_sensor(sensor, config, &mut checks),
    }
    DoctorView {
        schema: SCHEMA,
        checks,
    }
}

/// Looks at the host alone: what `kams doctor` can say while no daemon answers.
pub fn without_daemon(why: &str) -> DoctorView {
    let mut checks = host(None);
    checks.push(network(None));
    let remedy =
        Some("start kamsd (systemctl start kamsd, or cargo xtask run), or give its socket with --socket");
    checks.push(check(
        "daemon",
        "kamsd",
        CheckResult::Fail,
        why.to_owned(),
        remedy,
    ));
    DoctorView {
        schema: SCHEMA,
        checks,
    }
}

fn host(sensor: Option<&SensorControl>) -> Vec<CheckView> {
    let view = |fact: Fact| {
        let result = match fact.standing {
            Standing::Used => CheckResult::Ok,
            Standing::Offered => CheckResult::Info,
            Standing::Missing => CheckResult::Warn,
            Standing::Fatal => CheckResult::Fail,
        };
        check("kernel", fact.name, result, fact.found, fact.remedy)
    };
    kams_host::doctor::examine(sensor).into_iter().map(view).collect()
}

/// Whether servers can be cut off the network, and whether some are.
fn network(blocks: Option<&Blocks>) -> CheckView {
    const NAME: &str = "network backstop";
    const REMEDY: &str = "use a kernel with CONFIG_CGROUP_BPF=y (5.10 or later), or `seccomp` in the policy";
    let state = blocks.map(Blocks::state).unwrap_or_default();
    let scope = "AF_INET and AF_INET6 only: packet and vsock sockets are not refused by it";
    if let Some(why) = state.refused {
        let detail = format!("the programs could not be attached to the root control group: {why}");
        return check("kernel", NAME, CheckResult::Fail, detail, Some(REMEDY));
    }
    if state.attached {
        let detail = format!(
            "attached to the root control group, proved by sockets of our own: {} servers with {} processes are cut off ({scope})",
            state.blocks, state.processes
        );
        let (result, remedy) = if state.lost == 0 {
            (CheckResult::Ok, None)
        } else {
            (
                CheckResult::Warn,
                Some("lift restrictions that are not needed: the table of processes was full"),
            )
        };
        return check("kernel", NAME, result, detail, remedy);
    }
    match netblock::examine() {
        Ok(found) => check(
            "kernel",
            NAME,
            CheckResult::Info,
            format!("not attached, nobody is cut off; {found} ({scope})"),
            None,
        ),
        Err(why) => check("kernel", NAME, CheckResult::Warn, why, Some(REMEDY)),
    }
}

fn of_sensor(sensor: &SensorControl, config: &Config, checks: &mut Vec<CheckView>) {
    for probe in sensor.probes() {
        let (result, detail) = match (probe.attached, probe.proved, probe.role) {
            (true, true, _) => (
                CheckResult::Ok,
                format!("attached to {}, proved by an event of our own", probe.tracepoint),
            ),
            (true, false, ProbeRole::Payload) => (
                CheckResult::Info,
                format!(
                    "attached to {}; the self-test does not provoke it",
                    probe.tracepoint
                ),
            ),
            (true, false, _) => (
                CheckResult::Warn,
                format!("attached to {}, not proved", probe.tracepoint),
            ),
            (false, _, ProbeRole::Payload) => (
                CheckResult::Ok,
                "not attached: no agent runs, or every server has a relay".to_owned(),
            ),
            (false, _, ProbeRole::Early) => (
                CheckResult::Info,
                format!("this kernel has no {}: dup2 serves", probe.tracepoint),
            ),
            (false, _, ProbeRole::Lifecycle) => {
                (CheckResult::Fail, format!("not attached to {}", probe.tracepoint))
            }
        };
        checks.push(check("sensor", probe.name, result, detail, None));
    }
    let method = sensor.payload_method();
    let when = if sensor.payload_attached() {
        "attached while an agent runs whose servers have no relay"
    } else {
        "not attached now, no cost; while an agent runs whose servers have no relay"
    };
    let cost = if method.at_system_calls {
        "adds about 0.1 microseconds to every system call of every process on this host"
    } else {
        "adds about 0.1 microseconds to what other processes read and write on pipes and AF_UNIX streams, and nothing \
         to their other system calls"
    };
    checks.push(check(
        "sensor",
        "cost of the payload probes",
        CheckResult::Info,
        format!("{when}: {cost}"),
        None,
    ));
    if let Some(why) = sensor.adopt_refused() {
        checks.push(check(
            "sensor",
            "adoption",
            CheckResult::Warn,
            format!("servers that ran before Kams are not seen: {why}"),
            Some("restart the agents, or use a kernel with task iterators (5.8 or later)"),
        ));
    }
    for map in sensor.maps() {
        let full = map.used.saturating_mul(10) >= map.capacity.saturating_mul(9);
        let result = if full { CheckResult::Warn } else { CheckResult::Ok };
        let remedy = full.then_some("raise sensor.queue or sensor.ring_buffer, or run fewer servers");
        checks.push(check(
            "sensor",
            map.name,
            result,
            format!("{} of {} in use", map.used, map.capacity),
            remedy,
        ));
    }
    let lost: Vec<String> = sensor
        .losses()
        .into_iter()
        .filter(|l| l.count > 0)
        .map(|l| format!("{} {} ({})", l.count, l.reason.stage.as_str(), l.reason.reason))
        .collect();
    if lost.is_empty() {
        checks.push(check(
            "sensor",
            "losses",
            CheckResult::Ok,
            "nothing was lost since the start".to_owned(),
            None,
        ));
    } else {
        let size = config.sensor.ring_buffer >> 20;
        checks.push(check(
            "sensor",
            "losses",
            CheckResult::Warn,
            format!(
                "{}; what was decided without these bytes is marked `gap`",
                lost.join(", ")
            ),
            Some(if size < 256 {
                "raise sensor.ring_buffer (now below 256 MiB) if `ring` is among them"
            } else {
                "report it"
            }),
        ));
    }
}

fn check(area: &str, name: &str, result: CheckResult, detail: String, remedy: Option<&str>) -> CheckView {
    CheckView {
        area: area.to_owned(),
        name: name.to_owned(),
        result,
        detail,
        remedy: remedy.map(str::to_owned),
    }
}
