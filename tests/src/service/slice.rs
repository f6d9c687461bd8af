//! The relays' slice, and switching Kams off and on.

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use super::{
    SLICE, UNIT, is_judged, open, passes, relays, running, secret, server, stage, trial, until, well,
};
use crate::desk::server_log;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("stopping-the-slice-ends-sessions", stopped),
        trial("off-and-on", off_and_on),
        trial("off-lasts-until-the-next-start", off_and_restarted),
    ]
}

/// Every relayed server's connection ends, and the next ones are relayed again.
fn stopped() -> Result<()> {
    let stage_one = stage()?;
    let mut desk = open(&stage_one, "sliced")?;
    is_judged(&mut desk)?;
    well("systemctl", &["stop", SLICE])?;
    ensure!(relays()?.is_empty(), "{:?} serve on", relays()?);
    // The agent sees it when it has something to say, and ends.
    desk.post("ping", &serde_json::json!({}))?;
    ensure!(desk.hear()?.is_empty(), "the session goes on");
    drop(desk);
    running()?;
    let stage_two = stage()?;
    let mut desk = open(&stage_two, "sliced")?;
    is_judged(&mut desk)?;
    desk.close()
}

fn off_and_on() -> Result<()> {
    let stage = stage()?;
    let mut desk = open(&stage, "switched")?;
    let mut passed = is_judged(&mut desk)?;
    well("kams", &["off"])?;
    passes(&mut desk, &secret())?;
    running()?;
    well("kams", &["on"])?;
    passed += 1 + is_judged(&mut desk)?;
    desk.close()?;
    let (read, _) = server_log(&stage)?;
    let reached = String::from_utf8_lossy(&read).matches("R7kQ2mZ9").count();
    ensure!(
        reached == passed,
        "{reached} secrets reached the server, {passed} were let pass"
    );
    Ok(())
}

/// A start of the daemon ends it (README).
fn off_and_restarted() -> Result<()> {
    let stage = stage()?;
    let mut desk = open(&stage, "switched-again")?;
    well("kams", &["off"])?;
    passes(&mut desk, &secret())?;
    well("systemctl", &["restart", UNIT])?;
    running()?;
    until("the relay connects again", || {
        Ok(server(&desk)?.is_some_and(|server| server["state"] == "relayed"))
    })?;
    is_judged(&mut desk)?;
    desk.close()
}
