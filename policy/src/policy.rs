//! Stage two: the checked and compiled policy, and what it says about one message.

use std::collections::BTreeMap;

use crate::action::{Action, Outcome};
use crate::decide::{Call, Decision, Finding, Hit, Start, Subject};
use crate::exception::Exception;
use crate::file::Files;
use crate::file::runs::RunPolicy;
use crate::index::Index;
use crate::matcher::{Event, Matcher, View};
use crate::mode::{Fail, Mode, Network, Seccomp};
use crate::problem::Problem;
use crate::restriction::Restriction;
use crate::time::Now;

/// The default policy, documented rule by rule.
const DEFAULT: &str = include_str!("../default.yaml");

/// One rule of the policy file.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Unique name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Text for the person at the agent.
    pub reason: Option<String>,
    /// What it does.
    pub action: Action,
    /// How long its restriction lasts, in milliseconds; none: until lifted.
    pub ttl_ms: Option<u64>,
    /// Who may approve, for require_approval.
    pub approver_group: Option<String>,
    /// Line in the file.
    pub line: u32,
    pub(crate) matcher: Matcher,
    pub(crate) unless: Vec<Matcher>,
}

/// An entry of `servers`.
#[derive(Clone, Debug)]
pub(crate) struct ServerEntry {
    pub(crate) matcher: Matcher,
    pub(crate) mode: Option<Mode>,
    pub(crate) fail: Option<Fail>,
    pub(crate) network: Option<Network>,
    pub(crate) seccomp: Option<Seccomp>,
    pub(crate) line: u32,
}

/// What holds for one server of one user and agent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Observe or enforce.
    pub mode: Mode,
    /// What a relay does while the engine is silent.
    pub fail: Fail,
    /// What the server may do on the network.
    pub network: Network,
    /// The filter of system calls that it is started under.
    pub seccomp: Seccomp,
    /// Line of the `servers` entry that matched; none where the file's own settings hold.
    pub line: Option<u32>,
}

/// Approvals as configured.
#[derive(Clone, Debug)]
pub struct ApprovalPolicy {
    /// How long a request waits, in milliseconds, before it is denied.
    pub timeout_ms: u64,
    /// How long an approval stays good for the one retry, in milliseconds.
    pub valid_for_ms: u64,
    /// Approver group to Unix group.
    pub groups: BTreeMap<String, String>,
    /// Approver group for rules that name none.
    pub default_group: Option<String>,
    /// Whether the user whose run it is may approve.
    pub allow_self: bool,
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            timeout_ms: 300_000,
            valid_for_ms: 600_000,
            groups: BTreeMap::new(),
            default_group: None,
            allow_self: false,
        }
    }
}

/// Numbers that detectors take from the policy: detector, knob, value.
pub type Thresholds = BTreeMap<String, BTreeMap<String, f64>>;

/// A checked and compiled policy. It only exists if its file had no error.
#[derive(Debug, Default)]
pub struct Policy {
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) mode: Mode,
    pub(crate) says_mode: bool,
    pub(crate) fail: Fail,
    pub(crate) thresholds: Thresholds,
    pub(crate) waste: kams_detect::waste::Config,
    pub(crate) servers: Vec<ServerEntry>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) index: Index,
    pub(crate) exceptions: Vec<Exception>,
    pub(crate) runs: RunPolicy,
    pub(crate) approvals: ApprovalPolicy,
    pub(crate) warnings: Vec<Problem>,
}

impl Policy {
    /// Checks and compiles a policy file. `files` gives the run-level documents that it names.
    ///
    /// # Errors
    /// Every problem of the file and of the documents it names, in order of place. At least one is an error.
    pub fn load(name: &str, text: &str, files: &dyn Files) -> Result<Self, Vec<Problem>> {
        crate::file::load(name, text, files)
    }

    /// The policy of a host without a policy file.
    pub fn default_policy() -> Self {
        // A test loads it; a build with a broken default never passes.
        Self::load("default.yaml", DEFAULT, &crate::file::NoFiles).unwrap_or_default()
    }

    /// The text of the default policy.
    pub const fn default_text() -> &'static str {
        DEFAULT
    }

    /// File name it was loaded from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the file and its documents, in hex.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// What a person should look at although the file loads.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Mode of servers for which no entry of `servers` says otherwise.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Exceptions of the file.
    pub fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }

    /// Run-level settings and documents.
    pub const fn runs(&self) -> &RunPolicy {
        &self.runs
    }

    /// Approval settings.
    pub const fn approvals(&self) -> &ApprovalPolicy {
        &self.approvals
    }

    /// Detector numbers.
    pub const fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Knobs of the waste rules.
    pub const fn waste(&self) -> &kams_detect::waste::Config {
        &self.waste
    }

    /// A detector number, such as `threshold("integrity.description_delta", "high")`.
    pub fn threshold(&self, detector: &str, knob: &str) -> Option<f64> {
        self.thresholds.get(detector)?.get(knob).copied()
    }

    /// What the rule of this name says to the person at the agent.
    pub fn reason(&self, rule: &str) -> Option<&str> {
        let rule = self.rules.iter().find(|one| one.name == rule)?;
        rule.reason.as_deref()
    }

    /// Gives a policy whose text does not say `mode` the one of its surroundings.
    #[must_use]
    pub const fn with_default_mode(mut self, mode: Mode) -> Self {
        if !self.says_mode {
            self.mode = mode;
        }
        self
    }

    /// Whether any server at all may be in enforce mode.
    pub fn may_enforce(&self) -> bool {
        self.mode == Mode::Enforce || self.servers.iter().any(|entry| entry.mode == Some(Mode::Enforce))
    }

    /// Whether any server at all is to do without the network.
    pub fn may_cut_off(&self) -> bool {
        self.servers
            .iter()
            .any(|entry| entry.network == Some(Network::None))
    }

    /// Mode, fail mode and network for one server: the first entry of `servers` that matches.
    pub fn settings(&self, subject: &Subject<'_>) -> Settings {
        let view = View {
            event: Event::ServerStart,
            subject: *subject,
            baseline: None,
            finding: None,
        };
        let entry = self.servers.iter().find(|entry| entry.matcher.matches(&view));
        Settings {
            mode: entry.and_then(|e| e.mode).unwrap_or(self.mode),
            fail: entry.and_then(|e| e.fail).unwrap_or(self.fail),
            network: entry.and_then(|e| e.network).unwrap_or_default(),
            seccomp: entry.and_then(|e| e.seccomp).unwrap_or_default(),
            line: entry.map(|e| e.line),
        }
    }

    /// What to do about a finding. `extra` are exceptions kept outside the file.
    pub fn on_finding(&self, finding: &Finding<'_>, extra: &[Exception], now: Now) -> Decision {
        let mut decision = self.decide(&View::from(finding), extra, now);
        decision.gap = finding.gap;
        decision
    }

    /// What rules with `on: call` say about a call that is about to be made.
    pub fn on_call(&self, call: &Call<'_>, now: Now) -> Decision {
        self.decide(&View::from(call), &[], now)
    }

    /// What rules with `on: server_start` say about a server that was just started.
    pub fn on_start(&self, start: &Start<'_>, now: Now) -> Decision {
        self.decide(&View::from(start), &[], now)
    }

    pub(crate) fn hits<'p>(&'p self, view: &View<'_>) -> Vec<&'p Rule> {
        self.index
            .candidates(view)
            .into_iter()
            .filter_map(|i| self.rules.get(i as usize))
            .filter(|rule| {
                rule.matcher.listens(view.event)
                    && rule.matcher.matches(view)
                    && !rule.unless.iter().any(|unless| unless.matches(view))
            })
            .collect()
    }

    fn decide(&self, view: &View<'_>, extra: &[Exception], now: Now) -> Decision {
        let rules = self.hits(view);
        let excepted = if rules.is_empty() {
            None
        } else {
            let mut all = self.exceptions.iter().chain(extra);
            all.find(|e| e.covers(view, now)).map(Exception::label)
        };
        let hits = rules
            .iter()
            .map(|rule| Hit {
                rule: rule.name.clone(),
                action: rule.action,
                excepted: excepted.clone(),
            })
            .collect();
        let mode = self.settings(&view.subject).mode;
        let mut decision = Decision {
            hits,
            mode,
            ..Decision::default()
        };
        if excepted.is_some() {
            return decision;
        }
        // The first of the strongest, so that the reported rule does not depend on the sort.
        let mut strongest: Option<&Rule> = None;
        for rule in &rules {
            if strongest.is_none_or(|s| rule.action > s.action) {
                strongest = Some(rule);
            }
        }
        if let Some(rule) = strongest {
            self.apply(&mut decision, rule, view, now);
        }
        decision
    }

    fn apply(&self, decision: &mut Decision, rule: &Rule, view: &View<'_>, now: Now) {
        decision.rule = Some(rule.name.clone());
        decision.reason.clone_from(&rule.reason);
        let subject = &view.subject;
        let can = subject.relayed || rule.action.without_relay();
        if rule.action.enforces() && (decision.mode == Mode::Observe || !can) {
            decision.would = Some(rule.action);
            decision.action = Some(Action::Alert);
            return;
        }
        decision.action = Some(rule.action);
        decision.outcome = match rule.action.outcome() {
            // On a stream that is only watched, the host-level action is taken and the message has passed.
            _ if !subject.relayed => Outcome::Allow,
            outcome => outcome,
        };
        decision.restriction = Restriction::of(rule.action, subject, &rule.name, rule.ttl_ms, now);
        if rule.action == Action::RequireApproval {
            decision.approver_group = rule
                .approver_group
                .clone()
                .or_else(|| self.approvals.default_group.clone());
        }
    }
}
