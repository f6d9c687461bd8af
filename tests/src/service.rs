//! Kams as a service of systemd: what is tried, and the tools for it.

mod deaths;
mod held;
mod install;
mod slice;
mod starts;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::processes;
use crate::stage::Stage;

/// The service.
const UNIT: &str = "kamsd.service";
/// Where relays live.
const SLICE: &str = "kams-relays.slice";
/// The agents' user; not root.
const USER: u32 = 1000;
/// How long the service may take, in an emulated guest.
const PATIENCE: Duration = Duration::from_mins(5);

/// What the daemon is told on top of the sample configuration.
const CONFIG: &str = "mode: enforce
relay: candidates
watch:
  unknown_agents: ignore
  agents:
  - {name: line-agent, executable: line-agent}
";

const POLICY: &str = "version: 1
mode: enforce
rules:
- {name: no-secrets, match: {kind: EGRESS_SENSITIVE, tool: say}, action: block_call, reason: Pass a reference instead.}
";

/// All trials, in the order in which they are to run. Each leaves the service running.
pub fn trials() -> Vec<Trial> {
    [
        install::trials(),
        starts::trials(),
        deaths::trials(),
        held::trials(),
        slice::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A trial on a host where Kams is installed and runs.
#[expect(
    clippy::print_stdout,
    reason = "the summary at the end may not come: a guest's time is limited"
)]
fn trial(name: &str, test: fn() -> Result<()>) -> Trial {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    Trial::test(format!("service::{name}"), move || {
        let installed = INSTALLED.get_or_init(|| install::install().map_err(|error| format!("{error:#}")));
        let outcome = match installed {
            Ok(()) => test(),
            Err(error) => bail_with(error),
        };
        outcome.map_err(|error| {
            let journal = journal_tail().unwrap_or_else(|error| error.to_string());
            // The next trial starts from a service that runs.
            let again = systemctl(&["reset-failed", UNIT])
                .and_then(|_| systemctl(&["start", UNIT]))
                .map_or_else(|error| error.to_string(), |output| said(&output));
            let text = format!("{error:#}\n--- journal of {UNIT}\n{journal}\n--- started again: {again}");
            println!("\n{text}");
            text.into()
        })
    })
}

fn bail_with(error: &str) -> Result<()> {
    bail!("not installed: {error}")
}

fn repository() -> Result<PathBuf> {
    let folder = std::env::var_os("KAMS_REPOSITORY").context("KAMS_REPOSITORY names the repository")?;
    Ok(folder.into())
}

/// What a program said, on both ways.
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn run(program: &str, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(program);
    let command = command.args(words).stdin(Stdio::null());
    command.output().with_context(|| program.to_owned())
}

/// Runs a program that must succeed, and gives its output.
fn well(program: &str, words: &[&str]) -> Result<String> {
    let output = run(program, words)?;
    ensure!(
        output.status.success(),
        "{program} {words:?}: {}: {}",
        output.status,
        said(&output)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn systemctl(words: &[&str]) -> Result<Output> {
    run("systemctl", words)
}

/// A property of the service.
fn property(name: &str) -> Result<String> {
    let text = well("systemctl", &["show", UNIT, "--value", "--property", name])?;
    Ok(text.trim().to_owned())
}

/// The daemon's parent process.
fn parent() -> Result<u32> {
    Ok(property("MainPID")?.parse()?)
}

/// The daemon's worker.
fn worker() -> Result<u32> {
    let children = processes::children(parent()?);
    ensure!(children.len() == 1, "{children:?} are no one worker");
    Ok(children[0])
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        ensure!(start.elapsed() < PATIENCE, "time is up before {what}");
        // States of units and processes have nobody who announces them to us.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until the service runs, and the daemon answers.
fn running() -> Result<()> {
    until("the service runs", || {
        let state = property("ActiveState")?;
        ensure!(
            state != "failed",
            "the service has failed: {}",
            property("Result")?
        );
        Ok(state == "active" && property("SubState")? == "running" && answers())
    })
}

/// Whether the daemon answers on its socket.
fn answers() -> bool {
    run("kams", &["status"]).is_ok_and(|output| output.status.success())
}

/// A place in the journal.
struct Cursor(String);

impl Cursor {
    fn now() -> Result<Self> {
        well("journalctl", &["--sync"])?;
        let text = well("journalctl", &["-n", "1", "-o", "cat", "--show-cursor"])?;
        let cursor = text.lines().find_map(|line| line.strip_prefix("-- cursor: "));
        Ok(Self(cursor.context("a cursor")?.to_owned()))
    }

    /// What the service and systemd have said of it since.
    fn since(&self) -> Result<String> {
        well("journalctl", &["--sync"])?;
        let after = format!("--after-cursor={}", self.0);
        well("journalctl", &["-u", UNIT, "-o", "cat", "--no-pager", &after])
    }
}

fn journal_tail() -> Result<String> {
    well(
        "journalctl",
        &["-u", UNIT, "-n", "60", "-o", "short-monotonic", "--no-pager"],
    )
}

/// Where the tests' own programs lie.
fn beside(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

/// Folders of the agents' user.
fn stage() -> Result<Stage> {
    let stage = Stage::new()?;
    for name in ["", "home", "work", "witness"] {
        std::os::unix::fs::chown(stage.path(name), Some(USER), Some(USER))?;
    }
    Ok(stage)
}

/// An agent of that user, which has not started its server yet. Each server has a name of its own.
fn silent(stage: &Stage, name: &str) -> Result<Desk> {
    let server = stage.path(name);
    if !server.exists() {
        std::fs::copy(beside("desk-server")?, &server)?;
    }
    let tools = stage.write(
        "tools.json",
        r#"[{"name":"say","description":"Says it.","inputSchema":{"type":"object"}}]"#,
    )?;
    let who = format!("--reuid={USER}");
    let group = format!("--regid={USER}");
    let agent = beside("line-agent")?.to_string_lossy().into_owned();
    let server = server.to_string_lossy().into_owned();
    let words = [who.as_str(), &group, "--clear-groups", &agent, &server];
    Desk::silent(stage, "/usr/bin/setpriv", &words, Some(&tools))
}

/// A session whose server has a relay.
fn open(stage: &Stage, name: &str) -> Result<Desk> {
    let mut desk = silent(stage, name)?;
    desk.greet()?;
    relayed(&desk)?;
    Ok(desk)
}

/// The one server of an agent, as `kams servers` tells it.
fn server(desk: &Desk) -> Result<Option<Value>> {
    let all: Value = serde_json::from_str(&well("kams", &["servers", "-o", "json"])?)?;
    let all = all["servers"].as_array().context("a list")?;
    Ok(all
        .iter()
        .find(|one| one["agent_pid"] == desk.agent_pid())
        .cloned())
}

fn relayed(desk: &Desk) -> Result<()> {
    until("a relay", || {
        let server = server(desk)?;
        let state = server.map(|server| server["state"].clone()).unwrap_or_default();
        ensure!(state != "observed", "the server runs without a relay");
        Ok(state == "relayed")
    })
}

/// A token in the published format, assembled so that no scanner of repositories takes it for a real one.
fn secret() -> String {
    format!("gh{}_R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIq", 'p')
}

fn text(result: &Value, error: bool) -> Result<&str> {
    ensure!(
        (result["isError"] == true) == error,
        "expected isError {error}: {result}"
    );
    result["content"][0]["text"]
        .as_str()
        .with_context(|| format!("no text: {result}"))
}

/// A call passes.
fn passes(desk: &mut Desk, words: &str) -> Result<()> {
    let result = desk.call("say", &json!({"text": words}))?;
    ensure!(text(&result, false)? == words, "{result}");
    Ok(())
}

/// A call that the policy does not allow is refused, and one that it allows passes. Says how often the first one passed
/// before: a verdict has its time, and under emulation a daemon that has just begun needs more.
fn is_judged(desk: &mut Desk) -> Result<usize> {
    let mut passed = 0;
    until("a refusal", || {
        let result = desk.call("say", &json!({"text": secret()}))?;
        let is_refused = result["isError"] == true;
        if is_refused {
            ensure!(text(&result, true)?.contains("no-secrets"), "{result}");
        } else {
            ensure!(text(&result, false)? == secret(), "{result}");
            passed += 1;
        }
        Ok(is_refused)
    })?;
    passes(desk, "fine")?;
    Ok(passed)
}

/// The relays that serve.
fn relays() -> Result<Vec<u32>> {
    processes::serving(Path::new("/usr/sbin/kams-relay"))
}

/// None of these processes is stopped.
fn nothing_is_stopped(desk: &Desk) -> Result<()> {
    for pid in std::iter::once(desk.agent_pid()).chain(processes::children(desk.agent_pid())) {
        let state = processes::state(pid);
        ensure!(
            !matches!(state, Some('T' | 't') | None),
            "{pid} is in state {state:?}"
        );
    }
    Ok(())
}
