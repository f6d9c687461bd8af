//! `kams runs`, `kams restrictions`, `kams approvals`: what run-level rules see and what is held.

use std::path::PathBuf;

use clap::Subcommand;
use kams_export::view::{SCHEMA, Time};
use kams_policy::{Head, verify};
use serde_json::{Value, json};

use super::client::Client;
use super::follow;
use super::table::{Cell, Column, Table};
use super::{CliError, Ended, Out, say};

/// Largest export that is checked, in bytes.
const MAX_EXPORT: u64 = 256 << 20;

/// `kams runs`.
#[derive(Debug, Subcommand)]
pub enum Runs {
    /// Runs that live or are on record, and the end of the decision chain.
    List,
    /// What is on record of a run.
    Show {
        /// The run.
        run: String,
    },
    /// The whole arc of a run as JSON lines, for `kams runs verify`.
    Export {
        /// The run.
        run: String,
    },
    /// Check an export; exit 1 if it was changed or cut. Needs no daemon.
    Verify {
        /// The file.
        file: PathBuf,
        /// Number and hash of the end as noted elsewhere: shows a cut tail of a whole new chain.
        #[arg(long, value_name = "N:HASH", value_parser = head)]
        head: Option<Head>,
    },
    /// Ask the run-level rules about a run now.
    Checkpoint {
        /// The run.
        run: String,
    },
}

/// `kams restrictions`.
#[derive(Debug, Subcommand)]
pub enum Restrictions {
    /// Restrictions in force.
    List,
    /// End one before its time.
    Lift {
        /// Its number.
        id: u64,
    },
}

/// `kams approvals`.
#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// Requests, those that wait among them.
    List,
    /// Let a held call pass, once.
    Approve {
        /// Its number.
        id: u64,
    },
    /// Refuse a held call.
    Deny {
        /// Its number.
        id: u64,
    },
}

fn head(text: &str) -> Result<Head, String> {
    let wrong = || "expected the number and the hash, as in 12:9f86d0...".to_owned();
    let (n, hash) = text.split_once(':').ok_or_else(wrong)?;
    Ok(Head {
        n: n.parse().map_err(|_not_a_number| wrong())?,
        hash: hash.to_owned(),
    })
}

pub(super) fn check(file: &std::path::Path, head: Option<&Head>, out: &mut Out) -> Result<Ended, CliError> {
    let mut text = String::new();
    let open = std::fs::File::open(file)?;
    std::io::Read::read_to_string(&mut std::io::Read::take(open, MAX_EXPORT), &mut text)?;
    let (answer, words, ended) = match verify(&text, head) {
        Ok(good) => (
            json!({"schema": SCHEMA, "valid": true, "run": good.run, "records": good.records, "head": good.head}),
            format!(
                "{} records, whole and unchanged; the end is {}:{}",
                good.records, good.head.n, good.head.hash
            ),
            Ended::Clean,
        ),
        Err(fault) => (
            json!({"schema": SCHEMA, "valid": false, "fault": fault.to_string()}),
            fault.to_string(),
            Ended::Found,
        ),
    };
    if out.is_json() {
        out.json(&answer)?;
    } else {
        out.line(&words)?;
    }
    Ok(ended)
}

pub(super) async fn runs(client: &Client, verb: &Runs, out: &mut Out) -> Result<Ended, CliError> {
    let of = |run: &String| follow::route("/v1/query/runs", &[("run", run.clone())]);
    match verb {
        Runs::Verify { file, head } => return check(file, head.as_ref(), out),
        Runs::List => {
            let answer: Value = client.get("/v1/query/runs").await?;
            let columns = [
                ("run", 64),
                ("user", 16),
                ("agent", 24),
                ("state", 20),
                ("records", 9),
                ("in_flight", 9),
                ("started_ms", 24),
            ];
            table(&answer, "runs", &columns, out)?;
            if !out.is_json() {
                say(&format!(
                    "end of the decision chain: {}:{}",
                    cell(&answer["head"], "n"),
                    cell(&answer["head"], "hash")
                ));
                if answer["missing"]
                    .as_array()
                    .is_some_and(|missing| !missing.is_empty())
                {
                    say(&format!("records that were lost: {}", answer["missing"]));
                }
            }
        }
        Runs::Show { run } => {
            let answer: Value = client.get(&of(run)).await?;
            let columns = [
                ("n", 9),
                ("time", 26),
                ("kind", 12),
                ("decision", 24),
                ("enforced", 8),
                ("rule", 40),
                ("server", 40),
                ("tool", 32),
                ("approver", 16),
            ];
            table(&answer, "records", &columns, out)?;
        }
        Runs::Export { run } => {
            let answer: Value = client.get(&of(run)).await?;
            out.raw(answer["export"].as_str().unwrap_or_default().as_bytes())?;
        }
        Runs::Checkpoint { run } => {
            let body = json!({"op": "checkpoint", "run": run});
            let answer: Value = client.order("/v1/command/runs", &body).await?;
            let columns = [
                ("policy", 40),
                ("version", 12),
                ("rule", 40),
                ("decision", 16),
                ("draft", 5),
                ("reason", 80),
            ];
            if out.is_json() {
                out.json(&answer)?;
            } else {
                out.line(&format!("decision  {}", cell(&answer["checkpoint"], "decision")))?;
                table(&answer["checkpoint"], "matches", &columns, out)?;
            }
        }
    }
    Ok(Ended::Clean)
}

pub(super) async fn restrictions(
    client: &Client,
    verb: &Restrictions,
    out: &mut Out,
) -> Result<(), CliError> {
    match verb {
        Restrictions::List => {
            let answer: Value = client.get("/v1/query/restrictions").await?;
            let columns = [
                ("id", 9),
                ("action", 16),
                ("user", 16),
                ("agent", 16),
                ("server", 40),
                ("tool", 32),
                ("rule", 40),
                ("until_ms", 24),
            ];
            table(&answer, "restrictions", &columns, out)
        }
        Restrictions::Lift { id } => {
            ordered(
                client,
                "restrictions",
                "lift",
                *id,
                &format!("restriction {id} is lifted"),
                out,
            )
            .await
        }
    }
}

pub(super) async fn approvals(client: &Client, verb: &Approvals, out: &mut Out) -> Result<(), CliError> {
    match verb {
        Approvals::List => {
            let answer: Value = client.get("/v1/query/approvals").await?;
            let columns = [
                ("id", 9),
                ("state", 16),
                ("by", 16),
                ("user", 16),
                ("server", 40),
                ("tool", 32),
                ("rule", 40),
                ("group", 24),
                ("reason", 80),
            ];
            table(&answer, "approvals", &columns, out)
        }
        Approvals::Approve { id } => {
            ordered(client, "approvals", "approve", *id, "approved, for one call", out).await
        }
        Approvals::Deny { id } => ordered(client, "approvals", "deny", *id, "denied", out).await,
    }
}

async fn ordered(
    client: &Client,
    what: &str,
    op: &str,
    id: u64,
    done: &str,
    out: &mut Out,
) -> Result<(), CliError> {
    let body = json!({"op": op, "id": id});
    let answer: Value = client.order(&format!("/v1/command/{what}"), &body).await?;
    if out.is_json() {
        out.json(&answer)?;
    } else {
        say(done);
    }
    Ok(())
}

pub(super) fn table(
    answer: &Value,
    list: &str,
    columns: &[(&'static str, usize)],
    out: &mut Out,
) -> Result<(), CliError> {
    if out.is_json() {
        return Ok(out.json(answer)?);
    }
    let titles = columns
        .iter()
        .map(|(name, most)| Column::left(title(name), *most))
        .collect();
    let rows = answer.get(list).and_then(Value::as_array).into_iter().flatten();
    let zone = |name: &str, row: &Value| match row.get(name).and_then(Value::as_u64) {
        Some(ms) if name.ends_with("_ms") => {
            let nanos = i64::try_from(ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
            out.date(Time::from_unix_nanos(nanos))
        }
        _ => cell(row, name),
    };
    let rows: Vec<Vec<Cell>> = rows
        .map(|row| {
            columns
                .iter()
                .map(|(name, _)| Cell::new(zone(name, row)))
                .collect()
        })
        .collect();
    for line in Table::new(titles).all(&rows, out) {
        out.line(&line)?;
    }
    Ok(())
}

fn cell(row: &Value, name: &str) -> String {
    match row.get(name) {
        Some(Value::String(text)) if !text.is_empty() => text.clone(),
        None | Some(Value::Null | Value::String(_)) => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

const fn title(name: &'static str) -> &'static str {
    match name.as_bytes() {
        b"started_ms" => "started",
        b"in_flight" => "in flight",
        b"until_ms" => "until",
        b"expires_ms" => "expires",
        b"added_by" => "added by",
        _ => name,
    }
}
