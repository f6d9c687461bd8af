//! `kams waste`: what was spent for nothing, by user, agent and server.

use serde_json::Value;

use super::client::Client;
use super::follow;
use super::table::{Cell, Column, Table};
use super::{CliError, Out, say};

/// `kams waste`.
#[derive(Debug, clap::Args)]
pub struct Waste {
    /// Only since then: a span back from now (`90s`, `30m`, `12h`, `7d`) or a time in RFC 3339.
    #[arg(long, value_parser = super::args::parse_since, value_name = "WHEN")]
    pub since: Option<kams_export::view::Time>,
}

pub(super) async fn run(client: &Client, waste: &Waste, out: &mut Out) -> Result<(), CliError> {
    let pairs: Vec<(&str, String)> = waste
        .since
        .iter()
        .map(|time| ("from", time.to_string()))
        .collect();
    let value: Value = client.get(&follow::route("/v1/query/waste", &pairs)).await?;
    if out.is_json() {
        return Ok(out.json(&value)?);
    }
    let rows = value
        .get("rows")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        say("no waste was found; `kams telemetry show` says which agents report their model calls");
        return Ok(());
    }
    let mut table = Table::new(vec![
        Column::left("USER", 16),
        Column::left("AGENT", 20),
        Column::left("SERVER", 40),
        Column::left("RULE", 28),
        Column::right("TIMES"),
        Column::right("TOKENS"),
        Column::left("BASIS", 12),
        Column::left("WHAT TO DO", 120),
    ]);
    let cells: Vec<Vec<Cell>> = rows.iter().map(cells).collect();
    for line in table.all(&cells, out) {
        out.line(&line)?;
    }
    Ok(())
}

fn cells(row: &Value) -> Vec<Cell> {
    let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| row.get(name).and_then(Value::as_u64);
    let server = match text("server") {
        "" => "-",
        server => server,
    };
    let tokens = number("tokens").map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
    vec![
        Cell::new(text("user")),
        Cell::new(text("agent")),
        Cell::new(server),
        Cell::new(text("rule")),
        Cell::new(number("times").unwrap_or_default().to_string()),
        Cell::new(tokens),
        Cell::new(text("basis")),
        Cell::new(text("suggested_action")),
    ]
}
