//! `kams policy generate tool-chain`: the three rule templates of seed 002 as ordinary rules.

use serde_json::{Value as Json, json};

use crate::action::Outcome;
use crate::logic::number;

/// What a template decides, and who approves.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// warn, require_approval or block.
    pub decision: Outcome,
    /// Needed for require_approval.
    pub approver_group: Option<String>,
}

/// Secret retrieval and external send in one run.
#[derive(Clone, Debug)]
pub struct SecretThenExternal {
    /// Fact key of the tool that retrieves secrets.
    pub secret: String,
    /// Fact key of the tool that sends to the outside.
    pub external: String,
    /// Decision.
    pub verdict: Verdict,
}

/// Customer enumeration and a large export in one run.
#[derive(Clone, Debug)]
pub struct EnumerationThenExport {
    /// Fact key of the tool that enumerates.
    pub enumeration: String,
    /// Fact key of the tool that exports.
    pub export: String,
    /// Numeric field with the number of records.
    pub count_field: String,
    /// Records from which on it holds.
    pub volume: f64,
    /// Decision.
    pub verdict: Verdict,
}

/// Many small actions that add up.
#[derive(Clone, Debug)]
pub struct RepeatedLowValue {
    /// Fact key of the tool.
    pub action: String,
    /// Numeric field with the amount.
    pub amount_field: String,
    /// Calls from which on it holds.
    pub calls: u64,
    /// Total from which on it holds.
    pub total: f64,
    /// Largest amount of one call up to which it holds.
    pub per_call: f64,
    /// What the reason calls the actions, such as `payments`.
    pub noun: String,
    /// Decision.
    pub verdict: Verdict,
}

/// All three, and the document around them.
#[derive(Clone, Debug)]
pub struct ToolChain {
    /// Id of the policy.
    pub policy_id: String,
    /// Workspace it belongs to.
    pub workspace_id: String,
    /// Environments of its scope; empty is all.
    pub environments: Vec<String>,
    /// First template.
    pub secret: Option<SecretThenExternal>,
    /// Second template.
    pub enumeration: Option<EnumerationThenExport>,
    /// Third template.
    pub repeated: Option<RepeatedLowValue>,
}

impl Default for ToolChain {
    /// The tools, numbers and decisions of the seed's example.
    fn default() -> Self {
        let approval = |group: &str| Verdict {
            decision: Outcome::RequireApproval,
            approver_group: Some(group.to_owned()),
        };
        Self {
            policy_id: "pol_run_tool_chain_checkpoints".to_owned(),
            workspace_id: "workspace-regulated-operations".to_owned(),
            environments: vec!["prod".to_owned()],
            secret: Some(SecretThenExternal {
                secret: "secret_read".to_owned(),
                external: "external_send".to_owned(),
                verdict: Verdict {
                    decision: Outcome::Block,
                    approver_group: None,
                },
            }),
            enumeration: Some(EnumerationThenExport {
                enumeration: "customer_enumeration".to_owned(),
                export: "customer_export".to_owned(),
                count_field: "record_count".to_owned(),
                volume: 500.0,
                verdict: approval("security_reviewers"),
            }),
            repeated: Some(RepeatedLowValue {
                action: "payment_submit".to_owned(),
                amount_field: "amount".to_owned(),
                calls: 10,
                total: 4000.0,
                per_call: 500.0,
                noun: "payments".to_owned(),
                verdict: approval("payments_reviewers"),
            }),
        }
    }
}

/// One comparison: operator, path below `context.run.tools`, bound.
type Condition<'a> = (&'a str, String, f64);

impl ToolChain {
    /// The document, status `draft`: a person publishes it.
    pub fn document(&self) -> Json {
        let mut rules = Vec::new();
        if let Some(t) = &self.secret {
            rules.push(rule(
                "run-tool-chain-secret-then-external",
                "Secret retrieval and external send occur in one run",
                "Detects configured secret retrieval and external send calls that both occur before a checkpoint. Version 1 does not establish call order.",
                &[(">", format!("{}.calls", t.secret), 0.0), (">", format!("{}.calls", t.external), 0.0)],
                "The run retrieved a secret and reached an external target before this checkpoint.",
                "run_chain_secret_then_external",
                &t.verdict,
            ));
        }
        if let Some(t) = &self.enumeration {
            rules.push(rule(
                "run-tool-chain-enumeration-then-export",
                "Customer enumeration and large export occur in one run",
                "Detects configured customer enumeration and large export facts that both occur before a checkpoint. Version 1 does not establish call order.",
                &[
                    (">", format!("{}.calls", t.enumeration), 0.0),
                    (">=", format!("{}.numericSums.{}", t.export, t.count_field), t.volume),
                ],
                "The run enumerated customers and exported records beyond the configured volume.",
                "run_chain_enumeration_then_export",
                &t.verdict,
            ));
        }
        if let Some(t) = &self.repeated {
            let reason = format!(
                "Repeated {} below the per-call limit crossed the total threshold.",
                t.noun
            );
            #[expect(clippy::cast_precision_loss, reason = "a call threshold is far below 2^53")]
            let calls = t.calls as f64;
            rules.push(rule(
                "run-tool-chain-repeated-low-value-actions",
                "Repeated low-value actions cross the total threshold",
                "Detects configured repeated actions whose every declared amount is at or below the configured per-call limit and whose total crosses the configured threshold.",
                &[
                    (">=", format!("{}.calls", t.action), calls),
                    (">=", format!("{}.numericSums.{}", t.action, t.amount_field), t.total),
                    ("<=", format!("{}.numericMaximums.{}", t.action, t.amount_field), t.per_call),
                ],
                &reason,
                "run_chain_repeated_low_value",
                &t.verdict,
            ));
        }
        json!({
            "schemaVersion": "1.0.0",
            "policyId": self.policy_id,
            "workspaceId": self.workspace_id,
            "name": "Run tool-chain checkpoints",
            "description": "Evaluates accumulated run facts at workflow checkpoints for dangerous co-occurrences and aggregates of tool calls.",
            "status": "draft",
            "version": "1.0.0",
            "policyKind": "guardrail",
            "scope": {"workflowIds": [], "agentIds": [], "stepIds": [], "environments": self.environments},
            "defaultDecision": "allow",
            "rules": rules,
        })
    }

    /// The `runs.facts` entries that the document needs: fact keys equal tool names here; change `tool` where
    /// they do not.
    pub fn facts(&self) -> Json {
        let mut facts = Vec::new();
        let mut add = |key: &str, numeric: Option<&str>| {
            let mut fact = json!({"tool": key, "key": key});
            if let (Some(field), Some(map)) = (numeric, fact.as_object_mut()) {
                map.insert("numeric_keys".to_owned(), json!([field]));
            }
            facts.push(fact);
        };
        if let Some(t) = &self.secret {
            add(&t.secret, None);
            add(&t.external, None);
        }
        if let Some(t) = &self.enumeration {
            add(&t.enumeration, None);
            add(&t.export, Some(&t.count_field));
        }
        if let Some(t) = &self.repeated {
            add(&t.action, Some(&t.amount_field));
        }
        Json::Array(facts)
    }
}

fn rule(
    id: &str,
    name: &str,
    description: &str,
    conditions: &[Condition<'_>],
    reason: &str,
    code: &str,
    verdict: &Verdict,
) -> Json {
    let paths: Vec<String> = conditions
        .iter()
        .map(|(_, path, _)| format!("context.run.tools.{path}"))
        .collect();
    let all: Vec<Json> = conditions
        .iter()
        .zip(&paths)
        .map(|((operator, _, bound), path)| json!({ *operator: [{"var": path}, number(*bound)] }))
        .collect();
    let mut then = json!({
        "decision": verdict.decision.name(),
        "reason": reason,
        "reasonCodes": [code],
    });
    if let (Some(group), Some(map)) = (&verdict.approver_group, then.as_object_mut()) {
        map.insert("approverGroup".to_owned(), json!(group));
    }
    json!({
        "ruleId": id,
        "name": name,
        "description": description,
        "when": {"expression": {"and": all}},
        "then": then,
        "execution": {"mode": "deterministic"},
        "evidence": {"evaluatedFields": paths, "artifactRefs": []},
    })
}
