//! Real servers, each started the way people start it, under an SDK agent.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::agents::Sdk;
use kams_tests::compare::Rigour;
use kams_tests::kit;
use kams_tests::mock_llm::Call;
use kams_tests::stage::{ServerEntry, Stage};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::context::{Context, Scene, Verdict};

/// A launch, the calls made and the outcome of each, as the server records it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    sdk: Sdk,
    pub(crate) identity: &'static str,
    entry: fn(&Stage) -> Result<ServerEntry>,
    calls: fn(&Stage) -> Vec<(Call, &'static str)>,
}

fn call(tool: &str, arguments: Value, outcome: &'static str) -> (Call, &'static str) {
    (
        Call {
            tool: tool.to_owned(),
            arguments,
        },
        outcome,
    )
}

pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "everything-by-npx",
        sdk: Sdk::TypeScript,
        identity: "npm:@modelcontextprotocol/server-everything",
        entry: |_| Ok(npx("mcp-server-everything")),
        calls: |_| {
            vec![
                call("echo", json!({"message": "grüße 漢字 🦀"}), "ok"),
                call("get-sum", json!({"a": 2, "b": 40}), "ok"),
                call("get-structured-content", json!({"location": "Chicago"}), "ok"),
                call("no-such-tool", json!({}), "tool_error"),
            ]
        },
    },
    Row {
        name: "filesystem",
        sdk: Sdk::TypeScript,
        identity: "npm:@modelcontextprotocol/server-filesystem",
        entry: |stage| {
            stage.write("work/notes.txt", "milk\neggs\n")?;
            Ok(ServerEntry::new(kit::node_bin("mcp-server-filesystem")).args([stage.path("work")]))
        },
        calls: |stage| {
            vec![
                call("list_directory", json!({"path": stage.path("work")}), "ok"),
                call(
                    "read_text_file",
                    json!({"path": stage.path("work/notes.txt")}),
                    "ok",
                ),
                call("read_text_file", json!({"path": "/etc/hostname"}), "tool_error"),
            ]
        },
    },
    Row {
        name: "memory-by-sh",
        sdk: Sdk::PythonSession,
        identity: "npm:@modelcontextprotocol/server-memory",
        entry: |stage| {
            let line = format!("{} ; true", kit::node_bin("mcp-server-memory").display());
            Ok(ServerEntry::new("sh")
                .args(["-c", &line])
                .env("MEMORY_FILE_PATH", stage.path("memory.json")))
        },
        calls: |_| {
            let entity = json!({"name": "kams", "entityType": "sensor", "observations": ["watches"]});
            vec![
                call("create_entities", json!({"entities": [entity]}), "ok"),
                call("search_nodes", json!({"query": "kams"}), "ok"),
                call("read_graph", json!({}), "ok"),
            ]
        },
    },
    Row {
        name: "sequential-thinking-by-node",
        sdk: Sdk::PythonSession,
        identity: "npm:@modelcontextprotocol/server-sequential-thinking",
        entry: |_| {
            let script = kit::installed()
                .join("node/node_modules/@modelcontextprotocol/server-sequential-thinking/dist/index.js");
            Ok(ServerEntry::new("node").args([script]))
        },
        calls: |_| {
            let thought =
                json!({"thought": "one", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1});
            vec![
                call("sequentialthinking", thought, "ok"),
                call("sequentialthinking", json!({}), "tool_error"),
            ]
        },
    },
    Row {
        name: "context7-in-the-modern-era",
        sdk: Sdk::PythonClient,
        identity: "npm:@upstash/context7-mcp",
        entry: |_| Ok(ServerEntry::new(kit::node_bin("context7-mcp"))),
        calls: |_| vec![call("no-such-tool", json!({}), "error")],
    },
    Row {
        name: "git-by-python-m",
        sdk: Sdk::PythonClient,
        identity: "pypi:mcp-server-git",
        entry: |stage| {
            git(stage, &["init", "-q"])?;
            stage.write("work/a.txt", "a")?;
            git(stage, &["add", "a.txt"])?;
            Ok(ServerEntry::new(kit::python_bin("python")).args(["-m", "mcp_server_git"]))
        },
        calls: |stage| {
            let repository = json!({"repo_path": stage.path("work")});
            vec![
                call("git_status", repository.clone(), "ok"),
                call("git_diff_staged", repository, "ok"),
                call(
                    "git_status",
                    json!({"repo_path": stage.path("home")}),
                    "tool_error",
                ),
            ]
        },
    },
    Row {
        name: "time-by-uvx",
        sdk: Sdk::TypeScript,
        identity: "pypi:mcp-server-time",
        entry: |_| {
            Ok(ServerEntry::new("uvx")
                .args(["--from", "mcp-server-time", "mcp-server-time"])
                .env("UV_OFFLINE", "1")
                .env("UV_NO_INDEX", "1")
                .env("UV_PYTHON_DOWNLOADS", "never")
                .env("UV_PYTHON", kit::python_bin("python"))
                .env("UV_FIND_LINKS", kit::installed().join("wheels"))
                .env("UV_CACHE_DIR", kit::installed().join("uv-cache")))
        },
        calls: |_| {
            vec![
                call("get_current_time", json!({"timezone": "Asia/Tokyo"}), "ok"),
                call(
                    "get_current_time",
                    json!({"timezone": "Moon/Crater"}),
                    "tool_error",
                ),
            ]
        },
    },
    Row {
        name: "time-by-shim",
        sdk: Sdk::PythonSession,
        identity: "pypi:mcp-server-time",
        entry: |stage| {
            // Shims of version managers: scripts that replace themselves, several programs in one process.
            let server = kit::python_bin("mcp-server-time");
            let inner = stage.write(
                "shims/inner",
                format!("#!/bin/sh\nexec {} \"$@\"\n", server.display()),
            )?;
            let outer = stage.write(
                "shims/outer",
                format!("#!/bin/sh\nexec {} \"$@\"\n", inner.display()),
            )?;
            executable(&inner)?;
            executable(&outer)?;
            Ok(ServerEntry::new(outer))
        },
        calls: |_| {
            let times = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
            vec![
                call("convert_time", times, "ok"),
                call("no_such_tool", json!({}), "error"),
            ]
        },
    },
];

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    ROWS.iter()
        .map(|row| {
            context.trial(Scene {
                name: format!("servers::{}", row.name),
                agent: match row.sdk {
                    Sdk::TypeScript => "sdk.mjs",
                    Sdk::PythonSession => "session.py",
                    Sdk::PythonClient => "client.py",
                },
                server: row.identity.to_owned(),
                // The SDK scripts are on no list of agents: they are found by what they do.
                verdict: Verdict::Same(Rigour::Exact),
                packages: true,
                play: Box::new(|stage| play(row, stage, |_, entry| entry)),
            })
        })
        .collect()
}

/// Plays a row; `behind` says what stands between agent and server.
pub(crate) fn play(row: &Row, stage: &Stage, behind: fn(&Stage, ServerEntry) -> ServerEntry) -> Result<()> {
    let entry = behind(stage, stage.witnessed((row.entry)(stage)?));
    let (calls, wanted): (Vec<_>, Vec<_>) = (row.calls)(stage).into_iter().unzip();
    row.sdk.run(stage, &entry, &calls)?;
    let talk = crate::context::one_talk(stage)?;
    let outcomes: Vec<_> = talk
        .tool_calls()
        .map(|call| call.answer.as_ref().map_or("none", |answer| answer.outcome))
        .collect();
    ensure!(outcomes == wanted, "the server answered {outcomes:?}");
    Ok(())
}

/// A launcher that stays: npm, a shell and the server share the descriptors.
pub(crate) fn npx(program: &str) -> ServerEntry {
    ServerEntry::new("npx")
        .args(["--no-install", "--prefix"])
        .args([kit::installed().join("node")])
        .args([program])
}

fn git(stage: &Stage, args: &[&str]) -> Result<()> {
    let status = Command::new("git")
        .args(args)
        .current_dir(stage.path("work"))
        .status()
        .context("git")?;
    ensure!(status.success(), "git {args:?}");
    Ok(())
}

fn executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(
        path,
        std::fs::Permissions::from_mode(0o755),
    )?)
}
