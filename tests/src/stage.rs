//! One run of one agent: its own folders, its environment, and what is left afterwards.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit;
use crate::mock_llm::{LogLine, Script};
use crate::wire::{self, Talk};

/// An agent that takes longer is stuck.
const LIMIT: Duration = Duration::from_mins(2);

/// A server as an agent's configuration names it.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    /// Executable.
    pub command: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Environment on top of the agent's.
    pub env: Vec<(String, String)>,
}

impl ServerEntry {
    /// An entry without arguments.
    pub fn new(command: impl AsRef<OsStr>) -> Self {
        Self {
            command: text(command.as_ref()),
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    /// With these arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| text(arg.as_ref())));
        self
    }

    /// With this variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.to_owned(), text(value.as_ref())));
        self
    }

    /// `{command, args, env}`.
    pub fn json(&self) -> Value {
        let env: serde_json::Map<_, _> = self.env.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        json!({"command": self.command, "args": self.args, "env": env})
    }
}

fn text(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

/// The folders of one run.
pub struct Stage {
    dir: TempDir,
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// How the agent ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Stage {
    /// New empty folders.
    pub fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("kams-stage-").tempdir()?;
        for name in ["home", "work", "witness"] {
            std::fs::create_dir(dir.path().join(name))?;
        }
        Ok(Self { dir })
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A server with its witness: a Node one, a Python one or one of ours (each reads its own variable).
    pub fn witnessed(&self, server: ServerEntry) -> ServerEntry {
        server
            .env(
                "NODE_OPTIONS",
                format!("--require {}", kit::node_witness().display()),
            )
            .env("PYTHONPATH", kit::python_witness())
            .env("KAMS_WITNESS", self.path("witness"))
    }

    /// What the servers of this run read and wrote.
    pub fn talks(&self) -> Result<Vec<Talk>> {
        wire::talks(&self.path("witness"))
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, content).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// A command in the work folder with a home of its own and nothing of our environment but the path.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", path_variable())
            .env("HOME", self.path("home"));
        command
            .env("LANG", "C.UTF-8")
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    /// The same inside a box with a mock LLM that follows `script`.
    pub fn boxed(&self, kams_box: &Path, script: &Script, program: impl AsRef<OsStr>) -> Result<Command> {
        let script = self.write("script.json", serde_json::to_vec(script)?)?;
        let mut command = self.command(kams_box);
        command.arg(script).arg(self.path("llm.jsonl")).arg(program);
        Ok(command)
    }

    /// What the mock LLM was asked.
    pub fn llm_log(&self) -> Result<Vec<LogLine>> {
        let text = std::fs::read_to_string(self.path("llm.jsonl")).context("the mock LLM was never asked")?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Runs a command to its end. A command that outlives the limit is killed, and an error.
    pub fn run(&self, command: &mut Command) -> Result<Run> {
        let (out, err) = (self.path("stdout"), self.path("stderr"));
        command.stdout(File::create(&out)?).stderr(File::create(&err)?);
        let mut child = command
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        let status = wait(&mut child, LIMIT)?;
        let read = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let run = Run {
            stdout: read(out)?,
            stderr: read(err)?,
            status: status.unwrap_or_default(),
        };
        if status.is_none() {
            bail!("still running after {LIMIT:?}: {run:?}");
        }
        Ok(run)
    }

    /// Runs a command that must succeed.
    pub fn run_well(&self, command: &mut Command) -> Result<Run> {
        let run = self.run(command)?;
        ensure!(
            run.status.success(),
            "{} ended badly: {run:#?}",
            command.get_program().display()
        );
        Ok(run)
    }
}

/// Waits for the end of a child; kills it (it alone) and returns none when the limit passes.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).context("pidfd")?;
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs())?,
        tv_nsec: limit.subsec_nanos().into(),
    };
    if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit))? > 0 {
        return Ok(Some(child.wait()?));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Our own search path, with what was installed for the tests in front.
fn path_variable() -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let front = [
        kit::installed().join("node/node_modules/.bin"),
        kit::installed().join("python/bin"),
    ];
    std::env::join_paths(front.into_iter().chain(std::env::split_paths(&own))).unwrap_or(own)
}
