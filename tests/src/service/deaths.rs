//! Sessions that go on while the service is stopped, replaced and killed.

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use rustix::process::Signal;

use super::{
    Cursor, SLICE, UNIT, is_judged, nothing_is_stopped, open, parent, passes, property, relays, repository,
    running, stage, trial, until, well, worker,
};
use crate::desk::server_log;
use crate::load::{Pace, Progress, under_load_at};
use crate::processes::{children, group, send};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("relays-in-a-slice-of-their-own", places),
        trial("restarted-under-load", || {
            through(|_| well("systemctl", &["restart", UNIT]).map(drop))
        }),
        trial("upgraded-under-load", || through(upgrade)),
        trial("stopped-and-started-under-load", || through(stop_and_start)),
        trial("killed-under-load", || {
            through(|_| {
                let before = restarts()?;
                well("systemctl", &["kill", "--signal=KILL", UNIT])?;
                until("a new start", || Ok(restarts()? > before))
            })
        }),
        trial("worker-killed-under-load", || {
            through(|_| worker_ends_by(Signal::KILL))
        }),
        trial("worker-terminated-under-load", || {
            through(|_| worker_ends_by(Signal::TERM))
        }),
        trial("parent-killed-under-load", || {
            through(|_| {
                let before = restarts()?;
                send(parent()?, Signal::KILL)?;
                until("a new start", || Ok(restarts()? > before))
            })
        }),
        trial("both-killed-under-load", || {
            through(|_| {
                let (before, parent, worker) = (restarts()?, parent()?, worker()?);
                send(parent, Signal::KILL)?;
                send(worker, Signal::KILL)?;
                until("a new start", || Ok(restarts()? > before))
            })
        }),
    ]
}

fn restarts() -> Result<u32> {
    Ok(property("NRestarts")?.parse()?)
}

/// Relays are in their slice, the server is where its agent is, and the daemon where neither is.
fn places() -> Result<()> {
    let stage = stage()?;
    let mut desk = open(&stage, "placed")?;
    is_judged(&mut desk)?;
    let relays = relays()?;
    ensure!(relays.len() == 1, "{relays:?} serve");
    let place = group(relays[0])?;
    ensure!(place.contains(&format!("/{SLICE}/")), "the relay is in {place}");
    let servers = children(desk.agent_pid());
    let server = *servers.first().context("a server")?;
    ensure!(
        group(server)? == group(desk.agent_pid())?,
        "the server is in {}",
        group(server)?
    );
    ensure!(
        group(worker()?)?.ends_with("/kamsd.service"),
        "the worker is in {}",
        group(worker()?)?
    );
    let identity = std::fs::metadata(format!("/proc/{}", relays[0]))?;
    let uid = std::os::unix::fs::MetadataExt::uid(&identity);
    ensure!(uid != 0 && uid != super::USER, "the relay runs as {uid}");
    let (_, sent, got) = desk.end()?;
    let (read, written) = server_log(&stage)?;
    // Byte for byte, but for what was refused and who refused it.
    let lines = |bytes: &[u8]| -> Vec<Vec<u8>> {
        bytes
            .split_inclusive(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (sent, got, read, written) = (lines(&sent), lines(&got), lines(&read), lines(&written));
    ensure!(
        sent.len() == read.len() + 1 && got.len() == written.len() + 1,
        "one call was refused"
    );
    ensure!(
        read.iter().all(|line| sent.contains(line)),
        "what the server read"
    );
    ensure!(
        written.iter().all(|line| got.contains(line)),
        "what the agent read"
    );
    until("the relay's end", || Ok(super::relays()?.is_empty()))
}

/// A session before, through and after what `how` does to the service.
fn through(how: impl FnOnce(&Progress) -> Result<()>) -> Result<()> {
    let stage = stage()?;
    let mut desk = open(&stage, "steady")?;
    is_judged(&mut desk)?;
    let before = relays()?;
    ensure!(before.len() == 1, "{before:?} serve");
    let outcome = under_load_at(Pace::GENTLE, &stage, &mut desk, |progress| {
        progress.more(10)?;
        how(progress)?;
        running()?;
        progress.more(10)
    })?;
    ensure!(outcome.unjudged == 0, "{} calls were refused", outcome.unjudged);
    nothing_is_stopped(&desk)?;
    ensure!(
        std::path::Path::new(&format!("/proc/{}", before[0])).exists(),
        "the relay has not outlived it"
    );
    until("the relay connects again", || {
        Ok(super::server(&desk)?.is_some_and(|server| server["state"] == "relayed"))
    })?;
    is_judged(&mut desk)?;
    let other = super::stage()?;
    let mut next = open(&other, "steady")?;
    is_judged(&mut next)?;
    next.close()?;
    desk.close()
}

fn stop_and_start(progress: &Progress) -> Result<()> {
    let cursor = Cursor::now()?;
    well("systemctl", &["stop", UNIT])?;
    ensure!(
        property("ActiveState")? == "inactive",
        "{}",
        property("ActiveState")?
    );
    ensure!(property("Result")? == "success", "{}", property("Result")?);
    progress.more(10)?;
    let journal = cursor.since()?;
    for word in ["ERROR", "panicked", "Killing", "timed out"] {
        ensure!(!journal.contains(word), "{journal}");
    }
    well("systemctl", &["start", UNIT]).map(drop)
}

/// The README's words on an upgrade: the programs are replaced while they run, then the service is started again.
fn upgrade(progress: &Progress) -> Result<()> {
    let built = repository()?.join("target/release");
    let built = |name: &str| built.join(name).to_string_lossy().into_owned();
    well(
        "install",
        &["-m", "755", &built("kamsd"), &built("kams-relay"), "/usr/sbin/"],
    )?;
    well("install", &["-m", "755", &built("kams"), "/usr/bin/"])?;
    progress.more(10)?;
    // Between the two the old daemon uses the new program.
    let other = stage()?;
    let mut next = open(&other, "between")?;
    passes(&mut next, "on")?;
    well("systemctl", &["restart", UNIT])?;
    running()?;
    is_judged(&mut next)?;
    next.close()
}

/// The parent starts another worker; for systemd nothing has ended.
fn worker_ends_by(signal: Signal) -> Result<()> {
    let (restarts_before, parent_before, worker_before) = (restarts()?, parent()?, worker()?);
    send(worker_before, signal)?;
    until("another worker", || {
        Ok(children(parent_before).iter().any(|pid| *pid != worker_before) && super::answers())
    })?;
    until("the service runs on", || Ok(property("SubState")? == "running"))?;
    ensure!(
        restarts()? == restarts_before && parent()? == parent_before,
        "systemd started it again"
    );
    // What was told to systemd by the worker that ended must not end the service later: its limit is 20 s.
    ensure!(
        property("ActiveState")? == "active",
        "{}",
        property("ActiveState")?
    );
    Ok(())
}
