//! The MCP servers that a user's clients are configured to start.
//!
//! Read so that a server is known at its exec, and so that `kams status` can name what it cannot see (remote
//! servers). Arguments and values of variables may hold secrets: values are never kept, arguments are kept in memory
//! for [`ServerList::known_at_exec`] and printed nowhere; of a URL only scheme and host stay, since paths and
//! queries carry tokens too. Errors never quote a file.

mod argv;
mod extract;
mod formats;
mod json;
mod known;
mod node;
mod reader;
mod table;

use std::collections::BTreeMap;
use std::fmt;

pub use argv::{ArgvConfig, configs_in_argv};
pub use known::{Match, ServerList};
pub use reader::UserReader;
pub use table::{ENVIRONMENT, Scope};

use crate::discover::identity::ServerIdentity;
use table::{Base, Format, ROWS, Row, Style};

/// Servers kept per file; more are reported as a problem.
pub const MAX_SERVERS: usize = 256;
/// Files taken from a directory of configuration files.
const MAX_DIRECTORY: usize = 64;

/// A server that a client is configured to start or to reach.
#[derive(Clone)]
pub struct ConfiguredServer {
    /// The client whose file it is, such as `claude-code`.
    pub client: &'static str,
    /// Whose file it is.
    pub scope: Scope,
    /// The file.
    pub file: String,
    /// Line of its entry, from 1; 0 when unknown.
    pub line: u32,
    /// Its name in the file.
    pub name: String,
    /// The project directory it is limited to, where the file says so.
    pub project: Option<String>,
    /// The program, as written; none for a remote server.
    pub command: Option<String>,
    args: Vec<String>,
    /// Working directory, as written.
    pub cwd: Option<String>,
    /// Names of the variables it is given. Their values are not kept.
    pub env: Vec<String>,
    /// Scheme and host of a remote server.
    pub url: Option<String>,
    /// False when the file switches it off.
    pub enabled: bool,
    /// What it will be called; none for a remote server.
    pub identity: Option<ServerIdentity>,
}

impl ConfiguredServer {
    /// The arguments as written. They may hold secrets: compare, never print.
    pub fn args(&self) -> &[String] {
        &self.args
    }
}

impl fmt::Debug for ConfiguredServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredServer")
            .field("client", &self.client)
            .field("scope", &self.scope)
            .field("file", &self.file)
            .field("line", &self.line)
            .field("name", &self.name)
            .field("project", &self.project)
            // Some people write a whole line as the command.
            .field(
                "command",
                &self.command.as_deref().map(|line| line.split_whitespace().next()),
            )
            .field("args", &format_args!("[{} not shown]", self.args.len()))
            .field("env", &self.env)
            .field("url", &self.url)
            .field("enabled", &self.enabled)
            .field("identity", &self.identity.as_ref().map(ToString::to_string))
            .finish_non_exhaustive()
    }
}

/// Something in a file that keeps a server, or all of them, from being known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The client whose file it is.
    pub client: &'static str,
    /// The file.
    pub file: String,
    /// From 1; 0 when the whole file is meant.
    pub line: u32,
    /// In characters, from 1; 0 when unknown.
    pub column: u32,
    /// What is wrong. Quotes nothing but member names.
    pub what: String,
    /// What a person can do.
    pub remedy: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}; {}", self.what, self.remedy)
    }
}

/// Why a file was not read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unread {
    /// There is none: the normal case.
    Absent,
    /// There is one, and it was refused or failed.
    Refused {
        /// What is wrong.
        what: String,
        /// What a person can do.
        remedy: &'static str,
    },
}

/// How files are reached: with the user's own privileges, see `kams_host::userfile`.
pub trait ReadFiles {
    /// The whole text of a configuration file.
    fn read(&self, path: &str, scope: Scope) -> Result<String, Unread>;
    /// Names of the files in a directory, at most `max`; empty when there is none.
    fn list(&self, dir: &str, max: usize) -> Vec<String>;
}

/// Whose files to read.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The user's home directory, absolute.
    pub home: String,
    /// Project directories: working directories of the user's agents, absolute.
    pub projects: Vec<String>,
    /// Variables of an agent, those of [`ENVIRONMENT`] only.
    pub environment: BTreeMap<String, String>,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// Servers, in table order, then file order.
    pub servers: Vec<ConfiguredServer>,
    /// Problems, in the same order.
    pub problems: Vec<Problem>,
    /// Files that exist and were read.
    pub files: Vec<String>,
}

/// Reads every file of the table for one user.
pub fn read(places: &Places, files: &dyn ReadFiles) -> Configuration {
    let mut out = Configuration::default();
    for row in &ROWS {
        let bases = match row.base {
            Base::Project => places.projects.clone(),
            base => base_directory(base, places).into_iter().collect(),
        };
        for base in bases {
            for path in paths(row, &base, files) {
                // Two variables or projects may lead to one file.
                if !out.files.contains(&path) {
                    read_file(row, &path, places, files, &mut out);
                }
            }
        }
    }
    out
}

/// Reads one file that an agent was started with (`--mcp-config FILE`), or the text given in its place.
pub fn read_argv(config: &ArgvConfig, places: &Places, files: &dyn ReadFiles, out: &mut Configuration) {
    let row = Row {
        client: config.client,
        scope: Scope::Project,
        base: Base::Root,
        path: "",
        format: Format::Json(json::Dialect::Strict),
        key: &["mcpServers"],
        style: Style::Standard,
    };
    match &config.text {
        Some(text) => parse(&row, &config.path, text, places, out),
        None if out.files.contains(&config.path) => {}
        None => read_file(&row, &config.path, places, files, out),
    }
}

fn base_directory(base: Base, places: &Places) -> Option<String> {
    let variable = |name: &str| {
        places
            .environment
            .get(name)
            .filter(|value| value.starts_with('/'))
            .cloned()
    };
    match base {
        Base::Home => Some(places.home.clone()),
        Base::Config => variable("XDG_CONFIG_HOME").or_else(|| Some(format!("{}/.config", places.home))),
        Base::EnvDir(name, under) => variable(name).or_else(|| Some(join(&places.home, under))),
        Base::EnvFile(name) => variable(name),
        Base::Root => Some(String::new()),
        Base::Project => None,
    }
}

fn join(base: &str, path: &str) -> String {
    if path.is_empty() {
        base.to_owned()
    } else {
        format!("{}/{path}", base.trim_end_matches('/'))
    }
}

fn paths(row: &Row, base: &str, files: &dyn ReadFiles) -> Vec<String> {
    let path = join(base, row.path);
    let Some((dir, extension)) = path.split_once("/*") else {
        return vec![path];
    };
    let mut names = files.list(dir, MAX_DIRECTORY);
    names.retain(|name| name.ends_with(extension) && !name.contains('/'));
    names.sort();
    names.into_iter().map(|name| format!("{dir}/{name}")).collect()
}

fn read_file(row: &Row, path: &str, places: &Places, files: &dyn ReadFiles, out: &mut Configuration) {
    match files.read(path, row.scope) {
        Ok(text) => {
            out.files.push(path.to_owned());
            parse(row, path, &text, places, out);
        }
        Err(Unread::Absent) => {}
        Err(Unread::Refused { what, remedy }) => {
            out.problems.push(Problem {
                client: row.client,
                file: path.to_owned(),
                line: 0,
                column: 0,
                what,
                remedy,
            });
        }
    }
}

fn parse(row: &Row, path: &str, text: &str, places: &Places, out: &mut Configuration) {
    // An empty file is how some clients begin.
    if text.trim().is_empty() {
        return;
    }
    let parsed = match row.format {
        Format::Json(dialect) => json::parse(text, dialect),
        Format::Toml => formats::toml(text),
        Format::Yaml => formats::yaml(text),
    };
    match parsed {
        Ok(root) => extract::servers(row, path, &root, places, out),
        Err(error) => out.problems.push(Problem {
            client: row.client,
            file: path.to_owned(),
            line: error.place.line,
            column: error.place.column,
            what: format!("cannot be read: {}", error.what),
            remedy: "correct the file; until then its servers are recognised only once they speak",
        }),
    }
}

#[cfg(test)]
mod tests;
