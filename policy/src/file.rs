//! From tree to policy: every section of the file, every problem collected.

pub(crate) mod approvals;
pub(crate) mod lint;
pub(crate) mod rules;
pub(crate) mod runs;
pub(crate) mod servers;
pub(crate) mod thresholds;
pub(crate) mod waste;

use sha2::{Digest, Sha256};

use crate::index::Index;
use crate::mode::{Fail, Mode};
use crate::policy::Policy;
use crate::problem::{Level, Problem};
use crate::reader::Reader;
use crate::tree::{self, Value};

/// Keys of the file.
pub(crate) const KEYS: &[&str] = &[
    "version",
    "mode",
    "fail",
    "thresholds",
    "waste",
    "servers",
    "rules",
    "exceptions",
    "runs",
    "approvals",
];

/// The only version so far.
const VERSION: i64 = 1;

/// Gives the texts that a policy names (`runs.policies`). This crate reads no file itself.
pub trait Files {
    /// The text of the file called `name` in the policy, or why there is none.
    fn read(&self, name: &str) -> Result<String, String>;
}

/// No files: a policy that names one is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _name: &str) -> Result<String, String> {
        Err("files cannot be read here".to_owned())
    }
}

impl Files for std::collections::BTreeMap<String, String> {
    fn read(&self, name: &str) -> Result<String, String> {
        self.get(name).cloned().ok_or_else(|| "no such file".to_owned())
    }
}

pub(crate) fn load(name: &str, text: &str, files: &dyn Files) -> Result<Policy, Vec<Problem>> {
    let root = tree::parse(name, text).map_err(|problem| vec![*problem])?;
    let mut reader = Reader::new(name, text);
    let mut policy = Policy {
        name: name.to_owned(),
        ..Policy::default()
    };
    let mut hash = Sha256::new();
    hash.update(text.as_bytes());
    if matches!(root.value, Value::Null) {
        reader.error_hint(
            root.place,
            "the file is empty",
            "a smallest policy is `version: 1`",
        );
    } else if let Some(fields) = reader.fields(&root, "the policy", KEYS) {
        match fields.get("version").map(|node| (node, &node.value)) {
            Some((_, Value::Int(VERSION))) => {}
            Some((node, _)) => reader.error_hint(node.place, "version is not known", "write `version: 1`"),
            None => reader.error_hint(fields.place, "`version` is missing", "write `version: 1`"),
        }
        if let Some(node) = fields.get("mode") {
            policy.mode = reader.word(node, "mode", &Mode::NAMES).unwrap_or_default();
            policy.says_mode = true;
        }
        if let Some(node) = fields.get("fail") {
            policy.fail = reader.word(node, "fail", &Fail::NAMES).unwrap_or_default();
        }
        if let Some(node) = fields.get("thresholds") {
            policy.thresholds = thresholds::read(&mut reader, node);
        }
        if let Some(node) = fields.get("waste") {
            policy.waste = waste::read(&mut reader, node);
        }
        if let Some(node) = fields.get("servers") {
            policy.servers = servers::read(&mut reader, node);
        }
        // Before rules and runs, which name its groups.
        if let Some(node) = fields.get("approvals") {
            policy.approvals = approvals::read(&mut reader, node);
        }
        if let Some(node) = fields.get("rules") {
            policy.rules = rules::read(&mut reader, node, &policy.approvals);
        }
        if let Some(node) = fields.get("exceptions") {
            for item in reader.list(node, "exceptions") {
                policy
                    .exceptions
                    .extend(crate::exception::read(&mut reader, item));
            }
        }
        if let Some(node) = fields.get("runs") {
            policy.runs = runs::read(&mut reader, node, &policy.approvals, files, &mut hash);
        }
    }
    let problems = reader.into_problems();
    if problems.iter().any(|p| p.level == Level::Error) {
        return Err(problems);
    }
    policy.index = Index::new(policy.rules.iter().map(|rule| &rule.matcher));
    policy.hash = hex::encode(hash.finalize());
    policy.warnings = problems;
    Ok(policy)
}
