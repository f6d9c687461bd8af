//! Where the engine's results go: the daemon's feed and metrics, or a replay's output.

use kams_detect::Finding;
use kams_detect::cost::Point;
use kams_export::metrics::Operation;
use kams_export::view::{EventView, FindingRecord};

/// What is known of a tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolState<'a> {
    /// Name as the server gives it.
    pub name: &'a str,
    /// Title as last listed; empty where there is none.
    pub title: &'a str,
    /// Description as last listed; empty where there is none.
    pub description: &'a str,
    /// `provisional` or `pinned`; none where policy refused it and nobody has accepted it.
    pub baseline: Option<&'static str>,
    /// What was listed last is not the baseline.
    pub changed: bool,
}

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
    /// A tool as it was last listed, and how firm its baseline is.
    fn tool(&mut self, server_id: u64, tool: &ToolState<'_>);
    /// A request of the agent was answered.
    fn answered(&mut self, operation: &Operation<'_>);
    /// A message was framed; `outcome` is a label value of `kams_frames_total`.
    fn frame(&mut self, outcome: &'static str);
    /// Policy decided; `decision` and `rule` are label values of `kams_decisions_total`.
    fn decided(&mut self, _decision: &'static str, _rule: &str) {}
    /// What policy makes of a finding, before it is reported: whoever can still stop the message listens here.
    fn ruled(&mut self, _finding: &Finding, _decision: &kams_policy::Decision) {}
    /// What policy makes of a call, or of its result (`answer`).
    fn called(&mut self, _verdict: &kams_policy::CallVerdict, _answer: bool) {}
    /// What policy makes of the start of a server, at the message that opens its session.
    fn started(&mut self, _decision: &kams_policy::Decision) {}
    /// A definition that was refused before is listed again, unchanged.
    fn refused_again(&mut self, _tool: Option<&str>, _decision: &kams_policy::Decision) {}
    /// Messages that a relay had to decide on by itself; `mode` is a label value of `kams_relay_failmode_total`.
    fn failed(&mut self, _mode: &'static str, _count: u64) {}
    /// A verdict took so long, in seconds.
    fn verdict(&mut self, _seconds: f64) {}
    /// Restrictions in force by action, and number and hash of the newest decision record.
    fn gate(&mut self, _restrictions: &[(&'static str, usize)], _head: (u64, &str)) {}
}
