//! Real agents under the direction of the mock LLM, and the Inspector.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use kams_tests::agents::{Cli, inspector};
use kams_tests::compare::Rigour;
use kams_tests::kit;
use kams_tests::mock_llm::Call;
use kams_tests::stage::{ServerEntry, Stage};
use libtest_mimic::Trial;
use serde_json::json;

use crate::context::{BOX, Context, Scene, Verdict, one_talk};

const EVERYTHING: &str = "npm:@modelcontextprotocol/server-everything";

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let scene = |name: &str, agent, play: fn(&Stage) -> Result<()>| Scene {
        name: format!("agents::{name}"),
        agent,
        server: EVERYTHING.to_owned(),
        verdict: Verdict::Same(Rigour::RealAgent),
        packages: true,
        play: Box::new(play),
    };
    [
        scene("claude-code", "claude-code", |stage| cli(Cli::Claude, stage)),
        scene("codex", "codex", |stage| cli(Cli::Codex, stage)),
        scene("gemini-cli", "gemini-cli", |stage| cli(Cli::Gemini, stage)),
        scene("inspector", "mcp-inspector", inspect),
    ]
    .map(|scene| context.trial(scene))
    .into()
}

fn cli(cli: Cli, stage: &Stage) -> Result<()> {
    let calls = [
        Call {
            tool: "echo".to_owned(),
            arguments: json!({"message": "first ✓"}),
        },
        Call {
            tool: "get-sum".to_owned(),
            arguments: json!({"a": 20, "b": 22}),
        },
        Call {
            tool: "echo".to_owned(),
            arguments: json!({"message": "x".repeat(30_000)}),
        },
    ];
    let mut server = ServerEntry::new(kit::node_bin("mcp-server-everything"));
    if cli == Cli::Gemini {
        // It takes NODE_OPTIONS out of a server's environment, so the witness goes on the command line.
        let witness = kit::node_witness();
        server = ServerEntry::new("node").args([
            Path::new("--require"),
            &witness,
            &kit::node_bin("mcp-server-everything"),
        ]);
    }
    cli.run(stage, Path::new(BOX), &stage.witnessed(server), &calls)?;
    let talk = one_talk(stage)?;
    let made: Vec<_> = talk
        .tool_calls()
        .filter_map(|call| call.tool.as_deref())
        .collect();
    ensure!(made == ["echo", "get-sum", "echo"], "the agent called {made:?}");
    Ok(())
}

fn inspect(stage: &Stage) -> Result<()> {
    let server = stage.witnessed(ServerEntry::new(kit::node_bin("mcp-server-everything")));
    let call = Call {
        tool: "echo".to_owned(),
        arguments: json!({"message": "inspected"}),
    };
    let shown = inspector(stage, &server, &call)?;
    ensure!(shown.contains("Echo: inspected"), "the Inspector shows {shown}");
    Ok(())
}
