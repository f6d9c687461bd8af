//! Policy tests: cases written beside a policy, given these events, expect this decision.
//!
//! ```yaml
//! tests:
//!   - name: credentials do not leave
//!     mode: enforce
//!     given:
//!       - finding: {kind: EGRESS_SENSITIVE, severity: CRITICAL, classes: [aws_key], server: crm}
//!     expect: {decision: block, rule: block-credential-egress}
//! ```

mod play;
mod read;

use crate::action::Outcome;
use crate::file::Files;
use crate::mode::Mode;
use crate::policy::Policy;
use crate::problem::Problem;
use crate::tree::Place;

/// The result of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct TestResult {
    /// Its name.
    pub name: String,
    /// Line in the test file.
    pub line: u32,
    /// What was not as expected; empty when the test passed.
    pub failures: Vec<String>,
}

impl TestResult {
    /// Whether it passed.
    pub const fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// What an event must lead to. Keys that are not given are not looked at.
#[derive(Clone, Debug, Default)]
struct Expect {
    decision: Option<Outcome>,
    /// Name of an action, or `none`.
    action: Option<&'static str>,
    would: Option<&'static str>,
    /// Name of a rule, or `none`.
    rule: Option<String>,
    matched: Option<Vec<String>>,
    reason_codes: Option<Vec<String>>,
    approver_group: Option<String>,
    place: Place,
}

/// Whom an event concerns.
#[derive(Clone, Debug)]
struct Who {
    user: String,
    agent: String,
    server: String,
    relayed: bool,
}

/// How a call ends in a test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ending {
    Ok,
    Error,
    Unanswered,
    Pending,
}

#[derive(Clone, Debug)]
enum Step {
    Finding(Box<OwnFinding>),
    Call {
        who: Who,
        tool: String,
        arguments: serde_json::Value,
        id: Option<String>,
        target: Option<String>,
        ending: Ending,
    },
    Start(Who),
    Checkpoint(Who),
    Wait(u64),
    Decide {
        by: String,
        groups: Vec<String>,
        in_agent_tree: bool,
        approve: bool,
    },
}

/// A finding that owns its texts.
#[derive(Clone, Debug)]
struct OwnFinding {
    who: Who,
    tool: Option<String>,
    detector: String,
    kind: kams_detect::finding::Kind,
    severity: kams_detect::finding::Severity,
    classes: Vec<String>,
    change: Option<String>,
    baseline: Option<crate::matcher::Baseline>,
    fingerprint: String,
}

#[derive(Clone, Debug)]
struct Case {
    name: String,
    line: u32,
    mode: Option<Mode>,
    steps: Vec<(Step, Option<Expect>)>,
}

/// Runs the tests of a file against a policy.
///
/// # Errors
/// Every problem of the policy, or of the test file.
pub fn run_tests(
    policy: (&str, &str),
    files: &dyn Files,
    tests: (&str, &str),
) -> Result<Vec<TestResult>, Vec<Problem>> {
    let cases = read::read(tests.0, tests.1)?;
    cases
        .iter()
        .map(|case| {
            let mut policy = Policy::load(policy.0, policy.1, files)?;
            policy.mode = case.mode.unwrap_or(policy.mode);
            Ok(TestResult {
                name: case.name.clone(),
                line: case.line,
                failures: play::play(case, policy),
            })
        })
        .collect()
}
