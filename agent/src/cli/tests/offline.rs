//! Commands that need no daemon.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use kams_export::view::{Outcome, Record};

use super::fixture::{OFFLINE, Page, finding, result};
use crate::cli::{Args, CliError, Ended, Offline, Out, Terminal, run};

fn with(offline: Offline, words: &[&str]) -> (Result<Ended, CliError>, String) {
    let page = Page::default();
    let args = std::iter::once("kams")
        .chain(words.iter().copied())
        .map(OsString::from);
    let ended = run(
        args,
        offline,
        &mut Out::new(Box::new(page.clone()), Terminal::none()),
    );
    (ended, page.text())
}

/// An engine that finds one call and one finding in every file but `bad`.
fn engine(
    file: &Path,
    _: std::sync::Arc<kams_policy::Policy>,
    emit: &mut dyn FnMut(Record) -> io::Result<()>,
) -> anyhow::Result<()> {
    anyhow::ensure!(file != Path::new("bad"), "line 3 is no JSON");
    emit(result("add", Outcome::Ok, 100, 9, 0))?;
    emit(Record::Finding(finding("HIGH", 1)))?;
    Ok(())
}

const ENGINE: Offline = Offline { replay: engine };

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn replay_prints_json_lines_and_fails_on_request() {
    let (ended, out) = with(ENGINE, &["replay", "-o", "json", "a", "b"]);
    assert_eq!(ended.unwrap(), Ended::Clean);
    let types: Vec<String> = out
        .lines()
        .map(|l| {
            serde_json::from_str::<serde_json::Value>(l).unwrap()["type"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(types, ["event", "finding", "event", "finding"]);
    for (limit, expected) in [
        ("critical", Ended::Clean),
        ("high", Ended::Found),
        ("low", Ended::Found),
    ] {
        assert_eq!(
            with(ENGINE, &["replay", "a", "--fail-on", limit]).0.unwrap(),
            expected,
            "{limit}"
        );
    }
    let (ended, out) = with(ENGINE, &["replay", "a", "bad"]);
    assert_eq!(ended.unwrap_err().to_string(), "bad: line 3 is no JSON");
    assert!(
        out.contains("-> add"),
        "what came before the error is there: {out}"
    );
}

/// A reader that has gone away.
struct Closed;

impl io::Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A full disk.
struct Full;

impl io::Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_is_success_and_a_full_disk_is_not() {
    for words in [&["replay", "a"][..], &["completions", "bash"], &["man"]] {
        let args = || {
            std::iter::once("kams")
                .chain(words.iter().copied())
                .map(OsString::from)
        };
        let mut closed = Out::new(Box::new(Closed), Terminal::none());
        assert_eq!(
            run(args(), ENGINE, &mut closed).unwrap(),
            Ended::Clean,
            "{words:?}"
        );
        let mut full = Out::new(Box::new(Full), Terminal::none());
        assert!(
            matches!(run(args(), ENGINE, &mut full), Err(CliError::Output(_))),
            "{words:?}"
        );
    }
}

#[test]
fn pages_and_completions_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    with(OFFLINE, &["man", "--folder", path]).0.unwrap();
    let man = with(OFFLINE, &["man"]).1;
    assert!(man.starts_with(".ie"), "roff");
    for command in Args::command().get_subcommands() {
        let name = command.get_name();
        assert!(man.contains(name), "{name}");
        assert!(folder.path().join(format!("kams-{name}.1")).exists(), "{name}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = with(OFFLINE, &["completions", shell]).1;
        assert!(
            script.contains("findings") && script.contains("fail-on"),
            "{shell}"
        );
    }
}
