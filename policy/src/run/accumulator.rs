//! The four facts of seed 002 per key, and two order numbers.

use std::collections::BTreeMap;

use indexmap::IndexSet;
use serde_json::{Map, Value as Json, json};

use super::fact::Contribution;
use crate::logic::number;

/// Most distinct values kept for one field; more are not kept, and `calls` still rises.
pub(crate) const MAX_VALUES: usize = 1_024;
/// Most distinct values kept in one accumulator.
pub(crate) const MAX_ALL_VALUES: usize = 8_192;
/// Most keys that come from tool names rather than declarations: a server that makes up tools must not push a
/// declared key out.
pub(crate) const MAX_FREE_KEYS: usize = 256;

/// The facts under one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolFacts {
    /// Operations.
    pub calls: u64,
    /// Distinct identifiers by field, in order of first appearance.
    pub arg_values: BTreeMap<String, IndexSet<String>>,
    /// Sums by field. A sum that leaves the range of a float stays at its bound, since JSON has no infinity;
    /// a negative amount lowers it.
    pub numeric_sums: BTreeMap<String, f64>,
    /// Largest value by field, of calls that had the field.
    pub numeric_maximums: BTreeMap<String, f64>,
    /// Order number of the first call.
    pub first_seq: u64,
    /// Order number of the last call.
    pub last_seq: u64,
    named: bool,
}

impl ToolFacts {
    /// Adds one call; `room` is how many more values may be kept. Returns how many were.
    fn add(&mut self, contribution: &Contribution, seq: u64, room: usize) -> usize {
        self.first_seq = if self.calls == 0 {
            seq
        } else {
            self.first_seq.min(seq)
        };
        self.last_seq = self.last_seq.max(seq);
        self.calls = self.calls.saturating_add(1);
        self.named |= contribution.named;
        let mut kept = 0;
        for (field, value) in &contribution.values {
            let set = self.arg_values.entry(field.clone()).or_default();
            if set.len() < MAX_VALUES && kept < room && set.insert(value.as_str().to_owned()) {
                kept += 1;
            }
        }
        for (field, n) in &contribution.numbers {
            let sum = self.numeric_sums.entry(field.clone()).or_default();
            *sum = (*sum + n).clamp(f64::MIN, f64::MAX);
            let max = self.numeric_maximums.entry(field.clone()).or_insert(*n);
            *max = max.max(*n);
        }
        kept
    }

    /// Joins the facts of another accumulator.
    fn join(&mut self, other: &Self) {
        if other.calls == 0 {
            return;
        }
        self.first_seq = if self.calls == 0 {
            other.first_seq
        } else {
            self.first_seq.min(other.first_seq)
        };
        self.last_seq = self.last_seq.max(other.last_seq);
        self.calls = self.calls.saturating_add(other.calls);
        for (field, values) in &other.arg_values {
            let set = self.arg_values.entry(field.clone()).or_default();
            for value in values {
                if set.len() >= MAX_VALUES {
                    break;
                }
                set.insert(value.clone());
            }
        }
        for (field, n) in &other.numeric_sums {
            let sum = self.numeric_sums.entry(field.clone()).or_default();
            *sum = (*sum + n).clamp(f64::MIN, f64::MAX);
        }
        for (field, n) in &other.numeric_maximums {
            let max = self.numeric_maximums.entry(field.clone()).or_insert(*n);
            *max = max.max(*n);
        }
    }

    /// As a rule sees them.
    fn to_json(&self, order: bool) -> Json {
        let numbers = |map: &BTreeMap<String, f64>| {
            map.iter()
                .map(|(field, n)| (field.clone(), number(*n)))
                .collect::<Map<String, Json>>()
        };
        let values: Map<String, Json> = self
            .arg_values
            .iter()
            .filter(|(_, set)| !set.is_empty())
            .map(|(field, set)| (field.clone(), set.iter().cloned().collect()))
            .collect();
        let mut out = json!({
            "calls": self.calls,
            "argValues": values,
            "numericSums": numbers(&self.numeric_sums),
            "numericMaximums": numbers(&self.numeric_maximums),
        });
        if order && let Some(map) = out.as_object_mut() {
            map.insert("firstSeq".to_owned(), self.first_seq.into());
            map.insert("lastSeq".to_owned(), self.last_seq.into());
        }
        out
    }
}

/// Facts by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accumulator {
    tools: BTreeMap<String, ToolFacts>,
    values: usize,
    free_keys: usize,
}

impl Accumulator {
    /// Adds one call's contribution with its order number.
    pub fn add(&mut self, contribution: &Contribution, seq: u64) {
        if !self.tools.contains_key(&contribution.key) {
            if !contribution.named {
                if self.free_keys >= MAX_FREE_KEYS {
                    return;
                }
                self.free_keys += 1;
            }
            self.tools.insert(contribution.key.clone(), ToolFacts::default());
        }
        let room = MAX_ALL_VALUES.saturating_sub(self.values);
        if let Some(facts) = self.tools.get_mut(&contribution.key) {
            self.values += facts.add(contribution, seq, room);
        }
    }

    /// The facts under a key.
    pub fn get(&self, key: &str) -> Option<&ToolFacts> {
        self.tools.get(key)
    }

    /// Keys with facts.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Only the named keys: what the rules of a checkpoint read.
    #[expect(
        single_use_lifetimes,
        reason = "an elided lifetime in impl Trait is not stable"
    )]
    pub(crate) fn only<'k>(&self, keys: impl Iterator<Item = &'k str>) -> Self {
        let mut out = Self::default();
        for key in keys {
            if let Some(facts) = self.tools.get(key) {
                out.tools.insert(key.to_owned(), facts.clone());
            }
        }
        out
    }

    /// Joins another accumulator's facts under the named keys.
    #[expect(
        single_use_lifetimes,
        reason = "an elided lifetime in impl Trait is not stable"
    )]
    pub(crate) fn join<'k>(&mut self, other: &Self, keys: impl Iterator<Item = &'k str>) {
        for key in keys {
            if let Some(facts) = other.tools.get(key) {
                self.tools.entry(key.to_owned()).or_default().join(facts);
            }
        }
    }

    /// The object behind `context.run.tools`.
    pub fn to_json(&self) -> Json {
        self.json(true)
    }

    /// The same with the four facts of the seed only.
    pub fn to_json_without_order(&self) -> Json {
        self.json(false)
    }

    fn json(&self, order: bool) -> Json {
        self.tools
            .iter()
            .map(|(key, facts)| (key.clone(), facts.to_json(order)))
            .collect::<Map<_, _>>()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::run::fact::Identifier;

    fn call(key: &str, named: bool, value: &str, n: f64) -> Contribution {
        Contribution {
            key: key.to_owned(),
            named,
            values: Identifier::new(value)
                .map(|v| ("id".to_owned(), v))
                .into_iter()
                .collect(),
            numbers: vec![("amount".to_owned(), n)],
        }
    }

    #[test]
    fn sums_stay_finite_and_negative_amounts_lower_them() {
        let mut acc = Accumulator::default();
        for n in [1e308, 1e308, 1e308] {
            acc.add(&call("pay", true, "a", n), 1);
        }
        assert_eq!(
            number(acc.get("pay").unwrap().numeric_sums["amount"]),
            json!(f64::MAX)
        );
        let mut acc = Accumulator::default();
        acc.add(&call("pay", true, "a", 50.0), 1);
        acc.add(&call("pay", true, "b", -20.0), 2);
        assert_eq!(
            acc.to_json(),
            json!({"pay": {"calls": 2, "argValues": {"id": ["a", "b"]}, "numericSums": {"amount": 30},
                "numericMaximums": {"amount": 50}, "firstSeq": 1, "lastSeq": 2}})
        );
    }

    #[test]
    fn a_maximum_of_negative_amounts_is_negative() {
        let mut acc = Accumulator::default();
        acc.add(&call("pay", true, "a", -5.0), 1);
        assert_eq!(
            number(acc.get("pay").unwrap().numeric_maximums["amount"]),
            json!(-5)
        );
    }

    #[test]
    fn limits_hold_and_never_hide_a_declared_key() {
        let mut acc = Accumulator::default();
        for i in 0..20_000 {
            acc.add(&call(&format!("made-up-{i}"), false, &format!("v{i}"), 1.0), i);
        }
        acc.add(&call("pay", true, "x", 1.0), 20_001);
        assert_eq!(acc.keys().count(), MAX_FREE_KEYS + 1);
        assert_eq!(acc.get("pay").unwrap().calls, 1);
        let mut acc = Accumulator::default();
        for i in 0..5_000 {
            acc.add(&call("pay", true, &format!("v{i}"), 1.0), i);
        }
        let facts = acc.get("pay").unwrap();
        assert_eq!((facts.calls, facts.arg_values["id"].len()), (5_000, MAX_VALUES));
    }

    proptest! {
        #[test]
        fn every_number_stays_finite(all in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO, 0..40)) {
            let mut acc = Accumulator::default();
            for (i, n) in (0..).zip(&all) {
                acc.add(&call("k", true, "a", *n), i);
            }
            if let Some(facts) = acc.get("k") {
                prop_assert!(facts.numeric_sums["amount"].is_finite());
                let largest = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                prop_assert_eq!(number(facts.numeric_maximums["amount"]), number(largest));
            }
        }

        #[test]
        fn joining_parts_is_adding_all(all in prop::collection::vec((0..3_u8, 0..50_i32), 0..40), cut in 0..40_u64) {
            let mut whole = Accumulator::default();
            let mut parts = [Accumulator::default(), Accumulator::default()];
            for (i, (v, n)) in (0..).zip(&all) {
                let c = call("k", true, &format!("v{v}"), f64::from(*n));
                whole.add(&c, i);
                parts[usize::from(i >= cut)].add(&c, i);
            }
            let mut joined = Accumulator::default();
            for part in &parts {
                joined.join(part, ["k"].into_iter());
            }
            prop_assert_eq!(joined.to_json(), whole.to_json());
        }
    }
}
