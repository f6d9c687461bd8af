//! A running Kams of our own: private configuration, socket and state, and its events as they come.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::event::Event;
use crate::stage::wait;

/// How long the daemon may take to load its programs, on a busy machine.
const START: Duration = Duration::from_mins(1);
/// How long it may take to stop.
const STOP: Duration = Duration::from_secs(20);
/// How long an event may take from the process to us.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon with a follower on its events. Killed when dropped; [`Kams::stop`] is the civil way.
pub struct Kams {
    daemon: Child,
    follower: Child,
    events: Arc<Events>,
    dir: TempDir,
    programs: PathBuf,
    metrics: SocketAddr,
    ready: UnixDatagram,
}

#[derive(Default)]
struct Events {
    list: Mutex<List>,
    more: Condvar,
}

#[derive(Default)]
struct List {
    events: Vec<Event>,
    ended: bool,
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, output: ChildStdout) {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Findings and the follower's own lines share the stream; they have no `event`.
            if let Ok(event) = serde_json::from_str::<Event>(&line)
                && !event.event.is_empty()
            {
                self.lock().events.push(event);
                self.more.notify_all();
            }
        }
        self.lock().ended = true;
        self.more.notify_all();
    }
}

impl Kams {
    /// Starts the daemon of the folder `programs`, with `extra` lines of configuration, and waits until it watches.
    pub fn start(programs: &Path, extra: &str) -> Result<Self> {
        Self::start_under(programs, extra, &[])
    }

    /// The same under a policy: files of the folder `policy`, by name; `policy.yaml` is the one that counts.
    pub fn start_under(programs: &Path, extra: &str, policy: &[(&str, &str)]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("kams-daemon-").tempdir()?;
        // Other users must get to the socket.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let metrics = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let path = |name: &str| dir.path().join(name);
        // Two daemons cannot have the one port.
        let telemetry = if extra.contains("telemetry:") {
            ""
        } else {
            "telemetry: {listen: off}\n"
        };
        let config = format!(
            "state_dir: {state}\nadmin: {{socket: {socket}}}\nmetrics: {{listen: \"{metrics}\"}}\n\
             events: {{per_user: 1000000, follower: 1000000}}\n{telemetry}{extra}",
            state = path("state").display(),
            socket = path("kams.sock").display(),
        );
        std::fs::create_dir(path("state"))?;
        std::fs::write(path("kams.yaml"), config)?;
        if !policy.is_empty() {
            std::fs::create_dir(path("policy"))?;
        }
        for (name, text) in policy {
            std::fs::write(path("policy").join(name), text)?;
        }
        Self::run(programs, dir, metrics)
    }

    /// Starts a daemon in the folder that an earlier one left, ended or not.
    pub fn restart(mut self) -> Result<Self> {
        for child in [&mut self.daemon, &mut self.follower] {
            if matches!(child.try_wait(), Ok(None)) {
                rustix::process::kill_process(
                    rustix::process::Pid::from_child(child),
                    rustix::process::Signal::TERM,
                )?;
                ensure!(wait(child, STOP)?.is_some(), "a process outlives SIGTERM");
            }
        }
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir()?);
        Self::run(&self.programs, dir, self.metrics)
    }

    fn run(programs: &Path, dir: TempDir, metrics: SocketAddr) -> Result<Self> {
        let path = |name: &str| dir.path().join(name);
        // What an earlier one left.
        if path("ready").exists() {
            std::fs::remove_file(path("ready"))?;
        }
        let ready = UnixDatagram::bind(path("ready"))?;
        ready.set_read_timeout(Some(Duration::from_millis(200)))?;
        let log = File::create(path("kamsd.log"))?;
        let mut command = Command::new(programs.join("kamsd"));
        if path("policy").exists() {
            command.arg("--policy").arg(path("policy/policy.yaml"));
        }
        let mut daemon = command
            .arg("--config")
            .arg(path("kams.yaml"))
            .env("NOTIFY_SOCKET", path("ready"))
            // What it would leave where it stands is found in its own folder.
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start kamsd")?;
        if let Err(error) = until_ready(&ready, &mut daemon) {
            // The error tells what happened; a daemon that has ended cannot be killed, which is fine.
            drop(daemon.kill());
            daemon.wait()?;
            return Err(error.context(log_tail(dir.path())));
        }
        let (follower, events) = follow(programs, dir.path())?;
        Ok(Self {
            daemon,
            follower,
            events,
            dir,
            programs: programs.to_owned(),
            metrics,
            ready,
        })
    }

    /// Process id of the daemon's worker, which does everything; its parent only watches over it.
    pub fn pid(&self) -> u32 {
        worker_of(self.daemon.id()).unwrap_or_default()
    }

    /// Process id of the daemon's parent process.
    pub fn parent_pid(&self) -> u32 {
        self.daemon.id()
    }

    /// Where its programs lie.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Waits until another worker watches, and follows its events; those of the one before are forgotten.
    pub fn next_worker(&mut self) -> Result<()> {
        until_ready(&self.ready, &mut self.daemon).with_context(|| log_tail(self.dir.path()))?;
        // It ended with the worker that it followed.
        wait(&mut self.follower, STOP)?.context("the follower outlives what it follows")?;
        (self.follower, self.events) = follow(&self.programs, self.dir.path())?;
        Ok(())
    }

    /// The same with programs from another folder, as an upgrade does it.
    pub fn upgrade(mut self, programs: &Path) -> Result<Self> {
        programs.clone_into(&mut self.programs);
        self.restart()
    }

    /// Path of its configuration.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("kams.yaml")
    }

    /// The folder that holds all it writes, and its configuration.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Its admin socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("kams.sock")
    }

    /// A file of its policy.
    pub fn policy(&self, name: &str) -> PathBuf {
        self.dir.path().join("policy").join(name)
    }

    /// What `kams ARGS... -o json` says; an error where the exit status is above 1.
    pub fn ask(&self, args: &[&str]) -> Result<serde_json::Value> {
        let output = self.kams(&[args, &["-o", "json"]].concat())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code().is_some_and(|code| code <= 1),
            "kams {args:?}: {}: {said}\n{}",
            output.status,
            self.log()
        );
        serde_json::from_slice(&output.stdout).with_context(|| format!("kams {args:?}: {said}"))
    }

    /// Asks again and again until the answer satisfies `enough`.
    pub fn ask_until(
        &self,
        args: &[&str],
        what: &str,
        enough: impl Fn(&serde_json::Value) -> bool,
    ) -> Result<serde_json::Value> {
        let start = Instant::now();
        loop {
            let answer = self.ask(args)?;
            if enough(&answer) {
                return Ok(answer);
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "time is up before {what}: {answer}\n{}",
                self.log()
            );
            // Answers come from tables that nobody announces.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        log_tail(self.dir.path())
    }

    /// How many events there are; a mark for [`Kams::since`].
    pub fn mark(&self) -> usize {
        self.events.lock().events.len()
    }

    /// The events after a mark.
    pub fn since(&self, mark: usize) -> Vec<Event> {
        self.events.lock().events.get(mark..).unwrap_or_default().to_vec()
    }

    /// Waits until the events after a mark satisfy `enough`, and returns them.
    pub fn wait(&self, mark: usize, what: &str, enough: impl Fn(&[Event]) -> bool) -> Result<Vec<Event>> {
        let start = Instant::now();
        let mut list = self.events.lock();
        loop {
            let after = list.events.get(mark..).unwrap_or_default();
            if enough(after) {
                return Ok(after.to_vec());
            }
            let left = PATIENCE.saturating_sub(start.elapsed());
            if left.is_zero() || list.ended {
                let tail: Vec<_> = after.iter().rev().take(20).collect();
                let why = if list.ended {
                    "the events ended"
                } else {
                    "time is up"
                };
                bail!(
                    "{why} before {what}; the last of {} events: {tail:#?}\n{}",
                    after.len(),
                    self.log()
                );
            }
            list = self
                .events
                .more
                .wait_timeout(list, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// `kams ARGS...` at this daemon, as whom `command` makes it.
    pub fn kams(&self, args: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.programs.join("kams"));
        self.aim(&mut command);
        Ok(command.args(args).stdin(Stdio::null()).output()?)
    }

    /// Adds the arguments that lead `kams` to this daemon.
    pub fn aim(&self, command: &mut Command) {
        command.arg("--socket").arg(self.dir.path().join("kams.sock"));
    }

    /// All samples of the Prometheus endpoint, by name with labels as printed.
    pub fn metrics(&self) -> Result<BTreeMap<String, f64>> {
        let text = self.metrics_text()?;
        let samples = text
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
        Ok(samples
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect())
    }

    /// What the Prometheus endpoint answers, as it stands.
    pub fn metrics_text(&self) -> Result<String> {
        let mut stream = TcpStream::connect(self.metrics).context("the metrics endpoint")?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Sum of all samples of one metric.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let samples = self.metrics()?;
        Ok(samples
            .iter()
            .filter(|(sample, _)| sample.split('{').next() == Some(name))
            .map(|(_, value)| value)
            .sum())
    }

    /// Waits until a sample of the Prometheus endpoint, by name with labels as printed, has this value.
    pub fn metric_until(&self, sample: &str, value: f64) -> Result<()> {
        let start = Instant::now();
        loop {
            let found = self.metrics()?.get(sample).copied();
            if found.is_some_and(|found| (found - value).abs() < 1e-9) {
                return Ok(());
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "{sample} is {found:?}, not {value}\n{}",
                self.log()
            );
            // Nobody announces a change of a gauge.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        Ok(rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.daemon),
            signal,
        )?)
    }

    /// Puts another configuration in place and waits until the daemon has taken or refused it.
    pub fn reload(&mut self, text: &str) -> Result<()> {
        std::fs::write(self.config(), text)?;
        self.signal(rustix::process::Signal::HUP)?;
        until_ready(&self.ready, &mut self.daemon)
    }

    /// Waits until the next worker watches.
    pub fn wait_ready(&mut self) -> Result<()> {
        until_ready(&self.ready, &mut self.daemon)
    }

    /// Ends the daemon's worker by a signal that it need not survive, waits for the next worker, stops all, and leaves
    /// the folder to be looked at. Returns what the parent tells of the end.
    pub fn end_by(&mut self, signal: rustix::process::Signal) -> Result<String> {
        let raw = i32::try_from(self.pid())?;
        let pid = rustix::process::Pid::from_raw(raw).context("a worker")?;
        rustix::process::kill_process(pid, signal)?;
        until_ready(&self.ready, &mut self.daemon)?;
        let log = self.log();
        let told = log.lines().find(|line| line.contains("the worker ended"));
        let told = told
            .with_context(|| format!("nothing of the worker's end\n{log}"))?
            .to_owned();
        self.signal(rustix::process::Signal::TERM)?;
        wait(&mut self.daemon, STOP)?.context("kamsd outlives the signal")?;
        Ok(told)
    }

    /// Kills both processes of the daemon, as the end of their group would; its folder stays for [`Kams::restart`].
    pub fn kill(&mut self) -> Result<()> {
        let worker = rustix::process::Pid::from_raw(i32::try_from(self.pid())?).context("a worker")?;
        self.end_both(|kams| {
            // The parent first: it would start another worker.
            kams.signal(rustix::process::Signal::KILL)?;
            Ok(rustix::process::kill_process(
                worker,
                rustix::process::Signal::KILL,
            )?)
        })
    }

    /// Has `how` end the daemon, and waits for the end of both of its processes.
    pub fn end_both(&mut self, how: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let worker = Pid::from_raw(i32::try_from(self.pid())?).context("a worker")?;
        let ended = pidfd_open(worker, PidfdFlags::empty())?;
        how(self)?;
        wait(&mut self.daemon, STOP)?.context("kamsd outlives its end")?;
        let limit = rustix::event::Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        let mut polled = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
        ensure!(
            rustix::event::poll(&mut polled, Some(&limit))? > 0,
            "the worker outlives the daemon's end"
        );
        Ok(())
    }

    /// Nobody follows the events any more: what they cost their reader is not measured.
    pub fn unfollowed(&mut self) -> Result<()> {
        self.follower.kill()?;
        self.follower.wait()?;
        Ok(())
    }

    /// Stops the daemon as a service manager would, and returns how it ended and the end of its log.
    pub fn stop(mut self) -> Result<(ExitStatus, String)> {
        self.signal(rustix::process::Signal::TERM)?;
        let status = wait(&mut self.daemon, STOP)?;
        let log = self.log();
        ensure!(
            self.follower.try_wait()?.is_some() || wait(&mut self.follower, STOP)?.is_some(),
            "the follower outlives the daemon"
        );
        Ok((
            status.with_context(|| format!("kamsd does not stop\n{log}"))?,
            log,
        ))
    }
}

impl Drop for Kams {
    fn drop(&mut self) {
        let lived = matches!(self.daemon.try_wait(), Ok(None));
        for child in [&mut self.daemon, &mut self.follower] {
            if matches!(child.try_wait(), Ok(None)) {
                // Nothing more can be done about a child that cannot be killed.
                drop(child.kill());
                drop(child.wait());
            }
        }
        if lived {
            // Killed like this it may leave servers cut off.
            let mut heal = Command::new(self.programs.join("kamsd"));
            drop(heal.arg("--config").arg(self.config()).arg("--heal").status());
        }
    }
}

/// A follower of the daemon's events, and the events.
fn follow(programs: &Path, dir: &Path) -> Result<(Child, Arc<Events>)> {
    let mut follower = Command::new(programs.join("kams"))
        .arg("--socket")
        .arg(dir.join("kams.sock"))
        .args(["events", "--follow", "--last", "10000", "-o", "json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It complains when its daemon is killed, which is what some trials are about.
        .stderr(Stdio::null())
        .spawn()
        .context("start kams")?;
    let events = Arc::new(Events::default());
    let (reader, output) = (
        Arc::clone(&events),
        follower.stdout.take().context("piped output")?,
    );
    std::thread::spawn(move || reader.read(output));
    Ok((follower, events))
}

/// The one child of the daemon's parent process.
fn worker_of(parent: u32) -> Result<u32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    Ok(children.trim().parse()?)
}

fn until_ready(ready: &UnixDatagram, daemon: &mut Child) -> Result<()> {
    let start = Instant::now();
    let mut message = [0; 4096];
    while start.elapsed() < START {
        if let Ok(length) = ready.recv(&mut message) {
            let text = String::from_utf8_lossy(message.get(..length).unwrap_or_default()).into_owned();
            if text.lines().any(|line| line == "READY=1") {
                return Ok(());
            }
        }
        if let Some(status) = daemon.try_wait()? {
            bail!("kamsd ended at start with {status}");
        }
    }
    bail!("kamsd did not report READY=1 within {START:?}")
}

fn log_tail(dir: &Path) -> String {
    let text = std::fs::read_to_string(dir.join("kamsd.log")).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default();
    format!("log of kamsd:\n{}", tail.join("\n"))
}
