//! `rules`: what to do about which findings, calls and server starts.

use std::collections::HashMap;

use kams_detect::finding::{Kind, Severity};

use crate::action::Action;
use crate::file::{approvals, lint};
use crate::glob::Glob;
use crate::known;
use crate::matcher::{Baseline, Event, Matcher, Patterns};
use crate::policy::{ApprovalPolicy, Rule};
use crate::reader::Reader;
use crate::tree::{Node, Value};

/// Keys of a rule.
pub(crate) const KEYS: &[&str] = &[
    "name",
    "description",
    "match",
    "unless",
    "action",
    "ttl",
    "reason",
    "approver_group",
];

/// Keys of `match` and `unless`.
pub(crate) const MATCH_KEYS: &[&str] = &[
    "on",
    "kind",
    "detector",
    "min_severity",
    "classes",
    "change",
    "server",
    "tool",
    "agent",
    "user",
    "baseline",
];

pub(crate) fn read(reader: &mut Reader<'_>, node: &Node, groups: &ApprovalPolicy) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut names: HashMap<String, u32> = HashMap::new();
    for item in reader.list(node, "rules") {
        let Some(rule) = read_rule(reader, item, groups) else {
            continue;
        };
        if let Some(line) = names.insert(rule.name.clone(), rule.line) {
            let place = item.get("name").map_or(item.place, |n| n.place);
            reader.error(place, format!("rule name `{}` is taken (line {line})", rule.name));
        }
        lint::rule(reader, item, &rule);
        rules.push(rule);
    }
    lint::rules(reader, &rules);
    rules
}

fn read_rule(reader: &mut Reader<'_>, item: &Node, groups: &ApprovalPolicy) -> Option<Rule> {
    let fields = reader.fields(item, "a rule", KEYS)?;
    let name = match fields.get("name") {
        Some(node) => reader.name(node, "a rule name"),
        None => {
            reader.error(fields.place, "a rule needs `name`");
            None
        }
    };
    let label = name.clone().unwrap_or_else(|| "(no name)".to_owned());
    let matcher = match fields.get("match") {
        Some(node) => read_matcher(reader, node, "match", true),
        None => {
            let hint = "`match: {}` matches every finding";
            reader.error_hint(fields.place, format!("rule `{label}` needs `match`"), hint);
            None
        }
    };
    let mut unless = Vec::new();
    if let Some(node) = fields.get("unless") {
        let one = std::slice::from_ref(node);
        let items = if let Value::List(items) = &node.value {
            items
        } else {
            one
        };
        for item in items {
            let Some(exempt) = read_matcher(reader, item, "unless", false) else {
                continue;
            };
            if exempt.is_empty() {
                reader.error(item.place, "an empty `unless` would exempt everything");
            }
            unless.push(exempt);
        }
    }
    let action = match fields.get("action") {
        Some(node) => {
            let words = Action::ALL.map(|a| (a.name(), a));
            reader.word(node, "action", &words)
        }
        None => {
            let all = Action::ALL.map(Action::name).join(", ");
            reader.error_hint(
                fields.place,
                format!("rule `{label}` needs `action`"),
                format!("one of: {all}"),
            );
            None
        }
    };
    let ttl_ms = fields.get("ttl").and_then(|n| reader.duration(n, "ttl"));
    if let (Some(node), Some(action)) = (fields.get("ttl"), action)
        && !action.restricts()
    {
        reader.error_hint(
            node.place,
            format!("`ttl` has no meaning for `{action}`, which leaves no restriction behind"),
            "remove it; ttl goes with block_tool, block_server, block_egress and suspend_agent",
        );
    }
    let approver_group = fields
        .get("approver_group")
        .and_then(|n| reader.name(n, "approver_group"));
    if let (Some(node), Some(group)) = (fields.get("approver_group"), &approver_group) {
        approvals::check_group(reader, node, group, groups);
        if action.is_some_and(|a| a != Action::RequireApproval) {
            reader.error(node.place, "`approver_group` goes with `require_approval` only");
        }
    }
    let description = fields
        .get("description")
        .and_then(|n| reader.text(n, "description"));
    let reason = fields.get("reason").and_then(|n| reader.line(n, "reason", 300));
    Some(Rule {
        name: name?,
        description,
        reason,
        action: action?,
        ttl_ms,
        approver_group,
        line: item.place.line,
        matcher: matcher?,
        unless,
    })
}

/// Reads a `match` or an `unless`. `events` allows the key `on`.
pub(crate) fn read_matcher(
    reader: &mut Reader<'_>,
    node: &Node,
    what: &str,
    events: bool,
) -> Option<Matcher> {
    let keys = if events {
        MATCH_KEYS
    } else {
        MATCH_KEYS.split_first()?.1
    };
    let fields = reader.fields(node, what, keys)?;
    let mut out = Matcher::default();
    if let Some(node) = fields.get("on") {
        let one = std::slice::from_ref(node);
        let items = if let Value::List(items) = &node.value {
            items
        } else {
            one
        };
        for item in items {
            out.on.extend(reader.word(item, "on", &Event::NAMES));
        }
    }
    if let Some(node) = fields.get("kind") {
        for (glob, place) in reader.globs(node, "kind") {
            let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|k| glob.matches(k.name())).collect();
            if kinds.is_empty() {
                let names = Kind::ALL.map(Kind::name);
                reader.unknown_word(place, "kind", glob.as_str(), names.into_iter());
            }
            out.kinds.extend(kinds);
        }
    }
    if let Some(node) = fields.get("min_severity")
        && let Some(text) = reader.text(node, "min_severity")
    {
        out.min_severity = Severity::from_name(&text);
        if out.min_severity.is_none() {
            let names = Severity::ALL.map(Severity::name);
            reader.unknown_word(node.place, "min_severity", &text, names.into_iter());
        }
    }
    out.baseline = fields
        .get("baseline")
        .and_then(|n| reader.word(n, "baseline", &Baseline::NAMES));
    let mut patterns = |key: &str, names: Option<&[&str]>| {
        let Some(node) = fields.get(key) else {
            return Patterns::default();
        };
        let globs = reader.globs(node, key);
        if let Some(names) = names {
            for (glob, place) in &globs {
                warn_unknown(reader, *place, key, glob, names);
            }
        }
        Patterns(globs.into_iter().map(|(glob, _)| glob).collect())
    };
    out.detector = patterns("detector", Some(known::DETECTORS));
    out.classes = patterns("classes", Some(known::CLASSES));
    out.change = patterns("change", Some(known::CHANGES));
    out.server = patterns("server", None);
    out.tool = patterns("tool", None);
    out.agent = patterns("agent", None);
    out.user = patterns("user", None);
    Some(out)
}

/// A name that no detector of this version reports is most often a slip; a warning, because a policy may be
/// written for hosts of several versions.
fn warn_unknown(reader: &mut Reader<'_>, place: crate::tree::Place, key: &str, glob: &Glob, names: &[&str]) {
    let waste = glob.as_str().starts_with("waste.");
    if waste || names.iter().any(|name| glob.matches(name)) {
        return;
    }
    let hint = crate::problem::nearest(glob.as_str(), names.iter().copied())
        .map(|near| format!("did you mean `{near}`?"));
    let message = format!(
        "{key}: nothing in this version reports `{}`",
        crate::reader::show(glob.as_str())
    );
    reader.warn(place, message, hint);
}
