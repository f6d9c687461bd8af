//! Which executables are AI agents.
//!
//! Decided by the real path of the executable and, where an interpreter runs the agent, by the script: never by
//! `comm`, which threads rename (one agent's is `MainThread`). Being taken for an agent brings no privilege, only
//! attention: its tree is watched and its children's streams are read. A server that bears an agent's name is
//! still a server to whoever started it.

mod known;

use std::collections::HashMap;

use super::glob::Glob;
use super::identity::Look;

/// What sort of program an agent is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AgentKind {
    /// A command line program.
    Cli,
    /// An editor with an agent in it, or its extension host.
    Editor,
    /// A desktop application.
    Desktop,
    /// A developer's tool for trying servers.
    Tool,
    /// Named by the configuration.
    Configured,
    /// Seen to speak MCP to a child of its own.
    Learned,
}

impl AgentKind {
    /// Stable word for tables and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Editor => "editor",
            Self::Desktop => "desktop",
            Self::Tool => "tool",
            Self::Configured => "configured",
            Self::Learned => "learned",
        }
    }
}

/// An agent that was recognised.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct AgentName {
    /// Short stable name, such as `claude-code`.
    pub name: String,
    /// What sort of program it is.
    pub kind: AgentKind,
}

/// How an agent is recognised. Globs are over absolute paths ([`Glob`]) where nothing else is said.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AgentPattern {
    /// Short stable name, such as `claude-code`.
    pub name: String,
    /// The executable matches one of these.
    pub exe: Vec<String>,
    /// Or an interpreter (node, bun, deno, python) runs a script that matches one of these.
    pub script: Vec<String>,
    /// When not empty, the arguments joined by spaces must also match one of these ([`Glob::of_text`]), with or
    /// without the program's own name in front.
    pub argv: Vec<String>,
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PatternError {
    /// The pattern has no name, or one that is no label.
    #[error("agent pattern {0:?}: a name is 1 to 64 letters, digits, '-', '_' or '.'")]
    Name(String),
    /// It matches nothing by construction.
    #[error("agent pattern {0:?}: give at least one `exe` or `script` glob")]
    Empty(String),
    /// A glob is empty or too long.
    #[error("agent pattern {name:?}: glob {glob:?} is empty or longer than {max} bytes", max = Glob::MAX_LEN)]
    Glob {
        /// Pattern it belongs to.
        name: String,
        /// The glob as written.
        glob: String,
    },
}

/// The compiled patterns. Built once per configuration; looked at for every exec on the host, so that most
/// executables are dismissed by one hash lookup on their base name and the few patterns without a literal one.
#[derive(Clone, Debug, Default)]
pub struct AgentTable {
    agents: Vec<Compiled>,
    exe: Index,
    script: Index,
}

#[derive(Clone, Debug)]
struct Compiled {
    agent: AgentName,
    argv: Vec<Glob>,
}

/// Globs by their last component.
#[derive(Clone, Debug, Default)]
struct Index {
    by_name: HashMap<String, Vec<(usize, Glob)>>,
    rest: Vec<(usize, Glob)>,
}

impl Index {
    fn add(&mut self, agent: usize, glob: Glob) {
        match glob.last_component() {
            Some(name) => self
                .by_name
                .entry(name.to_owned())
                .or_default()
                .push((agent, glob)),
            None => self.rest.push((agent, glob)),
        }
    }

    /// The agents whose glob matches, in table order per group.
    fn find<'a>(&'a self, path: &'a str) -> impl Iterator<Item = usize> + 'a {
        let name = path.rsplit('/').next().unwrap_or(path);
        let named = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        named
            .iter()
            .chain(&self.rest)
            .filter(move |(_, glob)| glob.matches(path))
            .map(|(agent, _)| *agent)
    }
}

/// Arguments looked at when a pattern asks for one.
const MAX_ARGS: usize = 64;

impl AgentTable {
    /// The built-in patterns and, before them, those of the configuration: a configured name wins.
    pub fn new(configured: &[AgentPattern]) -> Result<Self, PatternError> {
        let mut table = Self::default();
        for pattern in configured {
            table.add(pattern, AgentKind::Configured)?;
        }
        for (kind, pattern) in known::patterns() {
            table.add(&pattern, kind)?;
        }
        Ok(table)
    }

    fn add(&mut self, pattern: &AgentPattern, kind: AgentKind) -> Result<(), PatternError> {
        let name = &pattern.name;
        let label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(label) {
            return Err(PatternError::Name(name.clone()));
        }
        if pattern.exe.is_empty() && pattern.script.is_empty() {
            return Err(PatternError::Empty(name.clone()));
        }
        let refuse = |glob: &String| PatternError::Glob {
            name: name.clone(),
            glob: glob.clone(),
        };
        let compile = |glob: &String| Glob::new(glob).ok_or_else(|| refuse(glob));
        let index = self.agents.len();
        let argv = pattern
            .argv
            .iter()
            .map(|glob| Glob::of_text(glob).ok_or_else(|| refuse(glob)))
            .collect::<Result<_, _>>()?;
        for glob in &pattern.exe {
            self.exe.add(index, compile(glob)?);
        }
        for glob in &pattern.script {
            self.script.add(index, compile(glob)?);
        }
        self.agents.push(Compiled {
            agent: AgentName {
                name: name.clone(),
                kind,
            },
            argv,
        });
        Ok(())
    }

    /// The agent that a new image is, if any. `exe` is the executable's real path, `cwd` the working directory.
    /// `look` is asked only when an interpreter runs a script, and only to follow links.
    pub fn recognise(&self, exe: &str, argv: &[String], cwd: &str, look: &dyn Look) -> Option<&AgentName> {
        let exe = exe.strip_suffix(" (deleted)").unwrap_or(exe);
        let best = self
            .exe
            .find(exe)
            .filter(|agent| self.argv_fits(*agent, argv))
            .min();
        if let Some(agent) = best.and_then(|agent| self.agents.get(agent)) {
            return Some(&agent.agent);
        }
        if !is_interpreter(exe) {
            return None;
        }
        let script = script_argument(argv)?;
        let path = if script.starts_with('/') {
            script.to_owned()
        } else {
            format!("{cwd}/{script}")
        };
        let direct = self
            .script
            .find(&path)
            .filter(|agent| self.argv_fits(*agent, argv))
            .min();
        let found = direct.or_else(|| {
            let real = look.real_path(&path)?;
            self.script
                .find(&real)
                .filter(|agent| self.argv_fits(*agent, argv))
                .min()
        });
        found
            .and_then(|agent| self.agents.get(agent))
            .map(|compiled| &compiled.agent)
    }

    fn argv_fits(&self, agent: usize, argv: &[String]) -> bool {
        let Some(compiled) = self.agents.get(agent) else {
            return false;
        };
        if compiled.argv.is_empty() {
            return true;
        }
        let words: Vec<&str> = argv.iter().take(MAX_ARGS).map(String::as_str).collect();
        let all = words.join(" ");
        let own = words.get(1..).unwrap_or_default().join(" ");
        compiled
            .argv
            .iter()
            .any(|glob| glob.matches(&all) || glob.matches(&own))
    }
}

/// Whether an executable runs programs that other files hold.
pub fn is_interpreter(exe: &str) -> bool {
    let name = exe.rsplit('/').next().unwrap_or(exe);
    matches!(
        name,
        "node" | "nodejs" | "bun" | "deno" | "electron" | "ruby" | "perl" | "php" | "java" | "dotnet"
    ) || name.starts_with("python")
        || name.starts_with("pypy")
}

/// The first argument that is no option. An option's separate value may be taken for it, which only costs a miss.
fn script_argument(argv: &[String]) -> Option<&str> {
    let mut args = argv.get(1..)?.iter().take(MAX_ARGS).map(String::as_str);
    while let Some(arg) = args.next() {
        match arg {
            "-r" | "--require" | "--import" | "--loader" | "-C" | "-W" | "-X" => {
                args.next();
            }
            "-m" | "-c" | "-e" | "--eval" => return None,
            "run" => {} // deno run, bun run
            arg if arg.starts_with('-') => {}
            arg => return Some(arg),
        }
    }
    None
}

#[cfg(test)]
mod tests;
