//! Who may do what: never a process in an agent's tree, and of others only those whose it is.

use std::os::unix::process::CommandExt;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::json;

use super::{daemon, desk, list, runs};
use crate::context::{Context, programs};

/// A user that every Debian has, and whom nothing belongs to.
const NOBODY: u32 = 65_534;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("policy::refused-from-an-agents-tree", agents_tree),
        context.with_kams("policy::another-users-runs", another_user),
    ]
}

/// What only people may say.
const VERBS: [&str; 12] = [
    "policy reload",
    "approvals approve 1",
    "approvals deny 1",
    "restrictions lift 1",
    "exceptions add --fingerprint 0011223344556677 --owner me --reason mine --expires 2100-01-01",
    "exceptions remove 1",
    "runs checkpoint r",
    "baseline accept npm:x",
    "baseline pin npm:x",
    "baseline unpin npm:x",
    "off",
    "on",
];

fn agents_tree(context: &Context) -> Result<()> {
    let policy = "version: 1\nrules: [{name: tell, match: {}, action: alert}]\n";
    let kams = daemon(context, &[("policy.yaml", policy)])?;
    let stage = Stage::new()?;
    let mut agent = desk(&stage)?;
    let program = programs().join("kams");
    let own = format!("{} --socket {}", program.display(), kams.socket().display());
    for verb in VERBS {
        // Directly, from a session of its own, and by an orphan.
        let answer = stage.path("work/answer");
        let answer = answer.display();
        let ways = [
            format!("{own} {verb}"),
            format!("setsid -w {own} {verb}"),
            format!(
                "rm -f {answer}; mkfifo {answer}; (setsid -f sh -c '{own} {verb} > {answer} 2>&1; true'); cat {answer}; exit 2"
            ),
        ];
        for way in ways {
            let (status, said) = agent.shell(&way)?;
            ensure!(
                status == 2 && said.contains("belongs to an AI agent's process tree"),
                "`{way}` from an agent's tree: {status} {said}"
            );
        }
    }
    // Reading is allowed.
    let (status, said) = agent.shell(&format!("{own} policy show -o json"))?;
    ensure!(status == 0 && said.contains("tell"), "{status} {said}");
    ensure!(
        list(&kams.ask(&["exceptions", "list"])?, "exceptions").is_empty(),
        "an agent accepted a finding"
    );
    // The same from outside.
    let outside = kams.kams(&["policy", "reload"])?;
    ensure!(
        outside.status.success(),
        "{}",
        String::from_utf8_lossy(&outside.stderr)
    );
    agent.close()
}

fn another_user(context: &Context) -> Result<()> {
    let kams = runs::start(context)?;
    let stage = Stage::new()?;
    let mut agent = desk(&stage)?;
    agent.call("secret_read", &json!({}))?;
    let listed = kams.ask_until(&["runs", "list"], "a run", |runs| !list(runs, "runs").is_empty())?;
    let run = list(&listed, "runs")[0]["run"]
        .as_str()
        .context("a run")?
        .to_owned();
    let program = stage.path("kams");
    std::fs::copy(programs().join("kams"), &program)?;
    std::fs::set_permissions(
        stage.path(""),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )?;
    let other = |words: &[&str]| {
        let mut command = std::process::Command::new(&program);
        kams.aim(&mut command);
        command
            .args(words)
            .args(["-o", "json"])
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
    };
    let seen: serde_json::Value = serde_json::from_slice(&other(&["runs", "list"])?.stdout)?;
    ensure!(
        list(&seen, "runs").is_empty(),
        "another user's run is shown: {seen}"
    );
    for words in [
        &["runs", "show", &run],
        &["runs", "export", &run],
        &["runs", "checkpoint", &run],
    ] {
        let output = other(words)?;
        ensure!(
            output.status.code() == Some(2) && output.stdout.is_empty(),
            "{words:?}: {output:?}"
        );
    }
    for words in [
        &["policy", "reload"][..],
        &["restrictions", "lift", "1"],
        &["exceptions", "remove", "1"],
    ] {
        ensure!(
            other(words)?.status.code() == Some(2),
            "{words:?} by a user without rights"
        );
    }
    agent.close()
}
