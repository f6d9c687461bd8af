//! Numbers from `/proc/PID/status`.

/// A member's number; `radix` 10, or 16 for sets of bits.
pub(super) fn number(pid: u32, name: &str, radix: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(line.trim(), radix).ok()
}
