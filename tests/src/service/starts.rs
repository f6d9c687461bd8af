//! Starting, telling so, and refusing to.

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use super::{Cursor, UNIT, answers, open, property, running, said, stage, systemctl, trial, well};
use super::{is_judged, worker};

const BROKEN: &str = "/etc/kams/conf.d/broken.yaml";

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("active-once-it-watches", active),
        trial("reload-takes-what-is-changed", reload),
        trial("a-configuration-that-is-refused", refused),
        trial("a-program-that-is-missing", no_relays),
    ]
}

/// A start returns when the worker watches, and not before.
fn active() -> Result<()> {
    well("systemctl", &["stop", UNIT])?;
    let cursor = Cursor::now()?;
    well("systemctl", &["start", UNIT])?;
    ensure!(answers(), "it is told to run, and does not answer");
    let status = well("systemctl", &["status", "--no-pager", "--full", UNIT])?;
    ensure!(status.contains("active (running)"), "{status}");
    ensure!(
        property("Type")? == "notify" && property("Result")? == "success",
        "{status}"
    );
    let before = property("ExecStartPre")?;
    ensure!(
        before.matches("status=0").count() == 2 && before.matches("path=").count() == 2,
        "both commands before the start: {before}"
    );
    let journal = cursor.since()?;
    for word in ["WARN", "ERROR", "rror:", "Failed", "denied"] {
        ensure!(!journal.contains(word), "the journal has complaints: {journal}");
    }
    Ok(())
}

/// What is changed is in force when the daemon has said so.
fn reload() -> Result<()> {
    let more = "/etc/kams/conf.d/zz-more.yaml";
    std::fs::write(more, "log: {level: debug}\n")?;
    let cursor = Cursor::now()?;
    let main = property("MainPID")?;
    let outcome = well("systemctl", &["reload", UNIT]).and_then(|_| {
        // The daemon reads it after the command has returned.
        super::until("the reload", || {
            Ok(cursor.since()?.contains("configuration reloaded"))
        })
    });
    std::fs::remove_file(more)?;
    outcome?;
    well("systemctl", &["reload", UNIT])?;
    running()?;
    ensure!(property("MainPID")? == main, "the same daemon");
    Ok(())
}

/// Refused at a reload, where what runs goes on, and at a start; each time the journal says what and where.
fn refused() -> Result<()> {
    std::fs::write(BROKEN, "mode: enforce\nnonsense: 1\n")?;
    let outcome = refused_while_it_stands();
    std::fs::remove_file(BROKEN)?;
    outcome?;
    well("systemctl", &["reset-failed", UNIT])?;
    well("systemctl", &["start", UNIT])?;
    running()
}

fn refused_while_it_stands() -> Result<()> {
    let told = |cursor: &Cursor| -> Result<()> {
        let journal = cursor.since()?;
        let line = journal.lines().find(|line| line.contains("broken.yaml"));
        let line = line.with_context(|| format!("nothing of the file: {journal}"))?;
        ensure!(line.contains('2') && journal.contains("nonsense"), "{journal}");
        Ok(())
    };
    let worker_before = worker()?;
    let cursor = Cursor::now()?;
    let output = systemctl(&["reload", UNIT])?;
    ensure!(!output.status.success(), "the reload: {}", said(&output));
    told(&cursor)?;
    running()?;
    ensure!(worker()? == worker_before, "another worker");
    let cursor = Cursor::now()?;
    let output = systemctl(&["restart", UNIT])?;
    ensure!(!output.status.success(), "the restart: {}", said(&output));
    told(&cursor)
}

/// Without the relays' program nothing can be enforced: that is told, and the daemon watches all the same.
fn no_relays() -> Result<()> {
    let (place, aside) = ("/usr/sbin/kams-relay", "/usr/sbin/kams-relay.aside");
    std::fs::rename(place, aside)?;
    let cursor = Cursor::now()?;
    let outcome = well("systemctl", &["restart", UNIT]).and_then(|_| running());
    std::fs::rename(aside, place)?;
    outcome?;
    let journal = cursor.since()?;
    ensure!(journal.contains("nothing can be enforced"), "{journal}");
    well("systemctl", &["restart", UNIT])?;
    let stage = stage()?;
    let mut desk = open(&stage, "after-it-came-back")?;
    is_judged(&mut desk)?;
    desk.close()
}
