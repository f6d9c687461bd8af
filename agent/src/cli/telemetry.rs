//! `kams telemetry`: the agents' managed settings, host-wide.
//!
//! Only root, and never from a process that an agent has started. What is written is shown as a difference first.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use kams_export::view::SCHEMA;
use kams_host::procs;
use serde_json::{Value, json};

use super::client::Client;
use super::table::{Cell, Column, Table};
use super::{CliError, Ended, Out, say};
use crate::discover::agents::AgentTable;
use crate::discover::identity::Blind;
use crate::managed::Agent;
use crate::managed::diff;
use crate::managed::plan::{self, Text};
use crate::managed::record::{Changed, Record};

/// Largest settings file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// Processes that are looked at above this one.
const DEEPEST: usize = 256;
/// Agents that have no managed file, and what makes them report.
const BY_ENVIRONMENT: [(&str, &str); 2] = [
    (
        "copilot-cli",
        "set OTEL_EXPORTER_OTLP_ENDPOINT in its environment",
    ),
    (
        "opencode",
        "set OTEL_EXPORTER_OTLP_ENDPOINT in its environment and experimental.openTelemetry in /etc/opencode/opencode.json",
    ),
];

/// `kams telemetry`.
#[derive(Debug, Subcommand)]
pub enum Telemetry {
    /// Which agents report their model calls, and where to.
    Show(Files),
    /// Have agents report to kamsd: writes their host-wide settings.
    Enable {
        #[command(flatten)]
        files: Files,
        /// Report to this address instead of the one kamsd listens on.
        #[arg(long, value_name = "URL", value_parser = endpoint)]
        endpoint: Option<String>,
        /// Put keys aside that somebody else has set; `disable` puts them back.
        #[arg(long)]
        replace: bool,
        /// Only say what would be written.
        #[arg(long)]
        dry_run: bool,
    },
    /// Undo it: what stood in the files before stands there again.
    Disable {
        #[command(flatten)]
        files: Files,
        /// Only say what would be written.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which files.
#[derive(Clone, Debug, clap::Args)]
pub struct Files {
    /// Only of these agents [default: all].
    #[arg(value_name = "AGENT", value_parser = agent)]
    agents: Vec<Agent>,
    /// Folder that stands for the root of the host.
    #[arg(long, value_name = "FOLDER", default_value = "/", hide = true)]
    root: PathBuf,
}

impl Files {
    fn agents(&self) -> Vec<Agent> {
        if self.agents.is_empty() {
            Agent::ALL.into()
        } else {
            self.agents.clone()
        }
    }
}

fn agent(name: &str) -> Result<Agent, String> {
    let names = Agent::ALL.map(Agent::name).join(", ");
    Agent::from_name(name).ok_or_else(|| format!("agents with host-wide settings: {names}"))
}

/// A loopback URL without a path: reports hold what people and models say.
fn endpoint(text: &str) -> Result<String, String> {
    let address = text
        .strip_prefix("http://")
        .and_then(|rest| rest.trim_end_matches('/').parse::<std::net::SocketAddr>().ok())
        .filter(|address| address.ip().is_loopback());
    match address {
        Some(address) => Ok(format!("http://{address}")),
        None => Err("use a loopback address such as http://127.0.0.1:4318".to_owned()),
    }
}

pub(super) async fn run(client: &Client, command: &Telemetry, out: &mut Out) -> Result<Ended, CliError> {
    match command {
        Telemetry::Show(files) => show(client, files, out).await,
        Telemetry::Enable {
            files,
            endpoint,
            replace,
            dry_run,
        } => {
            may_write(client).await?;
            let endpoint = match endpoint {
                Some(endpoint) => endpoint.clone(),
                None => listening(client).await?.ok_or_else(|| {
                    input(
                        "telemetry.listen",
                        "kamsd receives no reports (it is off, or its port was taken); see its log",
                    )
                })?,
            };
            let change = |agent: Agent, current: Option<&str>, known: Option<&Changed>| {
                plan::enable(agent, &endpoint, current, known, *replace)
                    .map(|(text, changed)| Some((text, Some(changed))))
            };
            apply(files, *dry_run, &change, out)
        }
        Telemetry::Disable { files, dry_run } => {
            may_write(client).await?;
            let change = |agent: Agent, current: Option<&str>, known: Option<&Changed>| {
                known
                    .map(|known| plan::disable(agent, current, known).map(|text| (text, None)))
                    .transpose()
            };
            apply(files, *dry_run, &change, out)
        }
    }
}

/// What becomes of a file and of its entry in the record; none: nothing is to be done.
type Step = Result<Option<(Text, Option<Changed>)>, plan::PlanError>;

/// How a file and its entry in the record are changed.
type Change<'a> = &'a dyn Fn(Agent, Option<&str>, Option<&Changed>) -> Step;

/// Works out all files before it writes one, so that a file that is refused stops all.
fn apply(files: &Files, dry_run: bool, change: Change<'_>, out: &mut Out) -> Result<Ended, CliError> {
    let mut record = Record::read(&files.root).map_err(|why| input("record", why))?;
    let mut steps = Vec::new();
    for agent in files.agents() {
        let path = agent.file(&files.root);
        let current = read(&path)?;
        let known = record.of(agent.name());
        let step = change(agent, current.as_deref(), known).map_err(|error| input(path.display(), error))?;
        if let Some((text, changed)) = step {
            if current != text {
                may_change(&path, changed.is_some()).map_err(|error| input(path.display(), error))?;
            }
            steps.push((agent, path, current, text, changed));
        }
    }
    let mut told = Vec::new();
    for (agent, path, current, text, mut changed) in steps {
        let lines = diff::lines(
            current.as_deref().unwrap_or_default(),
            text.as_deref().unwrap_or_default(),
        );
        if !out.is_json() {
            tell(agent, &path, current.as_deref(), text.as_deref(), &lines, out)?;
        }
        told.push(json!({"agent": agent.name(), "file": path, "diff": lines,
            "removed": text.is_none() && current.is_some()}));
        if dry_run {
            continue;
        }
        // The record first: a file that is changed without one could not be put back.
        let folders = match &mut changed {
            Some(changed) => {
                let made = missing_folders(&path);
                changed.folders = [std::mem::take(&mut changed.folders), made].concat();
                Vec::new()
            }
            None => record
                .of(agent.name())
                .map(|known| known.folders.clone())
                .unwrap_or_default(),
        };
        let undone = changed.is_none();
        if !undone {
            record.enter(agent.name(), changed);
            save(&files.root, &record)?;
        }
        if current != text {
            write(&path, text.as_deref())?;
        }
        if undone {
            // Only folders that were made for the file, and that hold nothing else by now.
            for folder in folders.iter().rev() {
                if fs::remove_dir(folder).is_err() {
                    break;
                }
            }
            record.enter(agent.name(), None);
            save(&files.root, &record)?;
        }
    }
    if out.is_json() {
        out.json(&json!({"schema": SCHEMA, "dry_run": dry_run, "files": told}))?;
    } else if told.is_empty() {
        say("nothing to undo: Kams has written no such file");
    } else if !dry_run {
        say("agents read their settings when they start: those that run go on as before");
    }
    Ok(Ended::Clean)
}

fn tell(
    agent: Agent,
    path: &Path,
    before: Option<&str>,
    after: Option<&str>,
    lines: &[String],
    out: &mut Out,
) -> io::Result<()> {
    let what = match (before, after) {
        (None, None) => "is not there",
        (None, Some(_)) => "is new",
        (Some(_), None) => "goes",
        (Some(before), Some(after)) if before == after => "stays as it is",
        _ => "changes",
    };
    out.line(&format!("{}: {} {what}", agent.name(), path.display()))?;
    for line in lines {
        out.line(&format!("    {}", kams_export::text::visible(line)))?;
    }
    Ok(())
}

async fn show(client: &Client, files: &Files, out: &mut Out) -> Result<Ended, CliError> {
    let here = listening(client).await.unwrap_or(None);
    let record = Record::read(&files.root).map_err(|why| input("record", why))?;
    let mut rows = Vec::new();
    for agent in files.agents() {
        let path = agent.file(&files.root);
        let state = match read(&path) {
            Err(error) => error.to_string(),
            Ok(None) => "does not report".to_owned(),
            Ok(Some(text)) => match plan::endpoint(agent, &text) {
                Err(error) => error.to_string(),
                Ok(None) => "does not report".to_owned(),
                Ok(Some(to)) if record.of(agent.name()).is_some() => format!("reports to {to}"),
                Ok(Some(to)) => format!("reports to {to}, not set by Kams"),
            },
        };
        rows.push((agent.name(), state, path.display().to_string()));
    }
    if out.is_json() {
        let agents: Vec<Value> = rows
            .iter()
            .map(|(agent, state, file)| json!({"agent": agent, "state": state, "file": file}))
            .collect();
        out.json(&json!({"schema": SCHEMA, "receiver": here, "agents": agents}))?;
        return Ok(Ended::Clean);
    }
    let mut table = Table::new(vec![
        Column::left("AGENT", 20),
        Column::left("STATE", 70),
        Column::left("FILE", 70),
    ]);
    let by_environment = BY_ENVIRONMENT.map(|(agent, how)| (agent, how.to_owned(), "-".to_owned()));
    let cells: Vec<Vec<Cell>> = rows
        .into_iter()
        .chain(by_environment)
        .map(|(agent, state, file)| vec![Cell::new(agent), Cell::new(state), Cell::new(file)])
        .collect();
    for line in table.all(&cells, out) {
        out.line(&line)?;
    }
    match here {
        Some(here) => say(&format!("kamsd receives reports on {here}")),
        None => say("kamsd receives no reports just now"),
    }
    Ok(Ended::Clean)
}

/// Where kamsd listens; none where it does not.
async fn listening(client: &Client) -> Result<Option<String>, CliError> {
    let value: Value = client.get("/v1/query/telemetry").await?;
    let address = value.get("listen").and_then(Value::as_str);
    Ok(address.map(|address| format!("http://{address}")))
}

async fn may_write(client: &Client) -> Result<(), CliError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(input(
            "telemetry",
            "only root may change host-wide settings: use sudo",
        ));
    }
    if let Some(agent) = agent_above() {
        let why = format!(
            "refused: this command stands below {agent}; run it from a terminal that no agent has started"
        );
        return Err(input("telemetry", why));
    }
    // The daemon knows agents that no list names; without it, the list above is all there is.
    if let Ok(view) = client.get::<Value>("/v1/whoami").await
        && view.get("may_write").and_then(Value::as_bool) == Some(false)
    {
        let why = view.get("why_not").and_then(Value::as_str).unwrap_or("refused");
        return Err(input("telemetry", why.to_owned()));
    }
    Ok(())
}

/// Name of the known agent that this process stands below of.
fn agent_above() -> Option<String> {
    let table = AgentTable::new(&[]).ok()?;
    let text = |path: Option<PathBuf>| path.map_or_else(String::new, |p| p.to_string_lossy().into_owned());
    let mut next = Some(std::process::id());
    for _ in 0..DEEPEST {
        let facts = procs::facts(next?)?;
        let argv: Vec<String> = facts
            .argv
            .iter()
            .map(|arg| String::from_utf8_lossy(arg).into_owned())
            .collect();
        if let Some(agent) = table.recognise(&text(facts.exe), &argv, &text(facts.cwd), &Blind) {
            return Some(agent.name.clone());
        }
        next = Some(facts.stat.ppid).filter(|parent| *parent > 0);
    }
    None
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "most callers have an error that ends here"
)]
fn input(file: impl std::fmt::Display, why: impl ToString) -> CliError {
    CliError::Input {
        file: file.to_string(),
        why: why.to_string(),
    }
}

/// A settings file's text; none where there is none. Links are refused: who made them decides what is read and written.
fn read(path: &Path) -> Result<Option<String>, CliError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(input(path.display(), error)),
    };
    if !meta.is_file() || meta.len() > MAX_FILE {
        return Err(input(path.display(), "it is no regular file of a usual size"));
    }
    fs::read_to_string(path)
        .map(Some)
        .map_err(|error| input(path.display(), error))
}

fn missing_folders(path: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = path
        .ancestors()
        .skip(1)
        .take_while(|folder| !folder.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

/// Puts a text in a file's place, or takes the file away.
fn write(path: &Path, text: Option<&str>) -> Result<(), CliError> {
    let failed = |error: io::Error| input(path.display(), error);
    let Some(text) = text else {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        };
    };
    let meta = fs::symlink_metadata(path).ok();
    let mode = meta.as_ref().map_or(0o644, |meta| meta.mode() & 0o777);
    place(path, text, mode, meta.map(|meta| (meta.uid(), meta.gid()))).map_err(failed)
}

fn save(root: &Path, record: &Record) -> Result<(), CliError> {
    let path = Record::path(root);
    // Others' settings may hold secrets.
    place(&path, &record.text(), 0o600, None).map_err(|error| input(path.display(), error))
}

/// Whether a file may be written here: its folder, as far as it is there, is root's alone. So must be a file that is to be
/// switched on (`own`): whoever may write to it would decide where reports go. One that others have got hold of since can
/// still be put back.
fn may_change(path: &Path, own: bool) -> io::Result<()> {
    for folder in path.ancestors().skip(1) {
        match fs::metadata(folder) {
            Ok(meta) => {
                ours(folder, &meta)?;
                break;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    match fs::symlink_metadata(path) {
        Ok(meta) if own => ours(path, &meta),
        _ => Ok(()),
    }
}

/// Whether something belongs to root and nobody else may write to it.
fn ours(path: &Path, meta: &fs::Metadata) -> io::Result<()> {
    if meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let message = format!("others than root may write to {}", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Writes beside and renames, so that nobody reads half a file. The folder must be root's alone. The file keeps the
/// `owner` (user and group) of the one in whose place it comes.
fn place(path: &Path, text: &str, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    ours(folder, &fs::metadata(folder)?)?;
    let beside = path.with_extension("kams-new");
    // What an earlier run left when it was killed.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)?;
    let made = file.metadata()?;
    if let Some((uid, gid)) = owner.filter(|owner| *owner != (made.uid(), made.gid())) {
        std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
