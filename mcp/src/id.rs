//! JSON-RPC request ids as keys.

use std::fmt;
use std::sync::Arc;

use crate::json::Json;

/// Ids longer than this many bytes of JSON text are not tracked: the table of open requests must stay bounded.
pub const MAX_ID: usize = 1024;

/// An id that can be compared and kept. A number and a string never match, as in JSON-RPC 2.0.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RequestId {
    /// An integer; also one that was written as `1.0` or `1e0`.
    Int(i64),
    /// Any other number, as it was written.
    Number(Arc<str>),
    /// A string, decoded.
    Text(Arc<str>),
    /// `null`: what an error carries whose request could not be read; forbidden for requests in MCP.
    Null,
}

/// Why a value is no id.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadId {
    /// A boolean, an array or an object.
    #[error("the id is neither a number nor a string")]
    Type,
    /// Longer than [`MAX_ID`].
    #[error("the id is longer than {MAX_ID} bytes")]
    Long,
}

impl RequestId {
    /// Reads an id from its JSON value.
    pub fn from_json(value: &Json<'_>) -> Result<Self, BadId> {
        let text = value.get();
        if text.len() > MAX_ID {
            return Err(BadId::Long);
        }
        if let Some(text) = value.as_str() {
            return Ok(Self::Text(Arc::from(text.as_ref())));
        }
        if text == "null" {
            return Ok(Self::Null);
        }
        if !text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
            return Err(BadId::Type);
        }
        if let Ok(n) = text.parse() {
            return Ok(Self::Int(n));
        }
        Ok(integral(text).map_or_else(|| Self::Number(Arc::from(text)), Self::Int))
    }
}

/// The integer that a float literal stands for, where a double holds it exactly.
fn integral(text: &str) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value: f64 = text.parse().ok()?;
    if value.fract() != 0.0 || value.abs() > EXACT {
        return None;
    }
    format!("{value:.0}").parse().ok()
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Number(text) | Self::Text(text) => f.write_str(text),
            Self::Null => f.write_str("null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Result<RequestId, BadId> {
        RequestId::from_json(&Json::parse(text).unwrap())
    }

    #[test]
    fn equal_ids_compare_equal_and_others_do_not() {
        assert_eq!(id("1"), Ok(RequestId::Int(1)));
        assert_eq!(id("1.0"), id("1"));
        assert_eq!(id("1e0"), id("1"));
        assert_eq!(id("-5"), Ok(RequestId::Int(-5)));
        assert_ne!(id("\"1\""), id("1"));
        assert_eq!(id("\"a\\u002d1\""), id("\"a-1\""));
        assert_ne!(id("1.5"), id("1"));
        // Past 2^53 a double cannot tell neighbours apart; the text can.
        assert_ne!(id("9007199254740993"), id("9007199254740992"));
        assert_ne!(
            id("123456789012345678901234567890"),
            id("123456789012345678901234567891")
        );
    }

    #[test]
    fn values_that_are_no_id_are_named() {
        assert_eq!(id("true"), Err(BadId::Type));
        assert_eq!(id("[1]"), Err(BadId::Type));
        assert_eq!(id(&format!("\"{}\"", "x".repeat(2000))), Err(BadId::Long));
        assert_eq!(id("null"), Ok(RequestId::Null));
    }
}
