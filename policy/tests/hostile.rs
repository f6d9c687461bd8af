//! Policy texts that somebody wrote to do harm, or that an editor broke: refused with words, in bounded time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::tests_outside_test_module,
    reason = "an integration test is a test module"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kams_policy::{Exception, Files, Level, NoFiles, Policy, Problem};
use proptest::prelude::*;

fn problems(text: &str) -> Vec<Problem> {
    Policy::load("p.yaml", text, &NoFiles).unwrap_err()
}

/// Every problem names a place that is in the text, and shows it.
fn is_helpful(text: &str, all: &[Problem]) {
    assert!(!all.is_empty());
    for problem in all {
        let shown = problem.to_string();
        assert!(shown.starts_with("p.yaml:"), "{shown}");
        assert!(
            problem.line >= 1 || shown.contains("more problems are not shown"),
            "{shown}"
        );
        assert!(
            problem.line as usize <= text.lines().count().max(1) + 1,
            "{shown}"
        );
        assert!(shown.len() < 2_000, "an excerpt is short: {} bytes", shown.len());
    }
}

#[test]
fn a_flood_of_mistakes_is_told_within_bounds() {
    let mut text = "version: 1\nrules:\n".to_owned();
    while text.len() < 1 << 20 {
        let n = text.len();
        writeln!(
            text,
            "- {{name: r{n}, match: {{kin: A, sever: b}}, acton: alert}}"
        )
        .unwrap();
    }
    let all = problems(&text);
    is_helpful(&text, &all);
    let whole: usize = all.iter().map(|problem| problem.to_string().len()).sum();
    assert!(whole < 4 << 20, "{} problems, {whole} bytes", all.len());
}

#[test]
fn a_megabyte_in_one_line_is_read_and_shown_in_part() {
    let text = format!(
        "version: 1\nrules: [{}]\n",
        "{name: a, match: {}, action: alarm}, ".repeat(28_000)
    );
    let all = problems(&text);
    is_helpful(&text, &all);
    let long = format!("version: 1\nmode: {}\n", "o".repeat(1 << 20));
    is_helpful(&long, &problems(&long));
    let name = format!("version: 1\n{}: 1\n", "k".repeat(1 << 20));
    is_helpful(&name, &problems(&name));
}

#[test]
fn bombs_end_at_the_place_where_they_go_off() {
    let mut laughs = String::from("version: 1\nx0: &x0 [a, a, a, a, a, a, a, a, a, a]\n");
    for i in 1..30 {
        let before = format!("*x{}", i - 1);
        writeln!(laughs, "x{i}: &x{i} [{}]", [before.as_str(); 10].join(", ")).unwrap();
    }
    let quadratic = format!("a: &a {}\nb: [{}]\n", "z".repeat(100_000), "*a, ".repeat(5_000));
    let own = "version: 1\nrules: &r\n- *r\n".to_owned();
    let mut nested = String::from("version: 1\nrules:\n");
    for depth in 0..5_000 {
        writeln!(nested, "{}- a:", " ".repeat(depth % 200)).unwrap();
    }
    for text in [
        laughs,
        quadratic,
        own,
        nested,
        "{".repeat(1 << 20),
        "[".repeat(1 << 20),
        "- ".repeat(1 << 19),
        "? ".repeat(1 << 19),
        "&a ".repeat(1 << 18),
        "!!binary ".repeat(1 << 16),
        "--- 1\n".repeat(1 << 16),
        "\"\\".repeat(1 << 18),
        format!("version: 1\n{}", "%YAML 1.2\n".repeat(1_000)),
    ] {
        let all = problems(&text);
        assert!(all.iter().any(|problem| problem.level == Level::Error));
        for problem in all {
            assert!(problem.to_string().len() < 2_000);
        }
    }
}

#[test]
fn a_repeated_key_is_refused_wherever_it_stands() {
    for (text, line) in [
        ("version: 1\nmode: observe\nmode: enforce\n", 3),
        (
            "version: 1\nrules:\n- name: a\n  match: {}\n  action: alert\n  action: block_call\n",
            6,
        ),
        (
            "version: 1\nrules:\n- {name: a, match: {server: a, server: b}, action: alert}\n",
            3,
        ),
        ("version: 1\n\"mode\": observe\nmode: enforce\n", 3),
        ("version: 1\nthresholds:\n  cost.spike: {high: 2, high: 3}\n", 3),
        (
            "{\"version\": 1,\n\"mode\": \"observe\",\n\"m\\u006fde\": \"enforce\"}",
            3,
        ),
    ] {
        let all = problems(text);
        is_helpful(text, &all);
        assert!(all.iter().any(|problem| problem.line == line), "{text}: {all:?}");
    }
    // In a document beside the policy as well.
    let document = r#"{"schemaVersion": "1.0.0", "policyId": "p", "status": "published", "version": "1", "rules": [
        {"ruleId": "r", "when": {"expression": {"==": [1, 1]}}, "then": {"decision": "block", "decision": "allow", "reason": "x"}}]}"#;
    let files: BTreeMap<String, String> = [("d.json".to_owned(), document.to_owned())].into();
    let refused = Policy::load("p.yaml", "version: 1\nruns: {policies: [d.json]}\n", &files).unwrap_err();
    assert!(
        refused.iter().any(|p| p.file.contains("d.json") && p.line == 2),
        "{refused:?}"
    );
}

#[test]
fn slips_come_with_a_suggestion() {
    for (text, place, suggestion) in [
        ("version: 1\nmode: enforced\n", (2, 7), "enforce"),
        ("version: 1\nrule: []\n", (2, 1), "rules"),
        (
            "version: 1\nrules:\n- {name: a, match: {kind: EGRESS_SENSITVE}, action: alert}\n",
            (3, 27),
            "EGRESS_SENSITIVE",
        ),
        (
            "version: 1\nrules:\n- {name: a, match: {}, action: block-tool}\n",
            (3, 32),
            "block_tool",
        ),
        (
            "version: 1\nrules:\n- {name: a, match: {min_severity: Hihg}, action: alert}\n",
            (3, 35),
            "HIGH",
        ),
        (
            "version: 1\nrules:\n- {name: a, match: {}, action: block_tool, ttl: 15min}\n",
            (3, 49),
            "15m",
        ),
        (
            "version: 1\nthresholds: {cost.spikes: {high: 2}}\n",
            (2, 14),
            "cost.spike",
        ),
        ("version: 1\nruns: {fact: []}\n", (2, 8), "facts"),
    ] {
        let all = problems(text);
        let found = all.iter().any(|problem| {
            (problem.line, problem.column) == place && problem.to_string().contains(suggestion)
        });
        assert!(
            found,
            "{text}: {}",
            all.iter().map(ToString::to_string).collect::<String>()
        );
    }
}

#[test]
fn invisible_and_odd_characters_cannot_act_on_a_terminal() {
    for text in [
        "version: 1\n\u{1b}[2J: 1\n",
        "version: 1\nmode: \"\\e[31mobserve\"\n",
        "version: 1\nrules: [{name: \"a\\u202eb\", match: {}, action: \"\\u009b2J\"}]\n",
        "version: 1\nmo\u{200b}de: observe\n",
        "\u{feff}version: 1\nmode: \u{202e}observe\n",
    ] {
        for problem in problems(text) {
            let shown = problem.to_string();
            let odd =
                |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{200b}');
            assert!(!shown.contains(odd), "{shown:?}");
        }
    }
    // A byte order mark alone is what editors write.
    assert!(Policy::load("p.yaml", "\u{feff}version: 1\n", &NoFiles).is_ok());
}

/// A folder in which every name leads to the same text.
struct Mirror(String);

impl Files for Mirror {
    fn read(&self, _: &str) -> Result<String, String> {
        Ok(self.0.clone())
    }
}

#[test]
fn documents_cannot_multiply_without_bound() {
    let big = format!(
        "version: 1\nruns: {{policies: [{}]}}\n",
        "d.json, ".repeat(20_000)
    );
    let one = format!("{{\"x\": [{}1]}}", "1,".repeat(100_000));
    let all = Policy::load("p.yaml", &big, &Mirror(one)).unwrap_err();
    let whole: usize = all.iter().map(|problem| problem.to_string().len()).sum();
    assert!(whole < 8 << 20, "{} problems, {whole} bytes", all.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_is_too_odd(text in "[ -~\\n\u{0}-\u{ff}]{0,400}") {
        let _loaded = Policy::load("p.yaml", &text, &NoFiles);
        let _exception = Exception::parse(&text);
    }

    /// The default policy with a few bytes changed: loads, or is refused with places that are in it.
    #[test]
    fn a_damaged_policy_is_refused_at_a_place(changes in prop::collection::vec((0..10_000_usize, "[:{}\\[\\]&*!|>%@`'\",#?\\- \\n\\tA-z0-9]{0,3}"), 1..6)) {
        let mut text = Policy::default_text().to_owned();
        for (at, with) in changes {
            let at = at % text.len();
            if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                text.replace_range(at..=at, &with);
            }
        }
        if let Err(all) = Policy::load("p.yaml", &text, &NoFiles) {
            is_helpful(&text, &all);
        }
    }
}
