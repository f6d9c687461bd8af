//! `kams status`.

use std::io;

use kams_export::text::visible;
use kams_export::view::{Mode, StatusView};

use crate::cli::out::{Ink, Out};
use crate::cli::table::{Cell, Column, Table, number, span};

pub(in crate::cli) fn status(view: &StatusView, out: &mut Out) -> io::Result<()> {
    let mode = match view.mode {
        Mode::Observe => "observe",
        Mode::Enforce => "enforce",
        Mode::Unknown => "?",
    };
    let state = if view.enabled {
        out.ink(Ink::Good, "on")
    } else {
        out.ink(Ink::Bad, "OFF")
    };
    out.line(&format!(
        "kamsd {} (pid {}) is {state}, mode {mode}, up {}, kernel {}",
        visible(&view.version),
        view.pid,
        span(view.uptime_seconds),
        visible(&view.kernel),
    ))?;
    let whose = if view.scope == "host" {
        "whole host"
    } else {
        "your own"
    };
    out.line(&format!(
        "{} agents and {} servers live, {} calls, {} findings ({whose})",
        view.agents_live, view.servers_live, view.calls, view.findings
    ))?;
    let payload = match (view.payload.attached, view.payload.backend.as_str()) {
        (false, _) => "not attached".to_owned(),
        (true, "") => "attached".to_owned(),
        (true, backend) => format!("attached ({})", visible(backend)),
    };
    out.line(&format!(
        "payload probe {payload}: {}",
        visible(&view.payload.reason)
    ))?;

    section("Coverage", out)?;
    let mut table = Table::new(vec![
        Column::left("SEEN", 4),
        Column::left("WHAT", 48),
        Column::right("NOW"),
        Column::left("DETAIL", 200),
    ]);
    let row = |c: &kams_export::view::CoverageView| {
        let seen = if c.covered {
            Cell::new("yes").ink(Ink::Good)
        } else {
            Cell::new("no").ink(Ink::Odd)
        };
        vec![seen, Cell::new(&c.what), number(c.count), Cell::new(&c.detail)]
    };
    print(
        &mut table,
        &view.coverage.iter().map(row).collect::<Vec<_>>(),
        out,
    )?;

    section("Probes", out)?;
    let columns = vec![
        Column::left("PROBE", 40),
        Column::left("STATE", 10),
        Column::left("DETAIL", 200),
    ];
    let row = |p: &kams_export::view::ProbeView| {
        let state = match (p.attached, p.proved) {
            (true, true) => Cell::new("attached").ink(Ink::Good),
            (true, false) => Cell::new("unproved").ink(Ink::Odd),
            (false, _) => Cell::new("detached").ink(Ink::Faint),
        };
        vec![Cell::new(&p.name), state, Cell::new(&p.detail)]
    };
    print(
        &mut Table::new(columns),
        &view.probes.iter().map(row).collect::<Vec<_>>(),
        out,
    )?;

    if view.losses.is_empty() {
        out.line("")?;
        out.line("Nothing was lost since start.")?;
    } else {
        section("Losses since start", out)?;
        let columns = vec![
            Column::left("STAGE", 24),
            Column::left("REASON", 32),
            Column::right("COUNT"),
        ];
        let row = |l: &kams_export::view::LossView| {
            vec![
                Cell::new(&l.stage),
                Cell::new(&l.reason),
                Cell::new(l.count.to_string()).ink(Ink::Bad),
            ]
        };
        print(
            &mut Table::new(columns),
            &view.losses.iter().map(row).collect::<Vec<_>>(),
            out,
        )?;
    }
    if !view.notes.is_empty() {
        section("Notes", out)?;
        for note in &view.notes {
            out.line(&format!("- {}", visible(note)))?;
        }
    }
    Ok(())
}

fn section(title: &str, out: &mut Out) -> io::Result<()> {
    out.line("")?;
    let title = out.ink(Ink::Strong, title);
    out.line(&title)
}

fn print(table: &mut Table, rows: &[Vec<Cell>], out: &mut Out) -> io::Result<()> {
    if rows.is_empty() {
        return out.line("(none)");
    }
    for line in table.all(rows, out) {
        out.line(&line)?;
    }
    Ok(())
}
