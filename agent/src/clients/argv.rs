//! Configuration that an agent is given on its command line.

/// Configurations taken from one command line.
const MAX: usize = 16;
/// Longest text taken, in bytes.
const MAX_TEXT: usize = 256 << 10;

/// A file, or a text in its place.
#[derive(Clone, Eq, PartialEq)]
pub struct ArgvConfig {
    /// The agent's name.
    pub client: &'static str,
    /// Absolute path; for a text the name of the option it stands after.
    pub path: String,
    pub(super) text: Option<String>,
}

impl ArgvConfig {
    /// A file that a person names.
    pub const fn file(path: String) -> Self {
        Self {
            client: "file",
            path,
            text: None,
        }
    }
}

/// `claude --mcp-config FILE|JSON...` and `copilot --additional-mcp-config @FILE|JSON`. `agent` is the name of the
/// agent table, `cwd` the agent's working directory.
pub fn configs_in_argv(agent: &str, argv: &[String], cwd: &str) -> Vec<ArgvConfig> {
    let (client, option, many) = match agent {
        "claude-code" => ("claude-code", "--mcp-config", true),
        "copilot-cli" => ("copilot-cli", "--additional-mcp-config", false),
        _ => return Vec::new(),
    };
    let mut out = Vec::new();
    let mut words = argv.iter().peekable();
    while let Some(word) = words.next() {
        let mut values: Vec<&String> = Vec::new();
        let inline;
        if word == option {
            while let Some(value) = words.next_if(|value| !value.starts_with('-')) {
                values.push(value);
                if !many {
                    break;
                }
            }
        } else if let Some(value) = word.strip_prefix(option).and_then(|rest| rest.strip_prefix('=')) {
            inline = value.to_owned();
            values.push(&inline);
        }
        for value in values {
            if out.len() >= MAX {
                return out;
            }
            let value = value.strip_prefix('@').unwrap_or(value);
            if value.trim_start().starts_with('{') {
                if value.len() <= MAX_TEXT {
                    out.push(ArgvConfig {
                        client,
                        path: option.to_owned(),
                        text: Some(value.to_owned()),
                    });
                }
            } else {
                let path = if value.starts_with('/') {
                    value.to_owned()
                } else {
                    format!("{cwd}/{value}")
                };
                out.push(ArgvConfig {
                    client,
                    path,
                    text: None,
                });
            }
        }
    }
    out
}
