//! The detectors at work: typed events of a session in, findings out.
//!
//! One judge serves all conversations; what it remembers is keyed by user and server identity, so that two
//! users' servers of one name never meet. It does no IO of its own: baselines come in when a server starts
//! ([`Judge::enter`]), writes go into the store's queue.

mod baselines;
mod calls;
pub mod decided;
mod flood;
mod lists;
mod proposals;
mod results;
pub mod usage;
mod waste;

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kams_detect::behaviour::{self, Monitor};
use kams_detect::cost::Costs;
use kams_detect::egress::Salt;
use kams_detect::finding::{Evidence, Finding};
use kams_detect::integrity::{Names, Thresholds};
use kams_detect::redact::shown;
use kams_export::view::{self, EventView, FindingContext, FindingRecord, Time};
use kams_mcp::event::{EventKind, ResponseKind};
use kams_mcp::{Direction, Event, RequestId, Session};
use kams_policy::{Action, Decision, Now, Policy, Subject};
use kams_store::{FindingRow, Store, WriteOp};
use sha2::{Digest, Sha256};

use super::conversation::Party;
use super::describe;
use super::gate::{Gatekeeper, here};
use super::sink::Sink;
use super::verdict::Effect;
use baselines::ServerBaselines;
use calls::OpenCalls;
use flood::Flood;
use lists::Listing;
use usage::Pending;
use waste::Waste;

/// Whose server: what baselines and costs are kept for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Server identity.
    pub server: Arc<str>,
}

/// All detectors and what they remember.
pub struct Judge {
    /// What policy makes of it all.
    pub gate: Gatekeeper,
    thresholds: Thresholds,
    salt: Salt,
    store: Option<Arc<Store>>,
    monitor: Monitor,
    costs: Costs,
    baselines: HashMap<Owner, ServerBaselines>,
    /// By server instance.
    sessions: HashMap<u64, InSession>,
    pending: Pending,
    waste: Waste,
    /// Servers without a relay that policy wants ended: number and process.
    kills: Vec<Effect>,
    /// Whose baselines are kept although nobody talks to them, oldest first.
    idle: VecDeque<Owner>,
}

/// What is remembered of one server instance.
#[derive(Debug)]
struct InSession {
    owner: Owner,
    run: String,
    /// The name under which policy was asked about its start; names get better while launchers run.
    started_as: Option<Arc<str>>,
    /// Policy does not want it to run.
    start_refused: bool,
    calls: OpenCalls,
    listing: Listing,
    /// Names in its latest lists, for shadowing.
    tools: Names,
    flood: Flood,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge")
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}

/// One message under judgement.
pub struct Case<'a> {
    /// Who talks.
    pub party: &'a Party,
    /// When the message was complete.
    pub time: Time,
    /// Nanoseconds since boot of the same moment: a clock that does not jump.
    pub mono: u64,
    /// The session that it belongs to.
    pub session: &'a Session,
    /// Id of the request, as JSON text.
    pub request_id: Option<String>,
    /// Bytes of the message were lost.
    pub gap: bool,
}

impl Judge {
    /// A judge that remembers nothing. Without a store baselines live as long as the judge.
    pub fn new(policy: Arc<Policy>, salt: Salt, store: Option<Arc<Store>>) -> Self {
        let thresholds = thresholds(&policy);
        let waste = Waste::here(policy.waste().clone());
        Self {
            gate: Gatekeeper::new(policy, store.clone(), here()),
            thresholds,
            salt,
            store,
            monitor: Monitor::default(),
            costs: Costs::default(),
            baselines: HashMap::new(),
            sessions: HashMap::new(),
            pending: Pending::default(),
            waste,
            kills: Vec::new(),
            idle: VecDeque::new(),
        }
    }

    /// Takes another policy for what comes from now on.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.thresholds = thresholds(&policy);
        self.set_knobs(policy.waste());
        self.forget_refusals();
        self.gate.set_policy(policy);
    }

    /// Writes that the store's disk refused since the start, by kind.
    pub fn store_errors(&self) -> Vec<(&'static str, u64)> {
        let stats = self.store.as_ref().map(|store| store.stats());
        stats
            .map(|stats| stats.errors.into_iter().collect())
            .unwrap_or_default()
    }

    /// Servers without a relay that policy wants ended, since the last call. A relay ends its own.
    pub(in crate::engine) fn take_kills(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.kills)
    }

    /// A conversation begins to be told: its baselines are read now, off the path of any verdict.
    pub fn enter(&mut self, party: &Party) {
        let owner = Owner {
            uid: party.uid,
            server: Arc::clone(&party.server),
        };
        self.load(&owner);
        self.gate.joined(party);
        let run = format!("{}:{}", party.uid, party.agent_pid);
        let session = InSession {
            owner,
            run,
            started_as: None,
            start_refused: false,
            calls: OpenCalls::default(),
            listing: Listing::default(),
            tools: Names::default(),
            flood: Flood::default(),
        };
        self.sessions.insert(party.server_id, session);
    }

    /// A conversation is over.
    pub fn leave(&mut self, party: &Party) {
        self.gate.left(party, here());
        self.server_left(party);
        let Some(session) = self.sessions.remove(&party.server_id) else {
            return;
        };
        if !self.sessions.values().any(|other| other.owner == session.owner) {
            self.rest(session.owner);
        }
    }

    /// Looks at one event of a session.
    pub fn look(&mut self, case: &Case<'_>, event: &Event<'_>, sink: &mut dyn Sink) {
        let owner = Owner {
            uid: case.party.uid,
            server: Arc::clone(&case.party.server),
        };
        match self.sessions.get_mut(&case.party.server_id) {
            None => self.enter(case.party),
            Some(session) if session.owner != owner => {
                // The launcher chain reached a better name.
                session.owner = owner.clone();
                self.load(&owner);
            }
            Some(_) => {}
        }
        self.started(case, event, sink);
        if let Some((id, call)) = event.tool_call() {
            let meta = match &event.kind {
                EventKind::Request(request) => request.meta.as_ref(),
                _ => None,
            };
            self.call(case, id, call, meta, sink);
            self.propose(case, event, id, call, sink);
        }
        self.follow(case, event, sink);
        match &event.kind {
            EventKind::Request(request) => self.request(case, request, sink),
            EventKind::Response(response) if event.direction == Direction::ToServer => {
                if let (ResponseKind::Sampling | ResponseKind::Elicitation, Some(result)) =
                    (&response.kind, &response.result)
                {
                    self.outgoing(case, result.get().as_bytes(), None, sink);
                }
            }
            EventKind::Response(response) => {
                match &response.kind {
                    ResponseKind::Handshake {
                        instructions: Some(text),
                    } => self.instructions(case, text, sink),
                    ResponseKind::Page(page) => self.page(case, page, sink),
                    _ => {}
                }
                self.answer(case, event, response, sink);
            }
            EventKind::Notification(_) => self.late_result(case, event, sink),
            _ => {}
        }
    }

    /// A call did not pass after all: nothing that comes later is its answer.
    pub(in crate::engine) fn refused(&mut self, party: &Party, id: &RequestId, now: Now) {
        if let Some(session) = self.sessions.get_mut(&party.server_id) {
            session.calls.take(id);
        }
        self.gate.refused(party, Some(id), now);
    }

    /// Hands a finding to policy, record, store and sink.
    pub(in crate::engine) fn report(
        &mut self,
        case: &Case<'_>,
        finding: &Finding,
        sink: &mut dyn Sink,
    ) -> Decision {
        self.report_with(case, finding, None, sink)
    }

    /// The same for a finding that comes with a decision of its own: the stronger of the two is on record.
    fn report_with(
        &mut self,
        case: &Case<'_>,
        finding: &Finding,
        own: Option<Decision>,
        sink: &mut dyn Sink,
    ) -> Decision {
        let party = case.party;
        // The name of a call, or the address of a resource, is the agent's word: neither the record nor what the gate
        // writes down may hold a secret in it.
        let masked = match finding.tool.as_deref().map(shown) {
            Some(Cow::Owned(tool)) => Some(Finding {
                tool: Some(tool),
                ..finding.clone()
            }),
            _ => None,
        };
        let finding = masked.as_ref().unwrap_or(finding);
        let fingerprint = fingerprint(party.uid, &party.server, finding);
        let subject = Subject {
            user: &party.user,
            agent: &party.agent,
            server: &party.server,
            tool: finding.tool.as_deref(),
            relayed: party.relayed,
        };
        let mut view = kams_policy::Finding::of(finding, subject, &fingerprint);
        view.gap = case.gap;
        let mut decision = self.gate.finding(party, &view, now(case), sink);
        sink.ruled(finding, &decision);
        if decision.action == Some(Action::KillServer) && (!party.relayed || case.request_id.is_none()) {
            self.kills.push(Effect::KillServer {
                server_id: party.server_id,
                pid: party.server_pid,
                start: party.server_start,
            });
        }
        if let Some(own) = own {
            let strength = |d: &Decision| d.would.max(d.action);
            if strength(&own) >= strength(&decision) {
                decision = own;
            }
        }
        if let Some(session) = self.sessions.get_mut(&party.server_id) {
            match session.flood.count(case.mono) {
                flood::Verdict::Tell => {}
                flood::Verdict::LeaveOut { first } => {
                    if first {
                        tracing::warn!(server = %party.server, uid = party.uid, "{}", flood::TOLD);
                        sink.event(EventView {
                            stage: Some("findings".to_owned()),
                            reason: Some("flood".to_owned()),
                            detail: Some(flood::TOLD.to_owned()),
                            ..describe::base(party, view::EventKind::Loss, case.time)
                        });
                    }
                    return decision;
                }
            }
        }
        let context = FindingContext {
            time: case.time,
            uid: party.uid,
            user: party.user.to_string(),
            agent: party.agent.to_string(),
            agent_pid: Some(party.agent_pid),
            server: party.server.to_string(),
            server_id: Some(party.server_id).filter(|id| *id > 0),
            request_id: case.request_id.clone(),
            enforced: party.relayed && decision.mode == kams_policy::Mode::Enforce,
            gap: case.gap,
            action: decision.action.map_or("alert", Action::name).to_owned(),
            rule: decision.rule.clone(),
            would: decision.would.map(|action| action.name().to_owned()),
            fingerprint,
        };
        let record = FindingRecord::new(finding, context);
        if let Some(store) = &self.store {
            let row = FindingRow {
                seq: 0,
                at: case.time.unix_nanos(),
                uid: party.uid,
                server: party.server.to_string(),
                fingerprint: record.fingerprint.clone(),
                detector: record.detector.clone(),
                severity: finding.severity as u8,
                record: serde_json::to_string(&record).unwrap_or_default(),
            };
            store.write(WriteOp::Finding(Box::new(row)));
        }
        sink.finding(finding, record);
        decision
    }

    fn session(&mut self, case: &Case<'_>) -> Option<&mut InSession> {
        self.sessions.get_mut(&case.party.server_id)
    }
}

fn thresholds(policy: &Policy) -> Thresholds {
    let fallback = Thresholds::default();
    let knob = |name, otherwise| {
        policy
            .threshold("integrity.description_delta", name)
            .unwrap_or(otherwise)
    };
    Thresholds {
        high: knob("high", fallback.high),
        medium: knob("medium", fallback.medium),
    }
}

pub(in crate::engine) fn now(case: &Case<'_>) -> Now {
    let wall_ms = u64::try_from(case.time.unix_nanos() / 1_000_000).unwrap_or(0);
    Now {
        wall_ms,
        mono_ms: case.mono / 1_000_000,
    }
}

/// Equal for equal causes at one tool of one user's server, whenever and in whichever process they occur.
pub fn fingerprint(uid: u32, server: &str, finding: &Finding) -> String {
    let change = match &finding.evidence {
        Evidence::Drift { change, .. } => change,
        _ => "",
    };
    let mut hash = Sha256::new();
    for part in [
        uid.to_string().as_str(),
        server,
        finding.detector,
        change,
        finding.tool.as_deref().unwrap_or_default(),
        &finding.cause,
    ] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let digest = hash.finalize();
    hex::encode(digest.get(..8).unwrap_or_default())
}

/// Id of the request that an event is about, as JSON text.
pub(super) fn request_id(event: &Event<'_>) -> Option<String> {
    match &event.kind {
        EventKind::Request(request) => Some(describe::id(&request.id)),
        EventKind::Response(response) => {
            let call = event
                .tool_result()
                .and_then(|result| result.call.map(|call| describe::id(&call.id)));
            Some(call.unwrap_or_else(|| describe::id(&response.asked.id)))
        }
        _ => None,
    }
}

/// The scope of behaviour: one run with one user's server.
fn scope(session: &InSession) -> behaviour::Scope {
    behaviour::Scope::new(&session.run, &session.owner.server)
}

#[cfg(test)]
mod tests;
