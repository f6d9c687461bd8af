//! Durations as people write them: `90s`, `15m`, `1h30m`, `7d`.

/// Longest duration: ten years, in milliseconds.
pub(crate) const MAX_MS: u64 = 10 * 365 * 24 * 3_600_000;

/// Milliseconds of a duration text; none when it is no duration, is zero or exceeds ten years.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit: u64 = match rest.get(..letters)?.trim() {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = rest.get(letters..)?;
    }
    (1..=MAX_MS).contains(&total).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, ms) in [
            ("15m", 900_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        assert_eq!(parse(" 5 s"), Some(5000));
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in [
            "",
            "15",
            "m",
            "0s",
            "-5m",
            "1.5h",
            "5 fortnights",
            "99999999999999999999s",
            "11000000d",
            "é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
