//! Whether another task can take the processor away from a running program.
//!
//! A program at a function runs with preemption as the kernel has it (5.12 and later), one at a tracepoint too from
//! 6.19 on. Where a second task can come to a program that is not over, the kernel skips its run.

use crate::btf::Btf;
use crate::placeholder;

/// First kernel whose tracepoint programs can be preempted.
const TRACEPOINTS_FROM: (u32, u32) = (6, 19);
/// First kernel that, where it does not say, is taken to preempt at any time or when it suits (lazily).
const USUAL_FROM: (u32, u32) = (6, 13);

/// What this kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preemption {
    /// Programs at functions are preempted.
    pub(crate) at_functions: bool,
    /// Programs at tracepoints are.
    pub(crate) at_tracepoints: bool,
    /// A program can hold its processor while it works.
    pub(crate) can_hold: bool,
}

impl Preemption {
    /// Asks the running kernel.
    pub(crate) fn of_running_kernel(types: &Btf) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let release = crate::doctor::version_of(&read("/proc/sys/kernel/osrelease")).unwrap_or_default();
        let preempts = preempts(
            release,
            &read("/proc/sys/kernel/version"),
            &read("/sys/kernel/debug/sched/preempt"),
            &read("/proc/cmdline"),
        );
        Self {
            at_functions: preempts && release >= (5, 12),
            at_tracepoints: preempts && release >= TRACEPOINTS_FROM,
            can_hold: placeholder::can_hold_cpu(types),
        }
    }

    /// Why programs at functions would lose what passes there, if they would, and others would not.
    pub(crate) fn forbids_functions(self) -> Option<&'static str> {
        self.at_functions
            .then_some("this kernel preempts programs at functions, and skips the runs of others meanwhile")
    }
}

/// By the kernel's version, its version line, the choice of a kernel that can change it, and its command line.
fn preempts(release: (u32, u32), version: &str, chosen: &str, command_line: &str) -> bool {
    let words = || version.split_whitespace();
    if words().any(|word| word == "PREEMPT_DYNAMIC") {
        if !chosen.is_empty() {
            return !["(none)", "(voluntary)"].iter().any(|word| chosen.contains(word));
        }
        let asked = command_line
            .split_whitespace()
            .find_map(|word| word.strip_prefix("preempt="));
        return asked.map_or(release >= USUAL_FROM, |word| {
            !["none", "voluntary"].contains(&word)
        });
    }
    words().any(|word| word.starts_with("PREEMPT"))
}

#[cfg(test)]
mod tests {
    use super::preempts;

    #[test]
    fn kernels_say_how_they_preempt() {
        let dynamic = "#1 SMP PREEMPT_DYNAMIC Debian";
        let old = |version, chosen, line| preempts((6, 1), version, chosen, line);
        assert!(!old(dynamic, "none (voluntary) full\n", ""));
        assert!(old(dynamic, "none voluntary (full)\n", ""));
        assert!(old(dynamic, "full (lazy)\n", ""));
        assert!(old(dynamic, "", "quiet preempt=full"));
        assert!(!old(dynamic, "", "quiet"));
        assert!(preempts((6, 18), dynamic, "", "quiet"));
        assert!(old("#1 SMP PREEMPT Fri", "", ""));
        assert!(old("#1 SMP PREEMPT_RT Fri", "", ""));
        assert!(!preempts((5, 10), "#1 SMP Debian", "", ""));
    }
}
