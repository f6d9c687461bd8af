//! Where the engine's results go: the daemon's feed and metrics, or a replay's output.

use kams_detect::Finding;
use kams_detect::cost::Point;
use kams_export::metrics::Operation;
use kams_export::view::{EventView, FindingRecord};

/// Takes results in the order in which they arise.
pub trait Sink {
    /// Something happened.
    fn event(&mut self, event: EventView);
    /// A detector saw something; `record` is the finding as it is stored and shown.
    fn finding(&mut self, finding: &Finding, record: FindingRecord);
    /// A result entered the model's context.
    fn cost(&mut self, server_id: u64, point: &Point);
    /// Tool definitions as a server listed them; `first` begins a new list. Counting them is the sink's affair:
    /// it takes too long for the path of a verdict.
    fn definitions(&mut self, server_id: u64, server: &str, first: bool, raw: Vec<String>);
    /// A request of the agent was answered.
    fn answered(&mut self, operation: &Operation<'_>);
    /// A message was framed; `outcome` is a label value of `kams_frames_total`.
    fn frame(&mut self, outcome: &'static str);
}
