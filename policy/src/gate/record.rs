//! Decisions as records of evidence.

use super::Gate;
use crate::approval::Approval;
use crate::checkpoint::Checkpoint;
use crate::decide::{Decision, Subject};
use crate::evidence::{Body, RecordKind};
use crate::exception::Exception;
use crate::exception::set::KeptException;
use crate::mode::Mode;
use crate::restriction::Restriction;
use crate::time::Now;

impl Gate {
    pub(super) fn append(&mut self, body: Body, now: Now) {
        let record = self.chain.append(body, now);
        self.outbox.push(record);
    }

    /// A body under the policy file.
    pub(super) fn body(&self, kind: RecordKind, user: &str, run: &str, decision: &str) -> Body {
        Body {
            kind,
            run: run.to_owned(),
            user: user.to_owned(),
            agent: String::new(),
            server: String::new(),
            tool: None,
            policy_id: "file".to_owned(),
            policy_version: self.policy.hash().chars().take(16).collect(),
            rule: None,
            decision: decision.to_owned(),
            reason: None,
            reason_codes: Vec::new(),
            mode: "deterministic".to_owned(),
            enforced: true,
            evaluated_fields: serde_json::Map::new(),
            approver: None,
            reference: None,
        }
    }

    pub(super) fn record_decision(
        &mut self,
        kind: RecordKind,
        subject: &Subject<'_>,
        run: &str,
        decision: &Decision,
        reference: Option<u64>,
        now: Now,
    ) {
        let mut body = self.body(kind, subject.user, run, decision.outcome.name());
        subject.agent.clone_into(&mut body.agent);
        subject.server.clone_into(&mut body.server);
        body.tool = subject.tool.map(str::to_owned);
        body.rule.clone_from(&decision.rule);
        body.reason.clone_from(&decision.reason);
        body.enforced = decision.would.is_none();
        body.reference = reference;
        self.append(body, now);
    }

    /// One record for each run-level rule that held or failed: they may belong to different policies.
    pub(super) fn record_checkpoint(
        &mut self,
        subject: &Subject<'_>,
        run: &str,
        checkpoint: &Checkpoint,
        now: Now,
    ) {
        let enforced = self.policy.settings(subject).mode == Mode::Enforce && subject.relayed;
        for hit in &checkpoint.matches {
            let mut body = self.body(RecordKind::Checkpoint, subject.user, run, hit.decision.name());
            subject.agent.clone_into(&mut body.agent);
            subject.server.clone_into(&mut body.server);
            body.tool = subject.tool.map(str::to_owned);
            body.policy_id.clone_from(&hit.policy_id);
            body.policy_version.clone_from(&hit.version);
            body.rule = Some(hit.rule_id.clone());
            body.reason = Some(match &hit.error {
                Some(error) => format!("{} (evaluation error: {error})", hit.reason),
                None => hit.reason.clone(),
            });
            body.reason_codes.clone_from(&hit.reason_codes);
            body.enforced = enforced && !hit.dry_run;
            body.evaluated_fields = hit.fields.iter().cloned().collect();
            self.append(body, now);
        }
    }

    pub(super) fn record_approval(&mut self, approval: &Approval, now: Now) {
        let request = &approval.request;
        let mut body = self.body(
            RecordKind::Approval,
            &request.user,
            &request.run,
            approval.state.name(),
        );
        body.agent.clone_from(&request.agent);
        body.server.clone_from(&request.server);
        body.tool = Some(request.tool.clone());
        body.rule = Some(request.rule.clone());
        body.reason.clone_from(&request.reason);
        body.evaluated_fields = request.fields.iter().cloned().collect();
        body.approver = approval.state.by().map(str::to_owned);
        body.reference = Some(approval.id);
        self.append(body, now);
    }

    pub(super) fn record_restriction(
        &mut self,
        restriction: &Restriction,
        what: &str,
        by: Option<&str>,
        now: Now,
    ) {
        let decision = format!("{} {what}", restriction.action.name());
        let mut body = self.body(RecordKind::Restriction, &restriction.user, "", &decision);
        body.agent.clone_from(&restriction.agent);
        body.server.clone_from(&restriction.server);
        body.tool.clone_from(&restriction.tool);
        body.rule = Some(restriction.rule.clone());
        body.approver = by.map(str::to_owned);
        body.reference = Some(restriction.id);
        self.append(body, now);
    }

    pub(super) fn record_exception(
        &mut self,
        kept: &KeptException,
        exception: &Exception,
        what: &str,
        by: Option<&str>,
        now: Now,
    ) {
        let mut body = self.body(RecordKind::Exception, "", "", &format!("exception {what}"));
        body.reason = Some(exception.label());
        body.approver = by.map(str::to_owned);
        body.reference = Some(kept.id);
        self.append(body, now);
    }
}
