//! Whether another task can take the processor away from a running program.

use crate::btf::Btf;
use crate::placeholder;

/// Why programs at functions would lose what passes here, if they would.
///
/// A program at a function runs with preemption as the kernel has it (5.12 and later). Where a kernel takes the
/// processor away at any time and has no function to forbid that, a second task can come to a program that is not
/// finished, and the kernel skips its run.
pub(crate) fn forbids_functions(types: &Btf) -> Option<&'static str> {
    if placeholder::can_hold_cpu(types) {
        return None;
    }
    let version = std::fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
    let chosen = std::fs::read_to_string("/sys/kernel/debug/sched/preempt").unwrap_or_default();
    let command_line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    is_full(&version, &chosen, &command_line)
        .then_some("this kernel preempts programs at any time and cannot be asked not to")
}

/// By the kernel's version line, the choice of a kernel that can change it, and its command line.
fn is_full(version: &str, chosen: &str, command_line: &str) -> bool {
    let words = || version.split_whitespace();
    if words().any(|word| word == "PREEMPT_DYNAMIC") {
        return chosen.contains("(full)")
            || (chosen.is_empty() && command_line.split_whitespace().any(|word| word == "preempt=full"));
    }
    words().any(|word| word == "PREEMPT" || word == "PREEMPT_RT")
}

#[cfg(test)]
mod tests {
    use super::is_full;

    #[test]
    fn kernels_say_how_they_preempt() {
        let dynamic = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.0-1";
        assert!(!is_full(dynamic, "none (voluntary) full\n", ""));
        assert!(is_full(dynamic, "none voluntary (full)\n", ""));
        assert!(is_full(dynamic, "", "quiet preempt=full"));
        assert!(!is_full(dynamic, "", "quiet"));
        assert!(is_full("#1 SMP PREEMPT Fri", "", ""));
        assert!(is_full("#1 SMP PREEMPT_RT Fri", "", ""));
        assert!(!is_full("#1 SMP Debian 5.10", "", ""));
    }
}
