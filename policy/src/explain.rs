//! Why a finding got its decision: each rule with the first condition that failed.

use crate::action::Action;
use crate::decide::{Decision, Finding};
use crate::exception::Exception;
use crate::matcher::View;
use crate::policy::{Policy, Settings};
use crate::time::Now;

/// What became of one rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RuleVerdict {
    /// It matched.
    Matched,
    /// Its `match` key named here did not hold.
    NoMatch(&'static str),
    /// It matched, but its `unless` held.
    Exempt,
    /// It is for other events than findings.
    OtherEvent,
}

/// The explanation of one decision.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Each rule in order: name, action, line, verdict.
    pub rules: Vec<(String, Action, u32, RuleVerdict)>,
    /// Mode and the `servers` entry it came from.
    pub settings: Settings,
    /// The decision itself.
    pub decision: Decision,
}

impl Policy {
    /// Why this finding is decided as it is.
    pub fn explain(&self, finding: &Finding<'_>, extra: &[Exception], now: Now) -> Explanation {
        let view = View::from(finding);
        let rules = self.rules.iter().map(|rule| {
            let verdict = if !rule.matcher.listens(view.event) {
                RuleVerdict::OtherEvent
            } else if let Some(key) = rule.matcher.failing(&view) {
                RuleVerdict::NoMatch(key)
            } else if rule.unless.iter().any(|unless| unless.matches(&view)) {
                RuleVerdict::Exempt
            } else {
                RuleVerdict::Matched
            };
            (rule.name.clone(), rule.action, rule.line, verdict)
        });
        Explanation {
            rules: rules.collect(),
            settings: self.settings(&finding.subject),
            decision: self.on_finding(finding, extra, now),
        }
    }
}
