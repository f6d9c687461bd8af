//! Which agent a model session belongs to, by ids that its telemetry and its MCP requests both name: the id of a tool call
//! (Claude Code's `claudecode/toolUseId`, Codex's `callId`) and the session's own (Codex). Where it hits this is exact,
//! whoever sent the report: a collector between, a connection that is closed by now, two agents behind one launcher.
//!
//! Ids count within one user. What another user's agent says is nobody's session here.

use std::sync::Arc;

use kams_detect::waste::digest;

use super::per_user::PerUser;

/// Ids that are remembered over all users, the newest ones of each.
const REMEMBERED: usize = 16_384;

/// An agent: process and name.
pub(super) type Agent = (u32, String);

/// Ids of a request, for [`Joins`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ids {
    /// Digest of the id of the tool call (`call_key`).
    pub call: Option<u64>,
    /// The session, as the agent names it.
    pub session: Option<Arc<str>>,
}

/// Agents by user and id.
pub(super) struct Joins(PerUser<u64, Agent>);

impl Default for Joins {
    fn default() -> Self {
        Self(PerUser::new(REMEMBERED))
    }
}

impl Joins {
    /// An agent's own MCP traffic carries these ids.
    pub(super) fn seen(&mut self, uid: u32, ids: &Ids, agent: &Agent) {
        let session = ids.session.as_deref().map(session_key);
        for key in ids.call.into_iter().chain(session) {
            self.0.put(uid, key, agent.clone());
        }
    }

    /// The agent of a report of `session`; `call` is the id of the tool call that it tells of. A session that is
    /// found by a call once is found by its name from then on.
    pub(super) fn find(&mut self, uid: u32, session: &str, call: Option<u64>) -> Option<Agent> {
        let by_call = call.and_then(|call| self.0.get(uid, &call).cloned());
        if session.is_empty() {
            return by_call;
        }
        let session = session_key(session);
        match by_call {
            Some(agent) => {
                self.0.put(uid, session, agent.clone());
                Some(agent)
            }
            None => self.0.get(uid, &session).cloned(),
        }
    }

    /// An agent is gone; its number may be another's next.
    pub(super) fn forget(&mut self, uid: u32, pid: u32) {
        self.0.remove(uid, |(agent, _)| *agent == pid);
    }
}

fn session_key(session: &str) -> u64 {
    digest(format!("session\0{session}").as_bytes())
}

#[cfg(test)]
mod tests {
    use kams_detect::waste::call_key;

    use super::*;

    fn ids(call: &str, session: Option<&str>) -> Ids {
        Ids {
            call: Some(call_key(call)),
            session: session.map(Arc::from),
        }
    }

    #[test]
    fn a_call_tells_whose_session_it_is() {
        let mut joins = Joins::default();
        let (first, second) = ((7, "claude-code".to_owned()), (8, "claude-code".to_owned()));
        joins.seen(1000, &ids("toolu_1", None), &first);
        joins.seen(1000, &ids("toolu_2", None), &second);
        assert_eq!(joins.find(1000, "s-1", None), None);
        assert_eq!(
            joins.find(1000, "s-1", Some(call_key("toolu_1"))),
            Some(first.clone())
        );
        assert_eq!(
            joins.find(1000, "s-1", None),
            Some(first.clone()),
            "the session is known now"
        );
        assert_eq!(joins.find(1000, "s-2", None), None);
        // The session goes on in another process.
        assert_eq!(
            joins.find(1000, "s-1", Some(call_key("toolu_2"))),
            Some(second.clone())
        );
        assert_eq!(joins.find(1000, "s-1", None), Some(second.clone()));
        assert_eq!(
            joins.find(1001, "s-1", Some(call_key("toolu_1"))),
            None,
            "another user"
        );
        joins.forget(1000, 8);
        assert_eq!(joins.find(1000, "s-1", None), None);
        assert_eq!(joins.find(1000, "", Some(call_key("toolu_1"))), Some(first));
    }

    #[test]
    fn codex_names_its_session_in_its_requests() {
        let mut joins = Joins::default();
        let codex = (9, "codex".to_owned());
        joins.seen(1000, &ids("call_1", Some("conv-1")), &codex);
        assert_eq!(joins.find(1000, "conv-1", None), Some(codex));
        assert_eq!(
            joins.find(1000, "call_1", None),
            None,
            "a call's id is no session's"
        );
    }
}
