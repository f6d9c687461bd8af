//! Where datalogic-rs and the JSON-logic standard differ, and the operators that take their place.
//!
//! | what | datalogic-rs 5.4 | the standard, and here |
//! | --- | --- | --- |
//! | `==`, `!=`, `<`, `<=`, `>`, `>=` on unlike types | an error | coerced as JavaScript does; no number compares false |
//! | `in` | equality by value on texts and lists | the same, and false (no error) for anything else |
//! | `cat` of 1.0, null, lists | `1.0`, ``, joined without commas | `1`, ``, joined with commas |
//! | `min`, `max` of numeric texts | an error | numbers; null (which JSON writes for NaN) when one is no number |
//! | `merge` of null | dropped | kept |
//! | `missing`, `missing_some` of an empty text or null | present | missing |
//! | `{}` as a truth value | false | true; only an empty list is false |
//! | an object with no or several keys | refused | a literal |
//! | `log` | unknown | its argument |
//! | `val`, `now` and other additions | operators | unknown |
//!
//! Kept from the library, and said in docs/policy.md: a missing value counts as 0 in `+` and `*` (the reference
//! has NaN, which no comparison ever satisfies), and arithmetic on a text or by a zero divisor is an evaluation
//! error instead of NaN or Infinity, which JSON cannot write.

use datalogic_rs::bumpalo::Bump;
use datalogic_rs::datavalue::OwnedDataValue;
use datalogic_rs::operator::EvalContext;
use datalogic_rs::{ArenaExt, CustomOperator, DataValue, EngineBuilder};
use serde_json::Value as Json;

use super::LogicError;

/// Operators of the standard, with the fewest and most arguments that make sense.
pub(crate) const OPERATORS: &[(&str, usize, usize)] = &[
    ("var", 0, 2),
    ("missing", 1, usize::MAX),
    ("missing_some", 2, 2),
    ("if", 1, usize::MAX),
    ("?:", 3, 3),
    ("==", 2, 2),
    ("===", 2, 2),
    ("!=", 2, 2),
    ("!==", 2, 2),
    ("!", 1, 1),
    ("!!", 1, 1),
    ("or", 1, usize::MAX),
    ("and", 1, usize::MAX),
    (">", 2, 2),
    (">=", 2, 2),
    ("<", 2, 3),
    ("<=", 2, 3),
    ("max", 1, usize::MAX),
    ("min", 1, usize::MAX),
    ("+", 1, usize::MAX),
    ("-", 1, 2),
    ("*", 1, usize::MAX),
    ("/", 2, 2),
    ("%", 2, 2),
    ("map", 2, 2),
    ("reduce", 3, 3),
    ("filter", 2, 2),
    ("all", 2, 2),
    ("none", 2, 2),
    ("some", 2, 2),
    ("merge", 0, usize::MAX),
    ("in", 2, 2),
    ("cat", 0, usize::MAX),
    ("substr", 2, 3),
    ("log", 1, 1),
];

/// Operators whose second argument is evaluated once per element, over the element.
pub(crate) const ITERATORS: &[&str] = &["map", "reduce", "filter", "all", "none", "some"];

/// Operators that are replaced, and their name inside the engine.
const REPLACED: &[(&str, &str, Op)] = &[
    ("==", "js:==", |args, arena| {
        arena.bool(args.len() > 1 && loose_equal(args[0], args[1]))
    }),
    ("!=", "js:!=", |args, arena| {
        arena.bool(!(args.len() > 1 && loose_equal(args[0], args[1])))
    }),
    ("<", "js:<", |args, arena| {
        arena.bool(chain(args, |a, b| less(a, b) == Some(true)))
    }),
    ("<=", "js:<=", |args, arena| {
        arena.bool(chain(args, |a, b| less(b, a) == Some(false)))
    }),
    (">", "js:>", |args, arena| {
        arena.bool(first_two(args, |a, b| less(b, a) == Some(true)))
    }),
    (">=", "js:>=", |args, arena| {
        arena.bool(first_two(args, |a, b| less(a, b) == Some(false)))
    }),
    ("in", "js:in", |args, arena| {
        arena.bool(first_two(args, contained))
    }),
    ("cat", "js:cat", |args, arena| {
        let text: String = args
            .iter()
            .map(|arg| {
                if matches!(arg, DataValue::Null) {
                    String::new()
                } else {
                    text(arg)
                }
            })
            .collect();
        arena.string(&text)
    }),
    ("min", "js:min", |args, arena| extreme(args, arena, |a, b| a < b)),
    ("max", "js:max", |args, arena| extreme(args, arena, |a, b| a > b)),
    ("merge", "js:merge", |args, arena| {
        let mut all = Vec::new();
        for arg in args {
            match arg {
                DataValue::Array(items) => all.extend_from_slice(items),
                one => all.push(**one),
            }
        }
        arena.array(&all)
    }),
    ("log", "js:log", |args, arena| {
        args.first().copied().unwrap_or_else(|| arena.null())
    }),
];

/// The operator behind a literal object: its argument is the object as a JSON text.
const LITERAL: &str = "js:literal";
/// `missing` and `missing_some` at the top level of a rule, where the data is the root.
const MISSING: &str = "js:missing";
const MISSING_SOME: &str = "js:missing_some";

type Op = for<'a> fn(&[&'a DataValue<'a>], &'a Bump) -> &'a DataValue<'a>;

struct Replacement(Op);

impl CustomOperator for Replacement {
    fn evaluate<'a>(
        &self,
        args: &[&'a DataValue<'a>],
        _ctx: &mut EvalContext<'_, 'a>,
        arena: &'a Bump,
    ) -> datalogic_rs::Result<&'a DataValue<'a>> {
        Ok((self.0)(args, arena))
    }
}

struct Literal;

impl CustomOperator for Literal {
    fn evaluate<'a>(
        &self,
        args: &[&'a DataValue<'a>],
        _ctx: &mut EvalContext<'_, 'a>,
        arena: &'a Bump,
    ) -> datalogic_rs::Result<&'a DataValue<'a>> {
        let json = args.first().and_then(|a| a.as_str()).unwrap_or("null");
        let value = DataValue::from_str(json, arena)
            .map_err(|error| datalogic_rs::Error::parse_error(error.to_string()))?;
        Ok(arena.alloc(value))
    }
}

/// `missing`, and `missing_some` when `some` is set.
struct Missing {
    some: bool,
}

impl CustomOperator for Missing {
    fn evaluate<'a>(
        &self,
        args: &[&'a DataValue<'a>],
        ctx: &mut EvalContext<'_, 'a>,
        arena: &'a Bump,
    ) -> datalogic_rs::Result<&'a DataValue<'a>> {
        let root = ctx.root_input();
        let (need, args) = match args {
            [need, rest @ ..] if self.some => (Some(to_number(need)), rest),
            all => (None, all),
        };
        let keys: Vec<&DataValue<'a>> = match args {
            [DataValue::Array(keys), ..] => keys.iter().collect(),
            keys => keys.to_vec(),
        };
        let gone: Vec<DataValue<'a>> = keys
            .iter()
            .filter(|key| {
                matches!(
                    lookup(root, &text(key)),
                    None | Some(DataValue::Null | DataValue::String(""))
                )
            })
            .map(|key| **key)
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a rule has far fewer keys than 2^53")]
        let present = (keys.len() - gone.len()) as f64;
        let enough = need.is_some_and(|need| present >= need);
        Ok(arena.array(if enough { &[] } else { &gone }))
    }
}

/// Adds the replacements to an engine.
pub(crate) fn register(mut builder: EngineBuilder) -> EngineBuilder {
    for (_, name, op) in REPLACED {
        builder = builder.add_operator(*name, Replacement(*op));
    }
    builder
        .add_operator(LITERAL, Literal)
        .add_operator(MISSING, Missing { some: false })
        .add_operator(MISSING_SOME, Missing { some: true })
}

/// A rule with the replaced operators under their inner names. `inside` is true within the body of an iterator.
pub(crate) fn rewrite(rule: &Json, inside: bool) -> Result<Json, LogicError> {
    let map = match rule {
        Json::Array(items) => {
            return items
                .iter()
                .map(|item| rewrite(item, inside))
                .collect::<Result<_, _>>()
                .map(Json::Array);
        }
        Json::Object(map) => map,
        other => return Ok(other.clone()),
    };
    let mut entries = map.iter();
    let (Some((name, args)), None) = (entries.next(), entries.next()) else {
        // The argument stays a list of one, or the library would take a text for a path.
        return Ok(serde_json::json!({ LITERAL: [rule.to_string()] }));
    };
    if !OPERATORS.iter().any(|(known, ..)| known == name) {
        return Err(LogicError::UnknownOperator(name.clone()));
    }
    let args = match args {
        Json::Array(items) => {
            let iterator = ITERATORS.contains(&name.as_str());
            let items = items
                .iter()
                .enumerate()
                .map(|(i, item)| rewrite(item, inside || (iterator && i == 1)));
            Json::Array(items.collect::<Result<_, _>>()?)
        }
        // Unary sugar becomes a list, but `merge` and `missing` tell a list from a value.
        one => Json::Array(vec![rewrite(one, inside)?]),
    };
    let name = match REPLACED.iter().find(|(outer, ..)| outer == name) {
        Some((_, inner, _)) => inner,
        None if name == "missing" && !inside => MISSING,
        None if name == "missing_some" && !inside => MISSING_SOME,
        None => name.as_str(),
    };
    Ok(Json::Object([(name.to_owned(), args)].into_iter().collect()))
}

/// Why a `reduce` with these arguments could grow without bound; none when it cannot.
pub(crate) fn growth(args: &Json) -> Option<&'static str> {
    let body = args.as_array()?.get(1)?;
    let mut open = vec![body];
    while let Some(value) = open.pop() {
        match value {
            Json::Array(items) => {
                if accumulators(value) > 1 && !scalar_list(value) {
                    return Some("a `reduce` that lists its accumulator twice could grow without bound");
                }
                open.extend(items);
            }
            Json::Object(map) => {
                for (name, args) in map {
                    if ITERATORS.contains(&name.as_str()) {
                        return Some("a loop inside a `reduce` could grow without bound");
                    }
                    if ["cat", "merge"].contains(&name.as_str()) && accumulators(args) > 1 {
                        return Some(
                            "a `reduce` that joins its accumulator to itself could grow without bound",
                        );
                    }
                    // The list of an operator's arguments is no list value.
                    match args {
                        Json::Array(items) => open.extend(items),
                        one => open.push(one),
                    }
                }
            }
            _ => {}
        }
    }
    None
}

fn scalar_list(value: &Json) -> bool {
    value
        .as_array()
        .is_some_and(|items| items.iter().all(|item| !item.is_object() && !item.is_array()))
}

/// How often the accumulator is read in a subtree.
fn accumulators(value: &Json) -> usize {
    let mut count = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Json::Array(items) => open.extend(items),
            Json::Object(map) => {
                if let Some(path) = map.get("var") {
                    let first = path.as_array().map_or(Some(path), |list| list.first());
                    // A path that is computed, or the whole scope, may be the accumulator.
                    let harmless = first
                        .and_then(Json::as_str)
                        .is_some_and(|path| !path.is_empty() && !path.starts_with("accumulator"));
                    count += usize::from(!harmless);
                }
                open.extend(map.values());
            }
            _ => {}
        }
    }
    count
}

/// Truth of a value by the standard: all but false, null, 0, NaN, an empty text and an empty list.
pub(crate) fn truthy(value: &OwnedDataValue) -> bool {
    match value {
        OwnedDataValue::Null => false,
        OwnedDataValue::Bool(b) => *b,
        OwnedDataValue::Number(n) => !n.is_zero() && !n.is_nan(),
        OwnedDataValue::String(s) => !s.is_empty(),
        OwnedDataValue::Array(items) => !items.is_empty(),
        OwnedDataValue::Object(_) => true,
    }
}

fn lookup<'a>(root: &'a DataValue<'a>, path: &str) -> Option<&'a DataValue<'a>> {
    if path.is_empty() {
        return Some(root);
    }
    path.split('.').try_fold(root, |value, segment| match value {
        DataValue::Object(pairs) => pairs
            .iter()
            .find(|(key, _)| *key == segment)
            .map(|(_, value)| value),
        DataValue::Array(items) => items.get(segment.parse::<usize>().ok()?),
        _ => None,
    })
}

fn first_two<'a>(args: &[&'a DataValue<'a>], test: impl Fn(&DataValue<'_>, &DataValue<'_>) -> bool) -> bool {
    matches!(args, [a, b, ..] if test(a, b))
}

/// `a < b` and, with three arguments, `b < c`.
fn chain<'a>(args: &[&'a DataValue<'a>], test: impl Fn(&DataValue<'_>, &DataValue<'_>) -> bool) -> bool {
    match args {
        [a, b] => test(a, b),
        [a, b, c, ..] => test(a, b) && test(b, c),
        _ => false,
    }
}

/// JavaScript's `<`; none when a side is no number.
fn less(a: &DataValue<'_>, b: &DataValue<'_>) -> Option<bool> {
    let texts = |v: &DataValue<'_>| {
        matches!(
            v,
            DataValue::String(_) | DataValue::Array(_) | DataValue::Object(_)
        )
    };
    if texts(a) && texts(b) {
        return Some(text(a).encode_utf16().lt(text(b).encode_utf16()));
    }
    to_number(a)
        .partial_cmp(&to_number(b))
        .map(std::cmp::Ordering::is_lt)
}

/// JavaScript's `==`, but lists and objects are equal when their contents are.
fn loose_equal(a: &DataValue<'_>, b: &DataValue<'_>) -> bool {
    use DataValue::{Array, Bool, Null, Number, Object, String};
    match (a, b) {
        (Null, Null) => true,
        (Null, _) | (_, Null) => false,
        (Array(_) | Object(_), Array(_) | Object(_)) => strict_equal(a, b, 0),
        (String(a), String(b)) => a == b,
        (Array(_) | Object(_), String(s)) => text(a) == *s,
        (String(s), Array(_) | Object(_)) => text(b) == *s,
        (Bool(_) | Number(_) | String(_) | Array(_) | Object(_), _) => {
            to_number(a).partial_cmp(&to_number(b)) == Some(std::cmp::Ordering::Equal)
        }
    }
}

/// Equality without coercion, by contents.
fn strict_equal(a: &DataValue<'_>, b: &DataValue<'_>, depth: usize) -> bool {
    use DataValue::{Array, Bool, Null, Number, Object, String};
    if depth > super::MAX_DEPTH {
        return false;
    }
    match (a, b) {
        (Null, Null) => true,
        (Bool(a), Bool(b)) => a == b,
        (Number(a), Number(b)) => a.as_f64().partial_cmp(&b.as_f64()) == Some(std::cmp::Ordering::Equal),
        (String(a), String(b)) => a == b,
        (Array(a), Array(b)) => {
            a.len() == b.len() && a.iter().zip(*b).all(|(a, b)| strict_equal(a, b, depth + 1))
        }
        (Object(a), Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| {
                    b.iter()
                        .any(|(k, v)| k == key && strict_equal(value, v, depth + 1))
                })
        }
        _ => false,
    }
}

/// A text within a text, or a value within a list (without coercion).
fn contained(needle: &DataValue<'_>, hay: &DataValue<'_>) -> bool {
    match hay {
        // The reference finds nothing in an empty text, not even an empty one.
        DataValue::String(hay) => !hay.is_empty() && hay.contains(&text(needle)),
        DataValue::Array(items) => items.iter().any(|item| strict_equal(needle, item, 0)),
        _ => false,
    }
}

/// Smallest or largest argument; NaN, which no comparison satisfies, when one is no number.
fn extreme<'a>(
    args: &[&'a DataValue<'a>],
    arena: &'a Bump,
    better: fn(f64, f64) -> bool,
) -> &'a DataValue<'a> {
    let mut best: Option<f64> = None;
    for arg in args {
        let number = to_number(arg);
        if number.is_nan() {
            return arena.f64(f64::NAN);
        }
        if best.is_none_or(|b| better(number, b)) {
            best = Some(number);
        }
    }
    match best {
        Some(n) if n.fract() == 0.0 && n.abs() < 9e15 =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within 53 bits")]
            arena.i64(n as i64)
        }
        Some(n) => arena.f64(n),
        None => arena.null(),
    }
}

/// JavaScript's `Number(value)`.
fn to_number(value: &DataValue<'_>) -> f64 {
    match value {
        DataValue::Null => 0.0,
        DataValue::Bool(b) => f64::from(u8::from(*b)),
        DataValue::Number(n) => n.as_f64(),
        DataValue::String(s) => text_number(s),
        DataValue::Array(_) | DataValue::Object(_) => text_number(&text(value)),
    }
}

fn text_number(text: &str) -> f64 {
    let text = text.trim();
    if text.is_empty() {
        return 0.0;
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        let lower = text.get(..2).map(str::to_ascii_lowercase);
        if lower.as_deref() == Some(prefix) {
            let digits = text.get(2..).unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "a number in JavaScript has 53 bits")]
            return if digits.starts_with(['+', '-']) {
                f64::NAN
            } else {
                u64::from_str_radix(digits, radix).map_or(f64::NAN, |n| n as f64)
            };
        }
    }
    match text.trim_start_matches(['+', '-']) {
        "Infinity" => {
            if text.starts_with('-') {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }
        }
        // Rust also reads `nan` and `inf`, which JavaScript does not.
        rest if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            text.parse().unwrap_or(f64::NAN)
        }
        _ => f64::NAN,
    }
}

/// JavaScript's `String(value)`.
fn text(value: &DataValue<'_>) -> String {
    text_at(value, 0)
}

fn text_at(value: &DataValue<'_>, depth: usize) -> String {
    match value {
        DataValue::Null => "null".to_owned(),
        DataValue::Bool(b) => b.to_string(),
        DataValue::Number(n) => n
            .as_i64()
            .map_or_else(|| crate::canonical::number(n.as_f64()), |i| i.to_string()),
        DataValue::String(s) => (*s).to_owned(),
        DataValue::Array(items) if depth < super::MAX_DEPTH => {
            let parts: Vec<String> = items
                .iter()
                .map(|item| match item {
                    DataValue::Null => String::new(),
                    item => text_at(item, depth + 1),
                })
                .collect();
            parts.join(",")
        }
        DataValue::Array(_) => String::new(),
        DataValue::Object(_) => "[object Object]".to_owned(),
    }
}
