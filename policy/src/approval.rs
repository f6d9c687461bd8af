//! Approvals: a call held for a person. A pure state machine; who is in which Unix group is data.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::policy::ApprovalPolicy;
use crate::time::Now;

/// Unix group of those who administer Kams; they approve where a rule names no group.
pub const ADMIN_GROUP: &str = "kams";

/// Most requests of one user that wait at once; one more is denied.
const MAX_PENDING: usize = 64;
/// Most settled requests remembered.
const MAX_SETTLED: usize = 1_024;

/// What a request is about. The approver sees rule, reason and facts, never the arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The run; with tool and digest it binds the approval.
    pub run: String,
    /// Whose run it is.
    pub user: String,
    /// The agent.
    pub agent: String,
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Digest of the canonical arguments.
    pub args_digest: String,
    /// The rule that asks.
    pub rule: String,
    /// Approver group of the policy; none is the administrators.
    pub group: Option<String>,
    /// Text for people.
    pub reason: Option<String>,
    /// Facts that crossed the threshold.
    pub fields: Vec<(String, Json)>,
}

impl Request {
    fn same_call(&self, other: &Self) -> bool {
        (&self.user, &self.run, &self.server, &self.tool, &self.args_digest)
            == (
                &other.user,
                &other.run,
                &other.server,
                &other.tool,
                &other.args_digest,
            )
    }
}

/// Where a request stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum State {
    /// Waiting for a person.
    Pending,
    /// Good for one call.
    Approved {
        /// Who approved.
        by: String,
    },
    /// Approved, and the call was made.
    Used {
        /// Who approved.
        by: String,
    },
    /// Refused by a person.
    Denied {
        /// Who refused.
        by: String,
    },
    /// Nobody decided in time: refused.
    TimedOut,
    /// The client gave the call up.
    Cancelled,
    /// The daemon restarted while it waited: refused.
    Restarted,
    /// Too many requests of this user waited: refused at once.
    Overflow,
    /// Approved, but the call was not made in time.
    Lapsed,
}

impl State {
    /// The name in records.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved { .. } => "approved",
            Self::Used { .. } => "used",
            Self::Denied { .. } => "denied",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Restarted => "denied_restart",
            Self::Overflow => "denied_overflow",
            Self::Lapsed => "lapsed",
        }
    }

    /// Who decided, where a person did.
    pub fn by(&self) -> Option<&str> {
        match self {
            Self::Approved { by } | Self::Used { by } | Self::Denied { by } => Some(by),
            _ => None,
        }
    }
}

/// A request with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    /// Number, unique within the queue.
    pub id: u64,
    /// What it is about.
    pub request: Request,
    /// Where it stands.
    pub state: State,
    /// When it was asked, wall clock in milliseconds.
    pub since_ms: u64,
    /// When it ends if nothing happens: the request's time-out, or the end of an approval, wall clock.
    pub until_ms: u64,
    until_mono: u64,
}

impl Approval {
    /// A stored approval; its remaining time is measured when it is restored.
    pub const fn stored(id: u64, request: Request, state: State, since_ms: u64, until_ms: u64) -> Self {
        Self {
            id,
            request,
            state,
            since_ms,
            until_ms,
            until_mono: 0,
        }
    }
}

/// Who wants to decide, as the peer credentials of the socket show.
#[derive(Clone, Copy, Debug)]
pub struct Approver<'a> {
    /// Login name.
    pub user: &'a str,
    /// Unix groups.
    pub groups: &'a [&'a str],
    /// User id 0 of the host's user namespace.
    pub root: bool,
    /// The process stands in an agent's process tree.
    pub in_agent_tree: bool,
}

/// Why a person may not decide.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No request with this number.
    #[error("no such request")]
    Unknown,
    /// It is settled.
    #[error("the request is {0} already")]
    Settled(&'static str),
    /// The asking process belongs to an agent.
    #[error("a process of an agent cannot decide on approvals")]
    AgentTree,
    /// It is their own run.
    #[error("you cannot approve a call of your own run")]
    OwnRun,
    /// They are not in the group.
    #[error("only members of the group `{0}` can decide on this request")]
    NotInGroup(String),
    /// The policy maps the group to no Unix group any more.
    #[error("the approver group `{0}` is not in the policy")]
    UnmappedGroup(String),
}

/// All requests.
#[derive(Clone, Debug, Default)]
pub struct ApprovalQueue {
    all: BTreeMap<u64, Approval>,
    last_id: u64,
}

impl ApprovalQueue {
    /// The queue after a restart: what was pending is denied, what was approved and unused stays as long as it
    /// was good for, at most `valid_for_ms`. Returns the denied ones, to be recorded.
    pub fn restore(
        stored: impl IntoIterator<Item = Approval>,
        valid_for_ms: u64,
        now: Now,
    ) -> (Self, Vec<Approval>) {
        let mut queue = Self::default();
        let mut denied = Vec::new();
        for mut approval in stored {
            queue.last_id = queue.last_id.max(approval.id);
            match approval.state {
                State::Pending => {
                    approval.state = State::Restarted;
                    denied.push(approval.clone());
                }
                State::Approved { .. } => {
                    let left = approval.until_ms.saturating_sub(now.wall_ms).min(valid_for_ms);
                    approval.until_mono = now.mono_ms.saturating_add(left);
                }
                _ => {}
            }
            queue.all.insert(approval.id, approval);
        }
        (queue, denied)
    }

    /// Asks for an approval. A request for the same call that still waits is returned instead of a second one.
    pub fn request(&mut self, request: Request, policy: &ApprovalPolicy, now: Now) -> &Approval {
        let waiting = self
            .all
            .values()
            .find(|a| a.state == State::Pending && a.request.same_call(&request));
        let id = match waiting {
            Some(approval) => approval.id,
            None => {
                let waiting = |a: &&Approval| a.state == State::Pending && a.request.user == request.user;
                let full = self.all.values().filter(waiting).count() >= MAX_PENDING;
                self.last_id = self.last_id.saturating_add(1);
                let id = self.last_id;
                self.insert(Approval {
                    id,
                    state: if full { State::Overflow } else { State::Pending },
                    request: request.clone(),
                    since_ms: now.wall_ms,
                    until_ms: now.wall_ms.saturating_add(policy.timeout_ms),
                    until_mono: now.mono_ms.saturating_add(policy.timeout_ms),
                });
                id
            }
        };
        self.all
            .entry(id)
            .or_insert_with(|| Approval::stored(id, request, State::Overflow, now.wall_ms, now.wall_ms))
    }

    /// Inserts, and forgets the oldest settled ones over the limit.
    fn insert(&mut self, approval: Approval) {
        self.all.insert(approval.id, approval);
        let settled = |a: &Approval| !matches!(a.state, State::Pending | State::Approved { .. });
        let over = self
            .all
            .values()
            .filter(|a| settled(a))
            .count()
            .saturating_sub(MAX_SETTLED);
        let old: Vec<u64> = self
            .all
            .values()
            .filter(|a| settled(a))
            .map(|a| a.id)
            .take(over)
            .collect();
        for id in old {
            self.all.remove(&id);
        }
    }

    /// A person decides.
    ///
    /// # Errors
    /// Why this person may not, or that there is nothing to decide.
    pub fn decide(
        &mut self,
        id: u64,
        approver: &Approver<'_>,
        approve: bool,
        policy: &ApprovalPolicy,
        now: Now,
    ) -> Result<&Approval, Refusal> {
        self.expire(now);
        let approval = self.all.get_mut(&id).ok_or(Refusal::Unknown)?;
        if approver.in_agent_tree {
            return Err(Refusal::AgentTree);
        }
        let unix = match &approval.request.group {
            None => ADMIN_GROUP,
            Some(group) => policy
                .groups
                .get(group)
                .ok_or_else(|| Refusal::UnmappedGroup(group.clone()))?,
        };
        if !approver.root && !approver.groups.contains(&unix) {
            return Err(Refusal::NotInGroup(unix.to_owned()));
        }
        // Denying one's own call needs no second person.
        if approve && approver.user == approval.request.user && !policy.allow_self {
            return Err(Refusal::OwnRun);
        }
        if approval.state != State::Pending {
            return Err(Refusal::Settled(approval.state.name()));
        }
        let by = approver.user.to_owned();
        if approve {
            approval.state = State::Approved { by };
            approval.until_ms = now.wall_ms.saturating_add(policy.valid_for_ms);
            approval.until_mono = now.mono_ms.saturating_add(policy.valid_for_ms);
        } else {
            approval.state = State::Denied { by };
        }
        Ok(approval)
    }

    /// The client gave the call up.
    pub fn cancel(&mut self, id: u64) -> Option<&Approval> {
        let approval = self.all.get_mut(&id).filter(|a| a.state == State::Pending)?;
        approval.state = State::Cancelled;
        Some(approval)
    }

    /// Ends what belongs to a run that is over.
    pub fn end_run(&mut self, user: &str, run: &str) -> Vec<Approval> {
        let mut ended = Vec::new();
        for approval in self.all.values_mut() {
            if approval.request.user == user && approval.request.run == run {
                let state = match approval.state {
                    State::Pending => State::Cancelled,
                    State::Approved { .. } => State::Lapsed,
                    _ => continue,
                };
                approval.state = state;
                ended.push(approval.clone());
            }
        }
        ended
    }

    /// Settles what has run out of time and returns it.
    pub fn expire(&mut self, now: Now) -> Vec<Approval> {
        let mut ended = Vec::new();
        for approval in self.all.values_mut().filter(|a| now.mono_ms >= a.until_mono) {
            approval.state = match approval.state {
                State::Pending => State::TimedOut,
                State::Approved { .. } => State::Lapsed,
                _ => continue,
            };
            ended.push(approval.clone());
        }
        ended
    }

    /// Uses up the approval for this call, if there is one. It is good for one call only.
    pub fn take(&mut self, request: &Request, now: Now) -> Option<&Approval> {
        let id = self
            .all
            .values()
            .find(|a| {
                matches!(a.state, State::Approved { .. })
                    && a.request.same_call(request)
                    && now.mono_ms < a.until_mono
            })?
            .id;
        let approval = self.all.get_mut(&id)?;
        if let State::Approved { by } = &approval.state {
            approval.state = State::Used { by: by.clone() };
        }
        Some(approval)
    }

    /// Number of the newest request; 0 before the first.
    pub const fn last_id(&self) -> u64 {
        self.last_id
    }

    /// One request.
    pub fn get(&self, id: u64) -> Option<&Approval> {
        self.all.get(&id)
    }

    /// All remembered requests, oldest first.
    pub fn list(&self) -> impl Iterator<Item = &Approval> {
        self.all.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now::at(1_000_000);

    fn policy() -> ApprovalPolicy {
        ApprovalPolicy {
            groups: [("sec".to_owned(), "secops".to_owned())].into(),
            ..ApprovalPolicy::default()
        }
    }

    fn request(group: Option<&str>) -> Request {
        Request {
            run: "r1".into(),
            user: "ana".into(),
            agent: "codex".into(),
            server: "pay".into(),
            tool: "submit".into(),
            args_digest: "d1".into(),
            rule: "r".into(),
            group: group.map(str::to_owned),
            reason: None,
            fields: vec![],
        }
    }

    fn person<'a>(user: &'a str, groups: &'a [&'a str]) -> Approver<'a> {
        Approver {
            user,
            groups,
            root: false,
            in_agent_tree: false,
        }
    }

    #[test]
    fn an_approval_is_good_for_one_call_of_the_same_arguments() {
        let mut queue = ApprovalQueue::default();
        let id = queue.request(request(Some("sec")), &policy(), NOW).id;
        assert_eq!(
            queue.request(request(Some("sec")), &policy(), NOW.plus(5)).id,
            id,
            "the retry joins the request"
        );
        assert!(queue.take(&request(Some("sec")), NOW).is_none());
        queue
            .decide(id, &person("ben", &["secops"]), true, &policy(), NOW)
            .unwrap();
        let mut other = request(Some("sec"));
        other.args_digest = "d2".into();
        assert!(queue.take(&other, NOW).is_none());
        assert_eq!(
            queue.take(&request(Some("sec")), NOW).unwrap().state.by(),
            Some("ben")
        );
        assert!(queue.take(&request(Some("sec")), NOW).is_none(), "once");
    }

    #[test]
    fn the_wrong_person_is_refused() {
        let mut queue = ApprovalQueue::default();
        let id = queue.request(request(Some("sec")), &policy(), NOW).id;
        let mut decide =
            |p: &Approver<'_>| queue.decide(id, p, true, &policy(), NOW).map(|_| ()).unwrap_err();
        assert_eq!(
            decide(&person("ben", &["staff"])),
            Refusal::NotInGroup("secops".into())
        );
        assert_eq!(decide(&person("ana", &["secops"])), Refusal::OwnRun);
        let mut agent = person("ben", &["secops"]);
        agent.in_agent_tree = true;
        assert_eq!(decide(&agent), Refusal::AgentTree);
        let mut own_root = person("ana", &[]);
        own_root.root = true;
        assert_eq!(decide(&own_root), Refusal::OwnRun);
        let allowed = ApprovalPolicy {
            allow_self: true,
            ..policy()
        };
        assert!(
            queue
                .decide(id, &person("ana", &["secops"]), true, &allowed, NOW)
                .is_ok()
        );
        assert_eq!(
            queue
                .decide(id, &person("ben", &["secops"]), false, &policy(), NOW)
                .map(|_| ()),
            Err(Refusal::Settled("approved"))
        );
    }

    #[test]
    fn without_a_group_the_administrators_decide() {
        let mut queue = ApprovalQueue::default();
        let id = queue.request(request(None), &policy(), NOW).id;
        let no = queue
            .decide(id, &person("ben", &["secops"]), true, &policy(), NOW)
            .map(|_| ());
        assert_eq!(no, Err(Refusal::NotInGroup("kams".into())));
        assert!(
            queue
                .decide(id, &person("ben", &["kams"]), true, &policy(), NOW)
                .is_ok()
        );
        let gone = queue.request(request(Some("old")), &policy(), NOW).id;
        let no = queue
            .decide(gone, &person("ben", &["kams"]), true, &policy(), NOW)
            .map(|_| ());
        assert_eq!(no, Err(Refusal::UnmappedGroup("old".into())));
    }

    #[test]
    fn time_cancellation_and_restart_deny() {
        let mut queue = ApprovalQueue::default();
        let id = queue.request(request(None), &policy(), NOW).id;
        assert!(queue.expire(NOW.plus(299_999)).is_empty());
        assert_eq!(queue.expire(NOW.plus(300_000))[0].state, State::TimedOut);
        let late = queue
            .decide(id, &person("ben", &["kams"]), true, &policy(), NOW.plus(300_000))
            .map(|_| ());
        assert_eq!(late, Err(Refusal::Settled("timed_out")));

        let id = queue.request(request(None), &policy(), NOW).id;
        assert_eq!(queue.cancel(id).unwrap().state, State::Cancelled);
        assert!(queue.cancel(id).is_none());

        let pending = queue.request(request(None), &policy(), NOW).clone();
        let (mut queue, denied) = ApprovalQueue::restore(vec![pending], 600_000, NOW);
        assert_eq!((denied.len(), denied[0].state.name()), (1, "denied_restart"));
        assert!(queue.take(&request(None), NOW).is_none());
    }

    #[test]
    fn an_approval_lapses_and_survives_a_restart_until_then() {
        let mut queue = ApprovalQueue::default();
        let id = queue.request(request(None), &policy(), NOW).id;
        let ok = queue
            .decide(id, &person("ben", &["kams"]), true, &policy(), NOW)
            .unwrap()
            .clone();
        let later = Now {
            wall_ms: NOW.wall_ms + 60_000,
            mono_ms: 7,
        };
        let (mut restored, denied) = ApprovalQueue::restore(vec![ok], 600_000, later);
        assert!(denied.is_empty());
        assert!(
            restored
                .clone()
                .take(&request(None), later.plus(539_999))
                .is_some()
        );
        assert!(restored.take(&request(None), later.plus(540_000)).is_none());
        assert_eq!(restored.expire(later.plus(540_000))[0].state, State::Lapsed);
    }

    #[test]
    fn a_flood_of_requests_is_denied_and_forgotten() {
        let mut queue = ApprovalQueue::default();
        for i in 0..3_000 {
            let mut r = request(None);
            r.args_digest = format!("d{i}");
            let state = queue.request(r, &policy(), NOW).state.clone();
            assert_eq!(
                state,
                if i < MAX_PENDING {
                    State::Pending
                } else {
                    State::Overflow
                }
            );
        }
        assert!(queue.list().count() <= MAX_PENDING + MAX_SETTLED);
    }
}
