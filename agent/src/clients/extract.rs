//! From a file's values to configured servers.

use super::node::{Key, Node, Place, Value};
use super::table::{Row, Style};
use super::{Configuration, ConfiguredServer, MAX_SERVERS, Places, Problem};
use crate::discover::identity::{Blind, Launch, identify};

/// Longest name, command or path taken, in bytes.
const MAX_TEXT: usize = 4096;
const MAX_ARGS: usize = 256;

/// Adds the servers of one file, and what is wrong with it.
pub(super) fn servers(row: &Row, path: &str, root: &Node, places: &Places, out: &mut Configuration) {
    let mut reader = Reader {
        row,
        path,
        places,
        out,
        taken: 0,
    };
    let found = row.key.iter().try_fold(root, |node, key| node.get(key));
    if let Some(found) = found {
        reader.collection(found, None);
    }
    if row.style == Style::ClaudeUser
        && let Some(Node {
            value: Value::Map(projects),
            ..
        }) = root.get("projects")
    {
        for (project, node) in projects {
            if let Some(found) = node.get("mcpServers") {
                reader.collection(found, Some(&project.text));
            }
        }
    }
}

struct Reader<'a> {
    row: &'a Row,
    path: &'a str,
    places: &'a Places,
    out: &'a mut Configuration,
    taken: usize,
}

impl Reader<'_> {
    fn problem(&mut self, place: Place, what: String, remedy: &'static str) {
        self.out.problems.push(Problem {
            client: self.row.client,
            file: self.path.to_owned(),
            line: place.line,
            column: place.column,
            what,
            remedy,
        });
    }

    fn collection(&mut self, node: &Node, project: Option<&str>) {
        match (&node.value, self.row.style) {
            (Value::Map(members), style) if style != Style::List => {
                for (Key { place, text }, entry) in members {
                    self.entry(text, *place, entry, project);
                }
            }
            (Value::List(items), Style::List) => {
                for item in items {
                    match item.get("name").and_then(Node::text) {
                        Some(name) => self.entry(name, item.place, item, project),
                        None => self.problem(
                            item.place,
                            "an MCP server without a `name`".to_owned(),
                            "give it one, or the client ignores it",
                        ),
                    }
                }
            }
            (Value::Other, _) => {} // null: none yet
            _ => {
                let member = self.row.key.last().copied().unwrap_or_default();
                let shape = if self.row.style == Style::List {
                    "a list"
                } else {
                    "an object"
                };
                self.problem(
                    node.place,
                    format!("`{member}` is not {shape}"),
                    "write it as the client's manual shows",
                );
            }
        }
    }

    fn entry(&mut self, name: &str, place: Place, node: &Node, project: Option<&str>) {
        if self.taken >= MAX_SERVERS {
            if self.taken == MAX_SERVERS {
                self.taken += 1;
                self.problem(
                    place,
                    format!("more than {MAX_SERVERS} servers"),
                    "the rest is recognised once it speaks",
                );
            }
            return;
        }
        let Value::Map(_) = node.value else {
            self.problem(
                node.place,
                format!("server {name:?} is not an object"),
                "write it as the client's manual shows",
            );
            return;
        };
        let (command, args) = match self.command(node) {
            Ok(found) => found,
            Err((place, what)) => {
                self.problem(
                    place,
                    format!("server {name:?}: {what}"),
                    "write it as the client's manual shows",
                );
                return;
            }
        };
        let url = ["url", "serverUrl", "httpUrl", "uri"]
            .iter()
            .find_map(|member| node.get(member).and_then(Node::text))
            .map(origin);
        if command.is_none() && url.is_none() {
            // Built-in extensions of goose and overrides of Zed and opencode have neither.
            let partial =
                matches!(self.row.style, Style::Goose | Style::Opencode) || self.row.client == "zed";
            if !partial {
                self.problem(
                    place,
                    format!("server {name:?} has neither a command nor a URL"),
                    "give it one, or remove the entry",
                );
            }
            return;
        }
        let env_member = match self.row.style {
            Style::Opencode => "environment",
            Style::Goose => "envs",
            _ => "env",
        };
        let env = match node.get(env_member).map(|node| &node.value) {
            Some(Value::Map(members)) => members
                .iter()
                .take(MAX_ARGS)
                .map(|(key, _)| cut(&key.text))
                .collect(),
            _ => Vec::new(),
        };
        let enabled = node.get("enabled").and_then(Node::bool).unwrap_or(true)
            && !node.get("disabled").and_then(Node::bool).unwrap_or(false);
        let cwd = node.get("cwd").and_then(Node::text).map(cut);
        // A whole line written as the command is no program's name, and may hold what a name must not.
        let one_line = args.is_empty()
            && command
                .as_ref()
                .is_some_and(|command| command.contains(char::is_whitespace));
        let identity = command.as_ref().filter(|_| !one_line).map(|command| {
            let base = project
                .or(self.places.projects.first().map(String::as_str))
                .unwrap_or(&self.places.home);
            let cwd = match &cwd {
                Some(dir) if dir.starts_with('/') => dir.clone(),
                Some(dir) => format!("{base}/{dir}"),
                None => base.to_owned(),
            };
            let argv: Vec<String> = std::iter::once(command.clone())
                .chain(args.iter().cloned())
                .collect();
            let launch = Launch {
                exe: "",
                argv: &argv,
                cwd: &cwd,
                home: &self.places.home,
            };
            identify(&launch, &Blind).identity
        });
        self.taken += 1;
        self.out.servers.push(ConfiguredServer {
            client: self.row.client,
            scope: self.row.scope,
            file: self.path.to_owned(),
            line: place.line,
            name: cut(name),
            project: project.map(cut),
            command,
            args,
            cwd,
            env,
            url,
            enabled,
            identity,
        });
    }

    #[expect(clippy::type_complexity, reason = "one caller, two plain parts")]
    fn command(&self, node: &Node) -> Result<(Option<String>, Vec<String>), (Place, &'static str)> {
        let member = if self.row.style == Style::Goose {
            "cmd"
        } else {
            "command"
        };
        let Some(command) = node.get(member) else {
            return Ok((None, Vec::new()));
        };
        let args = match node.get("args") {
            None => Vec::new(),
            Some(args) => texts(args).ok_or((args.place, "`args` is not a list of strings"))?,
        };
        match &command.value {
            Value::Text(text) if text.trim().is_empty() => Err((command.place, "the command is empty")),
            Value::Text(text) => Ok((Some(cut(text)), args)),
            // opencode writes a list; Zed once wrote an object with path and args.
            Value::List(_) => {
                let words = texts(command).ok_or((command.place, "the command is not a list of strings"))?;
                match words.split_first() {
                    Some((program, rest)) => Ok((Some(program.clone()), rest.to_vec())),
                    None => Err((command.place, "the command is empty")),
                }
            }
            Value::Map(_) => match command.get("path").and_then(Node::text) {
                Some(program) => {
                    let args = command.get("args").and_then(texts).unwrap_or_default();
                    Ok((Some(cut(program)), args))
                }
                None => Err((command.place, "the command has no `path`")),
            },
            _ => Err((command.place, "the command is not a string")),
        }
    }
}

fn texts(node: &Node) -> Option<Vec<String>> {
    match &node.value {
        Value::List(items) if items.len() <= MAX_ARGS => {
            items.iter().map(|item| item.text().map(str::to_owned)).collect()
        }
        _ => None,
    }
}

fn cut(text: &str) -> String {
    kams_detect::finding::cut(text, MAX_TEXT).to_owned()
}

/// Scheme, host and port of an address: tokens stand in user information, path and query alike.
fn origin(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "(not an absolute URL)".to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit('@').next().unwrap_or(authority);
    cut(&format!("{scheme}://{host}"))
}
