//! Where MCP clients keep their server configuration on Linux.
//!
//! Each row was seen to be written or read by the client itself, or is what the client's documentation says.

use super::json::Dialect;

/// Whose file it is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scope {
    /// The user's own.
    User,
    /// A project's, found from an agent's working directory.
    Project,
    /// The machine's, put there by an administrator.
    System,
}

/// Where a row's path starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Base {
    /// The home directory.
    Home,
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    Config,
    /// The directory in this variable, else this path under the home directory.
    EnvDir(&'static str, &'static str),
    /// The file in this variable; no row without it.
    EnvFile(&'static str),
    /// A project directory.
    Project,
    /// The root directory.
    Root,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Json(Dialect),
    Toml,
    Yaml,
}

/// How a server's entry is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Style {
    /// Members named by server: command, args, env; url for remote ones.
    Standard,
    /// The same, and once more per project under `projects`.
    ClaudeUser,
    /// `command` is a list that holds the arguments too, `environment` the variables.
    Opencode,
    /// `cmd` and `envs`; `uri` for remote ones.
    Goose,
    /// A list of entries with `name`.
    List,
}

/// One file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) client: &'static str,
    pub(super) scope: Scope,
    pub(super) base: Base,
    /// Under `base`. A `*` before the extension stands for every file of the directory.
    pub(super) path: &'static str,
    pub(super) format: Format,
    /// Members that lead to the servers.
    pub(super) key: &'static [&'static str],
    pub(super) style: Style,
}

const STRICT: Format = Format::Json(Dialect::Strict);
const LENIENT: Format = Format::Json(Dialect::Comments);
const MCP_SERVERS: &[&str] = &["mcpServers"];

const fn row(
    client: &'static str,
    scope: Scope,
    base: Base,
    path: &'static str,
    format: Format,
    key: &'static [&'static str],
    style: Style,
) -> Row {
    Row {
        client,
        scope,
        base,
        path,
        format,
        key,
        style,
    }
}

/// Variables of an agent's environment that move a file. Only these need to be read.
pub const ENVIRONMENT: [&str; 7] = [
    "XDG_CONFIG_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "COPILOT_HOME",
    "OPENCODE_CONFIG",
    "CLINE_MCP_SETTINGS_PATH",
    "GEMINI_CLI_SYSTEM_SETTINGS_PATH",
];

/// All files.
#[rustfmt::skip]
pub(super) const ROWS: [Row; 44] = {
    use Base::{Config, EnvDir, EnvFile, Home, Project, Root};
    use Scope::{Project as InProject, System, User};
    use Style::{ClaudeUser, Goose, List, Opencode, Standard};
    [
        row("claude-code", User, EnvDir("CLAUDE_CONFIG_DIR", ""), ".claude.json", STRICT, MCP_SERVERS, ClaudeUser),
        row("claude-code", InProject, Project, ".mcp.json", STRICT, MCP_SERVERS, Standard),
        row("claude-code", System, Root, "etc/claude-code/managed-mcp.json", STRICT, MCP_SERVERS, Standard),
        row("codex", User, EnvDir("CODEX_HOME", ".codex"), "config.toml", Format::Toml, &["mcp_servers"], Standard),
        row("codex", InProject, Project, ".codex/config.toml", Format::Toml, &["mcp_servers"], Standard),
        row("codex", System, Root, "etc/codex/config.toml", Format::Toml, &["mcp_servers"], Standard),
        row("codex", System, Root, "etc/codex/managed_config.toml", Format::Toml, &["mcp_servers"], Standard),
        row("gemini-cli", User, Home, ".gemini/settings.json", LENIENT, MCP_SERVERS, Standard),
        row("gemini-cli", InProject, Project, ".gemini/settings.json", LENIENT, MCP_SERVERS, Standard),
        row("gemini-cli", System, Root, "etc/gemini-cli/settings.json", LENIENT, MCP_SERVERS, Standard),
        row("gemini-cli", System, EnvFile("GEMINI_CLI_SYSTEM_SETTINGS_PATH"), "", LENIENT, MCP_SERVERS, Standard),
        row("qwen-code", User, Home, ".qwen/settings.json", LENIENT, MCP_SERVERS, Standard),
        row("qwen-code", InProject, Project, ".qwen/settings.json", LENIENT, MCP_SERVERS, Standard),
        row("opencode", User, Config, "opencode/opencode.json", LENIENT, &["mcp"], Opencode),
        row("opencode", User, Config, "opencode/opencode.jsonc", LENIENT, &["mcp"], Opencode),
        row("opencode", User, EnvFile("OPENCODE_CONFIG"), "", LENIENT, &["mcp"], Opencode),
        row("opencode", InProject, Project, "opencode.json", LENIENT, &["mcp"], Opencode),
        row("opencode", InProject, Project, "opencode.jsonc", LENIENT, &["mcp"], Opencode),
        row("copilot-cli", User, EnvDir("COPILOT_HOME", ".copilot"), "mcp-config.json", STRICT, MCP_SERVERS, Standard),
        row("vscode", User, Config, "Code/User/mcp.json", LENIENT, &["servers"], Standard),
        row("vscode", User, Config, "Code/User/settings.json", LENIENT, &["mcp", "servers"], Standard),
        row("vscode", User, Config, "Code - Insiders/User/mcp.json", LENIENT, &["servers"], Standard),
        row("vscode", User, Config, "VSCodium/User/mcp.json", LENIENT, &["servers"], Standard),
        row("vscode", User, Home, ".vscode-server/data/User/mcp.json", LENIENT, &["servers"], Standard),
        row("vscode", InProject, Project, ".vscode/mcp.json", LENIENT, &["servers"], Standard),
        row("code-server", User, Home, ".local/share/code-server/User/mcp.json", LENIENT, &["servers"], Standard),
        row("cursor", User, Home, ".cursor/mcp.json", LENIENT, MCP_SERVERS, Standard),
        row("cursor", InProject, Project, ".cursor/mcp.json", LENIENT, MCP_SERVERS, Standard),
        row("windsurf", User, Home, ".codeium/windsurf/mcp_config.json", STRICT, MCP_SERVERS, Standard),
        row("cline", User, Config, "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", STRICT, MCP_SERVERS, Standard),
        row("cline-cli", User, Home, ".cline/data/settings/cline_mcp_settings.json", STRICT, MCP_SERVERS, Standard),
        row("cline-cli", User, EnvFile("CLINE_MCP_SETTINGS_PATH"), "", STRICT, MCP_SERVERS, Standard),
        row("roo-code", User, Config, "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json", STRICT, MCP_SERVERS, Standard),
        row("roo-code", InProject, Project, ".roo/mcp.json", STRICT, MCP_SERVERS, Standard),
        row("claude-desktop", User, Config, "Claude/claude_desktop_config.json", STRICT, MCP_SERVERS, Standard),
        row("zed", User, Config, "zed/settings.json", LENIENT, &["context_servers"], Standard),
        row("zed", InProject, Project, ".zed/settings.json", LENIENT, &["context_servers"], Standard),
        row("goose", User, Config, "goose/config.yaml", Format::Yaml, &["extensions"], Goose),
        row("continue", User, Home, ".continue/config.yaml", Format::Yaml, MCP_SERVERS, List),
        row("continue", InProject, Project, ".continue/mcpServers/*.yaml", Format::Yaml, MCP_SERVERS, List),
        row("continue", InProject, Project, ".continue/mcpServers/*.yml", Format::Yaml, MCP_SERVERS, List),
        row("continue", InProject, Project, ".continue/mcpServers/*.json", STRICT, MCP_SERVERS, Standard),
        row("lm-studio", User, Home, ".lmstudio/mcp.json", STRICT, MCP_SERVERS, Standard),
        row("lm-studio", User, Home, ".cache/lm-studio/mcp.json", STRICT, MCP_SERVERS, Standard),
    ]
};
