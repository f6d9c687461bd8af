//! When the payload programs are attached: while something may pass that only they see.

use kams_host::{ExecReport, procs};

use super::Engine;
use super::early::{self, Early};
use crate::discover::tracker::InstanceId;

impl Engine {
    /// Whether the payload programs must be there. They need not where every agent is armed, so that what it starts is held
    /// and runs only after [`Engine::see_from_start`], and every server's messages go through a relay.
    pub(super) fn needs_payload(&self) -> bool {
        let armed = !self.enforce.marks().is_empty();
        let unarmed = |endpoint: &super::agents::Endpoint| endpoint.agent.is_none() || !armed;
        self.endpoints.values().any(unarmed) || self.servers.values().any(|server| !server.is_relayed())
    }

    /// A server that has not run yet is to be watched, and the programs may have been away: what its agent wrote meanwhile
    /// still lies in its standard input, and a copy goes before what is captured.
    pub(super) fn see_from_start(&mut self, id: InstanceId, report: &ExecReport) {
        if !self.attach_if_away() || !self.servers.contains_key(&id) {
            return;
        }
        let stdin = &report.fds[0];
        if let Some(early) =
            procs::peek(report.pid, 0, stdin.kind, stdin.ino, early::MOST).and_then(Early::new)
        {
            self.take_early(id, early, report.time_ns);
        }
    }

    /// A server that was to get a relay runs without one: what it said until now was not seen if the programs were away.
    pub(super) fn see_from_here(&mut self, id: InstanceId) {
        if self.attach_if_away()
            && let Some(server) = self.servers.get_mut(&id)
        {
            server.begins_unseen();
        }
    }

    /// Attaches the programs; true if they were away.
    fn attach_if_away(&mut self) -> bool {
        let away = self
            .running
            .as_ref()
            .is_some_and(|running| !running.control.payload_attached());
        self.attach_payload();
        away
    }
}
