//! What processes that have nothing to do with MCP pay for the sensor.
//!
//! Meant for a guest whose clock counts instructions (`cargo xtask bench overhead`), where figures repeat to a few
//! thousandths; elsewhere they are noisy. Each round measures without a sensor; with one that watches no agent; beside
//! a whole daemon that enforces, whose agent's one server has a relay (`kams-relayed`, which proves it); and with
//! a sensor that reads an agent's streams, by each way of reading payload. A round is void unless the sensor captured
//! what its agent then wrote and read.
#![expect(clippy::print_stdout, reason = "a benchmark")]

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use kams_host::{Backend, Marks, Op, Sensor, SensorEvent, SensorEvents, SensorOptions};

type Failure = Box<dyn std::error::Error>;

/// What is measured: name, unit, turns.
const ROWS: [(&str, &str, u32); 5] = [
    ("pipe ping-pong, 1 byte", "round trip", 400),
    ("pipe write + read, 1 byte", "pair", 1_500),
    ("read of a zero device, 1 byte", "call", 3_000),
    ("pipe bulk, 64 KiB writes", "64 KiB", 60),
    ("pipe ping-pong, 200 bytes of JSON", "round trip", 400),
];

/// How it is measured. The first is what the others are compared with.
const WAYS: [&str; 5] = [
    "off",
    "observe, no agent",
    "enforce, all servers relayed",
    "observe, one agent, at functions",
    "observe, one agent, at system calls",
];
const IDLE: usize = 1;
const RELAYED: usize = 2;
const FUNCTIONS: usize = 3;
const CALLS: usize = 4;

/// Most that a row may cost, as a multiple of off, in the order of the ways. Reading at the exit of system calls has no such
/// bound: it is for kernels that allow nothing else.
const MOST: [[f64; 3]; 5] = [
    [1.01, 1.01, 1.08],
    [1.01, 1.01, 1.15],
    [1.01, 1.01, 1.00],
    [1.01, 1.01, 1.01],
    [1.01, 1.01, 1.08],
];
/// What a ratio may be above its bound before it counts as a failure.
const TOLERANCE: f64 = 0.03;

/// 200 bytes that look like a message and are none.
fn json() -> Vec<u8> {
    let mut text = br#"{"event":"tick","payload":""#.to_vec();
    text.resize(197, b'x');
    text.extend_from_slice(b"\"}\n");
    text
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["work", row] => row.parse().map_err(Failure::from).and_then(work),
        ["echo", size] => size.parse().map_err(Failure::from).and_then(echo),
        ["sink"] => sink(),
        ["agent"] => agent(),
        [rounds, relayed, rest @ ..] if rest.is_empty() || rest == ["--check"] => rounds
            .parse()
            .map_err(Failure::from)
            .and_then(|rounds| bench(rounds, relayed, !rest.is_empty())),
        _ => Err("usage: bench_overhead ROUNDS KAMS-RELAYED|- [--check]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("overhead: {error}");
            ExitCode::FAILURE
        }
    }
}

fn own(arguments: &[&str]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Does the work of a row as a process of its own, and prints nanoseconds per turn.
fn work(row: usize) -> Result<(), Failure> {
    let (_, _, turns) = ROWS.get(row).ok_or("no such row")?;
    let turns = *turns;
    // The first turns fault pages in and fill caches.
    let warm = turns / 10 + 1;
    let time = match row {
        0 => ping_pong(b"x", warm, turns)?,
        1 => {
            let (mut reader, mut writer) = std::io::pipe()?;
            timed(warm, turns, || {
                writer.write_all(b"x")?;
                reader.read_exact(&mut [0])
            })?
        }
        2 => {
            let mut zero = File::open("/dev/zero")?;
            timed(warm, turns, || zero.read_exact(&mut [0]))?
        }
        3 => {
            let mut child = own(&["sink"])?.spawn()?;
            let mut to = child.stdin.take().ok_or("piped")?;
            let block = vec![b'x'; 64 * 1024];
            let time = timed(warm, turns, || to.write_all(&block))?;
            drop(to);
            child.wait()?;
            time
        }
        _ => ping_pong(&json(), warm, turns)?,
    };
    println!("{time}");
    Ok(())
}

fn ping_pong(message: &[u8], warm: u32, turns: u32) -> Result<f64, Failure> {
    let mut child = own(&["echo", &message.len().to_string()])?.spawn()?;
    let mut to = child.stdin.take().ok_or("piped")?;
    let mut from = child.stdout.take().ok_or("piped")?;
    let mut answer = vec![0; message.len()];
    let time = timed(warm, turns, || {
        to.write_all(message)?;
        from.read_exact(&mut answer)
    })?;
    drop(to);
    child.wait()?;
    Ok(time)
}

/// Nanoseconds per turn: the median of several stretches, so that a tick of the clock or another thread in one of them does
/// not count.
fn timed(warm: u32, turns: u32, mut turn: impl FnMut() -> std::io::Result<()>) -> Result<f64, Failure> {
    const STRETCHES: u32 = 20;
    for _ in 0..warm {
        turn()?;
    }
    let each = (turns / STRETCHES).max(1);
    let mut stretches = Vec::new();
    for _ in 0..STRETCHES {
        let began = Instant::now();
        for _ in 0..each {
            turn()?;
        }
        stretches.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(each));
    }
    median(&stretches).ok_or_else(|| "no figures".into())
}

fn echo(size: usize) -> Result<(), Failure> {
    let (mut from, mut to) = (unbuffered(0)?, unbuffered(1)?);
    let mut message = vec![0; size];
    while from.read_exact(&mut message).is_ok() {
        to.write_all(&message)?;
    }
    Ok(())
}

fn sink() -> Result<(), Failure> {
    let mut from = unbuffered(0)?;
    let mut block = vec![0; 64 * 1024];
    while from.read(&mut block)? > 0 {}
    Ok(())
}

/// One of our own descriptors, without the library's buffers.
fn unbuffered(fd: u32) -> std::io::Result<File> {
    File::options()
        .read(fd == 0)
        .write(fd != 0)
        .open(format!("/proc/self/fd/{fd}"))
}

/// What an agent says first.
const READY: &str = "ready\n";

/// An agent: for each line that comes in, starts a server, says the line to it and hears it back.
fn agent() -> Result<(), Failure> {
    print!("{READY}");
    std::io::stdout().flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line? + "\n";
        let mut server = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut to = server.stdin.take().ok_or("piped")?;
        to.write_all(line.as_bytes())?;
        drop(to);
        let mut heard = String::new();
        server.stdout.take().ok_or("piped")?.read_to_string(&mut heard)?;
        server.wait()?;
        print!("{heard}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// An agent that the sensor watches.
struct Watched {
    child: Child,
    said: u32,
}

impl Watched {
    fn start(sensor: &Sensor) -> Result<Self, Failure> {
        let mut child = own(&["agent"])?.spawn()?;
        // An exec clears the mark: wait until it is over.
        let mut ready = [0; READY.len()];
        child.stdout.as_mut().ok_or("piped")?.read_exact(&mut ready)?;
        let control = sensor.control();
        control.mark(child.id(), None, Marks::TREE.with(Marks::ENDPOINT))?;
        control.attach_payload()?;
        Ok(Self { child, said: 0 })
    }

    /// Has the agent talk to a server and waits until the sensor told both directions of it.
    fn prove(&mut self, events: &mut SensorEvents) -> Result<(), Failure> {
        self.said += 1;
        let line = format!("line {}\n", self.said);
        self.child
            .stdin
            .as_mut()
            .ok_or("piped")?
            .write_all(line.as_bytes())?;
        let mut heard = vec![0; line.len()];
        self.child
            .stdout
            .as_mut()
            .ok_or("piped")?
            .read_exact(&mut heard)?;
        let (mut written, mut read) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(20);
        while written != line.as_bytes() || read != line.as_bytes() {
            match events.try_recv() {
                Some(SensorEvent::Payload(chunk)) => match chunk.key.op {
                    Op::Write => written.extend_from_slice(&chunk.data),
                    Op::Read => read.extend_from_slice(&chunk.data),
                },
                Some(_) => {}
                None if Instant::now() > deadline => {
                    return Err("the sensor captured nothing of its agent: the figures would be void".into());
                }
                None => std::thread::yield_now(),
            }
        }
        Ok(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Ended by the end of its input; there is nothing to do about an agent that was killed.
        let _ended = self.child.wait();
    }
}

/// Figures by row and way.
type Figures = [[Vec<f64>; WAYS.len()]; ROWS.len()];

fn measure(figures: &mut Figures, way: usize) -> Result<(), Failure> {
    for (row, of_row) in figures.iter_mut().enumerate() {
        let output = own(&["work", &row.to_string()])?.output()?;
        let text = String::from_utf8(output.stdout)?;
        let figure: f64 = text
            .trim()
            .parse()
            .map_err(|_no_number| format!("row {row} said {text:?}"))?;
        if let Some(figures) = of_row.get_mut(way) {
            figures.push(figure);
        }
    }
    Ok(())
}

fn bench(rounds: u32, relayed: &str, check: bool) -> Result<(), Failure> {
    let mut figures = Figures::default();
    for round in 0..rounds {
        // Off first in one round and last in the next, so that a drift does not favour one side.
        let mut steps = [false, true];
        if round % 2 == 1 {
            steps.reverse();
        }
        for on in steps {
            if on {
                if relayed != NO_DAEMON {
                    with_daemon(&mut figures, relayed)?;
                }
                with_sensor(&mut figures, Backend::Auto)?;
                with_sensor(&mut figures, Backend::SystemCalls)?;
            } else {
                measure(&mut figures, 0)?;
            }
        }
    }
    report(&figures, check)
}

/// In the place of that program: the part with a whole daemon is left out.
const NO_DAEMON: &str = "-";

/// What the program of the daemon says when every server has its relay.
const ALL_RELAYED: &str = "relayed\n";

fn with_daemon(figures: &mut Figures, program: &str) -> Result<(), Failure> {
    let mut daemon = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = vec![0; ALL_RELAYED.len()];
    let ready = daemon.stdout.as_mut().ok_or("piped")?.read_exact(&mut said);
    let measured = match ready {
        Ok(()) if said == ALL_RELAYED.as_bytes() => measure(figures, RELAYED),
        Ok(()) => Err(format!("{program} said {:?}", String::from_utf8_lossy(&said)).into()),
        Err(error) => Err(format!("{program} ended before its server had a relay: {error}").into()),
    };
    drop(daemon.stdin.take());
    let status = daemon.wait()?;
    measured?;
    if !status.success() {
        return Err(format!("{program} ended with {status}: the figures beside it would be void").into());
    }
    Ok(())
}

fn with_sensor(figures: &mut Figures, backend: Backend) -> Result<(), Failure> {
    let (sensor, mut events) = Sensor::start(SensorOptions {
        ring_bytes: 4 * 1024 * 1024,
        backend,
        ..SensorOptions::default()
    })?;
    let control = sensor.control();
    let method = control.payload_method();
    let mut way = CALLS;
    if backend == Backend::Auto {
        measure(figures, IDLE)?;
        way = FUNCTIONS;
    }
    let began = Instant::now();
    let mut agent = Watched::start(&sensor)?;
    let attached = began.elapsed();
    agent.prove(&mut events)?;
    if backend == Backend::Auto && (!method.at_functions || method.at_system_calls) {
        let reasons = method.reasons.join("; ");
        println!("overhead: at functions nothing is measured: {reasons}");
        return Ok(());
    }
    measure(figures, way)?;
    agent.prove(&mut events)?;
    let first = figures.first().and_then(|row| row.get(way));
    if first.is_some_and(|row| row.len() == 1) {
        let name = WAYS.get(way).unwrap_or(&"");
        println!("overhead: {name}: attached in {attached:?}");
    }
    Ok(())
}

fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Prints medians and ratios; with `check`, fails where a ratio is over its bound.
fn report(figures: &Figures, check: bool) -> Result<(), Failure> {
    let mut over = Vec::new();
    println!(
        "overhead: median of {} in ns (with an instruction-counting clock: instructions); ratio to off",
        figures[0][0].len()
    );
    for (((name, unit, _), of_row), most) in ROWS.iter().zip(figures).zip(&MOST) {
        let Some(off) = of_row.first().and_then(|figures| median(figures)) else {
            continue;
        };
        println!("overhead: {name}: off {off:.0} per {unit}");
        for (way, figures) in WAYS.iter().zip(of_row).skip(1) {
            let Some(on) = median(figures) else { continue };
            let ratios = figures.iter().map(|figure| figure / off);
            let (low, high) = ratios.fold((f64::MAX, 0.0_f64), |(low, high), r| (low.min(r), high.max(r)));
            let ratio = on / off;
            println!("overhead:   {way}: {on:.0}, ratio {ratio:.3} ({low:.3}-{high:.3})");
            let bound = WAYS
                .iter()
                .skip(1)
                .position(|other| other == way)
                .and_then(|at| most.get(at));
            if let Some(bound) = bound.filter(|bound| ratio > *bound + TOLERANCE) {
                over.push(format!(
                    "{name}, {way}: {ratio:.3}, at most {bound:.2} + {TOLERANCE}"
                ));
            }
        }
    }
    if check && !over.is_empty() {
        return Err(format!("over the bound: {}", over.join("; ")).into());
    }
    Ok(())
}
