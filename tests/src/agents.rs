//! Real agents, each started offline with the settings that make it talk to one server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::kit;
use crate::mock_llm::{Call, Script};
use crate::netbox::LLM_PORT;
use crate::stage::{ServerEntry, Stage};

/// What the model says when it is through.
pub const CLOSING: &str = "The mock is done.";

/// Agents that are programs over an SDK: they make a plan's calls themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sdk {
    /// TypeScript SDK: socketpairs, `initialize`.
    TypeScript,
    /// Python SDK, low-level session: pipes, `initialize`.
    PythonSession,
    /// Python SDK, high-level client: pipes, `server/discover`.
    PythonClient,
}

impl Sdk {
    /// Runs the agent; one JSON answer per call.
    pub fn run(self, stage: &Stage, server: &ServerEntry, calls: &[Call]) -> Result<Vec<Value>> {
        let mut plan = server.json();
        plan["calls"] = serde_json::to_value(calls)?;
        let plan = stage.write("plan.json", plan.to_string())?;
        let mut command = match self {
            Self::TypeScript => script(stage, Path::new("node"), &typescript_client()?),
            Self::PythonSession => script(stage, &kit::python_bin("python"), &python_client("session.py")),
            Self::PythonClient => script(stage, &kit::python_bin("python"), &python_client("client.py")),
        };
        let run = stage.run_well(command.arg(plan))?;
        let answers: Vec<Value> = run
            .stdout
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        ensure!(
            answers.len() == calls.len(),
            "{} answers to {} calls",
            answers.len(),
            calls.len()
        );
        Ok(answers)
    }
}

fn script(stage: &Stage, interpreter: &Path, script: &Path) -> Command {
    let mut command = stage.command(interpreter);
    command.arg(script);
    command
}

/// The script must lie beside the packages: Node looks for them from there upwards.
fn typescript_client() -> Result<PathBuf> {
    let beside = kit::installed().join("node/sdk.mjs");
    std::fs::copy(kit::root().join("tests/node/clients/sdk.mjs"), &beside)?;
    Ok(beside)
}

fn python_client(name: &str) -> PathBuf {
    kit::root().join("tests/python/clients").join(name)
}

/// Agents that ask a model what to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cli {
    /// Claude Code: socketpairs, native Bun binary.
    Claude,
    /// Codex: pipes, `writev`, native Rust binary behind a Node launcher.
    Codex,
    /// Gemini CLI: socketpairs, Node.
    Gemini,
}

/// Name of the server in the agents' configuration.
const NAME: &str = "tested";

impl Cli {
    /// Runs the agent in a box; the model makes `calls`. Ends well only if every answer reached the model and the
    /// model's closing text reached the user.
    pub fn run(self, stage: &Stage, kams_box: &Path, server: &ServerEntry, calls: &[Call]) -> Result<()> {
        let script = Script {
            calls: calls.to_vec(),
            closing: CLOSING.to_owned(),
        };
        let url = format!("http://127.0.0.1:{LLM_PORT}");
        let mut command = match self {
            Self::Claude => {
                let servers = stage.write(
                    "mcp.json",
                    json!({"mcpServers": {NAME: server.json()}}).to_string(),
                )?;
                let mut command = stage.boxed(kams_box, &script, kit::node_bin("claude"))?;
                command
                    .env("ANTHROPIC_BASE_URL", url)
                    .env("ANTHROPIC_API_KEY", "any")
                    .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
                    .env("DISABLE_AUTOUPDATER", "1")
                    .args([
                        "-p",
                        "go",
                        "--strict-mcp-config",
                        "--output-format",
                        "json",
                        "--mcp-config",
                    ])
                    .arg(servers)
                    .arg("--allowedTools")
                    .args(calls.iter().map(|call| format!("mcp__{NAME}__{}", call.tool)));
                command
            }
            Self::Codex => {
                stage.write("codex/config.toml", codex_config(&url, server))?;
                let mut command = stage.boxed(kams_box, &script, kit::node_bin("codex"))?;
                command
                    .env("CODEX_HOME", stage.path("codex"))
                    .env("MOCK_KEY", "any")
                    .args(["exec", "--skip-git-repo-check", "go"]);
                command
            }
            Self::Gemini => {
                let mut entry = server.json();
                entry["trust"] = json!(true);
                let settings = json!({
                    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
                    "privacy": {"usageStatisticsEnabled": false},
                    "mcpServers": {NAME: entry}});
                stage.write("home/.gemini/settings.json", settings.to_string())?;
                let mut command = stage.boxed(kams_box, &script, kit::node_bin("gemini"))?;
                command
                    .env("GEMINI_API_KEY", "any")
                    .env("GOOGLE_GEMINI_BASE_URL", url)
                    .args(["--skip-trust", "-m", "gemini-2.5-flash", "--yolo", "-p", "go"]);
                command
            }
        };
        let run = stage.run_well(&mut command)?;
        ensure!(
            run.stdout.contains(CLOSING),
            "the closing text is missing: {run:#?}"
        );
        let most = stage
            .llm_log()?
            .into_iter()
            .map(|line| line.results.len())
            .max()
            .unwrap_or_default();
        ensure!(
            most == calls.len(),
            "{most} of {} answers reached the model: {:?}",
            calls.len(),
            stage.llm_log()?
        );
        Ok(())
    }
}

fn codex_config(url: &str, server: &ServerEntry) -> String {
    // A JSON string is a TOML basic string for everything that stands in these values.
    let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
    let args = list(&mut server.args.iter().map(|arg| json!(arg).to_string()));
    let env = list(
        &mut server
            .env
            .iter()
            .map(|(name, value)| format!("{name} = {}", json!(value))),
    );
    format!(
        r#"model = "mock"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "MOCK_KEY"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.{NAME}]
command = {command}
args = [{args}]
env = {{ {env} }}
"#,
        command = json!(server.command),
    )
}

/// The Inspector's command line: one call; its standard output.
pub fn inspector(stage: &Stage, server: &ServerEntry, call: &Call) -> Result<String> {
    let mut command = script(stage, Path::new("node"), &kit::node_bin("mcp-inspector"));
    command.arg("--cli");
    for (name, value) in &server.env {
        // The Inspector takes its own options from NODE_OPTIONS too, and passes the variable on.
        if name == "NODE_OPTIONS" {
            command.env(name, value);
        } else {
            command.args(["-e", &format!("{name}={value}")]);
        }
    }
    command.arg(&server.command).args(&server.args).args([
        "--method",
        "tools/call",
        "--tool-name",
        &call.tool,
    ]);
    for (name, value) in call.arguments.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        command.args(["--tool-arg", &format!("{name}={value}")]);
    }
    Ok(stage.run_well(&mut command)?.stdout)
}
