//! Time as a value.

/// One instant on two clocks. Durations are measured on `mono_ms`, which does not jump; what is shown, stored
/// and compared across a restart is `wall_ms`.
///
/// Neither is read here: the caller takes both at the same moment. A monotonic value that goes backwards (a
/// replayed file, a mixed-up caller) counts as no time passed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// Milliseconds on a clock that only rises, such as `CLOCK_BOOTTIME`.
    pub mono_ms: u64,
}

impl Now {
    /// Both clocks at the same value: replays, where the record's own time is all there is.
    pub const fn at(ms: u64) -> Self {
        Self {
            wall_ms: ms,
            mono_ms: ms,
        }
    }

    /// This instant moved forward on both clocks.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self {
            wall_ms: self.wall_ms.saturating_add(ms),
            mono_ms: self.mono_ms.saturating_add(ms),
        }
    }

    /// Milliseconds since `mono_ms` was the time; none when the clock went backwards.
    pub const fn since(self, mono_ms: u64) -> u64 {
        self.mono_ms.saturating_sub(mono_ms)
    }
}

/// Milliseconds since the epoch of a date (`2027-01-31`, its end in UTC) or an RFC 3339 time.
pub(crate) fn parse_expiry(text: &str) -> Option<u64> {
    if let Ok(stamp) = text.parse::<jiff::Timestamp>() {
        return u64::try_from(stamp.as_millisecond()).ok();
    }
    let date: jiff::civil::Date = text.parse().ok()?;
    let end = date.tomorrow().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    u64::try_from(end.timestamp().as_millisecond()).ok()
}

/// RFC 3339 in UTC with milliseconds; out of range values are shown at the bound.
pub(crate) fn rfc3339(wall_ms: u64) -> String {
    let ms = i64::try_from(wall_ms).unwrap_or(i64::MAX);
    let stamp = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
    format!("{stamp:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_end_with_the_day_and_times_are_exact() {
        assert_eq!(parse_expiry("1970-01-01"), Some(86_400_000));
        assert_eq!(parse_expiry("1970-01-01T00:00:01Z"), Some(1000));
        assert_eq!(parse_expiry("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(parse_expiry("soon"), None);
        assert_eq!(parse_expiry("1969-01-01"), None);
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(rfc3339(86_400_000), "1970-01-02T00:00:00.000Z");
        assert!(rfc3339(u64::MAX).starts_with("9999-"));
    }
}
