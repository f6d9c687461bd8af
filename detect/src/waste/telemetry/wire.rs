//! OTLP in protobuf, read into the shape that it has in JSON (opentelemetry-proto 1.x, field numbers of its messages).
//!
//! A reader of our own, because a generated one has no bound: eight megabytes of empty two-byte records become more than
//! a gigabyte of structs. This one reads the fields that are of use, checks the form of the others and passes over them,
//! and stops at [`MAX_VALUES`] values. The tests hold it against bytes that generated code wrote.

use serde_json::{Map, Value};

use super::{MAX_DEPTH, MAX_VALUES, Malformed, Signal};

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
    Text,
    /// Bytes that are hexadecimal in JSON.
    Hex,
    Int,
    Double,
    /// Nanoseconds in eight bytes.
    Time,
}

const fn field(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind }
}

static ANY: Message = Message(&[
    field(1, "stringValue", Kind::Text),
    field(3, "intValue", Kind::Int),
    field(4, "doubleValue", Kind::Double),
    field(5, "arrayValue", Kind::One(&ARRAY)),
]);
static ARRAY: Message = Message(&[field(1, "values", Kind::Many(&ANY))]);
static PAIR: Message = Message(&[field(1, "key", Kind::Text), field(2, "value", Kind::One(&ANY))]);
static RESOURCE: Message = Message(&[field(1, "attributes", Kind::Many(&PAIR))]);
static LOG: Message = Message(&[
    field(1, "timeUnixNano", Kind::Time),
    field(6, "attributes", Kind::Many(&PAIR)),
    field(11, "observedTimeUnixNano", Kind::Time),
    field(12, "eventName", Kind::Text),
]);
static SPAN: Message = Message(&[
    field(1, "traceId", Kind::Hex),
    field(4, "parentSpanId", Kind::Hex),
    field(5, "name", Kind::Text),
    field(7, "startTimeUnixNano", Kind::Time),
    field(9, "attributes", Kind::Many(&PAIR)),
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
        let tag = varint(&mut bytes)?;
        let number = u32::try_from(tag >> 3).map_err(|_why| Malformed::Protobuf)?;
        let raw = Raw::take(tag & 7, &mut bytes)?;
        if number == 0 {
            return Err(Malformed::Protobuf);
        }
        let Some(field) = message.0.iter().find(|field| field.number == number) else {
            continue;
        };
        *left = left.checked_sub(1).ok_or(Malformed::TooMuch)?;
        let value = match (&field.kind, raw) {
            (Kind::One(inner) | Kind::Many(inner), Raw::Bytes(bytes)) => {
                read_message(inner, bytes, depth, left)?
            }
            (Kind::Text, Raw::Bytes(bytes)) => {
                Value::from(std::str::from_utf8(bytes).map_err(|_why| Malformed::Protobuf)?)
            }
            (Kind::Hex, Raw::Bytes(bytes)) => Value::from(hex::encode(bytes)),
            (Kind::Int, Raw::Varint(value)) => Value::from(value.cast_signed()),
            (Kind::Double, Raw::Eight(bits)) => Value::from(f64::from_bits(bits)),
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
