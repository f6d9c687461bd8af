//! What follows from decisions beyond the message that they are about.

use super::{Action, Decisions, Effect, FromEngine, Outcome, Relayed, Way};

impl Relayed {
    pub(super) fn note_effects(&mut self, decisions: &Decisions, blocked: &mut Vec<u64>) {
        let verdicts = [&decisions.call, &decisions.answer].into_iter().flatten();
        let all = decisions
            .ruled
            .iter()
            .map(|ruled| &ruled.decision)
            .chain(verdicts.map(|verdict| &verdict.decision))
            .chain(&decisions.start);
        let (server_id, pid) = (self.party.server_id, self.party.server_pid);
        let start = self.party.server_start;
        for decision in all.filter(|decision| decision.outcome == Outcome::Block) {
            let effect = match decision.action {
                Some(Action::KillServer) => Effect::KillServer {
                    server_id,
                    pid,
                    start,
                },
                Some(Action::BlockEgress) => Effect::CutNetwork { server_id, pid },
                Some(Action::BlockTool) => {
                    blocked.extend(decision.restriction.as_ref().map(|one| one.id));
                    continue;
                }
                _ => continue,
            };
            if !self.effects.contains(&effect) {
                self.effects.push(effect);
            }
        }
    }

    /// Tells the client that its list of tools is old, where the server said that it would.
    pub(super) fn tools_changed(&mut self, blocked: &[u64]) -> Option<FromEngine> {
        let mut new = false;
        for id in blocked {
            new |= self.told.insert(*id);
        }
        if !new || self.is_typed() {
            // Stateless clients (2026-07-28) hear only what they subscribed to.
            return None;
        }
        let capabilities = self.session.identity().server_capabilities.as_deref()?;
        let announces = kams_mcp::Json::parse(capabilities)
            .ok()?
            .member("tools")?
            .member("listChanged")?
            .as_bool()?;
        let line = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n";
        announces.then(|| FromEngine::Inject(Way::ToAgent, line.to_vec()))
    }
}
