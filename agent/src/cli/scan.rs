//! `kams scan`: the servers that clients are configured to start, and what is known of their definitions.
//!
//! Static: nothing is started unless `--start` asks for it. Definitions come from the daemon's baselines where one
//! runs; without it only the configuration itself is judged.

mod start;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::ValueEnum;
use kams_detect::integrity::{Definition, Thresholds, deceptive_name, first_sighting};
use kams_detect::{Finding, Severity};
use kams_export::sarif::{self, Place};
use kams_export::text::visible;
use kams_export::view::{FindingContext, FindingRecord, SCHEMA, Time};
use kams_host::userfile::{HostUser, Limits, UserFiles};
use serde_json::{Value, json};

use super::args::parse_severity;
use super::client::Client;
use super::commands::typed;
use super::out::Ink;
use super::table::{Cell, Column, Table};
use super::{CliError, Ended, Out, say};
use crate::clients::{self, ArgvConfig, Configuration, ConfiguredServer, Places, UserReader};
use crate::engine::backend::baselines::BaselineView;
use crate::engine::judge::{decided, fingerprint};

/// What can be asked of `kams scan`.
#[derive(Debug, clap::Args)]
pub struct Scan {
    /// Project folders, or configuration files, besides the user's own.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Of this user (login name or uid); root only, unless it is yourself.
    #[arg(long, value_name = "USER", conflicts_with = "all")]
    user: Option<String>,
    /// Of all users with a home; root only.
    #[arg(long)]
    all: bool,
    /// Start each of your own servers to list its tools. It gets your environment, without the variables that the
    /// configuration would add.
    #[arg(long, conflicts_with_all = ["all", "user"])]
    start: bool,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Format::Table, value_name = "FORM")]
    format: Format,
    /// Exit with 1 if there is a finding at or above this severity.
    #[arg(long, value_parser = parse_severity, value_name = "SEVERITY")]
    fail_on: Option<Severity>,
}

/// Form of the report.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// One document.
    Json,
    /// For code-scanning views.
    Sarif,
}

/// One user's configuration.
struct Scanned {
    person: HostUser,
    found: Configuration,
}

/// A finding and where its server is declared.
type Placed = (FindingRecord, Option<Place>);

pub(super) async fn run(client: &Client, scan: &Scan, out: &mut Out) -> Result<Ended, CliError> {
    let people = people(scan)?;
    let mut scanned = Vec::new();
    for person in people {
        scanned.extend(read(scan, person)?);
    }
    for problem in scanned.iter().flat_map(|one| &one.found.problems) {
        say(&visible(&problem.to_string()));
    }
    let known = known(client).await;
    let mut findings: Vec<Placed> = Vec::new();
    for one in &scanned {
        for server in &one.found.servers {
            if let Some(finding) = deceptive_name(&server.name) {
                findings.push(placed(one, Some(server), &identity(server), &finding));
            }
        }
        judge_known(one, &known, &mut findings);
        if scan.start {
            judge_started(one, &mut findings).await;
        }
    }
    // What was stored and what was just listed may be the same.
    let mut seen = std::collections::HashSet::new();
    findings.retain(|(finding, place)| {
        seen.insert((
            finding.fingerprint.clone(),
            place.as_ref().map(|p| (p.file.clone(), p.line)),
        ))
    });
    report(scan, &scanned, &findings, out)?;
    let limit = scan.fail_on;
    let bad = |(finding, _): &Placed| {
        let severity = Severity::from_name(&finding.severity);
        limit.is_some_and(|limit| severity.is_none_or(|s| s >= limit))
    };
    Ok(if findings.iter().any(bad) {
        Ended::Found
    } else {
        Ended::Clean
    })
}

fn input(file: &str, why: impl std::fmt::Display) -> CliError {
    CliError::Input {
        file: visible(file),
        why: why.to_string(),
    }
}

fn people(scan: &Scan) -> Result<Vec<HostUser>, CliError> {
    let own = nix::unistd::geteuid().as_raw();
    if scan.all {
        if own != 0 {
            return Err(input("--all", "only root may read other users' configuration"));
        }
        // Local accounts; those of a directory service are named one by one.
        let table = std::fs::read_to_string("/etc/passwd").map_err(|error| input("/etc/passwd", error))?;
        let uids = table
            .lines()
            .filter_map(|line| line.split(':').nth(2)?.parse::<u32>().ok());
        return Ok(uids
            .filter(|uid| *uid == 0 || (1_000..65_534).contains(uid))
            .filter_map(|uid| HostUser::by_uid(uid).ok())
            .collect());
    }
    let uid = match &scan.user {
        None => own,
        Some(user) => match user.parse() {
            Ok(uid) => uid,
            Err(_) => nix::unistd::User::from_name(user)
                .ok()
                .flatten()
                .map(|user| user.uid.as_raw())
                .ok_or_else(|| input("--user", format!("no user {}", visible(user))))?,
        },
    };
    if uid != own && own != 0 {
        return Err(input("--user", "only root may read another user's configuration"));
    }
    Ok(vec![
        HostUser::by_uid(uid).map_err(|error| input("--user", error))?,
    ])
}

/// Reads with the rights of the user, never with more. None for one of many users whose files cannot be read.
fn read(scan: &Scan, person: HostUser) -> Result<Option<Scanned>, CliError> {
    let files = match UserFiles::open(&person, Limits::default()) {
        Ok(files) => files,
        Err(error) if scan.all => {
            say(&format!("{}: {error}", visible(&person.name)));
            return Ok(None);
        }
        Err(error) => return Err(input(&person.name, error)),
    };
    let mut places = Places {
        home: person.home.to_string_lossy().into_owned(),
        ..Places::default()
    };
    let mut single = Vec::new();
    for path in &scan.paths {
        let whole = std::path::absolute(path).map_err(|error| input(&path.to_string_lossy(), error))?;
        let meta = std::fs::metadata(&whole).map_err(|error| input(&path.to_string_lossy(), error))?;
        let text = whole.to_string_lossy().into_owned();
        if meta.is_dir() {
            places.projects.push(text);
        } else {
            single.push(text);
        }
    }
    let reader = UserReader(&files);
    let mut found = clients::read(&places, &reader);
    for path in single {
        clients::read_argv(&ArgvConfig::file(path), &places, &reader, &mut found);
    }
    Ok(Some(Scanned { person, found }))
}

/// What the daemon knows; nothing where none answers.
async fn known(client: &Client) -> Vec<BaselineView> {
    let answer: Result<Value, CliError> = client.get("/v1/query/baselines?full=1").await;
    match answer.and_then(|value| typed(value.get("baselines").unwrap_or(&Value::Null))) {
        Ok(rows) => rows,
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            say(&format!(
                "only configuration files are judged, not definitions: {first}"
            ));
            Vec::new()
        }
    }
}

fn identity(server: &ConfiguredServer) -> String {
    match (&server.identity, &server.url) {
        (Some(identity), _) => identity.to_string(),
        (None, Some(url)) => url.clone(),
        (None, None) => server.name.clone(),
    }
}

fn judge_known(one: &Scanned, known: &[BaselineView], findings: &mut Vec<Placed>) {
    for row in known.iter().filter(|row| row.uid == one.person.uid) {
        let last = row.seen.as_ref().or(row.definition.as_ref());
        let Some(definition) = last.and_then(|value| decided::definition(&row.item, value)) else {
            continue;
        };
        let declared: Vec<&ConfiguredServer> = one
            .found
            .servers
            .iter()
            .filter(|server| identity(server) == row.server)
            .collect();
        for finding in judged(&definition, row.item.starts_with("tool:")) {
            if declared.is_empty() {
                findings.push(placed(one, None, &row.server, &finding));
            }
            for server in &declared {
                findings.push(placed(one, Some(server), &row.server, &finding));
            }
        }
    }
}

async fn judge_started(one: &Scanned, findings: &mut Vec<Placed>) {
    for server in one.found.servers.iter().filter(|server| server.enabled) {
        let Some(command) = &server.command else { continue };
        // Arguments may hold secrets, and some people write a whole line as the command.
        let program = command.split_whitespace().next().unwrap_or_default();
        say(&format!(
            "starting {} ({})",
            visible(&server.name),
            visible(program)
        ));
        match start::list(server).await {
            Ok(listed) => {
                for (definition, is_tool) in &listed {
                    for finding in judged(definition, *is_tool) {
                        findings.push(placed(one, Some(server), &identity(server), &finding));
                    }
                }
            }
            Err(error) => say(&format!(
                "{}: {}",
                visible(&server.name),
                visible(&error.to_string())
            )),
        }
    }
}

/// What the detectors of the daemon say of a definition on its own.
fn judged(definition: &Definition, is_tool: bool) -> Vec<Finding> {
    let mut found: Vec<Finding> = first_sighting(definition, Thresholds::default())
        .into_iter()
        .collect();
    if is_tool {
        found.extend(deceptive_name(&definition.name));
    }
    found
}

fn placed(one: &Scanned, server: Option<&ConfiguredServer>, identity: &str, finding: &Finding) -> Placed {
    let context = FindingContext {
        time: Time::now(),
        uid: one.person.uid,
        user: one.person.name.clone(),
        agent: server.map_or_else(String::new, |server| server.client.to_owned()),
        server: identity.to_owned(),
        action: "alert".to_owned(),
        fingerprint: fingerprint(one.person.uid, identity, finding),
        ..FindingContext::default()
    };
    let place = server.map(|server| Place {
        file: server.file.clone(),
        line: (server.line > 0).then_some(server.line),
    });
    (FindingRecord::new(finding, context), place)
}

fn report(scan: &Scan, scanned: &[Scanned], findings: &[Placed], out: &mut Out) -> std::io::Result<()> {
    let format = if out.is_json() && scan.format == Format::Table {
        Format::Json
    } else {
        scan.format
    };
    match format {
        Format::Sarif => out.json(&sarif::report(env!("CARGO_PKG_VERSION"), findings)),
        Format::Json => {
            let servers: Vec<Value> = scanned
                .iter()
                .flat_map(|one| one.found.servers.iter().map(|s| shown(one, s)))
                .collect();
            let findings: Vec<Value> = findings
                .iter()
                .map(|(finding, place)| {
                    let mut row = json!(finding);
                    if let (Some(place), Some(members)) = (place, row.as_object_mut()) {
                        members.insert("file".to_owned(), json!(place.file));
                        members.insert("line".to_owned(), json!(place.line));
                    }
                    row
                })
                .collect();
            out.json(&json!({ "schema": SCHEMA, "servers": servers, "findings": findings }))
        }
        Format::Table => table(scanned, findings, out),
    }
}

/// A declared server without its arguments.
fn shown(one: &Scanned, server: &ConfiguredServer) -> Value {
    json!({
        "user": one.person.name,
        "client": server.client,
        "file": server.file,
        "line": server.line,
        "name": server.name,
        "identity": identity(server),
        "remote": server.url.is_some(),
        "enabled": server.enabled,
    })
}

fn table(scanned: &[Scanned], findings: &[Placed], out: &mut Out) -> std::io::Result<()> {
    let mut count: BTreeMap<&str, u64> = BTreeMap::new();
    for (finding, _) in findings {
        *count.entry(&finding.server).or_default() += 1;
    }
    let columns = vec![
        Column::left("USER", 16),
        Column::left("CLIENT", 16),
        Column::left("NAME", 24),
        Column::left("SERVER", 48),
        Column::right("FINDINGS"),
        Column::left("DECLARED AT", 120),
    ];
    let mut rows = Vec::new();
    for one in scanned {
        for server in &one.found.servers {
            let server_identity = identity(server);
            let n = count.get(server_identity.as_str()).copied().unwrap_or(0);
            rows.push(vec![
                Cell::new(&one.person.name),
                Cell::new(server.client),
                Cell::new(&server.name),
                Cell::new(server_identity),
                Cell::new(n.to_string()).ink(if n > 0 { Ink::Bad } else { Ink::Faint }),
                Cell::new(format!("{}:{}", server.file, server.line)).ink(Ink::Faint),
            ]);
        }
    }
    if rows.is_empty() {
        say("no configured servers found");
    } else {
        for line in Table::new(columns).all(&rows, out) {
            out.line(&line)?;
        }
    }
    for (finding, place) in findings {
        let on = finding
            .tool
            .as_ref()
            .map(|tool| format!(" {}", visible(tool)))
            .unwrap_or_default();
        let at = place.as_ref().map_or_else(
            || "not declared in a file that was read".to_owned(),
            |place| format!("{}:{}", visible(&place.file), place.line.unwrap_or(0)),
        );
        let head = out.ink(Ink::Bad, &format!("!! {} {}", finding.severity, finding.detector));
        out.line(&format!("{head}  {}{on}  {at}", visible(&finding.server)))?;
        if let Some(quote) = finding.evidence.get("quote").and_then(Value::as_str) {
            out.line(&format!("   {}", visible(quote)))?;
        }
    }
    Ok(())
}
