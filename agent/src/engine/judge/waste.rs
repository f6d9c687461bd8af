//! What the waste rules see of MCP traffic, and what becomes of what they find.

use kams_detect::behaviour::Call;
use kams_detect::waste::{Config, ToolDefinitions};

use super::{Case, Judge};
use crate::engine::conversation::Party;
use crate::engine::sink::Sink;
use crate::engine::waste::desk::Desk;
use crate::engine::waste::joins::Ids;
use crate::engine::waste::worker::Handle;
use crate::engine::waste::{About, Input, Output};

/// Label value of what is dropped on the way.
const SOURCE: &str = "mcp";

/// Where waste is looked for.
pub(super) enum Waste {
    /// At once: a replay has all the time it needs.
    Here(Box<Desk>),
    /// On another thread, which tells the engine what it finds.
    There(Handle),
}

impl Waste {
    pub(super) fn here(knobs: Config) -> Self {
        Self::Here(Box::new(Desk::new(knobs)))
    }
}

impl Judge {
    /// From now on another thread looks for waste.
    pub fn look_for_waste_with(&mut self, handle: Handle) {
        self.waste = Waste::There(handle);
    }

    pub(super) fn set_knobs(&mut self, knobs: &Config) {
        self.tell(Input::Knobs(Box::new(knobs.clone())));
    }

    /// An agent calls a tool.
    pub(super) fn called(
        &mut self,
        case: &Case<'_>,
        tool: &str,
        arguments: &str,
        ids: Ids,
        sink: &mut dyn Sink,
    ) {
        let input = Input::Called {
            about: about(case),
            tool: tool.to_owned(),
            arguments: arguments.to_owned(),
            ids,
        };
        self.observe(input, sink);
    }

    /// The call is answered.
    pub(super) fn answered(&mut self, case: &Case<'_>, call: &Call<'_>, bytes: u64, sink: &mut dyn Sink) {
        let input = Input::Answered {
            about: about(case),
            tool: call.tool.to_owned(),
            arguments: call.arguments,
            bytes,
            failed: call.failed,
        };
        self.observe(input, sink);
    }

    /// A server has listed its tools.
    pub(super) fn listed(&mut self, case: &Case<'_>, definitions: ToolDefinitions, sink: &mut dyn Sink) {
        let input = Input::Listed {
            about: about(case),
            definitions,
        };
        self.observe(input, sink);
    }

    pub(super) fn server_left(&mut self, party: &Party) {
        self.tell(Input::Left {
            uid: party.uid,
            agent_pid: party.agent_pid,
            server_id: party.server_id,
        });
    }

    pub(super) fn run_over(&mut self, uid: u32, agent_pid: u32) {
        self.tell(Input::Gone { uid, agent_pid });
    }

    /// Takes what was found: a finding goes the way of all findings, a true count to the costs.
    pub fn wasted(&mut self, output: Output, sink: &mut dyn Sink) {
        match output {
            Output::Found { about, finding } => {
                let session = kams_mcp::Session::new(kams_mcp::Config::default());
                let case = Case {
                    party: &about.party,
                    time: about.time,
                    mono: about.mono,
                    session: &session,
                    request_id: about.request_id,
                    gap: false,
                };
                self.report(&case, &finding, sink);
            }
            Output::Usage(usage) => {
                self.usage(&usage, sink);
            }
            Output::Passed {
                uid,
                agent_pid,
                before,
            } => self.pass_over(uid, agent_pid, before),
        }
    }

    fn observe(&mut self, input: Input, sink: &mut dyn Sink) {
        for output in self.tell(input) {
            self.wasted(output, sink);
        }
    }

    fn tell(&mut self, input: Input) -> Vec<Output> {
        match &mut self.waste {
            Waste::Here(desk) => desk.take(input),
            Waste::There(handle) => {
                handle.put(input, SOURCE);
                Vec::new()
            }
        }
    }
}

fn about(case: &Case<'_>) -> About {
    About {
        party: case.party.clone(),
        time: case.time,
        mono: case.mono,
        request_id: case.request_id.clone(),
    }
}
