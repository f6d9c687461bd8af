//! Policy text to checked policy to decision. Pure: no IO, no clock, no unsafe.
//!
//! ```
//! use kams_policy::{NoFiles, Policy};
//!
//! let policy = Policy::default_policy();
//! assert!(policy.rules().len() >= 4);
//! let problems = Policy::load("p.yaml", "version: 1\nmoed: enforce\n", &NoFiles).unwrap_err();
//! assert_eq!((problems[0].line, problems[0].column), (2, 1));
//! ```
//!
//! The way in is [`Policy::load`]; the way out, for one message at a time, is [`Gate`], which joins the policy
//! with the state it needs (restrictions, runs, approvals). Each part also stands alone.
#![forbid(unsafe_code)]
#![expect(
    clippy::single_match_else,
    reason = "a match shows side by side what is read and what is reported when it is not there"
)]

mod action;
mod approval;
mod canonical;
mod checkpoint;
mod corpus;
mod decide;
mod document;
mod duration;
mod evidence;
mod exception;
mod explain;
mod file;
mod gate;
mod glob;
mod index;
mod known;
mod logic;
mod matcher;
mod mode;
mod policy;
mod problem;
mod reader;
mod restriction;
mod run;
mod schema;
mod template;
mod testing;
mod time;
mod tree;

pub use action::{Action, Outcome};
pub use approval::{ADMIN_GROUP, Approval, ApprovalQueue, Approver, Refusal, Request, State};
pub use canonical::canonical;
pub use checkpoint::{ChainMatch, Checkpoint};
pub use corpus::corpus_row;
pub use decide::{Call, Decision, Finding, Hit, Remedy, Start, Subject};
pub use document::{ChainRule, Document, Point, Status};
pub use evidence::{
    Body, Chain, Fault, GENESIS, Head, Record, RecordKind, Verified, export_chain, export_run, verify,
};
pub use exception::Exception;
pub use exception::set::{ExceptionError, ExceptionSet, KeptException};
pub use explain::{Explanation, RuleVerdict};
pub use file::runs::{FactDecl, Labels, RunPolicy};
pub use file::{Files, NoFiles};
pub use gate::{CallVerdict, Gate, ProposedCall, args_digest, operation_id};
pub use glob::Glob;
pub use logic::{Expr, LogicError, apply};
pub use matcher::{Baseline, Event};
pub use mode::{Fail, Mode, Network, Seccomp};
pub use policy::{ApprovalPolicy, Policy, Rule, Settings, Thresholds};
pub use problem::{Level, Problem};
pub use restriction::{Restriction, RestrictionSet};
pub use run::accumulator::{Accumulator, ToolFacts};
pub use run::fact::{Contribution, Identifier, project};
pub use run::key::SafeKey;
pub use run::table::{Admission, Completion, Run, RunError, RunTable};
pub use schema::schema;
pub use template::{EnumerationThenExport, RepeatedLowValue, SecretThenExternal, ToolChain};
pub use testing::{TestResult, run_tests};
pub use time::Now;
