//! Reading a test file.

use kams_detect::finding::{Kind, Severity};

use super::{Case, Ending, Expect, OwnFinding, Step, Who};
use crate::action::{Action, Outcome};
use crate::matcher::Baseline;
use crate::mode::Mode;
use crate::problem::{Level, Problem};
use crate::reader::{Fields, Reader};
use crate::tree::{self, Node, Value};

const CASE_KEYS: &[&str] = &[
    "name", "mode", "user", "agent", "server", "relayed", "given", "expect",
];
const WHO_KEYS: &[&str] = &["user", "agent", "server", "relayed"];
const STEP_KEYS: &[&str] = &[
    "finding",
    "call",
    "start",
    "checkpoint",
    "wait",
    "approve",
    "deny",
    "result",
    "expect",
];
const EVENTS: &[&str] = &[
    "finding",
    "call",
    "start",
    "checkpoint",
    "wait",
    "approve",
    "deny",
];
const EXPECT_KEYS: &[&str] = &[
    "decision",
    "action",
    "would",
    "rule",
    "matched",
    "reason_codes",
    "approver_group",
];

pub(super) fn read(name: &str, text: &str) -> Result<Vec<Case>, Vec<Problem>> {
    let root = tree::parse(name, text).map_err(|problem| vec![*problem])?;
    let mut reader = Reader::new(name, text);
    let mut cases = Vec::new();
    if let Some(fields) = reader.fields(&root, "a test file", &["tests"]) {
        match fields.get("tests") {
            Some(node) => {
                for item in reader.list(node, "tests") {
                    cases.extend(read_case(&mut reader, item));
                }
            }
            None => reader.error(fields.place, "`tests` is missing"),
        }
    }
    let problems = reader.into_problems();
    if problems.iter().any(|p| p.level == Level::Error) {
        return Err(problems);
    }
    Ok(cases)
}

fn read_case(reader: &mut Reader<'_>, item: &Node) -> Option<Case> {
    let fields = reader.fields(item, "a test", CASE_KEYS)?;
    let name = match fields.get("name") {
        Some(node) => reader.line(node, "name", 200),
        None => {
            reader.error(fields.place, "a test needs `name`");
            None
        }
    };
    let default = Who {
        user: "tester".to_owned(),
        agent: "agent".to_owned(),
        server: "server".to_owned(),
        relayed: true,
    };
    let who = read_who(reader, &fields, &default);
    let mode = fields
        .get("mode")
        .and_then(|n| reader.word(n, "mode", &Mode::NAMES));
    let mut steps: Vec<(Step, Option<Expect>)> = Vec::new();
    match fields.get("given") {
        Some(node) => {
            let items = reader.list(node, "given");
            if items.is_empty() && matches!(node.value, Value::List(_)) {
                reader.error(node.place, "a test without events cannot fail");
            }
            for item in items {
                steps.extend(read_step(reader, item, &who));
            }
        }
        None => reader.error(fields.place, "a test needs `given`"),
    }
    if let Some(expect) = fields.get("expect").and_then(|n| read_expect(reader, n)) {
        match steps.last_mut() {
            Some((_, last)) if last.is_none() => *last = Some(expect),
            Some(_) => reader.error(
                fields.key_place("expect"),
                "the last event has an `expect` of its own",
            ),
            None => {}
        }
    }
    if !steps.is_empty() && steps.iter().all(|(_, expect)| expect.is_none()) {
        reader.error(fields.place, "a test that expects nothing cannot fail");
    }
    Some(Case {
        name: name?,
        line: item.place.line,
        mode,
        steps,
    })
}

fn read_who(reader: &mut Reader<'_>, fields: &Fields<'_>, default: &Who) -> Who {
    let mut text = |key: &str, default: &str| {
        fields
            .get(key)
            .and_then(|n| reader.line(n, key, 256))
            .unwrap_or_else(|| default.to_owned())
    };
    let (user, agent, server) = (
        text("user", &default.user),
        text("agent", &default.agent),
        text("server", &default.server),
    );
    let relayed = fields
        .get("relayed")
        .and_then(|n| reader.truth(n, "relayed"))
        .unwrap_or(default.relayed);
    Who {
        user,
        agent,
        server,
        relayed,
    }
}

fn read_step(reader: &mut Reader<'_>, item: &Node, default: &Who) -> Option<(Step, Option<Expect>)> {
    let fields = reader.fields(item, "an event", STEP_KEYS)?;
    let expect = fields.get("expect").and_then(|n| read_expect(reader, n));
    let mut named = fields
        .iter()
        .filter(|(key, _)| EVENTS.contains(&key.text.as_str()));
    let (Some((key, node)), None) = (named.next(), named.next()) else {
        reader.error_hint(
            fields.place,
            "an event is one thing",
            format!("one of: {}", EVENTS.join(", ")),
        );
        return None;
    };
    if key.text != "call" && fields.get("result").is_some() {
        reader.error(fields.key_place("result"), "`result` goes with `call`");
    }
    let keys =
        |more: &[&'static str]| -> Vec<&'static str> { WHO_KEYS.iter().chain(more).copied().collect() };
    let step = match key.text.as_str() {
        "finding" => {
            let more = [
                "tool",
                "detector",
                "kind",
                "severity",
                "classes",
                "change",
                "baseline",
                "fingerprint",
            ];
            let fields = reader.fields(node, "finding", &keys(&more))?;
            Step::Finding(Box::new(read_finding(reader, &fields, default)?))
        }
        "call" => {
            let call = reader.fields(
                node,
                "call",
                &keys(&["tool", "arguments", "args", "id", "target"]),
            )?;
            // As MCP calls it; `args` is the short form.
            let arguments = call.get("arguments").or_else(|| call.get("args"));
            if call.get("arguments").is_some() && call.get("args").is_some() {
                reader.error(
                    call.key_place("args"),
                    "`args` and `arguments` are the same; write one",
                );
            }
            let endings = [
                ("ok", Ending::Ok),
                ("error", Ending::Error),
                ("unanswered", Ending::Unanswered),
                ("pending", Ending::Pending),
            ];
            Step::Call {
                who: read_who(reader, &call, default),
                tool: call
                    .get("tool")
                    .and_then(|n| reader.line(n, "tool", 256))
                    .unwrap_or_else(|| "tool".to_owned()),
                arguments: arguments.map_or(serde_json::json!({}), Node::to_json),
                id: call.get("id").and_then(|n| reader.line(n, "id", 256)),
                target: call.get("target").and_then(|n| reader.line(n, "target", 256)),
                ending: fields
                    .get("result")
                    .and_then(|n| reader.word(n, "result", &endings))
                    .unwrap_or(Ending::Ok),
            }
        }
        "start" | "checkpoint" => {
            // `checkpoint: {}` and `checkpoint:` say the same.
            let who = match &node.value {
                Value::Null => default.clone(),
                _ => {
                    let fields = reader.fields(node, &key.text, WHO_KEYS)?;
                    read_who(reader, &fields, default)
                }
            };
            if key.text == "start" {
                Step::Start(who)
            } else {
                Step::Checkpoint(who)
            }
        }
        "wait" => Step::Wait(reader.duration(node, "wait")?),
        word => {
            let fields = reader.fields(node, word, &["by", "groups", "in_agent_tree"])?;
            Step::Decide {
                by: fields
                    .get("by")
                    .and_then(|n| reader.line(n, "by", 128))
                    .unwrap_or_else(|| "reviewer".to_owned()),
                groups: match fields.get("groups") {
                    Some(node) => reader.texts(node, "groups").into_iter().map(|(g, _)| g).collect(),
                    None => Vec::new(),
                },
                in_agent_tree: fields
                    .get("in_agent_tree")
                    .and_then(|n| reader.truth(n, "in_agent_tree"))
                    .unwrap_or(false),
                approve: word == "approve",
            }
        }
    };
    Some((step, expect))
}

fn read_finding(reader: &mut Reader<'_>, fields: &Fields<'_>, default: &Who) -> Option<OwnFinding> {
    let who = read_who(reader, fields, default);
    let mut text = |key: &str| fields.get(key).and_then(|n| reader.line(n, key, 256));
    let (tool, detector, change, fingerprint) = (
        text("tool"),
        text("detector"),
        text("change"),
        text("fingerprint"),
    );
    let kind = match fields.get("kind") {
        Some(node) => reader.word(node, "kind", &Kind::ALL.map(|k| (k.name(), k))),
        None => {
            reader.error(fields.place, "a finding needs `kind`");
            None
        }
    };
    let severity = match fields.get("severity") {
        Some(node) => reader.word(node, "severity", &Severity::ALL.map(|s| (s.name(), s))),
        None => Some(Severity::High),
    };
    let classes = match fields.get("classes") {
        Some(node) => reader
            .texts(node, "classes")
            .into_iter()
            .map(|(class, _)| class)
            .collect(),
        None => Vec::new(),
    };
    let baseline = fields
        .get("baseline")
        .and_then(|n| reader.word(n, "baseline", &Baseline::NAMES));
    Some(OwnFinding {
        who,
        tool,
        detector: detector.unwrap_or_default(),
        kind: kind?,
        severity: severity?,
        classes,
        change,
        baseline,
        fingerprint: fingerprint.unwrap_or_default(),
    })
}

fn read_expect(reader: &mut Reader<'_>, node: &Node) -> Option<Expect> {
    let fields = reader.fields(node, "expect", EXPECT_KEYS)?;
    if fields.iter().next().is_none() {
        reader.error_hint(
            node.place,
            "an `expect` that says nothing cannot fail",
            "say at least `decision`",
        );
    }
    let mut actions: Vec<(&str, &'static str)> = Action::ALL.map(|a| (a.name(), a.name())).into();
    actions.push(("none", "none"));
    let outcomes = Outcome::ALL.map(|o| (o.name(), o));
    let mut texts = |key: &str| match fields.get(key) {
        Some(Node {
            value: Value::List(items),
            ..
        }) if items.is_empty() => Some(Vec::new()),
        Some(node) => Some(
            reader
                .texts(node, key)
                .into_iter()
                .map(|(text, _)| text)
                .collect(),
        ),
        None => None,
    };
    let (matched, reason_codes) = (texts("matched"), texts("reason_codes"));
    let rule = fields.get("rule").and_then(|n| reader.line(n, "rule", 128));
    Some(Expect {
        decision: fields
            .get("decision")
            .and_then(|n| reader.word(n, "decision", &outcomes)),
        action: fields
            .get("action")
            .and_then(|n| reader.word(n, "action", &actions)),
        would: fields
            .get("would")
            .and_then(|n| reader.word(n, "would", &actions)),
        rule,
        matched,
        reason_codes,
        approver_group: fields
            .get("approver_group")
            .and_then(|n| reader.line(n, "approver_group", 128)),
        place: node.place,
    })
}
