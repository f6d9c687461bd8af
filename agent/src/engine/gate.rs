//! The policy's gate at work: runs by agent process, calls before they pass, answers, and what is kept of it all.
//!
//! On a stream that is only watched nothing is refused, and what enforcement would have done is recorded; a relay
//! carries out what is decided here. Records are numbered and chained at once and written behind ([`keep`]); their numbers survive a kill, so a restart can say
//! which of them are missing.

pub mod cut_off;
mod findings;
mod held;
pub mod keep;
mod told;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use kams_detect::Finding;
use kams_export::view::Time;
use kams_mcp::RequestId;
use kams_policy::{
    Action, Baseline, CallVerdict, Completion, Decision, Gate, Now, Outcome, Policy, ProposedCall, Start,
    Subject, args_digest, operation_id,
};
use kams_store::Store;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::conversation::Party;
use super::sink::Sink;
use cut_off::CutOffs;
pub use held::Settled;
use held::Waits;
use keep::Missing;

/// Calls of one server that wait for their answers; beyond it a call counts at once as one whose end is unknown.
const OPEN: usize = 4_096;
/// Longest text of an argument that can become a fact: an identifier's length in bytes.
const IDENTIFIER: usize = 512;

/// A call on its way.
pub struct Outgoing<'a> {
    /// Its id; none for a call without one, which no answer can end.
    pub id: Option<&'a RequestId>,
    /// Id as JSON text.
    pub id_text: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// `params.arguments` as written.
    pub arguments: &'a str,
    /// State of the tool's baseline.
    pub baseline: Option<Baseline>,
    /// What the agent says tells a retry from a new operation.
    pub idempotency_key: Option<&'a str>,
}

/// What is kept of a call until its answer comes: of its arguments only what is declared.
#[derive(Clone, Debug)]
struct Open {
    user: String,
    run: String,
    operation: String,
    tool: String,
    digest: String,
    declared: Value,
}

/// One agent process and its servers.
#[derive(Debug)]
struct Instance {
    user: String,
    name: String,
    /// Its run; empty before its first call.
    run: String,
    /// Server instances with a conversation.
    servers: HashSet<u64>,
    /// The process has ended; the run does when the last conversation is told.
    gone: bool,
}

/// The gate with what it needs of the engine.
#[derive(Debug)]
pub struct Gatekeeper {
    gate: Gate,
    store: Option<Arc<Store>>,
    /// Tells runs of this start of the daemon from those of others: facts do not survive a restart.
    start: String,
    open: HashMap<u64, HashMap<RequestId, Open>>,
    instances: HashMap<(u32, u32), Instance>,
    uids: BTreeMap<String, u32>,
    told: findings::Told,
    missing: Missing,
    /// Calls that a relay holds, by the number of their request for approval.
    waiting: HashMap<u64, Waits>,
    /// Whom restrictions cut off the network, for whoever does it.
    cut_offs: tokio::sync::watch::Sender<CutOffs>,
}

impl Gatekeeper {
    /// A gate over what the store remembers.
    pub fn new(policy: Arc<Policy>, store: Option<Arc<Store>>, now: Now) -> Self {
        let mut keeper = Self {
            gate: Gate::new(policy),
            start: if store.is_some() {
                format!("{}-{:x}", boot(), now.wall_ms)
            } else {
                "replay".to_owned()
            },
            store,
            open: HashMap::new(),
            instances: HashMap::new(),
            uids: BTreeMap::new(),
            told: findings::Told::default(),
            missing: Missing::default(),
            waiting: HashMap::new(),
            cut_offs: tokio::sync::watch::Sender::default(),
        };
        keeper.restore(now);
        keeper.publish_cut_offs(now);
        keeper
    }

    /// The policy in force.
    pub const fn policy(&self) -> &Arc<Policy> {
        self.gate.policy()
    }

    /// Takes another policy for what comes from now on.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.gate.set_policy(policy);
    }

    /// The gate itself, for reading.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Numbers of records that were handed out and never stored.
    pub const fn missing(&self) -> &Missing {
        &self.missing
    }

    /// User id behind a name, where a conversation or a stored restriction told it.
    pub fn uid(&self, user: &str) -> Option<u32> {
        self.uids.get(user).copied()
    }

    /// What policy says about a finding.
    pub(super) fn finding(
        &mut self,
        party: &Party,
        view: &kams_policy::Finding<'_>,
        now: Now,
        sink: &mut dyn Sink,
    ) -> Decision {
        self.uids.insert(party.user.to_string(), party.uid);
        // A finding makes no run: a run is made of calls.
        let run = self
            .instances
            .get(&(party.uid, party.agent_pid))
            .map(|instance| instance.run.clone())
            .filter(|run| self.gate.runs.get(&party.user, run).is_some())
            .unwrap_or_default();
        let decision = self.gate.finding(view, &run, now);
        self.drain(now, sink);
        decision
    }

    /// A server has started under this name.
    pub(super) fn started(&mut self, party: &Party, now: Now, sink: &mut dyn Sink) -> Decision {
        self.uids.insert(party.user.to_string(), party.uid);
        let start = Start {
            subject: Subject {
                tool: None,
                ..subject(party, "")
            },
        };
        let decision = self.gate.start(&start, now);
        if let Some(event) = told::of_start(party, &decision, now) {
            sink.event(event);
        }
        self.drain(now, sink);
        decision
    }

    /// An agent proposes a call. Gives what run-level rules found.
    pub(super) fn propose(
        &mut self,
        party: &Party,
        call: &Outgoing<'_>,
        now: Now,
        sink: &mut dyn Sink,
    ) -> Vec<(Finding, Decision)> {
        let run = self.enter(party, now);
        let digest = self.digest(call.arguments);
        let operation = operation_id(
            &party.server_id.to_string(),
            call.id_text,
            call.idempotency_key,
            call.tool,
            &digest,
        );
        let declared = self.declared(party, call.tool, call.arguments);
        let verdict = self.gate.propose(
            &ProposedCall {
                subject: subject(party, call.tool),
                run: &run,
                operation: &operation,
                arguments: &declared,
                args_digest: &digest,
                target: None,
                baseline: call.baseline,
            },
            now,
        );
        if let Some(event) = told::of_call(party, call.tool, call.id_text, &verdict, now) {
            sink.event(event);
        }
        sink.called(&verdict, false);
        let found = self.found(&verdict, &run, call.tool);
        let open = Open {
            user: party.user.to_string(),
            run,
            operation,
            tool: call.tool.to_owned(),
            digest,
            declared,
        };
        if verdict.admission.is_some() {
            self.keep_open(party.server_id, call.id, open, now);
        } else if let (Outcome::RequireApproval, Some(approval)) =
            (verdict.decision.outcome, verdict.approval)
        {
            self.waiting
                .insert(approval, Waits::proposed(open, call.baseline));
        }
        self.drain(now, sink);
        found
    }

    fn keep_open(&mut self, server: u64, id: Option<&RequestId>, open: Open, now: Now) {
        let calls = self.open.entry(server).or_default();
        let beyond = match id {
            Some(id) if calls.len() < OPEN || calls.contains_key(id) => calls.insert(id.clone(), open),
            _ => Some(open),
        };
        if let Some(open) = beyond {
            // A second call under a living id is another operation unless it is the same one again.
            let same = id
                .and_then(|id| self.open.get(&server)?.get(id))
                .is_some_and(|now_open| now_open.operation == open.operation);
            if !same {
                self.end(&open, Completion::Unknown, now);
            }
        }
    }

    /// An answer has come, or will never come. Gives what run-level rules found at results.
    pub(super) fn ended(
        &mut self,
        party: &Party,
        id: &RequestId,
        how: Completion,
        now: Now,
        sink: &mut dyn Sink,
    ) -> Vec<(Finding, Decision)> {
        let Some(open) = self
            .open
            .get_mut(&party.server_id)
            .and_then(|calls| calls.remove(id))
        else {
            return Vec::new();
        };
        let (mut how, mut found) = (how, Vec::new());
        if how == Completion::Succeeded {
            let call = ProposedCall {
                subject: subject(party, &open.tool),
                run: &open.run,
                operation: &open.operation,
                arguments: &open.declared,
                args_digest: &open.digest,
                target: None,
                baseline: None,
            };
            let verdict: CallVerdict = self.gate.result(&call, now);
            if verdict.decision.outcome == Outcome::RequireApproval {
                how = Completion::Gated;
            }
            sink.called(&verdict, true);
            found = self.found(&verdict, &open.run, &open.tool);
        }
        self.end(&open, how, now);
        self.drain(now, sink);
        found
    }

    fn end(&mut self, open: &Open, how: Completion, now: Now) {
        if let Err(error) = self
            .gate
            .complete(&open.user, &open.run, &open.operation, how, now)
        {
            tracing::debug!(%error, run = open.run, "a call ended after its run");
        }
    }

    /// A conversation begins.
    pub(super) fn joined(&mut self, party: &Party) {
        self.uids.insert(party.user.to_string(), party.uid);
        let name = format!("{}-{}-{:x}", self.start, party.agent_pid, party.agent_start);
        let key = (party.uid, party.agent_pid);
        let same = self.instances.get(&key).is_some_and(|known| known.name == name);
        if !same {
            let fresh = Instance {
                user: party.user.to_string(),
                name,
                run: String::new(),
                servers: HashSet::new(),
                gone: false,
            };
            // A reused process number: what was there before has ended.
            if let Some(before) = self.instances.insert(key, fresh) {
                self.leave_run(&before, here());
            }
        }
        if let Some(instance) = self.instances.get_mut(&key) {
            instance.servers.insert(party.server_id);
        }
    }

    /// A conversation is over: calls without an answer may have happened.
    pub(super) fn left(&mut self, party: &Party, now: Now) {
        for (_, open) in self.open.remove(&party.server_id).unwrap_or_default() {
            self.end(&open, Completion::Unknown, now);
        }
        if let Some(instance) = self.instances.get_mut(&(party.uid, party.agent_pid)) {
            instance.servers.remove(&party.server_id);
        }
    }

    /// An agent process has ended.
    pub(super) fn agent_gone(&mut self, uid: u32, pid: u32) {
        if let Some(instance) = self.instances.get_mut(&(uid, pid)) {
            instance.gone = true;
        }
    }

    /// Ends what time has ended. Call it every second or so.
    pub fn sweep(&mut self, now: Now, sink: &mut dyn Sink) {
        let over: Vec<(u32, u32)> = self
            .instances
            .iter()
            .filter(|(_, instance)| instance.gone && instance.servers.is_empty())
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            if let Some(instance) = self.instances.remove(&key) {
                self.leave_run(&instance, now);
            }
        }
        self.gate.sweep(now);
        self.drain(now, sink);
        self.show(now, sink);
    }

    /// Carries out an order from outside, and keeps what came of it.
    pub fn order<T>(&mut self, now: Now, sink: &mut dyn Sink, work: impl FnOnce(&mut Gate) -> T) -> T {
        let result = work(&mut self.gate);
        self.drain(now, sink);
        self.show(now, sink);
        result
    }

    /// Lifts every restriction; `by` says who did.
    pub fn lift_all(&mut self, by: &str, sink: &mut dyn Sink) {
        let now = here();
        let ids: Vec<u64> = self
            .gate
            .restrictions
            .list(now)
            .iter()
            .map(|one| one.id)
            .collect();
        self.order(now, sink, |gate| {
            for id in ids {
                // One that has just ended needs no lifting.
                let _ended = gate.lift(id, by, now);
            }
        });
    }

    fn leave_run(&mut self, instance: &Instance, now: Now) {
        self.gate.leave_run(&instance.user, &instance.name, now);
    }

    fn enter(&mut self, party: &Party, now: Now) -> String {
        let key = (party.uid, party.agent_pid);
        if !self.instances.contains_key(&key) {
            self.joined(party);
        }
        let Some(instance) = self.instances.get_mut(&key) else {
            return String::new();
        };
        instance.run = self
            .gate
            .enter_run(&party.user, &instance.name, &party.agent, now);
        instance.run.clone()
    }

    /// Digest of the arguments: of their canonical form where an approval could be bound to it.
    fn digest(&self, arguments: &str) -> String {
        let policy = self.gate.policy();
        let asks = !policy.runs().documents.is_empty()
            || policy
                .rules()
                .iter()
                .any(|rule| rule.action == Action::RequireApproval);
        let value = asks
            .then(|| serde_json::from_str::<Value>(arguments).ok())
            .flatten();
        value.map_or_else(
            || hex::encode(Sha256::digest(arguments.as_bytes())),
            |value| args_digest(&value),
        )
    }

    /// The declared arguments, if they can become facts at all.
    fn declared(&self, party: &Party, tool: &str, arguments: &str) -> Value {
        let mut names = HashSet::new();
        for fact in &self.gate.policy().runs().facts {
            let server = fact
                .server
                .as_ref()
                .is_none_or(|glob| glob.matches(&party.server));
            if server && fact.tool.matches(tool) {
                names.extend(fact.arg_keys.iter().chain(&fact.numeric_keys).map(String::as_str));
            }
        }
        if names.is_empty() {
            return Value::Null;
        }
        let all: Map<String, Value> = serde_json::from_str(arguments).unwrap_or_default();
        let small = |value: &Value| match value {
            Value::Number(_) => true,
            Value::String(text) => text.len() <= IDENTIFIER,
            _ => false,
        };
        all.into_iter()
            .filter(|(name, value)| names.contains(name.as_str()) && small(value))
            .collect()
    }
}

fn subject<'a>(party: &'a Party, tool: &'a str) -> Subject<'a> {
    Subject {
        user: &party.user,
        agent: &party.agent,
        server: &party.server,
        tool: Some(tool),
        relayed: party.relayed,
    }
}

/// This moment, for what no message dates.
pub fn here() -> Now {
    let wall = Time::now().unix_nanos() / 1_000_000;
    Now {
        wall_ms: u64::try_from(wall).unwrap_or(0),
        mono_ms: kams_host::clock::boot_ns() / 1_000_000,
    }
}

/// The kernel's boot id, in short.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.chars().filter(char::is_ascii_hexdigit).take(8).collect()
}
