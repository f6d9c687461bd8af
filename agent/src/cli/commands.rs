//! What each command does.

use kams_detect::Severity;
use kams_detect::redact::json_error;
use kams_export::view::{CheckResult, DoctorView, EventKind, Record, ServerView, StatusView, ToolView};
use kams_host::memory::keep_from_disk;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::args::{Args, Command, Filter, KindOrFinding, Stream};
use super::client::Client;
use super::detect;
use super::follow::{self, Request};
use super::show::{self, LiveView};
use super::{
    CliError, Ended, Offline, Out, baseline, exceptions, pages, policy, runs, say, scan, telemetry, waste,
};
use crate::admin::Selection;

/// What the table form of `events` shows unless types are asked for: one line per server and per finished call.
const NOTABLE: [EventKind; 11] = [
    EventKind::AgentStarted,
    EventKind::AgentGone,
    EventKind::ServerConfirmed,
    EventKind::ServerGone,
    EventKind::ToolResult,
    EventKind::ToolsListed,
    EventKind::Malformed,
    EventKind::Gap,
    EventKind::Loss,
    EventKind::Daemon,
    EventKind::Decision,
];

pub(super) fn run(args: &Args, offline: Offline, out: &mut Out) -> Result<Ended, CliError> {
    match &args.command {
        Command::Completions { shell } => pages::completions(*shell, out)?,
        Command::Man { folder } => pages::man(folder.as_deref(), out)?,
        Command::Detect(detect) => {
            keep_from_disk()?;
            return detect::run(detect, out);
        }
        Command::Replay {
            files,
            policy,
            fail_on,
        } => {
            keep_from_disk()?;
            return replay(files, policy.as_deref(), *fail_on, offline, out);
        }
        Command::Runs(runs::Runs::Verify { file, head }) => return runs::check(file, head.as_ref(), out),
        Command::Wrap(options) => {
            keep_from_disk()?;
            return super::wrap::run(options);
        }
        Command::Policy(command) if !command.is_online() => return policy::run(command, out),
        online => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            return runtime.block_on(Box::pin(ask(&Client::new(&args.socket), online, out)));
        }
    }
    Ok(Ended::Clean)
}

async fn ask(client: &Client, command: &Command, out: &mut Out) -> Result<Ended, CliError> {
    match command {
        Command::Status => {
            let show = |view: &StatusView, out: &mut Out| show::status(view, out);
            document(client, "/v1/status", out, show).await?;
        }
        Command::Doctor => {
            let value: Value = match client.get("/v1/doctor").await {
                // What keeps the daemon from running is just what the doctor is asked for.
                Err(error @ CliError::NotRunning { .. }) => {
                    let why = error.to_string().lines().next().unwrap_or_default().to_owned();
                    serde_json::to_value(crate::engine::doctor::without_daemon(&why)).unwrap_or_default()
                }
                answer => answer?,
            };
            let view: DoctorView = typed(&value)?;
            if out.is_json() {
                out.json(&value)?;
            } else {
                show::doctor(&view, out)?;
            }
            return Ok(if view.worst() == CheckResult::Fail {
                Ended::Found
            } else {
                Ended::Clean
            });
        }
        Command::Servers { cost, gone } => {
            let route = if *gone {
                "/v1/servers?gone=1"
            } else {
                "/v1/servers"
            };
            let show = |servers: &Vec<ServerView>, out: &mut Out| show::servers(servers, *cost, out);
            list(client, route, "servers", out, show).await?;
        }
        Command::Tools { server } => {
            let pairs: Vec<_> = server.iter().map(|s| ("server", s.clone())).collect();
            let show = |tools: &Vec<ToolView>, out: &mut Out| show::tools(tools, out);
            list(client, &follow::route("/v1/tools", &pairs), "tools", out, show).await?;
        }
        Command::Events {
            stream,
            kinds,
            all,
            filter,
        } => {
            let selection = events(kinds, *all, filter, out.is_json());
            return records(client, "/v1/events", stream, selection, None, out).await;
        }
        Command::Findings {
            stream,
            min_severity,
            detector,
            since,
            fail_on,
            filter,
        } => {
            let selection = Selection {
                min_severity: *min_severity,
                detector: detector.clone(),
                from: *since,
                ..filter.selection()
            };
            return records(client, "/v1/findings", stream, selection, *fail_on, out).await;
        }
        Command::Baseline(verb) => return baseline::run(client, verb, out).await,
        Command::Policy(command) => return policy::online(client, command, out).await,
        Command::Runs(verb) => return runs::runs(client, verb, out).await,
        Command::Exceptions(verb) => exceptions::run(client, verb, out).await?,
        Command::Restrictions(verb) => runs::restrictions(client, verb, out).await?,
        Command::Approvals(verb) => runs::approvals(client, verb, out).await?,
        Command::Waste(waste) => waste::run(client, waste, out).await?,
        Command::Telemetry(verb) => return telemetry::run(client, verb, out).await,
        Command::Scan(scan) => return scan::run(client, scan, out).await,
        Command::On => switch(client, "/v1/on", "Kams is on", out).await?,
        Command::Off => switch(client, "/v1/off", "Kams is off: nothing is watched", out).await?,
        Command::Completions { .. }
        | Command::Man { .. }
        | Command::Replay { .. }
        | Command::Detect(_)
        | Command::Wrap(_) => {}
    }
    Ok(Ended::Clean)
}

fn events(kinds: &[KindOrFinding], all: bool, filter: &Filter, json: bool) -> Selection {
    let mut selection = filter.selection();
    for kind in kinds {
        match kind {
            KindOrFinding::Kind(kind) => selection.kinds.push(*kind),
            KindOrFinding::Finding => selection.findings = true,
        }
    }
    if kinds.is_empty() && !all && !json {
        selection.kinds = NOTABLE.into();
        selection.findings = true;
    }
    selection
}

async fn records(
    client: &Client,
    route: &'static str,
    stream: &Stream,
    selection: Selection,
    fail_on: Option<Severity>,
    out: &mut Out,
) -> Result<Ended, CliError> {
    let last = stream.last.unwrap_or(if stream.follow { 0 } else { 100 });
    let request = Request {
        route,
        selection,
        follow: stream.follow,
        reconnect: stream.reconnect,
        last,
    };
    let mut view = LiveView::new(stream.follow, fail_on);
    follow::run(client, &request, &mut view, out).await?;
    Ok(view.ended())
}

async fn document<T: DeserializeOwned>(
    client: &Client,
    route: &str,
    out: &mut Out,
    show: impl FnOnce(&T, &mut Out) -> std::io::Result<()>,
) -> Result<(), CliError> {
    let value: Value = client.get(route).await?;
    if out.is_json() {
        return Ok(out.json(&value)?);
    }
    Ok(show(&typed(&value)?, out)?)
}

async fn list<T: DeserializeOwned>(
    client: &Client,
    route: &str,
    member: &str,
    out: &mut Out,
    show: impl FnOnce(&Vec<T>, &mut Out) -> std::io::Result<()>,
) -> Result<(), CliError> {
    let value: Value = client.get(route).await?;
    if out.is_json() {
        return Ok(out.json(&value)?);
    }
    let items: Vec<T> = typed(value.get(member).unwrap_or(&Value::Null))?;
    if items.is_empty() {
        say(&format!(
            "no {member} to show; `kams status` says what is watched"
        ));
        return Ok(());
    }
    Ok(show(&items, out)?)
}

pub(super) fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, CliError> {
    T::deserialize(value).map_err(|error| CliError::Answer {
        why: json_error(&error),
    })
}

async fn switch(client: &Client, route: &str, done: &str, out: &mut Out) -> Result<(), CliError> {
    let value: Value = client.post(route).await?;
    if out.is_json() {
        return Ok(out.json(&value)?);
    }
    say(done);
    Ok(())
}

fn replay(
    files: &[std::path::PathBuf],
    policy: Option<&std::path::Path>,
    fail_on: Option<Severity>,
    offline: Offline,
    out: &mut Out,
) -> Result<Ended, CliError> {
    let rules = match policy {
        Some(file) => std::sync::Arc::new(policy::text::strict(file)?),
        None => std::sync::Arc::new(kams_policy::Policy::default_policy()),
    };
    let mut view = LiveView::new(false, fail_on);
    for file in files {
        let mut written = Ok(());
        let mut emit = |record: Record| {
            let shown = view.record(&record, None, out);
            // The engine may wrap the error: keep it, so that a closed pipe is still known as one.
            if let Err(error) = &shown {
                written = Err(std::io::Error::from(error.kind()));
            }
            shown
        };
        let replayed = (offline.replay)(file, std::sync::Arc::clone(&rules), &mut emit);
        written?;
        replayed.map_err(|error| CliError::Replay {
            file: kams_export::text::visible(&file.to_string_lossy()),
            why: format!("{error:#}"),
        })?;
    }
    Ok(view.ended())
}
