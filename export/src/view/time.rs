//! Wall-clock time on the wire.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A point in time, nanoseconds since 1970-01-01 UTC; on the wire RFC 3339 in UTC with nine decimals
/// (`2026-11-30T04:00:00.000000000Z`), so that lines sort as text.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(i64);

/// A text that is no RFC 3339 time, or lies outside 1678 to 2262.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is no RFC 3339 time")]
pub struct BadTime {
    /// What was given.
    pub text: String,
}

impl Time {
    /// From nanoseconds since the epoch, as `CLOCK_REALTIME` gives them.
    pub const fn from_unix_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn unix_nanos(self) -> i64 {
        self.0
    }

    /// The current time of the system clock.
    pub fn now() -> Self {
        Self(i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX))
    }

    /// Reads an RFC 3339 time of any offset.
    pub fn parse(text: &str) -> Result<Self, BadTime> {
        let bad = || BadTime {
            text: text.to_owned(),
        };
        let stamp: Timestamp = text.parse().map_err(|_ignored: jiff::Error| bad())?;
        i64::try_from(stamp.as_nanosecond())
            .map(Self)
            .map_err(|_out_of_range| bad())
    }

    fn stamp(self) -> Timestamp {
        // Every i64 of nanoseconds lies within jiff's years -9999 to 9999.
        Timestamp::from_nanosecond(i128::from(self.0)).unwrap_or_default()
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9}", self.stamp())
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prints_nine_decimals() {
        assert_eq!(
            Time::from_unix_nanos(1_796_011_200_000_000_001).to_string(),
            "2026-11-30T04:00:00.000000001Z"
        );
    }

    #[test]
    fn reads_offsets_and_refuses_nonsense() {
        assert_eq!(
            Time::parse("2026-11-30T05:00:00+01:00").unwrap().to_string(),
            "2026-11-30T04:00:00.000000000Z"
        );
        assert!(Time::parse("yesterday").is_err());
        assert!(Time::parse("9999-01-01T00:00:00Z").is_err());
    }

    proptest! {
        #[test]
        fn text_and_back(nanos: i64) {
            let time = Time::from_unix_nanos(nanos);
            prop_assert_eq!(Time::parse(&time.to_string()).unwrap(), time);
        }
    }
}
