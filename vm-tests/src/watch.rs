//! What the guest's console says about its fate.

/// What `vm-init` writes to the debug port when every program passed; qemu ends with [`EXIT_PASSED`] then.
pub const PORT_PASSED: u8 = 0x10;
/// What it writes when one failed.
pub const PORT_FAILED: u8 = 0x11;
/// Exit status of qemu for [`PORT_PASSED`]: twice the value, plus one. A guest that panics or powers off makes qemu
/// end with 0, so that 0 is no success.
pub const EXIT_PASSED: i32 = 33;
/// Address of the debug port.
pub const PORT: u16 = 0xf4;

/// Begin of the last line that `vm-init` prints.
const SUMMARY: &str = "vm-init: summary: ";
/// Stalls that are borne. A busy host can let one happen by not running the guest.
const STALLS_BORNE: u32 = 2;

/// The last line of a guest.
pub fn summary_line(passed: usize, failed: usize) -> String {
    format!("{SUMMARY}{passed} passed, {failed} failed")
}

/// The line that says how a program ended.
pub fn ended_line(name: &str, passed: bool, seconds: f32, how: &str) -> String {
    let verdict = if passed { "ok" } else { "FAILED" };
    format!("vm-init: {name}: {verdict} in {seconds:.1} s ({how})")
}

/// Why a guest must be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The kernel gave up.
    Panic,
    /// The kernel says again and again that nothing moves.
    Stall,
}

/// Reads the console line by line.
#[derive(Debug, Default)]
pub struct Console {
    stalls: u32,
    /// Programs that passed and failed, once the guest has said so.
    pub summary: Option<(usize, usize)>,
}

impl Console {
    /// Takes in a line, and says whether the guest is beyond hope.
    pub fn line(&mut self, line: &str) -> Option<Trouble> {
        let line = line.trim_end();
        if let Some((_, counts)) = line.split_once(SUMMARY) {
            self.summary = parse(counts);
        }
        if line.contains("Kernel panic - not syncing") {
            return Some(Trouble::Panic);
        }
        let stalled = ["detected stall", "soft lockup", "blocked for more than"];
        if stalled.iter().any(|words| line.contains(words)) {
            self.stalls += 1;
            if self.stalls > STALLS_BORNE {
                return Some(Trouble::Stall);
            }
        }
        None
    }
}

fn parse(counts: &str) -> Option<(usize, usize)> {
    let (passed, failed) = counts.split_once(" passed, ")?;
    Some((
        passed.parse().ok()?,
        failed.strip_suffix(" failed")?.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_found_behind_other_text() {
        let mut console = Console::default();
        assert_eq!(console.line(&format!("[ 1.2] {}\r", summary_line(3, 1))), None);
        assert_eq!(console.summary, Some((3, 1)));
    }

    #[test]
    fn a_panic_is_seen_at_once_and_stalls_when_they_go_on() {
        let mut console = Console::default();
        let panic = "[    0.9] Kernel panic - not syncing: Attempted to kill init!";
        assert_eq!(console.line(panic), Some(Trouble::Panic));
        let stall = "[   60.0] rcu: INFO: rcu_sched self-detected stall on CPU";
        let seen: Vec<_> = (0..3).map(|_| console.line(stall)).collect();
        assert_eq!(seen, [None, None, Some(Trouble::Stall)]);
        assert_eq!(console.summary, None);
    }
}
