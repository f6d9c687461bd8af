//! The examples of docs/policy.md load and do what the page says.
#![expect(
    clippy::tests_outside_test_module,
    reason = "an integration test is a test module"
)]

use kams_policy::{Action, NoFiles, Policy, run_tests};

const PAGE: &str = include_str!("../../docs/policy.md");

fn blocks() -> Vec<&'static str> {
    let parts: Vec<&str> = PAGE.split("```yaml\n").skip(1).collect();
    parts
        .into_iter()
        .filter_map(|part| part.split("```").next())
        .collect()
}

#[test]
fn every_example_loads_without_a_warning_and_the_tests_pass() {
    let (tests, policies): (Vec<&str>, Vec<&str>) =
        blocks().into_iter().partition(|b| b.starts_with("# tests"));
    assert_eq!((policies.len(), tests.len()), (5, 1));
    for text in &policies {
        let policy = Policy::load("page.yaml", text, &NoFiles).unwrap_or_else(|p| {
            let all: Vec<String> = p.iter().map(ToString::to_string).collect();
            panic!("{}", all.join("\n"))
        });
        assert!(policy.warnings().is_empty(), "{:?}", policy.warnings());
    }
    let ci = policies.last().copied().unwrap_or_default();
    for result in run_tests(("ci", ci), &NoFiles, ("tests", tests[0])).unwrap() {
        assert!(result.passed(), "{:?}", result.failures);
    }
}

#[test]
fn the_payment_example_stops_the_split_and_the_trick_around_it() {
    let payments = blocks()
        .into_iter()
        .find(|b| b.contains("split-payments"))
        .unwrap();
    let call =
        |n: &str| format!("      - call: {{tool: pay_now, args: {{beneficiary_id: b1, amount: {n}}}}}\n");
    let tests = format!(
        "tests:\n  - name: split\n    given:\n{}{}        expect: {{decision: require_approval}}\n  - name: trick\n    given:\n{}    expect: {{decision: block, rule: negative-payment}}\n  - name: as text\n    given:\n{}    expect: {{decision: block, rule: amount-is-no-number}}\n  - name: another tool\n    given: [{{call: {{tool: list, args: {{}}}}}}]\n    expect: {{decision: allow}}\n",
        call("450").repeat(9),
        call("450"),
        call("-450"),
        call("\"450\""),
    );
    for result in run_tests(("p", payments), &NoFiles, ("tests", &tests)).unwrap() {
        assert!(result.passed(), "{}: {:?}", result.name, result.failures);
    }
}

#[test]
fn the_page_names_every_action_and_key() {
    for action in Action::ALL {
        assert!(PAGE.contains(&format!("| `{action}` |")), "{action}");
    }
    let schema = kams_policy::schema();
    for place in [
        "",
        "/properties/rules/items",
        "/$defs/match",
        "/properties/runs",
        "/properties/approvals",
    ] {
        let keys = schema.pointer(&format!("{place}/properties")).unwrap();
        for key in keys.as_object().unwrap().keys() {
            assert!(PAGE.contains(&format!("`{key}")), "{place} {key}");
        }
    }
}
