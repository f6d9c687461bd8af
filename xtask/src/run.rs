//! `cargo xtask run`: builds Kams, starts the daemon as root and prints what it sees.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::host::{self, cargo, has, is_root, must, shown};
use crate::setup;

/// How to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Let the demo's agent and server play a scene, show the findings, and end.
    #[arg(long)]
    demo: bool,
    /// With `--demo`: put a relay before the demo's server and refuse what policy refuses.
    #[arg(long, requires = "demo")]
    enforce: bool,
    /// Build without optimisation.
    #[arg(long)]
    debug: bool,
    /// Handed to kamsd.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// The daemon's configuration for `--enforce`: servers are relayed from their first start on, which needs an agent that is
/// known before it starts one.
const ENFORCING: &str =
    "mode: enforce\nrelay: candidates\nwatch:\n  agents:\n  - {name: demo-agent, executable: demo-agent}\n";
/// How long the daemon may take to load its programs.
const START: Duration = Duration::from_mins(1);
/// How long it may take to stop by itself after Ctrl-C, which the terminal sends to it as well.
const STOP: Duration = Duration::from_secs(5);
/// How often its state is looked at.
const STEP: Duration = Duration::from_millis(100);

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    setup::for_building()?;
    let mut build = cargo();
    build.args(["build", "--locked"]);
    build.args(["-p", "kams-agent", "-p", "kams-relay", "-p", "kams-demo"]);
    if !arguments.debug {
        build.arg("--release");
    }
    must(&mut build)?;
    let programs = host::target().join(if arguments.debug { "debug" } else { "release" });
    let mut rest = arguments.rest.clone();
    if arguments.enforce {
        let config = host::target().join("demo-enforce.yaml");
        std::fs::write(&config, ENFORCING).context("the demo's configuration")?;
        rest.extend(["--config".to_owned(), config.display().to_string()]);
    }
    let mut daemon = daemon(&programs.join("kamsd"), &rest)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst)).context("cannot catch Ctrl-C")?;

    println!("starting {}", shown(&daemon));
    let mut daemon = daemon
        .stdin(Stdio::inherit())
        .spawn()
        .context("cannot start kamsd")?;
    let kams = programs.join("kams");
    let watching = until_watching(&kams, &mut daemon, &interrupted);
    let outcome = watching.and_then(|()| show(arguments.demo, &programs, &mut daemon, &interrupted));
    let patience = if interrupted.load(Ordering::SeqCst) {
        STOP
    } else {
        Duration::ZERO
    };
    let status = stop(&mut daemon, patience)?;
    outcome?;
    if !status.success() {
        bail!("kamsd ended with {status}");
    }
    Ok(())
}

/// The daemon's command line, through sudo where we are not root.
fn daemon(kamsd: &Path, rest: &[String]) -> Result<Command> {
    let mut command = if is_root() {
        Command::new(kamsd)
    } else if has("sudo") {
        let mut sudo = Command::new("sudo");
        sudo.arg("--").arg(kamsd);
        sudo
    } else {
        bail!(
            "kamsd loads kernel programs and must be started by root. As root, type:\n  {} {}\nthen, as \
             yourself:\n  {} events --follow",
            kamsd.display(),
            rest.join(" "),
            kamsd.with_file_name("kams").display()
        );
    };
    command.args(rest);
    Ok(command)
}

/// Waits until the daemon answers.
fn until_watching(kams: &Path, daemon: &mut Child, interrupted: &AtomicBool) -> Result<()> {
    let start = Instant::now();
    while !interrupted.load(Ordering::SeqCst) {
        if let Some(status) = daemon.try_wait()? {
            bail!("kamsd ended at start with {status}");
        }
        let answer = Command::new(kams)
            .arg("status")
            .stdin(Stdio::null())
            .output()
            .context("cannot start kams")?;
        if answer.status.success() {
            return Ok(());
        }
        if start.elapsed() > START {
            bail!(
                "kamsd does not answer: {}",
                String::from_utf8_lossy(&answer.stderr)
            );
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Prints events until Ctrl-C, the end of the demo, or the end of the daemon.
fn show(demo: bool, programs: &Path, daemon: &mut Child, interrupted: &AtomicBool) -> Result<()> {
    let kams = programs.join("kams");
    println!(
        "watching; start an agent in another terminal, `{} servers` lists what it starts",
        kams.display()
    );
    let mut follower = Command::new(&kams)
        .args(["events", "--follow"])
        .stdin(Stdio::null())
        .spawn()?;
    let mut player = if demo { Some(demo_agent(programs)?) } else { None };
    let mut played = None;
    while !interrupted.load(Ordering::SeqCst) && daemon.try_wait()?.is_none() {
        if let Some(agent) = &mut player
            && let Some(status) = agent.try_wait()?
        {
            played = Some(status);
            break;
        }
        std::thread::sleep(STEP);
    }
    if let Some(status) = played {
        println!("\nthe demo is over; its findings:");
        // Exit code 1 says that there are findings, and so there are.
        Command::new(&kams)
            .arg("findings")
            .stdin(Stdio::null())
            .status()?;
        if !status.success() {
            bail!("the demo's agent ended with {status}");
        }
    }
    end(&mut follower)?;
    player.as_mut().map_or(Ok(()), end)
}

fn demo_agent(programs: &Path) -> Result<Child> {
    let agent: PathBuf = programs.join("demo-agent");
    Command::new(agent)
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start the demo's agent")
}

/// Ends a child of our own.
fn end(child: &mut Child) -> Result<()> {
    if child.try_wait()?.is_none() {
        child.kill()?;
    }
    child.wait()?;
    Ok(())
}

/// Waits for the daemon, asking it to stop where nothing has.
fn stop(daemon: &mut Child, patience: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    let mut asked = false;
    loop {
        if let Some(status) = daemon.try_wait()? {
            return Ok(status);
        }
        if !asked && start.elapsed() >= patience {
            asked = true;
            ask_to_stop(daemon)?;
        }
        std::thread::sleep(STEP);
    }
}

/// By ourselves, or through sudo as it was started: then the child is sudo, which passes the signal on.
fn ask_to_stop(daemon: &Child) -> Result<()> {
    if is_root() {
        let pid = i32::try_from(daemon.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .context("the daemon's pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).context("cannot stop the daemon")
    } else {
        must(
            Command::new("sudo")
                .args(["kill", "-TERM"])
                .arg(daemon.id().to_string()),
        )
    }
}
