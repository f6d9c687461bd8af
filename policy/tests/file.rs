//! The policy file: what loads, and how everything that is wrong with it is told.
#![expect(
    clippy::tests_outside_test_module,
    reason = "an integration test is a test module"
)]

use std::fmt::Write as _;

use kams_detect::finding::{Kind, Severity};
use kams_detect::waste::Rule;
use kams_policy::{
    Action, Baseline, Call, Decision, Exception, Fail, Finding, Level, Mode, Network, NoFiles, Now, Outcome,
    Policy, Problem, RuleVerdict, Seccomp, Start, Subject,
};

const NOW: Now = Now::at(1_800_000_000_000);

fn load(text: &str) -> Policy {
    Policy::load("p.yaml", text, &NoFiles).unwrap_or_else(|problems| panic!("{}", show(&problems)))
}

fn problems(text: &str) -> Vec<Problem> {
    match Policy::load("p.yaml", text, &NoFiles) {
        Ok(policy) => policy.warnings().to_vec(),
        Err(problems) => problems,
    }
}

fn show(problems: &[Problem]) -> String {
    problems.iter().fold(String::new(), |mut out, p| {
        writeln!(out, "{p}").expect("writing to a String");
        out
    })
}

fn subject<'a>() -> Subject<'a> {
    Subject {
        user: "ana",
        agent: "claude-code",
        server: "npm:@corp/mail",
        tool: Some("send"),
        relayed: true,
    }
}

fn egress<'a>(classes: &[&'a str]) -> Finding<'a> {
    Finding {
        subject: subject(),
        detector: "egress.sensitive",
        kind: Kind::EgressSensitive,
        severity: Severity::Critical,
        classes: classes.to_vec(),
        change: None,
        baseline: None,
        fingerprint: "f1",
        gap: false,
    }
}

fn decide(policy: &Policy, finding: &Finding<'_>) -> Decision {
    policy.on_finding(finding, &[], NOW)
}

#[test]
fn the_default_policy_does_what_the_specification_says() {
    let policy = Policy::default_policy();
    assert!(policy.warnings().is_empty(), "{}", show(policy.warnings()));
    let observed = decide(&policy, &egress(&["aws_key"]));
    assert_eq!(
        (observed.outcome, observed.action),
        (Outcome::Allow, Some(Action::Alert))
    );
    assert_eq!(observed.would, Some(Action::BlockCall));

    let policy = load(&format!("mode: enforce\n{}", Policy::default_text()));
    let blocked = decide(&policy, &egress(&["email", "aws_key"]));
    assert_eq!((blocked.outcome, blocked.would), (Outcome::Block, None));
    assert_eq!(blocked.rule.as_deref(), Some("block-credential-egress"));
    assert_eq!(blocked.hits.len(), 2, "the alert rule is recorded as well");
    assert_eq!(decide(&policy, &egress(&["email"])).action, Some(Action::Alert));
    let mut example = egress(&["aws_key"]);
    example.severity = Severity::Low;
    assert!(decide(&policy, &example).passes(), "documented examples pass");

    let mut drift = egress(&[]);
    drift.kind = Kind::IntegrityDrift;
    drift.detector = "integrity.definition_drift";
    drift.change = Some("DESCRIPTION_CHANGED");
    let blocked = decide(&policy, &drift);
    assert_eq!(blocked.action, Some(Action::BlockServer));
    assert_eq!(blocked.restriction.as_ref().and_then(|r| r.until_ms), None);
    drift.severity = Severity::High;
    assert_eq!(decide(&policy, &drift).action, Some(Action::Alert));

    let mut result = egress(&[]);
    result.kind = Kind::IntegrityInjection;
    result.detector = "integrity.result_injection";
    result.severity = Severity::High;
    let blocked = decide(&policy, &result);
    assert_eq!(blocked.action, Some(Action::BlockTool));
    assert_eq!(
        blocked.restriction.and_then(|r| r.until_ms),
        Some(NOW.wall_ms + 900_000)
    );
}

#[test]
fn every_problem_is_told_at_once_with_its_place() {
    let text = r#"version: 2
moed: enforce
fail: ajar
thresholds:
  integrity.description_delta: {high: 0.2, medium: 0.3, low: 1}
  integrity.descripton_delta: {high: 0.5}
servers:
  - match: {sever: x}
    mode: enforced
rules:
  - name: one
    match: {kind: EGRESS, classes: [aws_keys]}
    action: block_tol
  - name: one
    match: {min_severity: SEVERE}
    action: block_call
    ttl: 15
  - match: {}
  - name: two
    name: three
    match: {}
    unless: {}
    action: alert
exceptions:
  - match: {}
    owner: ana
runs: {idle_timeout: soon, facts: [{tool: pay, key: "a.b", arg_keys: ["x y"]}]}
approvals: {timeout: 0s, allow_self: yes}
"#;
    let all = problems(text);
    let shown = show(&all);
    for (line, words) in [
        (1, "version is not known"),
        (2, "unknown key `moed`"),
        (3, "`ajar` is not known"),
        (5, "high is below medium"),
        (5, "unknown key `low`"),
        (6, "`integrity.descripton_delta` is not known"),
        (8, "unknown key `sever`"),
        (9, "`enforced` is not known"),
        (12, "`EGRESS` is not known"),
        (12, "nothing in this version reports `aws_keys`"),
        (13, "`block_tol` is not known"),
        (15, "`SEVERE` is not known"),
        (17, "`15` is no duration"),
        (17, "`ttl` has no meaning"),
        (18, "a rule needs `name`"),
        (18, "needs `action`"),
        (20, "`name` appears twice"),
        (22, "empty `unless`"),
        (25, "needs `reason`"),
        (25, "needs `expires`"),
        (25, "`fingerprint` or a `match`"),
        (27, "`soon` is no duration"),
        (27, "`a.b` is no fact key"),
        (27, "`x y` cannot be a fact field"),
        (28, "`0s` is no duration"),
        (28, "must be true or false"),
    ] {
        assert!(
            all.iter().any(|p| p.line == line && p.message.contains(words)),
            "line {line}: {words}\n{shown}"
        );
    }
    for hint in [
        "did you mean `mode`?",
        "did you mean `block_tool`?",
        "did you mean `aws_key`?",
        "did you mean `server`?",
        "`15s` or `15m`",
    ] {
        assert!(shown.contains(hint), "{hint}\n{shown}");
    }
    assert!(all.is_sorted_by_key(|p| (p.line, p.column)));
    assert!(
        all.iter()
            .all(|p| p.excerpt == text.lines().nth(p.line as usize - 1).unwrap())
    );
}

#[test]
fn the_strongest_action_wins_whatever_the_order_and_all_are_recorded() {
    for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
        let mut text = "version: 1\nmode: enforce\nrules:\n".to_owned();
        for name in order {
            let action = match name {
                "a" => "alert",
                "b" => "block_call",
                _ => "require_approval",
            };
            writeln!(
                text,
                "  - {{name: {name}, match: {{on: finding}}, action: {action}}}"
            )
            .unwrap();
        }
        let decision = decide(&load(&text), &egress(&["jwt"]));
        assert_eq!(
            (decision.action, decision.rule.as_deref()),
            (Some(Action::BlockCall), Some("b"))
        );
        let hits: Vec<&str> = decision.hits.iter().map(|h| h.rule.as_str()).collect();
        assert_eq!(hits, order);
    }
}

#[test]
fn unless_globs_and_severity_are_honoured() {
    let policy = load(
        "version: 1\nmode: enforce\nrules:\n  - name: r\n    match: {kind: EGRESS_*, classes: ['*_key', jwt], min_severity: high, user: [a*]}\n    unless:\n      - {server: [vault-mcp, 'npm:@corp/*']}\n      - {tool: store_secret, agent: codex}\n    action: block_tool\n",
    );
    let mut f = egress(&["jwt"]);
    assert!(decide(&policy, &f).passes(), "exempt by server");
    f.subject.server = "npm:other";
    assert_eq!(decide(&policy, &f).outcome, Outcome::Block);
    f.subject.tool = Some("store_secret");
    assert_eq!(
        decide(&policy, &f).outcome,
        Outcome::Block,
        "both keys of an unless must hold"
    );
    f.subject.agent = "codex";
    assert!(decide(&policy, &f).passes());
    f.subject.agent = "x";
    f.severity = Severity::Medium;
    assert!(decide(&policy, &f).passes());
    f.severity = Severity::High;
    f.subject.user = "ben";
    assert!(decide(&policy, &f).passes());
}

#[test]
fn the_first_servers_entry_that_matches_wins() {
    let policy = load(
        "version: 1\nfail: closed\nservers:\n  - match: {server: 'npm:@corp/*', user: [ci]}\n    mode: enforce\n    network: none\n  - match: {agent: codex}\n    fail: open\n  - match: {}\n    network: notify\n",
    );
    let mut s = subject();
    s.user = "ci";
    let settings = policy.settings(&s);
    assert_eq!(
        (settings.mode, settings.fail, settings.network, settings.line),
        (Mode::Enforce, Fail::Closed, Network::None, Some(4))
    );
    s.user = "ana";
    s.agent = "codex";
    assert_eq!(policy.settings(&s).fail, Fail::Open);
    s.agent = "x";
    assert_eq!(
        (policy.settings(&s).network, policy.settings(&s).mode),
        (Network::Notify, Mode::Observe)
    );
}

#[test]
fn seccomp_is_a_setting_of_servers_and_off_unless_said() {
    let text = "version: 1\nmode: enforce\nservers:\n  - match: {server: 'npm:*'}\n    seccomp: deny\n  - match: {server: 'pypi:*'}\n    seccomp: notify\n  - match: {user: ci}\n    mode: observe\n    seccomp: deny\n";
    let policy = load(text);
    let of = |server: &'static str| {
        let settings = policy.settings(&Subject { server, ..subject() });
        settings.seccomp
    };
    assert_eq!(of("npm:@corp/mail"), Seccomp::Deny);
    assert_eq!(of("pypi:mcp-server-git"), Seccomp::Notify);
    assert_eq!(of("bin:other"), Seccomp::Off);
    let told = show(policy.warnings());
    assert!(told.contains("`seccomp` does nothing here"), "{told}");
    let wrong = show(&problems(
        "version: 1\nservers:\n  - match: {}\n    seccomp: kill\n",
    ));
    assert!(wrong.contains("deny") && wrong.contains("notify"), "{wrong}");
}

#[test]
fn rules_on_calls_and_server_starts_stand_apart_from_findings() {
    let policy = load(
        "version: 1\nmode: enforce\nrules:\n  - name: ci-list\n    match: {on: [server_start, call], user: ci}\n    unless: {server: ['npm:@corp/*']}\n    action: block_server\n  - name: deletes\n    match: {on: call, tool: 'delete_*'}\n    action: require_approval\n    approver_group: g\napprovals: {groups: {g: staff}}\n",
    );
    let mut s = subject();
    s.user = "ci";
    assert_eq!(
        policy.on_start(&Start { subject: s }, NOW).outcome,
        Outcome::Allow
    );
    s.server = "npm:evil";
    assert_eq!(
        policy.on_start(&Start { subject: s }, NOW).action,
        Some(Action::BlockServer)
    );
    let mut f = egress(&["jwt"]);
    f.subject = s;
    assert!(decide(&policy, &f).hits.is_empty());
    let mut s = subject();
    s.tool = Some("delete_all");
    let call = Call {
        subject: s,
        baseline: Some(Baseline::Pinned),
    };
    let held = policy.on_call(&call, NOW);
    assert_eq!(
        (held.outcome, held.approver_group.as_deref()),
        (Outcome::RequireApproval, Some("g"))
    );
}

#[test]
fn a_stream_that_is_only_watched_records_what_would_have_happened() {
    let policy = load(
        "version: 1\nmode: enforce\nrules:\n  - {name: a, match: {kind: EGRESS_SENSITIVE}, action: block_call}\n  - {name: k, match: {kind: COST_SPIKE}, action: kill_server}\n",
    );
    let mut f = egress(&["jwt"]);
    f.subject.relayed = false;
    let d = decide(&policy, &f);
    assert_eq!(
        (d.outcome, d.action, d.would),
        (Outcome::Allow, Some(Action::Alert), Some(Action::BlockCall))
    );
    f.kind = Kind::CostSpike;
    let d = decide(&policy, &f);
    assert_eq!(
        (d.outcome, d.action, d.would),
        (Outcome::Allow, Some(Action::KillServer), None)
    );
}

#[test]
fn exceptions_set_a_decision_aside_until_they_expire() {
    let policy = load(
        "version: 1\nmode: enforce\nrules:\n  - {name: a, match: {kind: EGRESS_SENSITIVE}, action: block_call}\nexceptions:\n  - {fingerprint: f1, owner: ana, reason: test account, expires: 2027-02-01}\n",
    );
    let d = decide(&policy, &egress(&["jwt"]));
    assert!(
        d.passes() && d.hits[0].excepted.as_deref() == Some("ana: test account"),
        "{d:?}"
    );
    let late = Now::at(1_900_000_000_000);
    assert_eq!(
        policy.on_finding(&egress(&["jwt"]), &[], late).outcome,
        Outcome::Block
    );
    let mut other = egress(&["jwt"]);
    other.fingerprint = "f2";
    assert_eq!(decide(&policy, &other).outcome, Outcome::Block);
    let extra =
        Exception::parse("{match: {tool: send}, owner: ben, reason: agreed, expires: 2027-06-01}").unwrap();
    assert!(policy.on_finding(&other, &[extra], NOW).passes());
    assert!(Exception::parse("{match: {}, owner: b, reason: r, expires: 2027-06-01}").is_err());
    assert!(Exception::parse("{fingerprint: x, owner: b, expires: 2027-06-01}").is_err());
    assert!(Exception::parse("[]").is_err());
}

#[test]
fn rules_that_cannot_do_what_they_seem_to_are_warned_about() {
    let text = "version: 1
rules:
  - {name: a, match: {kind: COST_SPIKE, classes: [jwt]}, action: alert}
  - {name: b, match: {kind: EGRESS_SENSITIVE, change: TOOL_ADDED}, action: alert}
  - {name: c, match: {server: x}, unless: {server: [x, y]}, action: alert}
  - {name: d, match: {on: call, min_severity: HIGH}, action: alert}
  - {name: e, match: {server: evil}, action: block_server}
  - {name: f, match: {kind: WASTE}, action: redact_args}
  - {name: g, match: {kind: WASTE, tool: t}, action: block_call}
  - {name: h, match: {kind: WASTE, tool: t}, action: alert}
servers:
  - {match: {server: 'npm:*'}, mode: enforce}
  - {match: {}, mode: observe}
  - {match: {user: ci}, mode: enforce}
";
    let all = problems(text);
    assert!(all.iter().all(|p| p.level == Level::Warning), "{}", show(&all));
    for (line, words) in [
        (3, "only EGRESS_SENSITIVE"),
        (4, "only INTEGRITY_DRIFT"),
        (5, "covers all"),
        (6, "property of findings"),
        (7, "acts only when a detector"),
        (8, "nothing to redact"),
        (10, "disagree"),
        (14, "never reached"),
    ] {
        assert!(
            all.iter().any(|p| p.line == line && p.message.contains(words)),
            "{line} {words}\n{}",
            show(&all)
        );
    }
    assert_eq!(all.len(), 8, "{}", show(&all));
}

#[test]
fn explain_names_the_first_condition_that_failed() {
    let policy = load(
        "version: 1\nrules:\n  - {name: a, match: {kind: EGRESS_SENSITIVE, tool: x}, action: block_call}\n  - {name: b, match: {kind: EGRESS_SENSITIVE}, unless: {user: ana}, action: block_call}\n  - {name: c, match: {kind: EGRESS_SENSITIVE}, action: alert}\n  - {name: d, match: {on: call}, action: alert}\n",
    );
    let e = policy.explain(&egress(&["jwt"]), &[], NOW);
    let verdicts: Vec<RuleVerdict> = e.rules.into_iter().map(|r| r.3).collect();
    assert_eq!(
        verdicts,
        [
            RuleVerdict::NoMatch("tool"),
            RuleVerdict::Exempt,
            RuleVerdict::Matched,
            RuleVerdict::OtherEvent
        ]
    );
    assert_eq!(e.decision.rule.as_deref(), Some("c"));
}

#[test]
fn ten_thousand_rules_find_the_few_that_matter() {
    let mut text = "version: 1\nmode: enforce\nrules:\n".to_owned();
    for i in 0..10_000 {
        let pattern = match i % 4 {
            0 => format!("npm:s{i}"),
            1 => format!("npm:s{i}-*"),
            2 => format!("'*-s{i}'"),
            _ => format!("[npm:a{i}, npm:b{i}]"),
        };
        writeln!(
            text,
            "  - name: r{i}\n    match: {{kind: EGRESS_SENSITIVE, server: {pattern}}}\n    action: block_call"
        )
        .unwrap();
    }
    let policy = load(&text);
    for (server, rule) in [
        ("npm:s4000", "r4000"),
        ("npm:s4001-x", "r4001"),
        ("pypi:x-s4002", "r4002"),
        ("npm:b4003", "r4003"),
    ] {
        let mut f = egress(&["jwt"]);
        f.subject.server = server;
        let d = decide(&policy, &f);
        assert_eq!(d.rule.as_deref(), Some(rule));
        assert_eq!(d.hits.len(), 1);
    }
    assert!(decide(&policy, &egress(&["jwt"])).hits.is_empty());
}

#[test]
fn an_empty_or_foreign_text_is_refused_with_words() {
    for text in [
        "",
        "# nothing\n",
        "[]",
        "version",
        "\u{0}",
        "version: 1\nversion: 1",
        "version: 1\n<<: {a: 1}",
    ] {
        assert!(Policy::load("p", text, &NoFiles).is_err(), "{text:?}");
    }
    let numbers = load(
        "version: 1\nmode: enforce\nrules:\n  - {name: 12, match: {kind: EGRESS_SENSITIVE, user: [1000, no]}, action: block_call}\n",
    );
    let mut f = egress(&["jwt"]);
    for user in ["1000", "no"] {
        f.subject.user = user;
        assert_eq!(decide(&numbers, &f).rule.as_deref(), Some("12"));
    }
}

#[test]
fn waste_rules_have_their_knobs_and_their_switch() {
    let policy = load(
        "version: 1\nwaste:\n  min_confidence: 0.7\n  zombie: {enabled: false}\n  tool_loop: {min_calls: 4, polling_tools: [get_build], similarity_metric: jaccard}\n",
    );
    let waste = policy.waste();
    assert!((waste.min_confidence - 0.7).abs() < f64::EPSILON);
    assert!(!waste.enabled(Rule::Zombie) && waste.enabled(Rule::ToolLoop));
    assert_eq!(waste.tool_loop.min_calls, 4);
    assert_eq!(waste.tool_loop.polling_tools, ["get_build"]);
    assert!((waste.tool_loop.threshold() - 0.85).abs() < f64::EPSILON);

    let all = problems(
        "version: 1\nthresholds: {waste.tool_loop: {min_calls: 4}}\nwaste:\n  min_confidence: 2\n  tool_lop: {}\n  tool_loop: {min_calls: 1, min_cals: 4, similarity_metric: cosine, polling_tools: 3}\n  zombie: {enabled: never}\n",
    );
    let shown = show(&all);
    for words in [
        "under `waste:`, as `tool_loop:",
        "waste.min_confidence must be between 0 and 1",
        "did you mean `tool_loop`?",
        "waste.tool_loop.min_calls must be between 2 and 200",
        "did you mean `min_calls`?",
        "waste.tool_loop.similarity_metric",
        "waste.tool_loop.polling_tools",
        "waste.zombie.enabled must be true or false",
    ] {
        assert!(shown.contains(words), "{words} is missing in\n{shown}");
    }
}
