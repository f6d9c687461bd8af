//! OTLP in protobuf, read into the shape that it has in JSON (opentelemetry-proto 1.x, field numbers of its messages).
//!
//! A reader of our own, because a generated one has no bound: eight megabytes of empty two-byte records become more than
//! a gigabyte of structs. This one reads the fields that are of use, checks the form of the others and passes over them,
//! and stops at [`MAX_VALUES`] values. The tests hold it against bytes that generated code wrote.

use serde_json::{Map, Value};

use super::{MAX_ATTRIBUTES, MAX_DEPTH, MAX_VALUES, Malformed, OBJECT, Signal};

/// A message's fields that are read.
struct Message(&'static [Field]);

struct Field {
    number: u32,
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// One message.
    One(&'static Message),
    /// A list of them.
    Many(&'static Message),
    /// A list of pairs, which becomes one object.
    Attributes,
    Text,
    /// Bytes that are hexadecimal in JSON.
    Hex,
    /// Nanoseconds in eight bytes.
    Time,
}

const fn field(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind }
}

static RESOURCE: Message = Message(&[field(1, "attributes", Kind::Attributes)]);
static LOG: Message = Message(&[
    field(1, "timeUnixNano", Kind::Time),
    field(6, "attributes", Kind::Attributes),
    field(11, "observedTimeUnixNano", Kind::Time),
    field(12, "eventName", Kind::Text),
]);
static SPAN: Message = Message(&[
    field(1, "traceId", Kind::Hex),
    field(4, "parentSpanId", Kind::Hex),
    field(5, "name", Kind::Text),
    field(7, "startTimeUnixNano", Kind::Time),
    field(9, "attributes", Kind::Attributes),
]);
static METRIC: Message = Message(&[field(1, "name", Kind::Text)]);
static SCOPE_LOGS: Message = Message(&[field(2, "logRecords", Kind::Many(&LOG))]);
static SCOPE_SPANS: Message = Message(&[field(2, "spans", Kind::Many(&SPAN))]);
static SCOPE_METRICS: Message = Message(&[field(2, "metrics", Kind::Many(&METRIC))]);
static RESOURCE_LOGS: Message = Message(&[
    field(1, "resource", Kind::One(&RESOURCE)),
    field(2, "scopeLogs", Kind::Many(&SCOPE_LOGS)),
]);
static RESOURCE_SPANS: Message = Message(&[
    field(1, "resource", Kind::One(&RESOURCE)),
    field(2, "scopeSpans", Kind::Many(&SCOPE_SPANS)),
]);
static RESOURCE_METRICS: Message = Message(&[
    field(1, "resource", Kind::One(&RESOURCE)),
    field(2, "scopeMetrics", Kind::Many(&SCOPE_METRICS)),
]);
static LOGS: Message = Message(&[field(1, "resourceLogs", Kind::Many(&RESOURCE_LOGS))]);
static TRACES: Message = Message(&[field(1, "resourceSpans", Kind::Many(&RESOURCE_SPANS))]);
static METRICS: Message = Message(&[field(1, "resourceMetrics", Kind::Many(&RESOURCE_METRICS))]);

pub(super) fn read(signal: Signal, body: &[u8]) -> Result<Value, Malformed> {
    let message = match signal {
        Signal::Logs => &LOGS,
        Signal::Traces => &TRACES,
        Signal::Metrics => &METRICS,
    };
    let mut left = MAX_VALUES;
    read_message(message, body, MAX_DEPTH, &mut left)
}

fn read_message(
    message: &Message,
    mut bytes: &[u8],
    depth: usize,
    left: &mut usize,
) -> Result<Value, Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::TooMuch)?;
    let mut map = Map::new();
    while !bytes.is_empty() {
        let (number, raw) = next(&mut bytes)?;
        let Some(field) = message.0.iter().find(|field| field.number == number) else {
            continue;
        };
        spend(left, if map.is_empty() { 1 + OBJECT } else { 1 })?;
        let value = match (&field.kind, raw) {
            (Kind::Attributes, Raw::Bytes(bytes)) => {
                let pair = read_pair(bytes, depth, left)?;
                let attributes = map
                    .entry(field.name)
                    .or_insert_with(|| Value::Object(Map::new()))
                    .as_object_mut();
                if let (Some(attributes), Some((name, value))) = (attributes, pair) {
                    if attributes.is_empty() {
                        spend(left, OBJECT)?;
                    }
                    if attributes.len() < MAX_ATTRIBUTES {
                        attributes.insert(name, value);
                    }
                }
                continue;
            }
            (Kind::One(inner) | Kind::Many(inner), Raw::Bytes(bytes)) => {
                read_message(inner, bytes, depth, left)?
            }
            (Kind::Text, Raw::Bytes(bytes)) => Value::from(utf8(bytes)?),
            (Kind::Hex, Raw::Bytes(bytes)) => Value::from(hex::encode(bytes)),
            (Kind::Time, Raw::Eight(nanos)) => Value::from(nanos),
            _ => return Err(Malformed::Protobuf),
        };
        if let Kind::Many(_) = field.kind {
            let list = map
                .entry(field.name)
                .or_insert_with(|| Value::Array(Vec::new()))
                .as_array_mut();
            if let Some(list) = list {
                list.push(value);
            }
        } else {
            map.insert(field.name.to_owned(), value);
        }
    }
    Ok(Value::Object(map))
}

fn spend(left: &mut usize, values: usize) -> Result<(), Malformed> {
    *left = left.checked_sub(values).ok_or(Malformed::TooMuch)?;
    Ok(())
}

/// The next field's number and content.
fn next<'b>(bytes: &mut &'b [u8]) -> Result<(u32, Raw<'b>), Malformed> {
    let tag = varint(bytes)?;
    let number = u32::try_from(tag >> 3).map_err(|_why| Malformed::Protobuf)?;
    let raw = Raw::take(tag & 7, bytes)?;
    if number == 0 {
        return Err(Malformed::Protobuf);
    }
    Ok((number, raw))
}

/// A name with its value; nothing where the value is of a kind that nobody here reads.
fn read_pair(mut bytes: &[u8], depth: usize, left: &mut usize) -> Result<Option<(String, Value)>, Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::TooMuch)?;
    // A name that is not written is the empty one.
    let (mut name, mut value) = ("", None);
    while !bytes.is_empty() {
        match next(&mut bytes)? {
            (1, Raw::Bytes(text)) => name = utf8(text)?,
            (2, Raw::Bytes(typed)) => value = read_typed(typed, depth, left)?.or(value),
            (1 | 2, _) => return Err(Malformed::Protobuf),
            _ => {}
        }
    }
    Ok(value.map(|value| (name.to_owned(), value)))
}

/// A typed value as a plain one. Of several kinds the last counts, as it does in generated code.
fn read_typed(mut bytes: &[u8], depth: usize, left: &mut usize) -> Result<Option<Value>, Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed::TooMuch)?;
    spend(left, 1)?;
    let mut value = None;
    while !bytes.is_empty() {
        value = match next(&mut bytes)? {
            (1, Raw::Bytes(text)) => Some(Value::from(utf8(text)?)),
            (3, Raw::Varint(whole)) => Some(Value::from(whole.cast_signed())),
            (4, Raw::Eight(bits)) => Some(Value::from(f64::from_bits(bits))),
            (5, Raw::Bytes(list)) => {
                let depth = depth.checked_sub(1).ok_or(Malformed::TooMuch)?;
                let mut items = Vec::new();
                let mut rest = list;
                while !rest.is_empty() {
                    match next(&mut rest)? {
                        (1, Raw::Bytes(item)) => items.extend(read_typed(item, depth, left)?),
                        (1, _) => return Err(Malformed::Protobuf),
                        _ => {}
                    }
                }
                Some(Value::Array(items))
            }
            (1 | 3 | 4 | 5, _) => return Err(Malformed::Protobuf),
            // Truth values, bytes and maps.
            (2 | 6 | 7, _) => None,
            _ => value,
        };
    }
    Ok(value)
}

fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_why| Malformed::Protobuf)
}

/// A field's content before its kind is known.
enum Raw<'b> {
    Varint(u64),
    Eight(u64),
    Bytes(&'b [u8]),
    Four,
}

impl<'b> Raw<'b> {
    fn take(wire_type: u64, bytes: &mut &'b [u8]) -> Result<Self, Malformed> {
        Ok(match wire_type {
            0 => Self::Varint(varint(bytes)?),
            1 => {
                let (eight, rest) = bytes.split_first_chunk().ok_or(Malformed::Protobuf)?;
                *bytes = rest;
                Self::Eight(u64::from_le_bytes(*eight))
            }
            2 => {
                let length = usize::try_from(varint(bytes)?).map_err(|_why| Malformed::Protobuf)?;
                let (inner, rest) = bytes.split_at_checked(length).ok_or(Malformed::Protobuf)?;
                *bytes = rest;
                Self::Bytes(inner)
            }
            5 => {
                let (_, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed::Protobuf)?;
                *bytes = rest;
                Self::Four
            }
            // Groups are in no message of OTLP.
            _ => return Err(Malformed::Protobuf),
        })
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Malformed::Protobuf)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed::Protobuf)
}
