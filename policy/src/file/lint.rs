//! Rules that load but cannot do what they seem to: warnings.

use std::collections::HashMap;

use kams_detect::finding::Kind;

use crate::action::Action;
use crate::matcher::{Event, Matcher, Patterns};
use crate::policy::Rule;
use crate::reader::Reader;
use crate::tree::Node;

/// Warnings about one rule.
pub(crate) fn rule(reader: &mut Reader<'_>, item: &Node, rule: &Rule) {
    let place = item.get("match").map_or(item.place, |n| n.place);
    let matcher = &rule.matcher;
    let mut never = |why: &str| {
        reader.warn(
            place,
            format!("rule `{}` can never match: {why}", rule.name),
            None,
        );
    };
    let only = |kind: Kind| !matcher.kinds.is_empty() && !matcher.kinds.contains(&kind);
    if matcher.classes.given() && only(Kind::EgressSensitive) {
        never("only EGRESS_SENSITIVE findings have classes");
    }
    if matcher.change.given() && only(Kind::IntegrityDrift) {
        never("only INTEGRITY_DRIFT findings have a change");
    }
    if matcher.classes.given() && matcher.change.given() {
        never("no finding has both classes and a change");
    }
    if rule.unless.iter().any(|unless| exempts_all(unless, matcher)) {
        never("its `unless` covers all of its `match`");
    }
    let finding_keys = matcher.finding_keys();
    if !matcher.on.is_empty() && !matcher.on.contains(&Event::Finding) && !finding_keys.is_empty() {
        never(&format!(
            "`{}` is a property of findings, which `on` leaves out",
            finding_keys.join("`, `")
        ));
    }
    if matcher.on == [Event::ServerStart] && matcher.tool.given() {
        never("a server start has no tool");
    }
    let subject_only = matcher.on.is_empty() && finding_keys.is_empty() && matcher.baseline.is_none();
    if subject_only && rule.action.enforces() {
        reader.warn(
            place,
            format!("rule `{}` acts only when a detector reports something", rule.name),
            Some(
                "add `on: call` to act on every call, or `on: finding` to say that this is meant".to_owned(),
            ),
        );
    }
    let egress = matcher.kinds.is_empty() || matcher.kinds.contains(&Kind::EgressSensitive);
    if rule.action == Action::RedactArgs && !(egress && matcher.listens(Event::Finding)) {
        let hint = "redact_args goes with `kind: EGRESS_SENSITIVE`".to_owned();
        reader.warn(
            place,
            format!("rule `{}` has nothing to redact", rule.name),
            Some(hint),
        );
    }
    if rule.action == Action::BlockTool && matcher.on == [Event::ServerStart] {
        reader.warn(
            place,
            format!("rule `{}` blocks a tool, but a server start has none", rule.name),
            None,
        );
    }
}

/// Warnings about rules against each other.
pub(crate) fn rules(reader: &mut Reader<'_>, rules: &[Rule]) {
    let mut seen: HashMap<(&Matcher, &[Matcher]), &Rule> = HashMap::new();
    for rule in rules {
        let Some(first) = seen.insert((&rule.matcher, &rule.unless), rule) else {
            continue;
        };
        let place = crate::tree::Place {
            line: rule.line,
            column: 1,
            width: 1,
            bytes: None,
        };
        let message = if first.action == rule.action {
            format!("rules `{}` and `{}` are the same", first.name, rule.name)
        } else {
            let (strong, weak) = if first.action > rule.action {
                (first, rule)
            } else {
                (rule, first)
            };
            format!(
                "rules `{}` and `{}` match the same and disagree: `{}` ({}) always wins over `{}` ({})",
                first.name, rule.name, strong.name, strong.action, weak.name, weak.action
            )
        };
        reader.warn(place, message, Some("remove one of them".to_owned()));
    }
}

/// Whether everything `matcher` matches is exempted, as far as it can be seen.
fn exempts_all(unless: &Matcher, matcher: &Matcher) -> bool {
    let covered = |wide: &Patterns, narrow: &Patterns| {
        !wide.given()
            || (narrow.given() && wide.covers(narrow))
            || wide.0.iter().any(crate::glob::Glob::is_any)
    };
    (unless.kinds.is_empty() || (!matcher.kinds.is_empty() && matcher.kinds.iter().all(|k| unless.kinds.contains(k))))
        && unless.min_severity.is_none_or(|u| matcher.min_severity.is_some_and(|m| m >= u))
        && unless.baseline.is_none_or(|u| matcher.baseline == Some(u))
        && covered(&unless.detector, &matcher.detector)
        // One class of several is enough to match, so classes never cover.
        && !unless.classes.given()
        && covered(&unless.change, &matcher.change)
        && covered(&unless.server, &matcher.server)
        && covered(&unless.tool, &matcher.tool)
        && covered(&unless.agent, &matcher.agent)
        && covered(&unless.user, &matcher.user)
}
