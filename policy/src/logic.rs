//! JSON-logic: compiled once, evaluated with the standard's semantics by datalogic-rs.
//!
//! datalogic-rs 5.4 departs from the standard (the published suite and the JavaScript reference) in the places
//! that [`standard`] lists; rules are rewritten there before they are compiled. [`check`] walks a rule at load,
//! because the library itself accepts an unknown operator and fails only when the rule is evaluated.

pub(crate) mod check;
pub(crate) mod standard;

use std::sync::{Arc, LazyLock};

use datalogic_rs::bumpalo::Bump;
use datalogic_rs::{DataValue, Engine, EvaluationConfig, Logic, TruthyEvaluator};
use serde_json::Value as Json;

/// Deepest rule, in JSON levels.
pub(crate) const MAX_DEPTH: usize = 100;
/// Largest rule, in JSON nodes.
pub(crate) const MAX_NODES: usize = 20_000;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let config = EvaluationConfig::default()
        .with_loose_equality_errors(false)
        .with_truthy_evaluator(TruthyEvaluator::custom(standard::truthy));
    standard::register(Engine::builder().with_config(config)).build()
});

/// Why a rule cannot be compiled or evaluated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LogicError {
    /// An operator that the standard does not have.
    #[error("unknown operator `{0}`")]
    UnknownOperator(String),
    /// Too deep, too large, or able to grow without bound.
    #[error("{0}")]
    Unbounded(&'static str),
    /// The library refuses the rule.
    #[error("rule cannot be compiled: {0}")]
    Compile(String),
    /// Evaluation fails: arithmetic on a text, a division by zero.
    #[error("rule cannot be evaluated: {0}")]
    Evaluate(String),
}

/// A compiled expression.
#[derive(Clone)]
pub struct Expr {
    logic: Arc<Logic>,
}

impl std::fmt::Debug for Expr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Expr")
    }
}

/// Data for evaluations, parsed once for all rules of a checkpoint.
pub(crate) struct Data(datalogic_rs::ParsedData);

impl Data {
    pub(crate) fn new(json: &Json) -> Option<Self> {
        datalogic_rs::ParsedData::from_json(&json.to_string())
            .ok()
            .map(Self)
    }
}

impl Expr {
    /// Compiles a rule.
    ///
    /// # Errors
    /// The operator, bound or syntax that is refused.
    pub fn compile(rule: &Json) -> Result<Self, LogicError> {
        bounded(rule)?;
        let rewritten = standard::rewrite(rule, false)?;
        let logic = ENGINE
            .compile_arc(rewritten.to_string().as_str())
            .map_err(|error| LogicError::Compile(error.to_string()))?;
        Ok(Self { logic })
    }

    /// The value of the rule over `data`.
    ///
    /// # Errors
    /// Arithmetic on what is no number, a division by zero.
    pub fn value(&self, data: &Json) -> Result<Json, LogicError> {
        let arena = Bump::new();
        let text = data.to_string();
        let value = ENGINE
            .evaluate(&self.logic, text.as_str(), &arena)
            .map_err(|error| LogicError::Evaluate(error.to_string()))?;
        Ok(to_json(value, 0))
    }

    /// Whether the rule holds over `data`.
    pub(crate) fn holds(&self, data: &Data) -> Result<bool, LogicError> {
        let arena = Bump::new();
        let value = ENGINE
            .evaluate(&self.logic, &data.0, &arena)
            .map_err(|error| LogicError::Evaluate(error.to_string()))?;
        Ok(ENGINE.truthy(value))
    }
}

/// Evaluates a rule of the standard over data: `kams detect --corpus`.
///
/// # Errors
/// As [`Expr::compile`] and [`Expr::value`].
pub fn apply(rule: &Json, data: &Json) -> Result<Json, LogicError> {
    Expr::compile(rule)?.value(data)
}

/// Refuses rules that are too deep or too large, and `reduce` bodies that could double their result at each
/// element (a list of a thousand values would need more memory than there is).
fn bounded(rule: &Json) -> Result<(), LogicError> {
    let mut nodes = 0;
    let mut open = vec![(rule, 0_usize)];
    while let Some((value, depth)) = open.pop() {
        nodes += 1;
        if nodes > MAX_NODES {
            return Err(LogicError::Unbounded("the rule is too large"));
        }
        if depth > MAX_DEPTH {
            return Err(LogicError::Unbounded("the rule is nested too deeply"));
        }
        match value {
            Json::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Json::Object(map) => {
                if let Some(reason) = map.get("reduce").and_then(standard::growth) {
                    return Err(LogicError::Unbounded(reason));
                }
                open.extend(map.values().map(|item| (item, depth + 1)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A result as JSON; numbers that JSON cannot write are null, whole ones are integers.
fn to_json(value: &DataValue<'_>, depth: usize) -> Json {
    match value {
        DataValue::Bool(b) => Json::Bool(*b),
        DataValue::String(s) => Json::String((*s).to_owned()),
        DataValue::Number(n) => n.as_i64().map_or_else(|| number(n.as_f64()), Json::from),
        DataValue::Array(items) if depth < MAX_DEPTH * 2 => {
            Json::Array(items.iter().map(|item| to_json(item, depth + 1)).collect())
        }
        DataValue::Object(pairs) if depth < MAX_DEPTH * 2 => {
            let pairs = pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), to_json(v, depth + 1)));
            Json::Object(pairs.collect())
        }
        _ => Json::Null,
    }
}

/// A number as JSON: whole ones within 53 bits as integers, others as floats, no number as null.
pub(crate) fn number(n: f64) -> Json {
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 53 bits")]
    if n.fract() == 0.0 && n.abs() < WHOLE {
        Json::from(n as i64)
    } else {
        serde_json::Number::from_f64(n).map_or(Json::Null, Json::Number)
    }
}
