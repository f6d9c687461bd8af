//! Relays are in no group of processes that the daemon is in: what stops that group leaves them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::processes::group;
use kams_tests::stage::Stage;
use libtest_mimic::{Completion, Trial};
use serde_json::json;

use super::{RELAYED, RULES, open, secret, serving, text};
use crate::context::{Context, programs};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let context = Arc::clone(context);
    vec![Trial::ignorable_test(
        "enforce::killed-by-its-control-group",
        move || {
            if let Some(hindrance) = context.hindrance() {
                return Ok(Completion::ignored_with(hindrance));
            }
            let Some(mount) = mount() else {
                return Ok(Completion::ignored_with(
                    "needs a writable control group hierarchy of version 2",
                ));
            };
            killed(&context, &mount)
                .map(|()| Completion::Completed)
                .map_err(|error| format!("{error:#}").into())
        },
    )]
}

/// A hierarchy of version 2 whose groups can be killed as a whole (Linux 5.14).
fn mount() -> Option<PathBuf> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    places.iter().map(PathBuf::from).find(|place| {
        let probe = place.join(format!("kams-probe-{}", std::process::id()));
        let made = std::fs::create_dir(&probe).is_ok() && probe.join("cgroup.kill").exists();
        made & std::fs::remove_dir(&probe).is_ok()
    })
}

/// A group that is removed at the end.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        // One with processes in it stays, and the test has failed already.
        drop(std::fs::remove_dir(&self.0));
    }
}

fn killed(context: &Context, mount: &Path) -> Result<()> {
    context.stop_shared()?;
    let mut kams = Kams::start_under(&programs(), RELAYED, &[("policy.yaml", RULES)])?;
    let folder = Group(mount.join(format!("kams-test-{}", std::process::id())));
    std::fs::create_dir(&folder.0)?;
    for pid in [kams.parent_pid(), kams.pid()] {
        std::fs::write(folder.0.join("cgroup.procs"), pid.to_string())?;
    }
    let stage = Stage::new()?;
    let mut agent = open(&kams, &stage, "grouped")?;
    for relay in serving(&kams)? {
        ensure!(
            group(relay)?.ends_with("/kams-relays.slice"),
            "a relay is in {}",
            group(relay)?
        );
    }
    // As the kernel does it to a group that has run out of memory.
    kams.end_both(|_| Ok(std::fs::write(folder.0.join("cgroup.kill"), "1")?))?;
    ensure!(
        text(&agent.call("say", &json!({"text": "on"}))?, false)? == "on",
        "a call without a daemon"
    );
    kams = kams.restart()?;
    text(&agent.call("say", &json!({"text": secret()}))?, true)?;
    agent.close()?;
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "{log}");
    Ok(())
}
