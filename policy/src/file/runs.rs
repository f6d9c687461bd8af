//! `runs`: fact declarations, checkpoints, labels and the run-level documents.

use sha2::Sha256;

use crate::document::{self, Document};
use crate::file::Files;
use crate::glob::Glob;
use crate::policy::ApprovalPolicy;
use crate::reader::{Fields, Reader, show};
use crate::run::key::SafeKey;
use crate::tree::{Node, Place, Value};

/// Keys of the section.
pub(crate) const KEYS: &[&str] = &[
    "idle_timeout",
    "user_window",
    "checkpoint",
    "labels",
    "facts",
    "policies",
];
/// Keys of `checkpoint`.
pub(crate) const CHECKPOINT_KEYS: &[&str] = &["before"];
/// Keys of `labels`: what a document's scope may ask for.
pub(crate) const LABEL_KEYS: &[&str] = &["workflow", "step", "environment"];
/// Keys of a fact declaration.
pub(crate) const FACT_KEYS: &[&str] = &["tool", "server", "key", "arg_keys", "numeric_keys"];

/// Most fields in one list of a declaration (seed 002).
pub(crate) const MAX_FIELDS: usize = 32;
/// Most declarations.
const MAX_FACTS: usize = 1_024;

/// One declaration: which arguments of which tools become facts of a run, and under which key.
#[derive(Clone, Debug)]
pub struct FactDecl {
    /// Tool names.
    pub tool: Glob,
    /// Server identities; none is every server.
    pub server: Option<Glob>,
    /// Fact key; none: each tool's own safe key.
    pub key: Option<String>,
    /// Top-level arguments kept as identifiers.
    pub arg_keys: Vec<String>,
    /// Top-level arguments kept as numbers.
    pub numeric_keys: Vec<String>,
}

/// Labels of this host, for the scope of documents.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Labels {
    /// Workflow, for `workflowIds`.
    pub workflow: Option<String>,
    /// Step, for `stepIds`.
    pub step: Option<String>,
    /// Environment, for `environments`.
    pub environment: Option<String>,
}

/// Run-level settings.
#[derive(Debug)]
pub struct RunPolicy {
    /// A run ends after this long without traffic, in milliseconds.
    pub idle_timeout_ms: u64,
    /// How far back `context.user.tools` reaches, in milliseconds.
    pub user_window_ms: u64,
    /// Tools before whose calls a checkpoint is evaluated.
    pub before: Vec<Glob>,
    /// Labels of this host.
    pub labels: Labels,
    /// Fact declarations.
    pub facts: Vec<FactDecl>,
    /// Run-level documents.
    pub documents: Vec<Document>,
}

impl Default for RunPolicy {
    fn default() -> Self {
        Self {
            idle_timeout_ms: 1_800_000,
            user_window_ms: 3_600_000,
            before: vec![Glob::new("*")],
            labels: Labels::default(),
            facts: Vec::new(),
            documents: Vec::new(),
        }
    }
}

impl RunPolicy {
    /// Whether a checkpoint is evaluated before calls of `tool`.
    pub fn checks_before(&self, tool: &str) -> bool {
        self.before.iter().any(|glob| glob.matches(tool))
    }
}

pub(crate) fn read(
    reader: &mut Reader<'_>,
    node: &Node,
    groups: &ApprovalPolicy,
    files: &dyn Files,
    hash: &mut Sha256,
) -> RunPolicy {
    let mut out = RunPolicy::default();
    let Some(fields) = reader.fields(node, "runs", KEYS) else {
        return out;
    };
    if let Some(ms) = fields
        .get("idle_timeout")
        .and_then(|n| reader.duration(n, "runs.idle_timeout"))
    {
        out.idle_timeout_ms = ms;
    }
    if let Some(ms) = fields
        .get("user_window")
        .and_then(|n| reader.duration(n, "runs.user_window"))
    {
        out.user_window_ms = ms;
    }
    if let Some(checkpoint) = fields
        .get("checkpoint")
        .and_then(|n| reader.fields(n, "runs.checkpoint", CHECKPOINT_KEYS))
        && let Some(node) = checkpoint.get("before")
    {
        out.before = reader
            .globs(node, "runs.checkpoint.before")
            .into_iter()
            .map(|(g, _)| g)
            .collect();
    }
    if let Some(labels) = fields
        .get("labels")
        .and_then(|n| reader.fields(n, "runs.labels", LABEL_KEYS))
    {
        let mut label = |key: &str| labels.get(key).and_then(|n| reader.line(n, key, 128));
        out.labels.workflow = label("workflow");
        out.labels.step = label("step");
        out.labels.environment = label("environment");
    }
    if let Some(node) = fields.get("facts") {
        let items = reader.list(node, "runs.facts");
        if items.len() > MAX_FACTS {
            reader.error(node.place, format!("more than {MAX_FACTS} fact declarations"));
        }
        for item in items.iter().take(MAX_FACTS) {
            out.facts.extend(read_fact(reader, item));
        }
    }
    if let Some(node) = fields.get("policies") {
        let one = std::slice::from_ref(node);
        let items = if let Value::List(items) = &node.value {
            items
        } else {
            one
        };
        if items.len() > document::MAX_DOCUMENTS {
            reader.error(
                node.place,
                format!(
                    "{} documents; at most {} are allowed",
                    items.len(),
                    document::MAX_DOCUMENTS
                ),
            );
        }
        let mut names = Vec::new();
        for item in items.iter().take(document::MAX_DOCUMENTS) {
            // Each file is read and checked once.
            if let Value::Text(name) = &item.value {
                if names.contains(&name) {
                    reader.error(item.place, format!("`{}` is named twice", show(name)));
                    continue;
                }
                names.push(name);
            }
            document::read_entry(reader, item, groups, &mut out, files, hash);
        }
    }
    out
}

fn read_fact(reader: &mut Reader<'_>, item: &Node) -> Option<FactDecl> {
    let fields = reader.fields(item, "a fact declaration", FACT_KEYS)?;
    let tool = match fields.get("tool") {
        Some(node) => reader.line(node, "tool", 256),
        None => {
            reader.error(fields.place, "a fact declaration needs `tool`");
            None
        }
    };
    let server = fields.get("server").and_then(|n| reader.line(n, "server", 256));
    let key = fields.get("key").and_then(|node| {
        let key = reader.text(node, "key")?;
        if !SafeKey::is_safe(&key) {
            reader.error_hint(
                node.place,
                format!("`{}` is no fact key", show(&key)),
                "1 to 128 of letters, digits, `_` and `-`: a dot would split the path that rules read",
            );
            return None;
        }
        Some(key)
    });
    let arg_keys = read_names(reader, &fields, "arg_keys");
    let numeric_keys = read_names(reader, &fields, "numeric_keys");
    Some(FactDecl {
        tool: Glob::new(&tool?),
        server: server.map(|s| Glob::new(&s)),
        key,
        arg_keys,
        numeric_keys,
    })
}

/// A list of argument names, at most 32. They stand in rules as path segments, so a dot is refused.
fn read_names(reader: &mut Reader<'_>, fields: &Fields<'_>, key: &str) -> Vec<String> {
    let Some(node) = fields.get(key) else {
        return Vec::new();
    };
    if matches!(&node.value, Value::List(items) if items.is_empty()) {
        return Vec::new();
    }
    let mut names: Vec<(String, Place)> = Vec::new();
    for (name, place) in reader.texts(node, key) {
        if !SafeKey::is_safe(&name) {
            reader.error_hint(
                place,
                format!("{key}: `{}` cannot be a fact field", show(&name)),
                "name a top-level argument of 1 to 128 letters, digits, `_` and `-`",
            );
        } else if names.iter().all(|(n, _)| *n != name) {
            names.push((name, place));
        }
    }
    if names.len() > MAX_FIELDS {
        reader.error(
            node.place,
            format!(
                "{key} lists {} fields; at most {MAX_FIELDS} are allowed",
                names.len()
            ),
        );
        names.truncate(MAX_FIELDS);
    }
    names.into_iter().map(|(name, _)| name).collect()
}
