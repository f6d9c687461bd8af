//! Helpers of the rules' tests: sessions in the corpus rows' shape.

use serde_json::{Value, json};

use super::Firing;
use super::rule::Rule;
use crate::corpus::waste::last_call;

pub(super) fn calls(calls: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(calls.into_iter().collect())
}

pub(super) fn tool_calls(tool: &str, arguments: &[Value], step: f64) -> Value {
    calls(arguments.iter().enumerate().map(|(index, arguments)| {
        let t = f64::from(u32::try_from(index).unwrap()) * step;
        json!({"t": t, "tool_calls": [{"name": tool, "arguments": arguments}]})
    }))
}

pub(super) fn fires(rule: Rule, calls: &Value, config: &Value) -> Option<Firing> {
    last_call(rule, calls.as_array().unwrap(), config.as_object().unwrap()).unwrap()
}

pub(super) fn near(got: f64, wanted: f64) {
    assert!((got - wanted).abs() < 1e-9, "{got} is not {wanted}");
}
