//! Measures what holding and injecting adds to the start of a server: time from spawn to the first byte that a small
//! program writes, with and without, and the stages in between. Root only.
//!
//! `cargo run --release -p kams-host --example exec_delay [rounds]`
#![expect(clippy::print_stdout, reason = "a report for a person")]

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kams_host::inject::{Ends, Injector, InjectorOptions, Outcome, Target};
use kams_host::{Marks, Sensor, SensorEvent, SensorOptions, clock};

/// Microseconds of each round, by stage.
#[derive(Default)]
struct Stages {
    /// Exec to report.
    told: Vec<u64>,
    /// Exec to outcome: the target runs.
    done: Vec<u64>,
    /// Spawn to first byte.
    first: Vec<u64>,
}

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(300);
    let (sensor, mut events) =
        Sensor::start(SensorOptions::default()).expect("the sensor starts (root only)");
    let control = sensor.control();
    let (outcomes, outcome) = mpsc::channel();
    let injector = Injector::start(&control, InjectorOptions::default(), move |outcome| {
        drop(outcomes.send((clock::boot_ns(), outcome)));
    })
    .expect("the injector starts");
    let (execs, exec) = mpsc::channel();
    let own = std::process::id();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Some(event) = events.blocking_recv() {
                let SensorEvent::Exec(report) = event else {
                    continue;
                };
                if report.ppid != own {
                    continue;
                }
                let now = clock::boot_ns();
                if report.held {
                    injector.inject(Target {
                        pid: report.pid,
                        start_ns: report.start_ns,
                        parent: report.ppid,
                        far_ino: [report.fds[0].far_ino(), report.fds[1].far_ino()],
                        relay: true,
                        confine: None,
                        follow: false,
                    });
                }
                if execs.send((report.time_ns, now)).is_err() {
                    break;
                }
            }
        });
        let mut plain = Stages::default();
        let mut held = Stages::default();
        // In turns, so that both meet the same machine.
        for _ in 0..rounds {
            let agent = Marks::TREE.with(Marks::ENDPOINT);
            control.mark(own, None, agent).expect("own process");
            control.unmark(own, Marks::ARMED);
            let (started, child) = start();
            exec.recv().expect("told");
            plain.first.push(first_byte(started, child, None));

            control.mark(own, None, Marks::ARMED).expect("own process");
            let (started, child) = start();
            let (at, told) = exec.recv().expect("told");
            let (done, outcome) = outcome.recv_timeout(Duration::from_secs(10)).expect("an outcome");
            let Outcome::Injected(ends) = outcome else {
                panic!("{outcome:?}")
            };
            held.told.push(told.saturating_sub(at) / 1_000);
            held.done.push(done.saturating_sub(at) / 1_000);
            held.first.push(first_byte(started, child, Some(*ends)));
        }
        println!("{rounds} rounds, microseconds: p50 p90 p99");
        for (name, mut values) in [
            ("spawn to first byte, plain", plain.first),
            ("spawn to first byte, held and injected", held.first),
            ("exec to report", held.told),
            ("exec to outcome (the added delay)", held.done),
        ] {
            values.sort_unstable();
            let at = |percent: usize| values[(values.len() - 1) * percent / 100];
            println!("{name:40} {:6} {:6} {:6}", at(50), at(90), at(99));
        }
        drop(exec);
        // One more, so that the events' thread notices.
        drop(start().1.wait());
    });
}

fn start() -> (Instant, Child) {
    let started = Instant::now();
    let child = Command::new("/bin/echo")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    (started, child)
}

fn first_byte(started: Instant, mut child: Child, ends: Option<Ends>) -> u64 {
    let mut byte = [0];
    let arrived = match ends {
        None => child.stdout.take().expect("piped").read_exact(&mut byte),
        // What the relay would read.
        Some(ends) => {
            let mut output = blocking(&ends);
            output.read_exact(&mut byte)
        }
    };
    arrived.expect("a byte");
    let elapsed = started.elapsed();
    child.wait().expect("own child");
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// The server's output, made blocking: our end's description is our own.
fn blocking(ends: &Ends) -> std::fs::File {
    use std::os::fd::AsRawFd;
    std::fs::File::open(format!("/proc/self/fd/{}", ends.from_server.as_raw_fd())).expect("ours")
}
