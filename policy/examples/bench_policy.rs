//! What a policy costs: the load of 10,000 rules, and the time of an event that none, one or all of them match, beside
//! the same with ten rules. Fails where rules that cannot match make an event slower.
#![expect(clippy::print_stdout, reason = "its output")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use kams_policy::{Gate, NoFiles, Now, Policy, ProposedCall, Subject, args_digest};
use serde_json::json;

const RULES: usize = 10_000;
const EVENTS: u32 = 5_000;
/// How much slower an event may be among rules that cannot match.
const SLOWER: f64 = 3.0;

/// A policy whose rules have these members of `match`, written for each rule's number.
fn policy(rules: usize, matcher: impl Fn(usize) -> String) -> Policy {
    let mut text = "version: 1\nmode: enforce\nrules:\n".to_owned();
    for rule in 0..rules {
        let rule = format!(
            "  - {{name: rule-{rule}, match: {{on: call, {}}}, action: warn}}\n",
            matcher(rule)
        );
        text.push_str(&rule);
    }
    let start = Instant::now();
    let policy = match Policy::load("bench.yaml", &text, &NoFiles) {
        Ok(policy) => policy,
        Err(problems) => {
            for problem in problems.iter().take(3) {
                println!("{problem}");
            }
            std::process::exit(2);
        }
    };
    if rules == RULES {
        println!(
            "  {rules} rules, {} KB: loaded in {:.0?}",
            text.len() / 1_024,
            start.elapsed()
        );
    }
    policy
}

/// Microseconds of a call of `tool`, and whether a rule matched it.
fn event(policy: Policy, tool: &str) -> (f64, usize) {
    let mut gate = Gate::new(Arc::new(policy));
    let now = Now::at(1_767_225_600_000);
    let run = gate.enter_run("ana", "agent", "instance", now);
    let arguments = json!({});
    let digest = args_digest(&arguments);
    let mut matched = 0;
    let start = Instant::now();
    for number in 0..EVENTS {
        let operation = number.to_string();
        let call = ProposedCall {
            subject: Subject {
                user: "ana",
                agent: "agent",
                server: "npm:desk",
                tool: Some(tool),
                relayed: true,
            },
            run: &run,
            operation: &operation,
            arguments: &arguments,
            args_digest: &digest,
            target: None,
            baseline: None,
        };
        matched = gate.propose(&call, now).decision.hits.len();
        gate.take_records();
    }
    (start.elapsed().as_secs_f64() * 1e6 / f64::from(EVENTS), matched)
}

fn main() -> ExitCode {
    let mut slow = false;
    for (name, matcher, tool, may_match) in [
        (
            "exact names, none matches",
            exact as fn(usize) -> String,
            "other",
            false,
        ),
        ("exact names, one matches", exact, "tool_77", true),
        ("patterns, none matches", pattern, "other_thing", false),
        ("patterns, one matches", pattern, "x_tool_77_y", true),
        ("users, none matches", user, "other", false),
        ("every rule matches", every, "other", true),
    ] {
        println!("{name}");
        let (few, _) = event(policy(10, matcher), tool);
        let (many, matched) = event(policy(RULES, matcher), tool);
        println!("  an event: {many:.1} us with {RULES} rules ({matched} matched), {few:.1} us with 10");
        if !may_match && many > few * SLOWER {
            println!("  TOO SLOW: more than {SLOWER} times");
            slow = true;
        }
    }
    if slow {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn exact(rule: usize) -> String {
    format!("tool: tool_{rule}")
}

fn pattern(rule: usize) -> String {
    format!("tool: \"*tool_{rule}_*\"")
}

fn user(rule: usize) -> String {
    format!("user: \"person-{rule}\", server: \"npm:*\"")
}

fn every(_: usize) -> String {
    "tool: \"*\"".to_owned()
}
