//! Real agents and real servers with `kams wrap` between them: no daemon, nothing privileged.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::agents::{Cli, Sdk};
use kams_tests::kit;
use kams_tests::mock_llm::Call;
use kams_tests::stage::{ServerEntry, Stage};
use libtest_mimic::{Completion, Trial};
use serde_json::json;

use crate::context::{BOX, Context, one_talk, programs};
use crate::servers::{ROWS, play};

pub(crate) fn trials(_: &Arc<Context>) -> Vec<Trial> {
    type Play = Box<dyn Fn(&Stage) -> Result<()> + Send>;
    let mut scenes: Vec<(String, Play)> = vec![
        (
            "claude-code".to_owned(),
            Box::new(|stage| refused(Cli::Claude, stage)),
        ),
        ("codex".to_owned(), Box::new(|stage| refused(Cli::Codex, stage))),
    ];
    for sdk in [Sdk::TypeScript, Sdk::PythonSession, Sdk::PythonClient] {
        scenes.push((format!("{sdk:?}"), Box::new(move |stage| honest(sdk, stage))));
    }
    for row in ROWS {
        let play: Play = Box::new(|stage| {
            play(row, stage, |stage, entry| wrapped(stage, &entry))?;
            nothing_left(stage)
        });
        scenes.push((row.name.to_owned(), play));
    }
    scenes
        .into_iter()
        .map(|(name, play)| {
            Trial::ignorable_test(format!("wrap::{name}"), move || {
                if let Some(missing) = kit::missing_packages() {
                    return Ok(Completion::ignored_with(missing));
                }
                Stage::new()
                    .and_then(|stage| play(&stage))
                    .map(|()| Completion::Completed)
                    .map_err(|error| format!("{error:#}").into())
            })
        })
        .collect()
}

/// The server behind `kams wrap`, which enforces the default policy.
fn wrapped(stage: &Stage, server: &ServerEntry) -> ServerEntry {
    let mut entry = ServerEntry::new(programs().join("kams"))
        .args([
            "wrap",
            "--enforce",
            "--relays",
            "/nonexistent/relay.sock",
            "--record",
        ])
        .args([stage.path("record")])
        .args(["--", server.command.as_str()])
        .args(&server.args)
        .env("XDG_STATE_HOME", stage.path("state"));
    entry.env.extend(server.env.iter().cloned());
    entry
}

fn echo(message: impl Into<String>) -> Call {
    Call {
        tool: "echo".to_owned(),
        arguments: json!({"message": message.into()}),
    }
}

/// A token in the published format, assembled so that no scanner of repositories takes it for a real one.
fn secret() -> String {
    format!("gh{}_R7kQ2mZ9xT4bV1nW8cL5sD3gH6jP0aYeUoIq", 'p')
}

/// The model is shown why a call was refused, its next call works, and nothing runs on afterwards.
fn refused(cli: Cli, stage: &Stage) -> Result<()> {
    let calls = [echo("first \u{2713}"), echo(secret()), echo("after")];
    let server = stage.witnessed(ServerEntry::new(kit::node_bin("mcp-server-everything")));
    cli.run(stage, Path::new(BOX), &wrapped(stage, &server), &calls)?;
    let shown = std::fs::read_to_string(stage.path("llm.jsonl"))?;
    for text in ["first \u{2713}", "block-credential-egress", "after"] {
        ensure!(shown.contains(text), "the model was not shown {text:?}: {shown}");
    }
    let talk = one_talk(stage)?;
    let made: Vec<_> = talk
        .tool_calls()
        .filter_map(|call| call.tool.as_deref())
        .collect();
    ensure!(made == ["echo", "echo"], "the server was called for {made:?}");
    let record = std::fs::read_to_string(stage.path("record"))?;
    ensure!(record.contains("\"action\":\"block_call\""), "nothing on record");
    ensure!(!record.contains("R7kQ2mZ9"), "the secret is on record");
    nothing_left(stage)
}

/// What is allowed reaches server and agent as without a relay.
fn honest(sdk: Sdk, stage: &Stage) -> Result<()> {
    let calls: Vec<Call> = (0..40)
        .map(|n| echo(format!("{n} \u{20ac} {}", "x".repeat(n * n * 40))))
        .collect();
    let server = stage.witnessed(ServerEntry::new(kit::node_bin("mcp-server-everything")));
    let answers = sdk.run(stage, &wrapped(stage, &server), &calls)?;
    for (answer, call) in answers.iter().zip(&calls) {
        let said = call.arguments["message"].as_str().context("a message")?;
        let text = answer.to_string();
        ensure!(
            text.contains(said),
            "not what was said: {}",
            text.get(..300).unwrap_or(&text)
        );
    }
    let talk = one_talk(stage)?;
    ensure!(talk.tool_calls().count() == calls.len(), "calls were lost");
    nothing_left(stage)
}

/// No process of this stage lives.
pub(crate) fn nothing_left(stage: &Stage) -> Result<()> {
    let mark = stage.path("").display().to_string();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        ensure!(
            !words.contains(&mark) || pid == std::process::id(),
            "{pid} runs on: {words}"
        );
    }
    Ok(())
}
