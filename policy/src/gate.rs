//! The gate: policy and its state, asked about one message at a time. This is what the engine and the relay
//! call; everything behind it stands alone as well.

mod record;

use std::sync::Arc;

use serde_json::Value as Json;
use sha2::Digest;

use crate::action::{Action, Outcome};
use crate::approval::{Approval, ApprovalQueue, Approver, Refusal, Request, State};
use crate::checkpoint::Checkpoint;
use crate::decide::{Call, Decision, Finding, Hit, Start, Subject};
use crate::document::Point;
use crate::evidence::{Body, Chain, Record, RecordKind};
use crate::exception::set::{ExceptionError, ExceptionSet, KeptException};
use crate::matcher::Baseline;
use crate::mode::Mode;
use crate::policy::Policy;
use crate::restriction::{Restriction, RestrictionSet};
use crate::run::context::{self, Action as ContextAction};
use crate::run::fact::{Contribution, Identifier, project};
use crate::run::table::{Admission, Completion, Run, RunError, RunTable};
use crate::time::Now;

/// A call that an agent is about to make.
#[derive(Clone, Copy, Debug)]
pub struct ProposedCall<'a> {
    /// Whom it concerns; `tool` is set.
    pub subject: Subject<'a>,
    /// Its run, from [`Gate::enter_run`].
    pub run: &'a str,
    /// Identity of the operation, see [`operation_id`].
    pub operation: &'a str,
    /// `params.arguments`. Only what is declared is looked at.
    pub arguments: &'a Json,
    /// Digest of the canonical arguments; binds an approval.
    pub args_digest: &'a str,
    /// Where the call goes, where that is known; kept only if it has the shape of an identifier.
    pub target: Option<&'a str>,
    /// State of the tool's baseline.
    pub baseline: Option<Baseline>,
}

/// The answer for a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallVerdict {
    /// What happens to it.
    pub decision: Decision,
    /// What the run-level rules said, where they were asked.
    pub checkpoint: Option<Checkpoint>,
    /// The request for approval that it waits for, or that let it pass.
    pub approval: Option<u64>,
    /// Its place in the run, where it was admitted.
    pub admission: Option<Admission>,
}

/// Identity of an operation within its run.
///
/// A retry under a known idempotency key and a re-sent identical id are one operation (seed 002). Tool and
/// digest belong to the identity: a call with other arguments is another operation whatever its id says, or an
/// agent could send sixty payments under one id and be counted once.
pub fn operation_id(
    connection: &str,
    id: &str,
    idempotency_key: Option<&str>,
    tool: &str,
    args_digest: &str,
) -> String {
    let head = match idempotency_key {
        Some(key) => format!("key:{key}"),
        None => format!("id:{connection}:{id}"),
    };
    // Lengths keep the parts apart, and the digest keeps the identity short and free of text.
    let text = format!("{}:{head}{}:{tool}{args_digest}", head.len(), tool.len());
    hex::encode(sha2::Sha256::digest(text.as_bytes()))
        .split_at(32)
        .0
        .to_owned()
}

/// Digest of arguments, for approvals and operation identities: SHA-256 over canonical JSON, in hex.
pub fn args_digest(arguments: &Json) -> String {
    hex::encode(sha2::Sha256::digest(crate::canonical(arguments).as_bytes()))
}

/// Policy and its state.
#[derive(Debug, Default)]
pub struct Gate {
    policy: Arc<Policy>,
    /// Restrictions in force.
    pub restrictions: RestrictionSet,
    /// Living runs.
    pub runs: RunTable,
    /// Requests for approval.
    pub approvals: ApprovalQueue,
    /// Exceptions kept outside the file.
    pub exceptions: ExceptionSet,
    chain: Chain,
    outbox: Vec<Record>,
    /// Rules that could not be evaluated, in all.
    pub evaluation_errors: u64,
}

impl Gate {
    /// A gate with no state.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self {
            policy,
            ..Self::default()
        }
    }

    /// The policy in force.
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Puts another policy in force. State stays: restrictions, runs and requests are not the file's.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.policy = policy;
    }

    /// Goes on with a stored chain.
    pub fn resume_chain(&mut self, chain: Chain) {
        self.chain = chain;
    }

    /// The end of the record chain.
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Records made since the last call, for the store. They are written behind the verdict.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.outbox)
    }

    /// The run of an agent process; see [`RunTable::enter`].
    pub fn enter_run(&mut self, user: &str, instance: &str, agent: &str, now: Now) -> String {
        let (id, ended) = self
            .runs
            .enter(user, instance, agent, self.policy.runs.idle_timeout_ms, now);
        if let Some(run) = ended {
            self.run_ended(user, &run, now);
        }
        id
    }

    /// An agent process is gone.
    pub fn leave_run(&mut self, user: &str, instance: &str, now: Now) {
        if let Some(run) = self.runs.leave(user, instance) {
            self.run_ended(user, &run, now);
        }
    }

    /// Ends what time has ended: idle runs, requests, restrictions. Call it every few seconds.
    pub fn sweep(&mut self, now: Now) {
        let settings = &self.policy.runs;
        for (user, run) in self
            .runs
            .sweep(settings.idle_timeout_ms, settings.user_window_ms, now)
        {
            self.run_ended(&user, &run, now);
        }
        for approval in self.approvals.expire(now) {
            self.record_approval(&approval, now);
        }
        for restriction in self.restrictions.expire(now) {
            self.record_restriction(&restriction, "ended", None, now);
        }
        for (kept, exception) in self.exceptions.expire(now) {
            self.record_exception(&kept, &exception, "ended", None, now);
        }
    }

    fn run_ended(&mut self, user: &str, run: &Run, now: Now) {
        for approval in self.approvals.end_run(user, &run.id) {
            self.record_approval(&approval, now);
        }
        let mut body = self.body(RecordKind::RunEnd, user, &run.id, "ended");
        body.agent.clone_from(&run.agent);
        self.append(body, now);
    }

    /// What to do about a finding. A restriction that it leads to is in force at once.
    pub fn finding(&mut self, finding: &Finding<'_>, run: &str, now: Now) -> Decision {
        let mut decision = self.policy.on_finding(finding, self.exceptions.exceptions(), now);
        self.restrict(&mut decision, now);
        if decision.rule.is_some() {
            self.record_decision(RecordKind::Finding, &finding.subject, run, &decision, None, now);
        }
        decision
    }

    /// What to do about a server that was just started.
    pub fn start(&mut self, start: &Start<'_>, now: Now) -> Decision {
        let mut decision = self
            .restricted(&start.subject, now)
            .unwrap_or_else(|| self.policy.on_start(start, now));
        self.restrict(&mut decision, now);
        if decision.rule.is_some() {
            self.record_decision(RecordKind::Admission, &start.subject, "", &decision, None, now);
        }
        decision
    }

    /// What to do about a call. If it passes it counts as in flight; say how it ends with [`Gate::complete`].
    pub fn propose(&mut self, call: &ProposedCall<'_>, now: Now) -> CallVerdict {
        let subject = &call.subject;
        let tool = subject.tool.unwrap_or_default();
        let mut verdict = CallVerdict::default();
        let restricted = self.restricted(subject, now);
        let refused = restricted.as_ref().is_some_and(|d| !d.passes());
        verdict.decision = restricted.unwrap_or_else(|| {
            let call = Call {
                subject: *subject,
                baseline: call.baseline,
            };
            self.policy.on_call(&call, now)
        });
        let contributions = project(&self.policy.runs.facts, subject.server, tool, call.arguments);
        let counts = !contributions.is_empty();
        let repeated = self.runs.knows(subject.user, call.run, call.operation);
        if !refused && self.policy.runs.checks_before(tool) && self.policy.runs.concerns(subject) {
            let proposed: &[Contribution] = if repeated { &[] } else { &contributions };
            let checkpoint = self.ask(
                subject,
                call.run,
                Point::ToolCall,
                Some((call, &contributions, proposed)),
                now,
            );
            Self::join(&mut verdict.decision, &checkpoint, subject, now);
            self.record_checkpoint(subject, call.run, &checkpoint, now);
            verdict.checkpoint = Some(checkpoint);
        }
        if verdict.decision.outcome == Outcome::RequireApproval {
            self.hold(&mut verdict, call, tool, now);
        }
        if verdict.decision.passes() {
            match self
                .runs
                .admit(subject.user, call.run, call.operation, contributions, now)
            {
                Ok(admission) => verdict.admission = Some(admission),
                Err(error) => self.not_admitted(&mut verdict.decision, subject, error),
            }
        }
        self.restrict(&mut verdict.decision, now);
        let reference = match verdict.admission {
            Some(Admission::New(seq)) => Some(seq),
            _ => None,
        };
        // Calls that add no fact and match no rule leave no trace.
        if counts || verdict.decision.rule.is_some() || !verdict.decision.passes() {
            self.record_decision(
                RecordKind::Admission,
                subject,
                call.run,
                &verdict.decision,
                reference,
                now,
            );
        }
        verdict
    }

    /// A call ended.
    ///
    /// # Errors
    /// The run is not this user's, or is over.
    pub fn complete(
        &mut self,
        user: &str,
        run: &str,
        operation: &str,
        how: Completion,
        now: Now,
    ) -> Result<(), RunError> {
        self.runs
            .complete(user, run, operation, how, self.policy.runs.user_window_ms, now)
    }

    /// What rules at `tool_result` say about a result that is there but not yet forwarded.
    pub fn result(&mut self, call: &ProposedCall<'_>, now: Now) -> CallVerdict {
        let subject = &call.subject;
        let mut verdict = CallVerdict {
            decision: Decision {
                mode: self.policy.settings(subject).mode,
                ..Decision::default()
            },
            ..CallVerdict::default()
        };
        if !self.policy.runs.concerns(subject) {
            return verdict;
        }
        let contributions = project(
            &self.policy.runs.facts,
            subject.server,
            subject.tool.unwrap_or_default(),
            call.arguments,
        );
        let checkpoint = self.ask(
            subject,
            call.run,
            Point::ToolResult,
            Some((call, &contributions, &[])),
            now,
        );
        Self::join(&mut verdict.decision, &checkpoint, subject, now);
        if verdict.decision.outcome == Outcome::RequireApproval {
            self.hold(&mut verdict, call, subject.tool.unwrap_or_default(), now);
        }
        self.restrict(&mut verdict.decision, now);
        self.record_checkpoint(subject, call.run, &checkpoint, now);
        verdict.checkpoint = Some(checkpoint);
        verdict
    }

    /// A checkpoint on demand: completed facts only.
    ///
    /// # Errors
    /// The run is not this user's, or is over.
    pub fn checkpoint(&mut self, user: &str, run: &str, now: Now) -> Result<Checkpoint, RunError> {
        let agent = self
            .runs
            .get(user, run)
            .ok_or(RunError::UnknownRun)?
            .agent
            .clone();
        let subject = Subject {
            user,
            agent: &agent,
            ..Subject::default()
        };
        let checkpoint = self.ask(&subject, run, Point::OnDemand, None, now);
        self.record_checkpoint(&subject, run, &checkpoint, now);
        Ok(checkpoint)
    }

    /// A person decides on a request.
    ///
    /// # Errors
    /// Why this person may not.
    pub fn decide(
        &mut self,
        id: u64,
        approver: &Approver<'_>,
        approve: bool,
        now: Now,
    ) -> Result<Approval, Refusal> {
        let policy = Arc::clone(&self.policy);
        let approval = self
            .approvals
            .decide(id, approver, approve, &policy.approvals, now)?
            .clone();
        self.record_approval(&approval, now);
        Ok(approval)
    }

    /// Asks for the approval that a finding on an admitted call calls for, or uses up one that was given.
    pub fn ask_approval(&mut self, decision: Decision, call: &ProposedCall<'_>, now: Now) -> CallVerdict {
        let mut verdict = CallVerdict {
            decision,
            ..CallVerdict::default()
        };
        self.hold(&mut verdict, call, call.subject.tool.unwrap_or_default(), now);
        verdict
    }

    /// Records requests that were settled elsewhere, such as those that a restart denied.
    pub fn note_approvals(&mut self, approvals: &[Approval], now: Now) {
        for approval in approvals {
            self.record_approval(approval, now);
        }
    }

    /// The client gave up a call that is held.
    pub fn cancel(&mut self, id: u64, now: Now) {
        if let Some(approval) = self.approvals.cancel(id).cloned() {
            self.record_approval(&approval, now);
        }
    }

    /// Lifts a restriction; `by` is who did.
    pub fn lift(&mut self, id: u64, by: &str, now: Now) -> Option<Restriction> {
        let lifted = self.restrictions.lift(id)?;
        self.record_restriction(&lifted, "lifted", Some(by), now);
        Some(lifted)
    }

    /// Adds an exception outside the file; `by` is who did. It counts from the next finding on.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn add_exception(&mut self, text: &str, by: &str, now: Now) -> Result<KeptException, ExceptionError> {
        let kept = self.exceptions.add(text, by, now)?.clone();
        if let Some(exception) = self.exceptions.exceptions().last().cloned() {
            self.record_exception(&kept, &exception, "added", Some(by), now);
        }
        Ok(kept)
    }

    /// Takes an exception away that was added outside the file.
    pub fn remove_exception(&mut self, id: u64, by: &str, now: Now) -> Option<KeptException> {
        let (kept, exception) = self.exceptions.remove(id)?;
        self.record_exception(&kept, &exception, "removed", Some(by), now);
        Some(kept)
    }

    /// Records the end of runs (user, run, agent) that a restart cut off: their facts were in memory. Approvals of their
    /// calls lapse.
    pub fn note_lost_runs<'r>(
        &mut self,
        runs: impl IntoIterator<Item = (&'r str, &'r str, &'r str)>,
        now: Now,
    ) {
        for (user, run, agent) in runs {
            for approval in self.approvals.end_run(user, run) {
                self.record_approval(&approval, now);
            }
            let body = Body {
                agent: agent.to_owned(),
                ..self.body(RecordKind::RunEnd, user, run, "cut_off_by_restart")
            };
            self.append(body, now);
        }
    }

    /// The refusal of a restriction in force, in enforce mode on a relayed stream.
    fn restricted(&self, subject: &Subject<'_>, now: Now) -> Option<Decision> {
        let restriction = self.restrictions.check(subject, now)?;
        let mode = self.policy.settings(subject).mode;
        let enforced = mode == Mode::Enforce && subject.relayed;
        Some(Decision {
            outcome: if enforced { Outcome::Block } else { Outcome::Allow },
            action: Some(if enforced {
                restriction.action
            } else {
                Action::Alert
            }),
            would: (!enforced).then_some(restriction.action),
            rule: Some(restriction.rule.clone()),
            reason: self.policy.reason(&restriction.rule).map(str::to_owned),
            restriction: Some(restriction.clone()),
            mode,
            ..Decision::default()
        })
    }

    /// Puts the restriction of a decision in force and gives it its number.
    fn restrict(&mut self, decision: &mut Decision, now: Now) {
        if let Some(new) = decision.restriction.take_if(|r| r.id == 0) {
            let held = self.restrictions.add(new, now);
            self.record_restriction(&held, "added", None, now);
            decision.restriction = Some(held);
        }
    }

    fn ask(
        &mut self,
        subject: &Subject<'_>,
        run: &str,
        point: Point,
        call: Option<(&ProposedCall<'_>, &[Contribution], &[Contribution])>,
        now: Now,
    ) -> Checkpoint {
        let policy = Arc::clone(&self.policy);
        let keys = policy.runs.keys();
        let proposed = call.map(|(_, _, proposed)| proposed);
        let checkpoint = match self.runs.views(
            subject.user,
            run,
            &keys,
            proposed,
            policy.runs.user_window_ms,
            now,
        ) {
            Err(_) => policy.runs.unreachable(subject, point),
            Ok(views) => {
                let action = call.map(|(call, contributions, _)| ContextAction {
                    server: subject.server,
                    tool: subject.tool.unwrap_or_default(),
                    user: subject.user,
                    agent: subject.agent,
                    target: call.target.filter(|t| Identifier::new(t).is_some()),
                    contributions,
                });
                policy
                    .runs
                    .ask(subject, point, &context::build(&views, action.as_ref()))
            }
        };
        self.evaluation_errors = self.evaluation_errors.saturating_add(checkpoint.errors.into());
        checkpoint
    }

    /// Joins what a checkpoint says into a decision: the stronger wins, everything is listed.
    fn join(decision: &mut Decision, checkpoint: &Checkpoint, subject: &Subject<'_>, now: Now) {
        for hit in &checkpoint.matches {
            let action = match hit.decision {
                Outcome::Block => Action::BlockCall,
                Outcome::RequireApproval => Action::RequireApproval,
                Outcome::Warn => Action::Warn,
                Outcome::Allow | Outcome::Redact => continue,
            };
            decision.hits.push(Hit {
                rule: hit.rule_id.clone(),
                action: if hit.suspend_agent {
                    Action::SuspendAgent
                } else {
                    action
                },
                excepted: hit.dry_run.then(|| "draft".to_owned()),
            });
        }
        let (Some(action), Some(hit)) = (checkpoint.action(), checkpoint.decisive()) else {
            return;
        };
        if decision
            .action
            .or(decision.would)
            .is_some_and(|old| old.max(decision.would.unwrap_or(old)) >= action)
        {
            return;
        }
        decision.rule = Some(hit.rule_id.clone());
        decision.reason = Some(hit.reason.clone());
        decision.restriction = None;
        if action.enforces() && (decision.mode == Mode::Observe || !subject.relayed) {
            decision.would = Some(action);
            decision.action = Some(Action::Alert);
            decision.outcome = Outcome::Allow;
            return;
        }
        decision.would = None;
        decision.action = Some(action);
        decision.outcome = action.outcome();
        decision.approver_group.clone_from(&hit.approver_group);
        decision.restriction = Restriction::of(action, subject, &hit.rule_id, None, now);
    }

    /// Lets an approved call pass once, or asks for approval.
    fn hold(&mut self, verdict: &mut CallVerdict, call: &ProposedCall<'_>, tool: &str, now: Now) {
        let decision = &mut verdict.decision;
        let fields = verdict
            .checkpoint
            .as_ref()
            .and_then(Checkpoint::decisive)
            .map(|hit| hit.fields.clone());
        let request = Request {
            run: call.run.to_owned(),
            user: call.subject.user.to_owned(),
            agent: call.subject.agent.to_owned(),
            server: call.subject.server.to_owned(),
            tool: tool.to_owned(),
            args_digest: call.args_digest.to_owned(),
            rule: decision.rule.clone().unwrap_or_default(),
            group: decision.approver_group.clone(),
            reason: decision.reason.clone(),
            fields: fields.unwrap_or_default(),
        };
        if let Some(approval) = self.approvals.take(&request, now).cloned() {
            decision.outcome = Outcome::Allow;
            verdict.approval = Some(approval.id);
            self.record_approval(&approval, now);
            return;
        }
        let policy = Arc::clone(&self.policy);
        let newest = self.approvals.last_id();
        let approval = self.approvals.request(request, &policy.approvals, now).clone();
        if approval.state == State::Overflow {
            decision.outcome = Outcome::Block;
            decision.reason = Some("Too many calls of this user wait for approval.".to_owned());
        }
        verdict.approval = Some(approval.id);
        if approval.id > newest {
            self.record_approval(&approval, now);
        }
    }

    /// A call that cannot be counted is refused where run-level rules could have refused it (fail closed).
    fn not_admitted(&self, decision: &mut Decision, subject: &Subject<'_>, error: RunError) {
        let closed = !self
            .policy
            .runs
            .unreachable(subject, Point::ToolCall)
            .matches
            .iter()
            .all(|m| m.dry_run);
        if closed && decision.mode == Mode::Enforce && subject.relayed {
            decision.outcome = Outcome::Block;
            decision.action = Some(Action::BlockCall);
            decision.reason = Some(format!("The call cannot be counted: {error}."));
        }
    }
}
