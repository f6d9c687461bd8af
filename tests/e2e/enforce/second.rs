//! A second daemon on the state folder of one that runs: it is refused, and the first one notices nothing.

use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::stage::{Run, Stage};
use libtest_mimic::Trial;
use serde_json::json;

use super::deaths::Held;
use super::{RELAYED, RULES, open, secret, text};
use crate::context::{Context, programs};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("enforce::second-daemon", |context| {
            beside(context, |kams| {
                refused(&second(kams, &kams.config().to_string_lossy(), &[])?)
            })
        }),
        context.with_kams("enforce::second-daemon-with-other-sockets", |context| {
            beside(context, |kams| {
                let folder = tempfile::tempdir()?;
                let config = folder.path().join("kams.yaml");
                let text = format!(
                    "state_dir: {}\nadmin: {{socket: {}}}\nmetrics: {{listen: off}}\ntelemetry: {{listen: off}}\n",
                    kams.folder().join("state").display(),
                    folder.path().join("kams.sock").display(),
                );
                std::fs::write(&config, text)?;
                refused(&second(kams, &config.to_string_lossy(), &[])?)
            })
        }),
        context.with_kams("enforce::second-daemon-then-both-killed", names_stay),
        context.with_kams("enforce::healing-beside-a-daemon-that-runs", |context| {
            beside(context, |kams| {
                // By hand, and after the end of a service whose start was refused because of this daemon.
                for result in [None, Some("exit-code"), Some("success")] {
                    let mut command = command(kams, &kams.config().to_string_lossy(), &["--heal"]);
                    command.envs(result.map(|result| ("SERVICE_RESULT", result)));
                    let run = Stage::new()?.run(&mut command)?;
                    ensure!(run.status.success() && run.stderr.contains("kamsd runs"), "{run:#?}");
                }
                Ok(())
            })
        }),
    ]
}

fn second(kams: &Kams, config: &str, words: &[&str]) -> Result<Run> {
    Stage::new()?.run(&mut command(kams, config, words))
}

fn command(kams: &Kams, config: &str, words: &[&str]) -> Command {
    let mut command = Command::new(kams.programs().join("kamsd"));
    command
        .args(["--config", config])
        .args(words)
        .stdin(Stdio::null());
    command
}

fn refused(run: &Run) -> Result<()> {
    ensure!(
        run.status.code() == Some(2) && run.stderr.contains("another kamsd"),
        "{run:#?}"
    );
    Ok(())
}

/// While `other` runs, the first daemon holds a server and cannot go on: it holds it still after that, lets it go when it
/// can, and the next server gets its relay.
fn beside(context: &Context, other: impl FnOnce(&Kams) -> Result<()>) -> Result<()> {
    context.stop_shared()?;
    let kams = Kams::start_under(&programs(), RELAYED, &[("policy.yaml", RULES)])?;
    let stage = Stage::new()?;
    let held = Held::new(&kams, &stage)?;
    let outcome = other(&kams);
    ensure!(held.is_held(), "what the first daemon holds was let go");
    outcome?;
    let Held {
        mut agent,
        request,
        worker,
        ..
    } = held;
    drop(worker);
    let answer = agent.answer(request)?;
    ensure!(
        answer["result"]["serverInfo"]["name"] == "desk-server",
        "{answer}"
    );
    agent.line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
    text(&agent.call("say", &json!({"text": "on"}))?, false)?;
    agent.close()?;
    let stage = Stage::new()?;
    let mut next = open(&kams, &stage, "steady")?;
    text(&next.call("say", &json!({"text": secret()}))?, true)?;
    next.close()?;
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "{log}");
    Ok(())
}

/// What names the held process has outlived the second daemon as well: when the first one dies, the next start heals it.
fn names_stay(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let mut kams = Kams::start_under(&programs(), RELAYED, &[("policy.yaml", RULES)])?;
    let stage = Stage::new()?;
    let mut held = Held::new(&kams, &stage)?;
    refused(&second(&kams, &kams.config().to_string_lossy(), &[])?)?;
    kams.kill()?;
    ensure!(held.is_held(), "somebody let it go");
    kams = kams.restart()?;
    held.agent.answer(held.request)?;
    held.agent.close()?;
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "{log}");
    Ok(())
}
