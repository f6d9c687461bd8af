//! Sizes and durations as people write them.

use std::time::Duration;

/// Bytes: digits with an optional `KiB`, `MiB` or `GiB`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// A duration: digits with `s`, `m`, `h` or `d`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(factor).map(Duration::from_secs)
}

/// The shortest spelling that [`bytes`] reads back.
pub(super) fn show_bytes(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// The shortest spelling that [`duration`] reads back; parts of seconds are dropped.
pub(super) fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    for (unit, size) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
        if seconds > 0 && seconds.is_multiple_of(size) {
            return format!("{}{unit}", seconds / size);
        }
    }
    format!("{seconds}s")
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// How many single-character edits (swaps of neighbours included) turn `a` into `b`.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(x != y))
                .min(rows[i][j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("64MiB"), Some(64 << 20));
        assert_eq!(bytes("1 GiB"), Some(1 << 30));
        assert_eq!(bytes("512"), Some(512));
        assert_eq!(bytes("64MB"), None);
        assert_eq!(bytes("99999999999GiB"), None);
        assert_eq!(bytes("-1"), None);
        for size in [1, 1 << 10, 1536, 64 << 20, 3 << 30] {
            assert_eq!(bytes(&show_bytes(size)), Some(size));
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("30d"), Some(Duration::from_hours(720)));
        assert_eq!(duration("90"), None);
        assert_eq!(duration("1.5h"), None);
        for seconds in [0, 59, 60, 3_600, 86_400, 90_000] {
            let duration_ = Duration::from_secs(seconds);
            assert_eq!(duration(&show_duration(duration_)), Some(duration_));
        }
    }

    #[test]
    fn distances() {
        assert_eq!(distance("queue", "queue"), 0);
        assert_eq!(distance("queeu", "queue"), 1);
        assert_eq!(distance("ringbuffer", "ring_buffer"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
