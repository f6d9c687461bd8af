//! The run-level rows of the shared corpora, where that folder is there.
#![expect(
    clippy::tests_outside_test_module,
    reason = "an integration test is a test module"
)]

use std::path::Path;

use kams_policy::{apply, corpus_row};
use serde_json::{Value as Json, json};

/// Equal as JSON-logic sees it: 1 and 1.0 are one number.
fn same(a: &Json, b: &Json) -> bool {
    kams_policy::canonical(a) == kams_policy::canonical(b)
}

#[test]
fn every_run_level_row_is_right() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora/runlevel.open.jsonl");
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("skipped: no corpora beside the repository");
        return;
    };
    let mut rows = 0;
    for line in text.lines() {
        let row: Json = serde_json::from_str(line).unwrap();
        let answer = corpus_row(&row).unwrap();
        assert_eq!(answer["id"], row["id"]);
        let got = if row["kind"] == "run_facts" {
            &answer["facts"]
        } else {
            &answer["result"]
        };
        assert!(same(got, &row["expect"]), "{line}\n{answer}");
        rows += 1;
    }
    assert!(rows > 100);
}

#[test]
fn rows_of_other_kinds_are_left_alone() {
    assert_eq!(
        corpus_row(&json!({"id": "x", "kind": "aws_key", "value": {}})),
        None
    );
    assert_eq!(corpus_row(&json!({"id": "x"})), None);
}

#[test]
fn run_facts_follow_the_seed() {
    let row = json!({"id": "f", "kind": "run_facts", "value": {"run": "r1", "declared": {"pay": ["amount", "to"], "review.it": []}, "ops": [
        {"op": "a", "tool": "pay", "num": {"amount": 10, "fee": 3}, "arg": {"to": "b1", "memo": "x"}},
        {"op": "a", "tool": "pay", "num": {"amount": 10}, "arg": {"to": "b1"}},
        {"op": "b", "tool": "pay", "num": {"amount": "500"}, "arg": {"to": "two words"}},
        {"op": "c", "tool": "pay", "num": {"amount": 5}, "error": true},
        {"op": "d", "tool": "review.it"},
        {"op": "e", "tool": "unknown", "num": {"amount": 1}},
        {"op": "f", "tool": "pay", "num": {"amount": 7}, "approved": false},
        {"op": "g", "tool": "pay", "num": {"amount": 9}, "tenant": "someone else"},
    ]}});
    assert_eq!(
        corpus_row(&row).unwrap()["facts"],
        json!({
            "pay": {"calls": 2, "argValues": {"to": ["b1"]}, "numericSums": {"amount": 10}, "numericMaximums": {"amount": 10}},
            "review%2Eit": {"calls": 1, "argValues": {}, "numericSums": {}, "numericMaximums": {}},
        })
    );
}

#[test]
fn the_standard_holds_where_the_library_departs_from_it() {
    let data = json!({"n": 5, "s": "apple", "l": [1, 2, 3], "e": "", "o": {"k": "v"}, "z": null});
    for (rule, want) in [
        (json!({">": ["abc", 1]}), json!(false)),
        (json!({"<=": [{"var": "gone"}, 500]}), json!(true)),
        (json!({">": [{"var": "gone"}, 0]}), json!(false)),
        (json!({"==": [{}, 1]}), json!(false)),
        (json!({"==": [[1], 1]}), json!(true)),
        (json!({"==": [null, 0]}), json!(false)),
        (json!({"==": ["", 0]}), json!(true)),
        (json!({"!!": [{}]}), json!(true)),
        (json!({"!!": [[]]}), json!(false)),
        (json!({"in": ["x", null]}), json!(false)),
        (json!({"in": ["", ""]}), json!(false)),
        (json!({"in": ["rm", "alarm"]}), json!(true)),
        (json!({"cat": [1.0, null, [1, 2]]}), json!("11,2")),
        (json!({"missing": ["e", "z", "n"]}), json!(["e", "z"])),
        (json!({"missing_some": [1, ["e", "z"]]}), json!(["e", "z"])),
        (json!({"max": ["3", 2]}), json!(3)),
        (json!({"max": ["x", 2]}), json!(null)),
        (json!({"merge": [1, null]}), json!([1, null])),
        (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 2})),
        (json!({}), json!({})),
        (json!({"log": "apple"}), json!("apple")),
        (json!({"<": ["10", "9"]}), json!(true)),
        (json!({"<": ["10", 9]}), json!(false)),
        (json!({"==": ["0x10", 16]}), json!(true)),
        (json!({"==": ["nan", "inf"]}), json!(false)),
        (json!({"+": [1, {"var": "gone"}]}), json!(1)),
    ] {
        let got = apply(&rule, &data).unwrap();
        assert!(same(&got, &want), "{rule}: {got}, not {want}");
    }
    for rule in [
        json!({"nope": [1]}),
        json!({"val": "n"}),
        json!({"+": ["abc", 1]}),
        json!({"/": [1, 0]}),
    ] {
        assert!(apply(&rule, &data).is_err(), "{rule}");
    }
}

#[test]
fn rules_that_could_eat_the_host_are_refused() {
    let mut deep = json!(1);
    for _ in 0..90 {
        deep = json!({ "!": [deep] });
    }
    assert!(apply(&deep, &json!(null)).is_err());
    let wide = json!({"+": vec![1; 50_000]});
    assert!(apply(&wide, &json!(null)).is_err());
    let many: Vec<u32> = (0..60).collect();
    for body in [
        json!({"merge": [{"var": "accumulator"}, {"var": "accumulator"}]}),
        json!({"cat": [{"var": ["accumulator"]}, {"if": [true, {"var": "accumulator"}]}]}),
        json!([{"var": "accumulator"}, {"var": "accumulator"}]),
        json!({"map": [{"var": "accumulator"}, 1]}),
    ] {
        assert!(
            apply(&json!({"reduce": [many, body, ["x"]]}), &json!(null)).is_err(),
            "{body}"
        );
    }
    let fine = json!({"reduce": [many, {"+": [{"var": "accumulator"}, {"var": "current"}]}, 0]});
    assert_eq!(apply(&fine, &json!(null)).unwrap(), json!(1770));
}
