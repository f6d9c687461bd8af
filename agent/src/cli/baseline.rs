//! `kams baseline`: what servers' definitions were, what they are now, and what people decide about it.

mod words;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use kams_export::text::visible;
use kams_export::view::SCHEMA;
use serde_json::{Value, json};

use super::client::Client;
use super::commands::typed;
use super::follow::route;
use super::out::Ink;
use super::table::{Cell, Column, Table};
use super::{CliError, Ended, Out, say};
use crate::engine::backend::baselines::BaselineView;

/// Largest file that is imported, in bytes: what the daemon takes.
const LARGEST: u64 = 15 << 20;

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Baseline {
    /// What is known of a server's definitions; of all servers, one line each, without SERVER.
    Show {
        /// Identity of the server (a glob).
        server: Option<String>,
        #[command(flatten)]
        user: Whose,
    },
    /// How what was seen last differs from the baseline, word by word.
    Diff {
        /// Identity of the server (a glob).
        server: Option<String>,
        /// Tool, or an item key such as `prompt:review` or `instructions`.
        item: Option<String>,
        #[command(flatten)]
        user: Whose,
    },
    /// What was seen last becomes the baseline.
    Accept(Which),
    /// The baseline never moves by itself from now on.
    Pin(Which),
    /// The baseline may move with a reported change again.
    Unpin(Which),
    /// Baselines as JSON lines, to stdout.
    Export {
        /// Identity of the server (a glob).
        server: Option<String>,
        #[command(flatten)]
        user: Whose,
    },
    /// Takes over exported baselines; checks the whole file before it changes anything.
    Import {
        /// The file; `-` reads standard input.
        file: PathBuf,
        /// Say what would change, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which items a decision is about.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Identity of the server.
    server: String,
    /// Tool, or an item key such as `prompt:review` or `instructions`; left out: all of the server.
    item: Option<String>,
    #[command(flatten)]
    user: Whose,
}

/// Whose servers.
#[derive(Debug, clap::Args)]
pub struct Whose {
    /// Of this user: login name or uid.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

pub(super) async fn run(client: &Client, verb: &Baseline, out: &mut Out) -> Result<Ended, CliError> {
    match verb {
        Baseline::Show { server, user } => show(client, server.as_deref(), user, out).await?,
        Baseline::Diff { server, item, user } => {
            return diff(client, server.as_deref(), item.as_deref(), user, out).await;
        }
        Baseline::Accept(which) => decide(client, "accept", which, out).await?,
        Baseline::Pin(which) => decide(client, "pin", which, out).await?,
        Baseline::Unpin(which) => decide(client, "unpin", which, out).await?,
        Baseline::Export { server, user } => {
            let (rows, _) = ask(client, server.as_deref(), None, user, true).await?;
            out.json_line(&json!({ "schema": SCHEMA, "type": "kams_baselines" }))?;
            for row in rows.iter().filter(|row| !row.refused) {
                out.json_line(row)?;
            }
        }
        Baseline::Import { file, dry_run } => import(client, file, *dry_run, out).await?,
    }
    Ok(Ended::Clean)
}

async fn ask(
    client: &Client,
    server: Option<&str>,
    item: Option<&str>,
    user: &Whose,
    full: bool,
) -> Result<(Vec<BaselineView>, Value), CliError> {
    let pairs: Vec<(&'static str, String)> = [
        ("server", server.map(str::to_owned)),
        ("item", item.map(str::to_owned)),
        ("user", user.user.clone()),
        ("full", full.then(|| "1".to_owned())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect();
    let answer: Value = client.get(&route("/v1/query/baselines", &pairs)).await?;
    let rows = typed(answer.get("baselines").unwrap_or(&Value::Null))?;
    Ok((rows, answer))
}

async fn show(client: &Client, server: Option<&str>, user: &Whose, out: &mut Out) -> Result<(), CliError> {
    let (rows, answer) = ask(client, server, None, user, false).await?;
    if out.is_json() {
        return Ok(out.json(&answer)?);
    }
    if rows.is_empty() {
        say("no baselines; one is kept of each definition once an agent has listed it");
        return Ok(());
    }
    let lines = if server.is_some() {
        items(&rows, out)
    } else {
        servers(&rows, out)
    };
    for line in lines {
        out.line(&line)?;
    }
    Ok(())
}

fn state(row: &BaselineView) -> Cell {
    match (row.refused, row.changed) {
        (true, _) => Cell::new("refused").ink(Ink::Bad),
        (false, true) => Cell::new(format!("{}, changed", row.state)).ink(Ink::Bad),
        (false, false) if row.state == "pinned" => Cell::new(&row.state).ink(Ink::Good),
        (false, false) => Cell::new(&row.state),
    }
}

fn items(rows: &[BaselineView], out: &Out) -> Vec<String> {
    let columns = vec![
        Column::left("USER", 16),
        Column::left("SERVER", 48),
        Column::left("ITEM", 48),
        Column::left("STATE", 20),
        Column::left("SINCE", 19),
        Column::left("BY", 12),
        Column::left("VERSION", 16),
    ];
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let by = row
                .changed_by
                .map_or_else(|| "-".to_owned(), |uid| format!("uid {uid}"));
            vec![
                Cell::new(&row.user),
                Cell::new(&row.server),
                Cell::new(&row.item),
                state(row),
                Cell::new(out.date(row.changed_at)).ink(Ink::Faint),
                Cell::new(by),
                Cell::new(row.version.as_deref().unwrap_or("-")),
            ]
        })
        .collect();
    Table::new(columns).all(&rows, out)
}

fn servers(rows: &[BaselineView], out: &Out) -> Vec<String> {
    let columns = vec![
        Column::left("USER", 16),
        Column::left("SERVER", 60),
        Column::right("ITEMS"),
        Column::right("PINNED"),
        Column::right("CHANGED"),
        Column::right("REFUSED"),
    ];
    // Rows come ordered by user and server.
    let groups = rows.chunk_by(|a, b| a.uid == b.uid && a.server == b.server);
    let rows: Vec<Vec<Cell>> = groups
        .filter_map(|group| {
            let first = group.first()?;
            let count = |wanted: &dyn Fn(&&BaselineView) -> bool| group.iter().filter(wanted).count();
            let bad = |n: usize| Cell::new(n.to_string()).ink(if n > 0 { Ink::Bad } else { Ink::Faint });
            Some(vec![
                Cell::new(&first.user),
                Cell::new(&first.server),
                Cell::new(group.len().to_string()),
                Cell::new(count(&|row| row.state == "pinned").to_string()),
                bad(count(&|row| row.changed && !row.refused)),
                bad(count(&|row| row.refused)),
            ])
        })
        .collect();
    Table::new(columns).all(&rows, out)
}

async fn diff(
    client: &Client,
    server: Option<&str>,
    item: Option<&str>,
    user: &Whose,
    out: &mut Out,
) -> Result<Ended, CliError> {
    let (rows, _) = ask(client, server, item, user, true).await?;
    let open: Vec<&BaselineView> = rows.iter().filter(|row| row.changed).collect();
    if out.is_json() {
        out.json(&json!({ "schema": SCHEMA, "baselines": open }))?;
        return Ok(Ended::Clean);
    }
    if open.is_empty() {
        say("nothing differs from its baseline");
    }
    for (number, row) in open.into_iter().enumerate() {
        if number > 0 {
            out.line("")?;
        }
        let head = format!("{}  {}", visible(&row.server), visible(&row.item));
        let head = out.ink(Ink::Strong, &head);
        let state = if row.refused {
            "refused at first sighting"
        } else {
            &row.state
        };
        out.line(&format!(
            "{head}  {}  user {}",
            visible(state),
            visible(&row.user)
        ))?;
        let null = Value::Null;
        let (before, after) = (
            row.definition.as_ref().unwrap_or(&null),
            row.seen.as_ref().unwrap_or(&null),
        );
        for line in words::definitions(before, after, out) {
            out.line(&line)?;
        }
    }
    Ok(Ended::Clean)
}

async fn decide(client: &Client, op: &str, which: &Which, out: &mut Out) -> Result<(), CliError> {
    let order = json!({
        "op": op,
        "server": which.server,
        "item": which.item,
        "user": which.user.user,
    });
    let answer: Value = client.order("/v1/command/baseline", &order).await?;
    told(&answer, out)
}

/// Says what became of each item.
fn told(answer: &Value, out: &mut Out) -> Result<(), CliError> {
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    let dry = answer.get("dry_run").and_then(Value::as_bool) == Some(true);
    let rows = answer.get("changed").and_then(Value::as_array);
    let (mut did, mut left) = (0_u64, 0_u64);
    for row in rows.into_iter().flatten() {
        let text = |name: &str| visible(row.get(name).and_then(Value::as_str).unwrap_or("?"));
        if row.get("changed").and_then(Value::as_bool) == Some(true) {
            did += 1;
            out.line(&format!(
                "{}  {}  {}",
                text("server"),
                text("item"),
                text("state")
            ))?;
        } else {
            left += 1;
        }
    }
    let verb = if dry { "would change" } else { "changed" };
    say(&format!("{did} {verb}, {left} stay as they are"));
    Ok(())
}

async fn import(client: &Client, file: &Path, dry_run: bool, out: &mut Out) -> Result<(), CliError> {
    let failed = |why: String| CliError::Input {
        file: visible(&file.to_string_lossy()),
        why,
    };
    let input: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).map_err(|error| failed(error.to_string()))?)
    };
    let mut rows = Vec::new();
    let mut read = 0;
    for (number, line) in (1_u64..).zip(BufReader::new(input.take(LARGEST + 1)).lines()) {
        let line = line.map_err(|error| failed(error.to_string()))?;
        read += line.len() as u64 + 1;
        if read > LARGEST {
            return Err(failed(format!(
                "larger than {} MiB: export and import server by server",
                LARGEST >> 20
            )));
        }
        if line.trim().is_empty() {
            continue;
        }
        let value: Value =
            serde_json::from_str(&line).map_err(|error| failed(format!("line {number}: {error}")))?;
        if value.get("type").is_some() {
            let schema = value.get("schema").and_then(Value::as_u64);
            if schema != Some(u64::from(SCHEMA)) {
                return Err(failed(format!(
                    "line {number}: schema {}; this version reads schema {SCHEMA}",
                    schema.map_or_else(|| "missing".to_owned(), |n| n.to_string())
                )));
            }
            continue;
        }
        if number == 1 {
            return Err(failed(
                "does not begin with the line that `kams baseline export` writes".to_owned(),
            ));
        }
        // `seen` is another host's affair, and long.
        let row: BaselineView = typed(&value).map_err(|error| failed(format!("line {number}: {error}")))?;
        rows.push(json!(BaselineView { seen: None, ..row }));
    }
    let order = json!({ "op": "import", "rows": rows, "dry_run": dry_run });
    let answer: Value = client.order("/v1/command/baseline", &order).await?;
    told(&answer, out)
}
