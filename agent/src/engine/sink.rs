//! Where the engine's results go: the daemon's feed and metrics, or a replay's output.

use kams_export::metrics::Operation;
use kams_export::view::{EventView, FindingRecord};

/// Takes results in the order in which they arise.
pub trait Sink {
    /// Something happened.
    fn event(&mut self, event: EventView);
    /// A detector saw something.
    fn finding(&mut self, finding: FindingRecord);
    /// A request of the agent was answered.
    fn answered(&mut self, operation: &Operation<'_>);
    /// A message was framed; `outcome` is a label value of `kams_frames_total`.
    fn frame(&mut self, outcome: &'static str);
}
