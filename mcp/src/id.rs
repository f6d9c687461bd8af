//! JSON-RPC request ids as keys.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::json::Json;

/// Of ids longer than this many bytes of JSON text a digest is kept: the table of open requests must stay bounded.
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
    /// What stands for an id longer than [`MAX_ID`].
    Long(Arc<LongId>),
    /// `null`: what an error carries whose request could not be read; forbidden for requests in MCP.
    Null,
}

/// Digest of a long id. Two that are equal are the same id, as far as SHA-256 can tell.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LongId {
    is_text: bool,
    /// Bytes of the decoded string, or of the number as it was written.
    len: usize,
    digest: [u8; 32],
}

/// Why a value is no id.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadId {
    /// A boolean, an array or an object.
    #[error("the id is neither a number nor a string")]
    Type,
}

impl RequestId {
    /// Reads an id from its JSON value.
    pub fn from_json(value: &Json<'_>) -> Result<Self, BadId> {
        let text = value.get();
        if let Some(decoded) = value.as_str() {
            return Ok(if text.len() > MAX_ID {
                Self::long(&decoded, true)
            } else {
                Self::Text(Arc::from(decoded.as_ref()))
            });
        }
        if text == "null" {
            return Ok(Self::Null);
        }
        if !text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
            return Err(BadId::Type);
        }
        if text.len() > MAX_ID {
            return Ok(Self::long(text, false));
        }
        if let Ok(n) = text.parse() {
            return Ok(Self::Int(n));
        }
        Ok(integral(text).map_or_else(|| Self::Number(Arc::from(text)), Self::Int))
    }
}

impl RequestId {
    /// The id that a client may take for the same although its type is another: SDKs turn the text of an answer's id
    /// into a number (JavaScript's `Number`, Python's `int`) before they look for its request.
    pub(crate) fn alike(&self) -> Option<Self> {
        match self {
            Self::Int(n) => Some(Self::Text(Arc::from(n.to_string()))),
            Self::Text(text) => {
                let plain: String = text.trim().chars().filter(|c| *c != '_').collect();
                let radix = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2)]
                    .into_iter()
                    .find_map(|(head, radix)| i64::from_str_radix(plain.strip_prefix(head)?, radix).ok());
                let number = radix.or_else(|| plain.parse().ok()).or_else(|| integral(&plain));
                // JavaScript reads nothing as zero.
                number.or_else(|| plain.is_empty().then_some(0)).map(Self::Int)
            }
            _ => None,
        }
    }

    fn long(text: &str, is_text: bool) -> Self {
        Self::Long(Arc::new(LongId {
            is_text,
            len: text.len(),
            digest: Sha256::digest(text).into(),
        }))
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
            Self::Long(long) => {
                let start = u64::from_be_bytes(long.digest.first_chunk().copied().unwrap_or_default());
                write!(f, "{} bytes, sha256:{start:016x}", long.len)
            }
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
    fn long_ids_are_told_apart_and_kept_short() {
        let long = "x".repeat(2000);
        let one = id(&format!("\"{long}\"")).unwrap();
        assert_eq!(id(&format!("\"\\u0078{}\"", "x".repeat(1999))).unwrap(), one);
        assert_ne!(id(&format!("\"{long}y\"")).unwrap(), one);
        assert!(one.to_string().starts_with("2000 bytes, sha256:"));
        let digits = "1".repeat(2000);
        let number = id(&digits).unwrap();
        assert_eq!(id(&digits).unwrap(), number);
        assert_ne!(id(&format!("\"{digits}\"")).unwrap(), number);
        assert_ne!(id(&format!("{digits}0")).unwrap(), number);
    }

    #[test]
    fn values_that_are_no_id_are_named() {
        assert_eq!(id("true"), Err(BadId::Type));
        assert_eq!(id("[1]"), Err(BadId::Type));
        assert_eq!(id("null"), Ok(RequestId::Null));
    }
}
