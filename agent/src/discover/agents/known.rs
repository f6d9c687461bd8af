//! The built-in patterns. Paths are those of the vendors' packages, installers and common repackagings on Linux.
//! An agent that is missing here is found by what it does (`watch.unknown_agents: discover`).

use super::{AgentKind, AgentPattern};

struct Row(
    AgentKind,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// (kind, name, executable globs, script globs)
const ROWS: [Row; 24] = [
    Row(
        AgentKind::Cli,
        "claude-code",
        // The native installer keeps each version as a file named by its number.
        &[
            "**/node_modules/@anthropic-ai/claude-code*/**",
            "**/claude/versions/*",
            "**/claude/versions/*/claude",
            "**/bin/claude",
        ],
        &["**/node_modules/@anthropic-ai/claude-code/**"],
    ),
    Row(
        AgentKind::Cli,
        "codex",
        &[
            "**/node_modules/@openai/codex*/**",
            "**/bin/codex",
            "**/codex-*-unknown-linux-*",
            "**/.codex/**/codex",
        ],
        &["**/node_modules/@openai/codex/**"],
    ),
    Row(
        AgentKind::Cli,
        "gemini-cli",
        &["**/bin/gemini"],
        &[
            "**/node_modules/@google/gemini-cli*/**",
            "**/gemini-cli/bundle/gemini.js",
        ],
    ),
    Row(
        AgentKind::Cli,
        "qwen-code",
        &["**/bin/qwen"],
        &["**/node_modules/@qwen-code/qwen-code/**"],
    ),
    Row(
        AgentKind::Cli,
        "opencode",
        &[
            "**/node_modules/opencode-*/**",
            "**/bin/opencode",
            "**/.opencode/**/opencode",
        ],
        &["**/node_modules/opencode-ai/**"],
    ),
    Row(
        AgentKind::Cli,
        "copilot-cli",
        &[
            "**/node_modules/@github/copilot*/**",
            "**/.local/bin/copilot",
            "**/.copilot/**/copilot",
        ],
        &["**/node_modules/@github/copilot/**", "**/.copilot/pkg/**"],
    ),
    Row(
        AgentKind::Cli,
        "cursor-agent",
        &["**/cursor-agent/versions/**", "**/bin/cursor-agent"],
        &["**/cursor-agent/versions/**"],
    ),
    Row(
        AgentKind::Cli,
        "goose",
        &[
            "**/.local/bin/goose",
            "**/goosed",
            "/usr/lib/goose/**",
            "**/Goose/**",
        ],
        &[],
    ),
    Row(
        AgentKind::Cli,
        "cline-cli",
        &["**/node_modules/@cline/**", "**/bin/cline"],
        &["**/node_modules/cline/**", "**/node_modules/@cline/**"],
    ),
    Row(
        AgentKind::Cli,
        "crush",
        &["**/bin/crush", "**/node_modules/@charmland/crush*/**"],
        &[],
    ),
    Row(
        AgentKind::Cli,
        "amp",
        &["**/node_modules/@sourcegraph/amp*/**", "**/.amp/bin/amp"],
        &["**/node_modules/@sourcegraph/amp/**"],
    ),
    Row(
        AgentKind::Cli,
        "continue-cli",
        &[],
        &["**/node_modules/@continuedev/cli/**"],
    ),
    Row(
        AgentKind::Cli,
        "auggie",
        &[],
        &["**/node_modules/@augmentcode/auggie/**"],
    ),
    Row(
        AgentKind::Editor,
        "cursor",
        &[
            "**/cursor/cursor",
            "**/Cursor/cursor",
            "/tmp/.mount_*ursor*/**/cursor",
            "**/.cursor-server/**/node",
        ],
        &["**/.cursor-server/**"],
    ),
    Row(
        AgentKind::Editor,
        "windsurf",
        &[
            "**/windsurf/windsurf",
            "**/Windsurf/windsurf",
            "**/.windsurf-server/**/node",
            "**/windsurf/**/language_server_linux_*",
            "**/.windsurf-server/**/language_server_linux_*",
        ],
        &["**/.windsurf-server/**"],
    ),
    Row(
        AgentKind::Editor,
        "vscode",
        &[
            "/usr/share/code/code",
            "/usr/share/code-insiders/code-insiders",
            "/opt/visual-studio-code*/code*",
            "/snap/code*/**/code*",
            "**/VSCode-linux-*/code*",
            "**/.vscode-server*/**/node",
            "**/.vscode/cli/**/node",
            "**/codium/codium",
            "**/.vscodium-server/**/node",
        ],
        &["**/.vscode-server*/**", "**/.vscodium-server/**"],
    ),
    Row(
        AgentKind::Editor,
        "code-server",
        &["**/code-server*/lib/node", "**/openvscode-server*/node"],
        &[
            "**/node_modules/code-server/**",
            "**/code-server*/out/node/**",
            "**/openvscode-server*/out/**",
        ],
    ),
    Row(
        AgentKind::Editor,
        "zed",
        &[
            "**/zed-editor",
            "**/zed.app/**",
            "**/.zed_server/**",
            "**/zed-remote-server*",
        ],
        &[],
    ),
    Row(
        AgentKind::Editor,
        "jetbrains",
        &[
            "**/idea*/jbr/bin/java",
            "**/pycharm*/jbr/bin/java",
            "**/webstorm*/jbr/bin/java",
            "**/goland*/jbr/bin/java",
            "**/clion*/jbr/bin/java",
            "**/rustrover*/jbr/bin/java",
        ],
        &[],
    ),
    Row(
        AgentKind::Desktop,
        "claude-desktop",
        &[
            "**/claude-desktop",
            "**/claude-desktop/**/electron",
            "/opt/Claude/**",
            "/usr/lib/claude-desktop/**",
        ],
        &["**/claude-desktop/**"],
    ),
    Row(
        AgentKind::Desktop,
        "lm-studio",
        &["**/lm-studio", "**/.lmstudio/**/node", "/tmp/.mount_LM-S*/**"],
        &["**/.lmstudio/**"],
    ),
    Row(
        AgentKind::Desktop,
        "cherry-studio",
        &["**/cherry-studio", "**/CherryStudio"],
        &[],
    ),
    Row(
        AgentKind::Tool,
        "mcp-inspector",
        &[],
        &[
            "**/node_modules/@modelcontextprotocol/inspector*/**",
            "**/node_modules/.bin/mcp-inspector",
        ],
    ),
    Row(
        AgentKind::Tool,
        "mcp-cli-tools",
        &[],
        &["**/node_modules/@wong2/mcp-cli/**", "**/bin/mcp-cli"],
    ),
];

/// All built-in patterns with the kind of each.
pub(super) fn patterns() -> impl Iterator<Item = (AgentKind, AgentPattern)> {
    let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
    ROWS.iter().map(move |Row(kind, name, exe, script)| {
        (
            *kind,
            AgentPattern {
                name: (*name).to_owned(),
                exe: owned(exe),
                script: owned(script),
                argv: Vec::new(),
            },
        )
    })
}
