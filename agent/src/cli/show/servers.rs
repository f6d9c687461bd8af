//! `kams servers` and `kams tools`.

use std::io;

use kams_export::view::{NetworkView, SeccompView, ServerState, ServerView, ToolView};

use crate::cli::out::{Ink, Out};
use crate::cli::table::{Cell, Column, Table, bytes, duration, number};

pub(in crate::cli) fn servers(servers: &[ServerView], cost: bool, out: &mut Out) -> io::Result<()> {
    let mut columns = vec![
        Column::right("ID"),
        Column::left("USER", 16),
        Column::left("AGENT", 16),
        Column::left("SERVER", 48),
        Column::left("STATE", 10),
    ];
    columns.extend(if cost {
        vec![
            Column::right("TOOLS"),
            Column::right("DEFINITIONS"),
            Column::right("RESULTS (EST.)"),
            Column::right("REPORTED"),
            Column::right("SHARE"),
            Column::right("CALLS"),
            Column::right("RECEIVED"),
        ]
    } else {
        vec![
            Column::right("PID"),
            Column::right("TOOLS"),
            Column::right("CALLS"),
            Column::right("ERRORS"),
            Column::right("GAPS"),
            Column::left("NETWORK", 24),
            Column::left("SECCOMP", 24),
            Column::left("CALLS ITSELF", 40),
        ]
    });
    let rows: Vec<_> = servers
        .iter()
        .map(|server| row(server, cost.then(|| share(server, servers))))
        .collect();
    for line in Table::new(columns).all(&rows, out) {
        out.line(&line)?;
    }
    Ok(())
}

/// What a server put into its agent's context: the provider's count of results where there is one.
fn tokens(s: &ServerView) -> u64 {
    let results = s.true_result_tokens.or(s.result_tokens).unwrap_or(0);
    s.definition_tokens.unwrap_or(0).saturating_add(results)
}

/// Its share of what all servers of the same agent cost, in percent.
fn share(server: &ServerView, all: &[ServerView]) -> String {
    let same = |s: &&ServerView| s.uid == server.uid && s.agent_pid == server.agent_pid;
    let sum: u64 = all.iter().filter(same).map(tokens).fold(0, u64::saturating_add);
    match tokens(server).saturating_mul(100).checked_div(sum) {
        Some(percent) => format!("{percent} %"),
        None => "-".to_owned(),
    }
}

/// `share`: show costs, this one among them.
fn row(s: &ServerView, share: Option<String>) -> Vec<Cell> {
    let server = match &s.version {
        Some(version) => format!("{}@{version}", s.identity),
        None => s.identity.clone(),
    };
    let mut cells = vec![
        Cell::new(s.id.to_string()),
        Cell::new(&s.user),
        Cell::new(&s.agent),
        Cell::new(server),
        Cell::new(s.state.name()).ink(state_ink(s.state)),
    ];
    if let Some(share) = share {
        cells.extend([
            number(s.tools),
            number(s.definition_tokens),
            number(s.result_tokens),
            number(s.true_result_tokens),
            Cell::new(share),
            Cell::new(s.calls.to_string()),
            Cell::new(bytes(s.bytes_to_agent)),
        ]);
    } else {
        let claims = match (&s.name, &s.claimed_version) {
            (Some(name), Some(version)) => format!("{name} {version}"),
            (Some(name), None) => name.clone(),
            _ => "-".to_owned(),
        };
        cells.extend([
            Cell::new(s.pid.to_string()),
            number(s.tools),
            Cell::new(s.calls.to_string()),
            count(s.errors, Ink::Odd),
            count(s.gaps, Ink::Bad),
            network(s.network.as_ref()),
            seccomp(s.seccomp.as_ref()),
            Cell::new(claims),
        ]);
    }
    cells
}

/// Whether it is cut off, and what it did since.
fn network(view: Option<&NetworkView>) -> Cell {
    match view {
        None => Cell::new("-").ink(Ink::Faint),
        Some(view) if !view.cut_off => Cell::new("NOT cut off").ink(Ink::Bad),
        Some(view) if view.left_open > 0 => {
            Cell::new(format!("cut off, {} open", view.left_open)).ink(Ink::Bad)
        }
        Some(view) if view.refused > 0 => {
            Cell::new(format!("cut off, {} refused", view.refused)).ink(Ink::Bad)
        }
        Some(_) => Cell::new("cut off").ink(Ink::Odd),
    }
}

/// What its filter of system calls does.
fn seccomp(view: Option<&SeccompView>) -> Cell {
    let Some(view) = view else {
        return Cell::new("-").ink(Ink::Faint);
    };
    let ink = match view.state.as_str() {
        "failed" => Ink::Bad,
        "waiting" => Ink::Odd,
        _ => Ink::Plain,
    };
    let text = match (&view.failed, view.refused) {
        (Some(why), _) => format!("FAILED: {why}"),
        (None, 0) => view.state.clone(),
        (None, refused) => format!("{}, {refused} refused", view.state),
    };
    Cell::new(text).ink(ink)
}

fn count(n: u64, ink: Ink) -> Cell {
    Cell::new(n.to_string()).ink(if n > 0 { ink } else { Ink::Faint })
}

fn state_ink(state: ServerState) -> Ink {
    match state {
        ServerState::Observed | ServerState::Relayed => Ink::Good,
        ServerState::Candidate | ServerState::Adopted => Ink::Plain,
        ServerState::Gone => Ink::Faint,
        ServerState::Http | ServerState::Unknown => Ink::Odd,
    }
}

pub(in crate::cli) fn tools(tools: &[ToolView], out: &mut Out) -> io::Result<()> {
    let columns = vec![
        Column::left("USER", 16),
        Column::left("SERVER", 44),
        Column::left("TOOL", 40),
        Column::right("CALLS"),
        Column::right("ERRORS"),
        Column::right("MEDIAN"),
        Column::right("TOKENS"),
        Column::left("BASELINE", 20),
        Column::left("DESCRIPTION", 60),
    ];
    let row = |t: &ToolView| {
        let baseline = match (&t.restriction, &t.baseline) {
            (Some(restriction), _) => Cell::new(restriction).ink(Ink::Bad),
            (None, Some(baseline)) if t.baseline_changed => {
                Cell::new(format!("{baseline}, changed")).ink(Ink::Bad)
            }
            (None, Some(baseline)) => Cell::new(baseline),
            (None, None) if t.baseline_changed => Cell::new("refused").ink(Ink::Bad),
            (None, None) => Cell::new("-").ink(Ink::Faint),
        };
        vec![
            Cell::new(&t.user),
            Cell::new(&t.server),
            Cell::new(&t.tool),
            Cell::new(t.calls.to_string()),
            count(t.errors, Ink::Odd),
            number(t.median_us.map(duration)),
            number(t.definition_tokens),
            baseline,
            Cell::new(t.description.as_deref().unwrap_or("-")).ink(Ink::Faint),
        ]
    };
    let rows: Vec<_> = tools.iter().map(row).collect();
    for line in Table::new(columns).all(&rows, out) {
        out.line(&line)?;
    }
    Ok(())
}
