//! What another user sees.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;

use crate::context::{Context, FORM_SERVER, ODD_AGENT, one_talk, only, settled};

/// A user that every Debian has, and whom nothing belongs to.
const NOBODY: u32 = 65_534;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![context.with_kams("trouble::another-users-view", another_user)]
}

fn another_user(context: &Context) -> Result<()> {
    let kams = context.kams()?;
    let stage = Stage::new()?;
    // The build folder may be closed to others.
    let programs = stage.path("programs");
    std::fs::create_dir(&programs)?;
    for program in [
        Path::new(ODD_AGENT),
        Path::new(FORM_SERVER),
        &crate::context::programs().join("kams"),
    ] {
        std::fs::copy(program, programs.join(program.file_name().context("a name")?))?;
    }
    for folder in ["", "programs", "witness", "work", "home"] {
        open(&stage.path(folder))?;
    }
    let of_root = |kams: &Kams| -> Result<()> {
        let mark = kams.mark();
        let stage = Stage::new()?;
        let mut agent = stage.command(ODD_AGENT);
        stage.run_well(
            agent
                .args(["tool", "fail", FORM_SERVER])
                .env("KAMS_WITNESS", stage.path("witness")),
        )?;
        settled(kams, mark, &[&one_talk(&stage)?]).map(drop)
    };
    of_root(&kams)?;
    let mark = kams.mark();
    let mut agent = stage.command(programs.join("odd-agent"));
    agent
        .args(["tool", "refuse"])
        .arg(programs.join("form-server"))
        .uid(NOBODY)
        .gid(NOBODY);
    stage.run_well(agent.env("KAMS_WITNESS", stage.path("witness")))?;
    // Root sees the other user's server: else this is an error.
    only(settled(&kams, mark, &[&one_talk(&stage)?])?)?;

    let mut reader = Command::new(programs.join("kams"));
    kams.aim(&mut reader);
    let output = reader
        .args(["events", "-o", "json"])
        .uid(NOBODY)
        .gid(NOBODY)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    ensure!(
        text.contains("\"refuse\""),
        "the user does not see their own call: {text}"
    );
    for line in text.lines() {
        let event: kams_tests::event::Event = serde_json::from_str(line)?;
        ensure!(
            event.event.is_empty() || event.uid == NOBODY,
            "another user's event is shown: {line}"
        );
    }
    let mut writer = Command::new(programs.join("kams"));
    kams.aim(&mut writer);
    let refused = writer.arg("off").uid(NOBODY).gid(NOBODY).output()?;
    ensure!(
        !refused.status.success(),
        "a user without rights switched Kams off"
    );
    Ok(())
}

fn open(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(
        path,
        std::fs::Permissions::from_mode(0o777),
    )?)
}
