//! PolicyVersion documents: run-level rules in the shape of seed 002, with English field names.

mod read;

use std::collections::BTreeSet;

use crate::action::Outcome;
use crate::decide::Subject;
use crate::file::runs::Labels;
use crate::glob::Glob;
use crate::logic::Expr;

pub(crate) use read::{MAX_DOCUMENTS, read_entry};

/// Where in the path of a message a rule is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Point {
    /// Before a call.
    ToolCall,
    /// When its result is there.
    ToolResult,
    /// On demand.
    OnDemand,
}

impl Point {
    /// Points that a rule can name.
    pub(crate) const NAMES: [(&'static str, Self); 2] =
        [("tool_call", Self::ToolCall), ("tool_result", Self::ToolResult)];
}

/// Whether a document is carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// Evaluated and recorded, never carried out.
    Draft,
    /// Carried out.
    Published,
    /// Not evaluated.
    Archived,
}

impl Status {
    /// `active` is the older word for `published`.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("draft", Self::Draft),
        ("published", Self::Published),
        ("active", Self::Published),
        ("archived", Self::Archived),
    ];

    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Published => "published",
            Self::Archived => "archived",
        }
    }
}

/// Which agents and labels a document is for; an empty list is all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) agents: Vec<Glob>,
    pub(crate) workflows: Vec<Glob>,
    pub(crate) steps: Vec<Glob>,
    pub(crate) environments: Vec<Glob>,
}

impl Scope {
    pub(crate) fn covers(&self, subject: &Subject<'_>, labels: &Labels) -> bool {
        let any = |globs: &[Glob], text: Option<&str>| {
            globs.is_empty() || text.is_some_and(|text| globs.iter().any(|glob| glob.matches(text)))
        };
        any(&self.agents, Some(subject.agent))
            && any(&self.workflows, labels.workflow.as_deref())
            && any(&self.steps, labels.step.as_deref())
            && any(&self.environments, labels.environment.as_deref())
    }
}

/// One rule of a document.
#[derive(Clone, Debug)]
pub struct ChainRule {
    /// Stable id.
    pub id: String,
    /// What it decides when its expression holds.
    pub decision: Outcome,
    /// Text for people.
    pub reason: String,
    /// Machine-readable reasons.
    pub reason_codes: Vec<String>,
    /// Who may approve.
    pub approver_group: Option<String>,
    /// Suspend the agent beyond this run as well.
    pub suspend_agent: bool,
    /// Where it is asked; none is everywhere.
    pub point: Option<Point>,
    /// Context paths whose values go into the record: those the document lists and those the expression reads.
    pub evaluated: Vec<String>,
    pub(crate) expression: Expr,
}

/// A document.
#[derive(Clone, Debug)]
pub struct Document {
    /// Stable id of the policy.
    pub policy_id: String,
    /// Its version.
    pub version: String,
    /// Whether it is carried out.
    pub status: Status,
    /// The decision when no rule holds.
    pub default_decision: Outcome,
    /// The rules.
    pub rules: Vec<ChainRule>,
    pub(crate) scope: Scope,
    /// Fact keys that its rules read.
    pub(crate) keys: BTreeSet<String>,
}
