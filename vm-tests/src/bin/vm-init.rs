//! The first process of a guest: sets the system up, runs the programs of the plan as its children, says how they
//! ended, and ends the emulator. Where another is the first process (systemd, which starts this as a service), the
//! system is set up already.
//!
//! Tests are never run as this process: the kernel treats process 1 differently (signals from programs do not reach
//! it, for one).
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the console is the way out of a guest")]

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use kams_vm_tests::plan::{self, Program};
use kams_vm_tests::watch::{PORT, PORT_FAILED, PORT_PASSED, ended_line, summary_line};
use nix::mount::MsFlags;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

/// File systems: type, place.
const MOUNTS: [(&str, &str); 11] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("tmpfs", "/var"),
    ("bpf", "/sys/fs/bpf"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("securityfs", "/sys/kernel/security"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
];

fn main() {
    let failed = run();
    // The last lines would be lost without this.
    let _no_terminal = nix::sys::termios::tcdrain(std::io::stdout());
    let value = if failed == 0 { PORT_PASSED } else { PORT_FAILED };
    let ended = kams_tests_raw::write_port(PORT, value);
    // Only reached where that did not work. The kernel panics when this process ends: no verdict.
    println!("vm-init: cannot end the emulator: {ended:?}");
}

/// Runs everything; returns how many programs failed.
fn run() -> usize {
    if std::process::id() == 1 {
        set_up();
    }
    println!(
        "vm-init: kernel {}, security modules {}, preemption {}",
        one_line("/proc/sys/kernel/osrelease"),
        one_line("/sys/kernel/security/lsm"),
        one_line("/sys/kernel/debug/sched/preempt")
    );
    run_plan()
}

/// File systems and the loopback device.
fn set_up() {
    for (kind, place) in MOUNTS {
        let made = std::fs::create_dir_all(place);
        let none: Option<&str> = None;
        let mounted = nix::mount::mount(Some(kind), place, Some(kind), MsFlags::empty(), none);
        if let (Err(error), _) | (Ok(()), Err(error)) = (made, mounted.map_err(std::io::Error::from)) {
            println!("vm-init: {place}: {error}");
        }
    }
    let lo = Command::new("/bin/ip").args(["link", "set", "lo", "up"]).status();
    if !lo.as_ref().is_ok_and(ExitStatus::success) {
        println!("vm-init: no loopback device: {lo:?}");
    }
}

fn run_plan() -> usize {
    let programs = std::fs::read_to_string(format!("/{}", plan::PATH))
        .map_err(|error| error.to_string())
        .and_then(|text| plan::read(&text).map_err(|error| error.to_string()));
    let programs = match programs {
        Ok(programs) => programs,
        Err(error) => {
            println!("vm-init: no plan: {error}");
            return 1;
        }
    };
    let mut failed = 0;
    for program in &programs {
        let began = Instant::now();
        let (passed, how) = outcome(program);
        if !passed {
            failed += 1;
        }
        let line = ended_line(&program.name, passed, began.elapsed().as_secs_f32(), &how);
        println!("{line}");
        reap();
    }
    println!("{}", summary_line(programs.len() - failed, failed));
    let _console_is_unbuffered = std::io::stdout().flush();
    failed
}

fn one_line(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|error| error.to_string(), |text| text.trim().to_owned())
}

fn outcome(program: &Program) -> (bool, String) {
    let Some((path, arguments)) = program.command.split_first() else {
        return (false, "no command".to_owned());
    };
    let mut command = Command::new(path);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/bin:/usr/bin:/usr/sbin")
        .env("HOME", "/tmp")
        .env("CI", "true")
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .current_dir("/tmp")
        .process_group(0);
    for variable in &program.environment {
        if let Some((name, value)) = variable.split_once('=') {
            command.env(name, value);
        }
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return (false, format!("cannot start {path}: {error}")),
    };
    let group = i32::try_from(child.id()).map(|id| Pid::from_raw(-id));
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(child.wait()));
    let ended = match receiver.recv_timeout(program.limit) {
        Ok(ended) => ended,
        Err(RecvTimeoutError::Timeout) => {
            if let Ok(group) = group {
                let _may_have_ended = nix::sys::signal::kill(group, Signal::SIGKILL);
            }
            return (false, format!("killed after {:?}", program.limit));
        }
        Err(RecvTimeoutError::Disconnected) => return (false, "lost".to_owned()),
    };
    // What a failed test left running would take the time of the next program.
    if let Ok(group) = group {
        let _mostly_empty = nix::sys::signal::kill(group, Signal::SIGKILL);
    }
    match ended {
        Ok(status) => (status.success(), describe(status)),
        Err(error) => (false, error.to_string()),
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, signal) => format!("signal {signal:?}"),
    }
}

/// Processes whose parents are gone are ours.
fn reap() {
    let any = Pid::from_raw(-1);
    while let Ok(status) = nix::sys::wait::waitpid(any, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
