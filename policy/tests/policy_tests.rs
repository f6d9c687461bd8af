//! The test runner, and the tests of the default policy.
#![expect(
    clippy::tests_outside_test_module,
    reason = "an integration test is a test module"
)]

use std::collections::BTreeMap;

use kams_policy::{NoFiles, Policy, TestResult, run_tests};

const CHAINS: &str = include_str!("data/seed-tool-chain.json");

fn run(policy: &str, tests: &str) -> Vec<TestResult> {
    let files: BTreeMap<String, String> = [(
        "chains.json".to_owned(),
        CHAINS.replace("\"draft\"", "\"published\""),
    )]
    .into();
    run_tests(("policy.yaml", policy), &files, ("tests.yaml", tests)).unwrap_or_else(|p| {
        panic!(
            "{}",
            p.iter().map(ToString::to_string).collect::<Vec<_>>().join(
                "
"
            )
        )
    })
}

#[test]
fn the_default_policy_passes_its_own_tests() {
    let results = run(Policy::default_text(), include_str!("../default.tests.yaml"));
    assert!(results.len() >= 9);
    for result in results {
        assert!(result.passed(), "{}: {:?}", result.name, result.failures);
    }
}

const PAY: &str = "
version: 1
mode: enforce
runs:
  labels: {environment: prod}
  facts:
    - {tool: secret_read}
    - {tool: external_send}
    - {tool: customer_enumeration}
    - {tool: customer_export, numeric_keys: [record_count]}
    - {tool: payment_submit, arg_keys: [beneficiary_id], numeric_keys: [amount]}
  policies: chains.json
approvals: {timeout: 5m, groups: {security_reviewers: secops, payments_reviewers: treasury}}
";

#[test]
fn chains_and_approvals_can_be_tested() {
    let tests = "
tests:
  - name: enumerate, then export
    given:
      - call: {tool: customer_enumeration}
        expect: {decision: allow}
      - call: {tool: customer_export, args: {record_count: 499}}
        expect: {decision: allow}
      - call: {tool: customer_export, args: {record_count: 1}}
        expect: {decision: require_approval, approver_group: security_reviewers, reason_codes: [run_chain_enumeration_then_export]}
      - approve: {by: tester, groups: [secops]}
        expect: {decision: block}
      - approve: {by: ben, groups: [secops], in_agent_tree: true}
        expect: {decision: block}
      - approve: {by: ben, groups: [secops]}
        expect: {decision: allow}
      - call: {tool: customer_export, args: {record_count: 1}}
        expect: {decision: allow}
      - checkpoint: {}
        expect: {decision: require_approval, rule: run-tool-chain-enumeration-then-export}
  - name: failed and refused calls are no facts
    given:
      - {call: {tool: secret_read}, result: error}
      - call: {tool: external_send}
        expect: {decision: allow}
      - {call: {tool: secret_read}, expect: {decision: block}}
      - {call: {tool: external_send}, expect: {decision: allow}}
  - name: a request times out
    given:
      - call: {tool: customer_export, args: {record_count: 600}}
      - {call: {tool: customer_enumeration}, expect: {decision: require_approval}}
      - wait: 5m
      - approve: {by: ben, groups: [secops]}
    expect: {decision: block}
";
    for result in run(PAY, tests) {
        assert!(result.passed(), "{}: {:?}", result.name, result.failures);
    }
}

#[test]
fn a_wrong_expectation_fails_with_its_line() {
    let results = run(
        Policy::default_text(),
        "tests:\n  - name: wrong\n    given:\n      - finding: {kind: WASTE}\n    expect: {decision: block, rule: none}\n",
    );
    assert_eq!(
        results[0].failures,
        [
            "line 5: decision: expected block, got allow",
            "line 5: rule: expected none, got alert-on-everything"
        ]
    );
}

#[test]
fn a_bad_test_file_is_told_in_full() {
    let text = "tests:
  - name: a
    given: [{finding: {kind: WASTED}}, {cal: {}}, {wait: long}]
  - given: []
  - name: nothing expected
    given: [{call: {}}]
  - name: nothing said
    given: [{call: {args: {}, arguments: {}}, expect: {}}]
";
    let problems = run_tests(("p", Policy::default_text()), &NoFiles, ("t", text)).unwrap_err();
    let shown = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(
        "
",
    );
    for words in [
        "`WASTED` is not known",
        "unknown key `cal`",
        "`long` is no duration",
        "needs `name`",
        "expects nothing cannot fail",
        "a test without events cannot fail",
        "an `expect` that says nothing cannot fail",
        "`args` and `arguments` are the same",
    ] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
}
