//! Real agents, whose servers get a relay that nobody configured: the model is shown why a call was refused.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::agents::{Cli, Sdk};
use kams_tests::compare::{Rigour, compare};
use kams_tests::event::Event;
use kams_tests::kams::Kams;
use kams_tests::kit;
use kams_tests::mock_llm::Call;
use kams_tests::stage::{ServerEntry, Stage};
use libtest_mimic::{Completion, Trial};
use serde_json::json;

use super::secret;
use crate::context::{BOX, Context, one_talk, settled};
use crate::servers::{ROWS, Row, play};
use crate::wrap::nothing_left;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    type Play = Box<dyn Fn(&Kams, &Stage) -> Result<()> + Send>;
    let mut scenes: Vec<(&str, Play)> = vec![
        (
            "claude-code",
            Box::new(|kams, stage| refused(Cli::Claude, kams, stage)),
        ),
        ("codex", Box::new(|kams, stage| refused(Cli::Codex, kams, stage))),
        (
            "typescript-sdk",
            Box::new(|kams, stage| honest(Sdk::TypeScript, kams, stage)),
        ),
        (
            "python-sdk",
            Box::new(|kams, stage| honest(Sdk::PythonSession, kams, stage)),
        ),
    ];
    for row in ROWS.iter().filter(|row| LAUNCHED.contains(&row.name)) {
        scenes.push((row.name, Box::new(|kams, stage| launched(row, kams, stage))));
    }
    scenes
        .into_iter()
        .map(|(name, play)| {
            let context = Arc::clone(context);
            Trial::ignorable_test(format!("enforce::{name}"), move || {
                if let Some(why) = context
                    .hindrance()
                    .map(str::to_owned)
                    .or_else(kit::missing_packages)
                {
                    return Ok(Completion::ignored_with(why));
                }
                let played = context
                    .enforcing()
                    .and_then(|kams| Stage::new().and_then(|stage| play(&kams, &stage)));
                played
                    .map(|()| Completion::Completed)
                    .map_err(|error| format!("{error:#}").into())
            })
        })
        .collect()
}

/// Servers behind launchers that replace themselves, or stay.
const LAUNCHED: &[&str] = &[
    "everything-by-npx",
    "memory-by-sh",
    "git-by-python-m",
    "time-by-uvx",
    "time-by-shim",
];

/// A chain of launchers gets one relay, and the server at its end is told by its name and to the byte.
fn launched(row: &Row, kams: &Kams, stage: &Stage) -> Result<()> {
    let mark = kams.mark();
    play(row, stage, |_, entry| entry).with_context(|| kams.log())?;
    let talk = one_talk(stage)?;
    let servers = settled(kams, mark, &[&talk])?
        .into_iter()
        .next()
        .context("an agent")?;
    ensure!(servers.len() == 1, "one server, Kams shows {servers:#?}");
    let events = servers.into_values().next().context("a server")?;
    let relays = events
        .iter()
        .filter(|event| event.event == "server_relayed")
        .count();
    ensure!(relays == 1, "{relays} relays: {events:#?}");
    let named = events.last().and_then(|event| event.server.as_deref());
    ensure!(named == Some(row.identity), "taken for {named:?}: {events:#?}");
    compare(&talk, &events, Rigour::Exact)?;
    nothing_left(stage)
}

fn echo(message: impl Into<String>) -> Call {
    Call {
        tool: "echo".to_owned(),
        arguments: json!({"message": message.into()}),
    }
}

/// The model is shown the refusal, its next call works, the server never sees the call, and nothing runs on afterwards.
fn refused(cli: Cli, kams: &Kams, stage: &Stage) -> Result<()> {
    let mark = kams.mark();
    let calls = [echo("first \u{2713}"), echo(secret()), echo("after")];
    let server = stage.witnessed(ServerEntry::new(kit::node_bin("mcp-server-everything")));
    cli.run(stage, Path::new(BOX), &server, &calls)
        .with_context(|| kams.log())?;
    let shown = std::fs::read_to_string(stage.path("llm.jsonl"))?;
    for text in ["first \u{2713}", "no-secrets", "after"] {
        ensure!(shown.contains(text), "the model was not shown {text:?}: {shown}");
    }
    let talk = one_talk(stage)?;
    let made: Vec<_> = talk
        .tool_calls()
        .filter_map(|call| call.tool.as_deref())
        .collect();
    ensure!(made == ["echo", "echo"], "the server was called for {made:?}");
    behind_a_relay(kams, mark, &talk.tree)?;
    nothing_left(stage)
}

/// What is allowed reaches server and agent as without a relay.
fn honest(sdk: Sdk, kams: &Kams, stage: &Stage) -> Result<()> {
    let calls: Vec<Call> = (0..30)
        .map(|n| echo(format!("{n} \u{20ac} {}", "x".repeat(n * n * 40))))
        .collect();
    let server = stage.witnessed(ServerEntry::new(kit::node_bin("mcp-server-everything")));
    let mark = kams.mark();
    let answers = sdk.run(stage, &server, &calls).with_context(|| kams.log())?;
    for (answer, call) in answers.iter().zip(&calls) {
        let said = call.arguments["message"].as_str().context("a message")?;
        ensure!(answer.to_string().contains(said), "not what was said: {answer}");
    }
    let talk = one_talk(stage)?;
    ensure!(talk.tool_calls().count() == calls.len(), "calls were lost");
    behind_a_relay(kams, mark, &talk.tree)?;
    nothing_left(stage)
}

/// Somebody among the server's ancestors is an agent whose server was relayed.
fn behind_a_relay(kams: &Kams, mark: usize, tree: &[u32]) -> Result<()> {
    let is = |event: &Event| {
        event.event == "server_relayed" && event.agent_pid.is_some_and(|pid| tree.contains(&pid))
    };
    kams.wait(mark, "a relay", |events| events.iter().any(is))
        .map(drop)
}
