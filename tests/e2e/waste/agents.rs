//! Real agents whose telemetry is switched on as an administrator would do it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, ensure};
use kams_tests::agents::Cli;
use kams_tests::kams::Kams;
use kams_tests::kit;
use kams_tests::mock_llm::{Call, TOKENS_PER_RESULT};
use kams_tests::stage::{ServerEntry, Stage};
use libtest_mimic::{Completion, Trial};
use serde_json::{Value, json};

use super::{boxed, until, waste, well};
use crate::context::{BOX, Context};

/// Calls with the same arguments: a loop for whoever counts them.
const LOOP: usize = 6;

pub(super) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    [
        ("claude-code", Cli::Claude),
        ("codex", Cli::Codex),
        ("gemini-cli", Cli::Gemini),
    ]
    .map(|(name, cli)| {
        let context = Arc::clone(context);
        Trial::ignorable_test(format!("waste::agents::{name}"), move || {
            if let Some(hindrance) = context.hindrance() {
                return Ok(Completion::ignored_with(hindrance));
            }
            if let Some(missing) = kit::missing_packages() {
                return Ok(Completion::ignored_with(missing));
            }
            boxed("", |kams| reports(kams, cli, name))
                .map(|()| Completion::Completed)
                .map_err(|error| format!("{error:#}").into())
        })
    })
    .into()
}

fn reports(kams: &Kams, cli: Cli, name: &str) -> Result<()> {
    let stage = Stage::new()?;
    // The host's own settings with ours among them, for this agent only.
    let root = settled_root(&stage)?;
    let root_text = root.display().to_string();
    well(kams.kams(&["telemetry", "enable", name, "--root", &root_text])?)?;
    let server = ServerEntry::new(kit::node_bin("mcp-server-everything"));
    let call = Call {
        tool: "echo".to_owned(),
        arguments: json!({"message": "the same again"}),
    };
    let (agent, calls) = (wrapper(&stage, &root)?, vec![call; LOOP]);
    // On a busy machine an agent may ask its model before its server has said what it offers; the next run serves as well.
    let mut tries = 1;
    while let Err(error) = cli.run(&stage, &agent, &server, &calls) {
        ensure!(tries < 4, "{error:#}");
        std::fs::remove_file(stage.path("llm.jsonl"))?;
        tries += 1;
    }
    let counted = |name: &str| kams.metric(name);
    until("the calls of the model", || {
        Ok((counted("kams_llm_calls_total")? >= f64::from(u32::try_from(LOOP)?)).then_some(()))
    })?;
    let refused: Vec<_> = kams
        .metrics()?
        .into_iter()
        .filter(|(name, _)| name.starts_with("kams_telemetry_requests_total") && !name.contains("\"ok\""))
        .collect();
    ensure!(refused.is_empty(), "reports were refused: {refused:?}");
    let of = |rule: &str| {
        until(rule, || {
            Ok(waste(kams)?
                .into_iter()
                .find(|finding| finding["detector"] == rule))
        })
    };
    // From the traffic itself, and from the report, which says nothing of a server.
    let looped = of("waste.tool_loop")?;
    ensure!(looped["server"] != "" && looped["tool"] == "echo", "{looped}");
    let bloat = of("waste.context_bloat")?;
    ensure!(bloat["server"] == "" && bloat["uid"] == 0, "{bloat}");
    ensure!(
        bloat["agent_pid"] == looped["agent_pid"],
        "not tied to its run: {bloat}"
    );
    ensure!(
        bloat["evidence"]["numbers"]["tokens_estimated"] == json!(0.0),
        "{bloat}"
    );
    let slope = bloat["evidence"]["numbers"]["tokens_per_turn_slope"].as_f64();
    ensure!(
        slope.is_some_and(|slope| (slope - tokens(1)).abs() < 1.0),
        "{bloat}"
    );
    // What the results cost is known: the growth of each turn but the model's own words.
    let true_tokens = until("true costs", || {
        let costs = kams.metrics()?;
        let costs = costs.iter().filter(|(name, _)| {
            name.starts_with("mcp_context_cost_tokens_total") && name.contains("estimated=\"false\"")
        });
        let sum: f64 = costs.map(|(_, value)| value).sum();
        Ok((sum > tokens(LOOP - 1)).then_some(sum))
    })?;
    ensure!(true_tokens <= tokens(LOOP), "{true_tokens}");
    let report: Value = serde_json::from_str(&well(kams.kams(&["waste", "-o", "json"])?)?)?;
    let rows = report["rows"].as_array().cloned().unwrap_or_default();
    let row = rows.iter().find(|row| row["rule"] == "context_bloat");
    ensure!(
        row.is_some_and(|row| row["basis"] == "ground truth" && row["tokens"].as_f64() > Some(0.0)),
        "{report}"
    );
    Ok(())
}

fn tokens(results: usize) -> f64 {
    f64::from(u32::try_from(TOKENS_PER_RESULT * results).unwrap_or(u32::MAX))
}

/// A folder with a copy of /etc in it.
fn settled_root(stage: &Stage) -> Result<PathBuf> {
    let root = stage.path("host");
    std::fs::create_dir(&root)?;
    let status = Command::new("cp").args(["-a", "/etc"]).arg(&root).status()?;
    ensure!(status.success(), "no copy of /etc");
    Ok(root)
}

/// A box in which the copy stands in the place of /etc, and that stays in our network.
fn wrapper(stage: &Stage, root: &std::path::Path) -> Result<PathBuf> {
    let etc = root.join("etc").display().to_string();
    let script = format!(
        "#!/bin/sh\nexport KAMS_BOX_STAY=1\nexec unshare -m sh -c 'mount --bind \"{etc}\" /etc && exec \"$@\"' sh \"{BOX}\" \"$@\"\n"
    );
    let path = stage.write("box", script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
