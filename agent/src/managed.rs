//! The host-wide settings by which agents are told to report their model calls to Kams.
//!
//! Three agents read a file of the administrator's that wins over the user's own. [`plan`] works out what such a file
//! must become and says it as a difference; [`record`] keeps what stood there before, so that undoing it is exact.
//! Others' keys, their order and their comments stay. A file that cannot be read for what it is, is not touched.

pub mod diff;
pub mod json;
pub mod plan;
pub mod record;
pub mod toml;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// An agent that reads a managed file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Agent {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
}

/// A key of a file and its value.
pub type Setting = (&'static [&'static str], Value);

impl Agent {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Claude, Self::Codex, Self::Gemini];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini-cli",
        }
    }

    /// The agent with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }

    /// The file, below the root folder of the host. Claude Code reads all files of its folder, so that one is ours alone.
    pub fn file(self, root: &Path) -> PathBuf {
        root.join(match self {
            Self::Claude => "etc/claude-code/managed-settings.d/50-kams.json",
            Self::Codex => "etc/codex/managed_config.toml",
            Self::Gemini => "etc/gemini-cli/settings.json",
        })
    }

    /// What makes the agent report to `endpoint` (a URL without a path).
    pub fn settings(self, endpoint: &str) -> Vec<Setting> {
        match self {
            Self::Claude => vec![
                (&["env", "CLAUDE_CODE_ENABLE_TELEMETRY"], json!("1")),
                (&["env", "OTEL_LOGS_EXPORTER"], json!("otlp")),
                (&["env", "OTEL_EXPORTER_OTLP_PROTOCOL"], json!("http/protobuf")),
                (&["env", "OTEL_EXPORTER_OTLP_ENDPOINT"], json!(endpoint)),
                // Names of tools and servers, and arguments: measured on arrival, and dropped.
                (&["env", "OTEL_LOG_TOOL_DETAILS"], json!("1")),
            ],
            Self::Codex => vec![(
                &["otel", "exporter"],
                json!({"otlp-http": {"endpoint": format!("{endpoint}/v1/logs"), "protocol": "binary"}}),
            )],
            Self::Gemini => vec![
                (&["telemetry", "enabled"], json!(true)),
                (&["telemetry", "target"], json!("local")),
                (&["telemetry", "otlpEndpoint"], json!(endpoint)),
                (&["telemetry", "otlpProtocol"], json!("http")),
                (&["telemetry", "logPrompts"], json!(false)),
            ],
        }
    }

    /// The form of the file.
    pub const fn form(self) -> Form {
        match self {
            Self::Claude | Self::Gemini => Form::Json,
            Self::Codex => Form::Toml,
        }
    }
}

/// The form of a settings file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// JSON.
    Json,
    /// TOML.
    Toml,
}

impl Form {
    /// The value at a path of keys; an error where the text is not of this form.
    pub fn get(self, text: &str, path: &[impl AsRef<str>]) -> Result<Option<Value>, String> {
        let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
        match self {
            Self::Json => json::get(text, &path),
            Self::Toml => toml::get(text, &path),
        }
    }

    /// The text with another value there (none: without the key). All else stays as it is written.
    pub fn set(self, text: &str, path: &[impl AsRef<str>], value: Option<&Value>) -> Result<String, String> {
        let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
        match self {
            Self::Json => json::set(text, &path, value),
            Self::Toml => toml::set(text, &path, value),
        }
    }
}

#[cfg(test)]
mod tests;
