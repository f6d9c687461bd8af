//! What rules can read: the paths of the context, and the context itself.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use super::fact::Contribution;
use super::key::SafeKey;
use super::table::Views;
use crate::file::runs::FactDecl;
use crate::logic::check::Paths;
use crate::problem::nearest;
use crate::reader::show;

/// The three places with facts.
const SCOPES: [&str; 3] = ["run", "completed", "user"];

/// The facts that declarations provide.
pub(crate) struct Schema<'d> {
    pub(crate) decls: &'d [FactDecl],
}

impl Schema<'_> {
    /// Declarations that can give facts under `key`.
    fn provide(&self, key: &str) -> Vec<&FactDecl> {
        let tool = SafeKey::decode(key);
        let gives = |decl: &&FactDecl| match &decl.key {
            Some(declared) => declared == key,
            None => tool.as_deref().is_some_and(|tool| decl.tool.matches(tool)),
        };
        self.decls.iter().filter(gives).collect()
    }

    fn fact(&self, path: &str, key: &str, rest: &[&str]) -> Result<(), (String, Option<String>)> {
        let decls = self.provide(key);
        if decls.is_empty() {
            let names: Vec<String> = self
                .decls
                .iter()
                .filter_map(|d| {
                    d.key
                        .clone()
                        .or_else(|| d.tool.literal().map(|t| SafeKey::of(&t).as_str().to_owned()))
                })
                .collect();
            let hint = match nearest(key.trim(), names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "declare it: `runs: {{facts: [{{tool: ..., key: {}}}]}}`",
                    show(key.trim())
                ),
            };
            return Err((
                format!("no fact declaration provides `{}`", show(key)),
                Some(hint),
            ));
        }
        let (what, field) = match rest {
            [] | ["calls" | "firstSeq" | "lastSeq"] => return Ok(()),
            ["argValues", field] => ("arg_keys", *field),
            ["argValues", field, index] if index.parse::<usize>().is_ok() => ("arg_keys", *field),
            ["numericSums" | "numericMaximums", field] => ("numeric_keys", *field),
            _ => {
                let hint = "a fact is calls, firstSeq, lastSeq, argValues.<field>, numericSums.<field> or numericMaximums.<field>";
                return Err((format!("`{}` names no fact", show(path)), Some(hint.to_owned())));
            }
        };
        let fields: Vec<&str> = decls
            .iter()
            .flat_map(|d| {
                if what == "arg_keys" {
                    &d.arg_keys
                } else {
                    &d.numeric_keys
                }
            })
            .map(String::as_str)
            .collect();
        if fields.contains(&field) {
            return Ok(());
        }
        let hint = match nearest(field, fields.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add `{}` to its {what}", show(field)),
        };
        Err((
            format!("`{key}` declares no `{}` among its {what}", show(field)),
            Some(hint),
        ))
    }
}

impl Paths for Schema<'_> {
    fn check(&self, path: &str) -> Result<(), (String, Option<String>)> {
        let segments: Vec<&str> = path.split('.').collect();
        match segments.as_slice() {
            ["context", scope, "tools", key, rest @ ..] if SCOPES.contains(scope) => {
                self.fact(path, key, rest)
            }
            [
                "context",
                "action",
                "server" | "tool" | "target" | "user" | "agent",
            ] => Ok(()),
            ["context", "action", "arguments", field] => {
                let declared = self
                    .decls
                    .iter()
                    .any(|d| d.arg_keys.iter().chain(&d.numeric_keys).any(|k| k == field));
                if declared {
                    return Ok(());
                }
                let hint =
                    "only declared arguments can be read: add it to a declaration's arg_keys or numeric_keys";
                Err((
                    format!("no declaration names the argument `{}`", show(field)),
                    Some(hint.to_owned()),
                ))
            }
            _ => {
                let hint = "paths: context.run.tools.<key>..., context.completed.tools..., context.user.tools..., context.action.{server,tool,target,user,agent,arguments.<field>}";
                Err((
                    format!("`{}` is outside the context", show(path)),
                    Some(hint.to_owned()),
                ))
            }
        }
    }
}

/// The fact keys in a set of paths.
pub(crate) fn keys(paths: &BTreeSet<String>) -> BTreeSet<String> {
    paths
        .iter()
        .filter_map(|path| {
            let mut segments = path.split('.');
            let scope = (segments.next(), segments.next(), segments.next());
            matches!(scope, (Some("context"), Some(s), Some("tools")) if SCOPES.contains(&s))
                .then(|| segments.next().map(str::to_owned))
                .flatten()
        })
        .collect()
}

/// The proposed call as rules see it: names, and declared arguments after projection.
pub(crate) struct Action<'a> {
    pub(crate) server: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) user: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) target: Option<&'a str>,
    pub(crate) contributions: &'a [Contribution],
}

/// The data of one checkpoint.
pub(crate) fn build(views: &Views, action: Option<&Action<'_>>) -> Json {
    let mut context = json!({
        "run": {"tools": views.run.to_json()},
        "completed": {"tools": views.completed.to_json()},
        "user": {"tools": views.user.to_json()},
    });
    if let (Some(action), Some(map)) = (action, context.as_object_mut()) {
        let mut arguments = Map::new();
        for contribution in action.contributions {
            for (field, value) in &contribution.values {
                arguments.insert(field.clone(), value.as_str().into());
            }
            for (field, n) in &contribution.numbers {
                arguments.insert(field.clone(), crate::logic::number(*n));
            }
        }
        map.insert(
            "action".to_owned(),
            json!({
                "server": action.server,
                "tool": action.tool,
                "user": action.user,
                "agent": action.agent,
                "target": action.target,
                "arguments": arguments,
            }),
        );
    }
    json!({ "context": context })
}

/// The value at a path of the context, if it may stand in evidence: numbers and lists of identifiers, and the
/// names of the call. Everything in the context has passed the projection, so there is nothing else.
pub(crate) fn evaluated(data: &Json, path: &str) -> Json {
    path.split('.')
        .try_fold(data, |value, segment| match value {
            Json::Array(items) => items.get(segment.parse::<usize>().ok()?),
            value => value.get(segment),
        })
        .cloned()
        .unwrap_or(Json::Null)
}
