//! Reading documents, with every problem at its place.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::{ChainRule, Document, Point, Scope, Status};
use crate::action::Outcome;
use crate::file::runs::{Labels, RunPolicy};
use crate::file::{Files, approvals};
use crate::glob::Glob;
use crate::logic::{self, Expr};
use crate::policy::ApprovalPolicy;
use crate::reader::{Fields, Reader, show};
use crate::run::context::{self, Schema};
use crate::tree::{self, Node, Value};

/// Keys of a document.
pub(crate) const KEYS: &[&str] = &[
    "schemaVersion",
    "policyId",
    "workspaceId",
    "name",
    "description",
    "status",
    "version",
    "policyKind",
    "scope",
    "defaultDecision",
    "rules",
];
const SCOPE_KEYS: &[&str] = &["workflowIds", "agentIds", "stepIds", "environments"];
const RULE_KEYS: &[&str] = &[
    "ruleId",
    "name",
    "description",
    "interceptionPoint",
    "when",
    "then",
    "execution",
    "evidence",
];
const THEN_KEYS: &[&str] = &[
    "decision",
    "reason",
    "reasonCodes",
    "approverGroup",
    "containment",
];

/// Most rules of one document.
const MAX_RULES: usize = 1_000;
/// Most documents of a policy.
pub(crate) const MAX_DOCUMENTS: usize = 256;

/// What documents are checked against.
struct Env<'e> {
    groups: &'e ApprovalPolicy,
    labels: &'e Labels,
    schema: Schema<'e>,
}

/// Reads an item of `runs.policies`: a file name, or a document in place.
pub(crate) fn read_entry(
    reader: &mut Reader<'_>,
    item: &Node,
    groups: &ApprovalPolicy,
    runs: &mut RunPolicy,
    files: &dyn Files,
    hash: &mut Sha256,
) {
    let env = Env {
        groups,
        labels: &runs.labels,
        schema: Schema { decls: &runs.facts },
    };
    let document = match &item.value {
        Value::Map(_) => read(reader, item, &env),
        _ => {
            let Some(name) = reader.line(item, "a policies entry", 512) else {
                return;
            };
            let text = match files.read(&name) {
                Ok(text) => text,
                Err(why) => {
                    reader.error(
                        item.place,
                        format!("`{}` cannot be read: {}", show(&name), show(&why)),
                    );
                    return;
                }
            };
            hash.update(text.as_bytes());
            match tree::parse(&name, &text) {
                Err(problem) => {
                    reader.absorb(vec![*problem]);
                    None
                }
                Ok(root) => {
                    let mut inner = Reader::new(&name, &text);
                    let document = read(&mut inner, &root, &env);
                    reader.absorb(inner.into_problems());
                    document
                }
            }
        }
    };
    if let Some(document) = document {
        let twin = runs.documents.iter().find(|d| d.policy_id == document.policy_id);
        if twin.is_some_and(|d| d.version == document.version) {
            let message = format!(
                "policy `{}` version {} is loaded twice",
                document.policy_id, document.version
            );
            reader.error(item.place, message);
        }
        runs.documents.push(document);
    }
}

fn read(reader: &mut Reader<'_>, root: &Node, env: &Env<'_>) -> Option<Document> {
    let fields = lenient(reader, root, "a policy document", KEYS)?;
    if let Some(text) =
        required(reader, &fields, "schemaVersion").and_then(|n| reader.text(n, "schemaVersion"))
        && !text.starts_with("1.")
    {
        reader.error_hint(
            fields.key_place("schemaVersion"),
            "schemaVersion is not known",
            "write 1.0.0",
        );
    }
    let policy_id = required(reader, &fields, "policyId").and_then(|n| reader.name(n, "policyId"));
    let version = required(reader, &fields, "version").and_then(|n| reader.name(n, "version"));
    let status = required(reader, &fields, "status").and_then(|n| reader.word(n, "status", &Status::NAMES));
    if let Some(node) = fields.get("policyKind")
        && let Some(kind) = reader.text(node, "policyKind")
        && kind != "guardrail"
    {
        let message = format!("policyKind `{}` is evaluated like guardrail", show(&kind));
        reader.warn(node.place, message, None);
    }
    let decisions = decisions();
    let default_decision = match fields.get("defaultDecision") {
        None => Some(Outcome::Allow),
        Some(node) => {
            let decision = reader.word(node, "defaultDecision", &decisions);
            if decision == Some(Outcome::RequireApproval) {
                let hint = "name the group in a rule whose expression is `true`";
                reader.error_hint(node.place, "a default cannot name an approver group", hint);
            }
            decision
        }
    };
    let scope = fields
        .get("scope")
        .map_or_else(Scope::default, |node| read_scope(reader, node, env.labels));
    let mut rules: Vec<ChainRule> = Vec::new();
    let mut keys = BTreeSet::new();
    if let Some(node) = required(reader, &fields, "rules") {
        let items = reader.list(node, "rules");
        if items.len() > MAX_RULES {
            reader.error(node.place, format!("more than {MAX_RULES} rules in one document"));
        }
        for item in items.iter().take(MAX_RULES) {
            let Some((rule, reads)) = read_rule(reader, item, env) else {
                continue;
            };
            if rules.iter().any(|r| r.id == rule.id) {
                reader.error(item.place, format!("ruleId `{}` is taken", rule.id));
            }
            keys.extend(context::keys(&reads));
            rules.push(rule);
        }
    }
    Some(Document {
        policy_id: policy_id?,
        version: version?,
        status: status?,
        default_decision: default_decision?,
        rules,
        scope,
        keys,
    })
}

/// Decisions that a document can name.
fn decisions() -> Vec<(&'static str, Outcome)> {
    [
        Outcome::Allow,
        Outcome::Warn,
        Outcome::RequireApproval,
        Outcome::Block,
    ]
    .map(|outcome| (outcome.name(), outcome))
    .into()
}

/// Fields whose unknown keys are warnings: a document may come from a newer or richer system, and what is not
/// known there cannot weaken a rule.
fn lenient<'n>(reader: &mut Reader<'_>, node: &'n Node, what: &str, keys: &[&str]) -> Option<Fields<'n>> {
    let fields = reader.any_fields(node, what)?;
    for (key, _) in fields.iter() {
        if !keys.contains(&key.text.as_str()) {
            let near = crate::problem::nearest(&key.text, keys.iter().copied());
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            reader.warn(
                key.place,
                format!("key `{}` of {what} is not used", show(&key.text)),
                hint,
            );
        }
    }
    Some(fields)
}

fn required<'n>(reader: &mut Reader<'_>, fields: &Fields<'n>, key: &str) -> Option<&'n Node> {
    let node = fields.get(key);
    if node.is_none() {
        reader.error(fields.place, format!("`{key}` is missing"));
    }
    node
}

fn read_scope(reader: &mut Reader<'_>, node: &Node, labels: &Labels) -> Scope {
    let mut scope = Scope::default();
    let Some(fields) = reader.fields(node, "scope", SCOPE_KEYS) else {
        return scope;
    };
    let mut read = |key: &str, label: Option<(&str, Option<&str>)>| -> Vec<Glob> {
        let Some(node) = fields.get(key) else {
            return Vec::new();
        };
        if matches!(&node.value, Value::List(items) if items.is_empty()) {
            return Vec::new();
        }
        let globs: Vec<Glob> = reader
            .globs(node, key)
            .into_iter()
            .map(|(glob, _)| glob)
            .collect();
        if let Some((name, value)) = label
            && !value.is_some_and(|value| globs.iter().any(|glob| glob.matches(value)))
        {
            let ours = value.map_or_else(|| "not set".to_owned(), |v| format!("`{}`", show(v)));
            let message =
                format!("this document never applies here: {key} does not name this host's {name} ({ours})");
            let hint = format!("set `runs: {{labels: {{{name}: ...}}}}`, or empty the list");
            reader.warn(node.place, message, Some(hint));
        }
        globs
    };
    scope.agents = read("agentIds", None);
    scope.workflows = read("workflowIds", Some(("workflow", labels.workflow.as_deref())));
    scope.steps = read("stepIds", Some(("step", labels.step.as_deref())));
    scope.environments = read(
        "environments",
        Some(("environment", labels.environment.as_deref())),
    );
    scope
}

fn read_rule(reader: &mut Reader<'_>, item: &Node, env: &Env<'_>) -> Option<(ChainRule, BTreeSet<String>)> {
    let fields = lenient(reader, item, "a rule", RULE_KEYS)?;
    let id = required(reader, &fields, "ruleId").and_then(|n| reader.name(n, "ruleId"));
    let point = match fields.get("interceptionPoint") {
        Some(node) => reader.word(node, "interceptionPoint", &Point::NAMES),
        None => None,
    };
    if let Some(execution) = fields.get("execution")
        && let Some(mode) = execution.get("mode")
    {
        reader.word(mode, "execution.mode", &[("deterministic", ())]);
    }
    let expression = required(reader, &fields, "when")
        .and_then(|node| reader.fields(node, "when", &["expression"]))
        .and_then(|when| required(reader, &when, "expression"));
    let mut reads = BTreeSet::new();
    let compiled = expression.and_then(|node| {
        let before = reader.error_count();
        reads = logic::check::check(reader, node, &env.schema);
        if reader.error_count() > before {
            return None;
        }
        match Expr::compile(&node.to_json()) {
            Ok(expr) => Some(expr),
            Err(error) => {
                reader.error(node.place, error.to_string());
                None
            }
        }
    });
    let mut evaluated = reads.clone();
    if let Some(evidence) = fields.get("evidence")
        && let Some(evidence) = lenient(reader, evidence, "evidence", &["evaluatedFields", "artifactRefs"])
        && let Some(node) = evidence.get("evaluatedFields")
    {
        use crate::logic::check::Paths;
        for item in reader.list(node, "evidence.evaluatedFields") {
            let Some(path) = reader.text(item, "an evaluated field") else {
                continue;
            };
            match env.schema.check(&path) {
                Ok(()) => {
                    evaluated.insert(path);
                }
                Err((message, Some(hint))) => reader.error_hint(item.place, message, hint),
                Err((message, None)) => reader.error(item.place, message),
            }
        }
    }
    let then = required(reader, &fields, "then").and_then(|node| reader.fields(node, "then", THEN_KEYS))?;
    let decision = required(reader, &then, "decision").and_then(|n| reader.word(n, "decision", &decisions()));
    let reason = required(reader, &then, "reason").and_then(|n| reader.line(n, "reason", 500));
    let reason_codes = match then.get("reasonCodes") {
        Some(Node {
            value: Value::List(items),
            ..
        }) if items.is_empty() => Vec::new(),
        Some(node) => reader
            .texts(node, "reasonCodes")
            .into_iter()
            .map(|(code, _)| code)
            .collect(),
        None => Vec::new(),
    };
    let approver_group = then
        .get("approverGroup")
        .and_then(|n| reader.name(n, "approverGroup"));
    match (decision, then.get("approverGroup")) {
        (Some(Outcome::RequireApproval), None) => {
            reader.error_hint(
                then.place,
                "require_approval needs `approverGroup`",
                "name a group of approvals.groups",
            );
        }
        (Some(Outcome::RequireApproval), Some(node)) => {
            if let Some(group) = &approver_group {
                approvals::check_group(reader, node, group, env.groups);
            }
        }
        (Some(_), Some(node)) => reader.warn(node.place, "approverGroup goes with require_approval", None),
        _ => {}
    }
    let containment = then
        .get("containment")
        .and_then(|n| reader.word(n, "containment", &[("suspend_agent", true)]));
    // Evidence lists paths before the expression reads them: keys of both are needed.
    let rule = ChainRule {
        id: id?,
        decision: decision?,
        reason: reason?,
        reason_codes,
        approver_group,
        suspend_agent: containment.unwrap_or(false),
        point,
        evaluated: evaluated.iter().cloned().collect(),
        expression: compiled?,
    };
    Some((rule, evaluated))
}
