//! What goes into a decision and what comes out.

use kams_detect::finding::{Evidence, Kind, Severity};

use crate::action::{Action, Outcome};
use crate::matcher::Baseline;
use crate::mode::Mode;
use crate::restriction::Restriction;

/// Who can do something about a refusal.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Remedy {
    /// The administrators of a host with a daemon.
    #[default]
    Administrator,
    /// The person at the agent, whose own process judges.
    Person,
}

/// Who and what a message concerns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// Name of the Linux user.
    pub user: &'a str,
    /// Name of the agent program, such as `claude-code`.
    pub agent: &'a str,
    /// Server identity, such as `npm:@corp/mail`.
    pub server: &'a str,
    /// The tool, where one is concerned.
    pub tool: Option<&'a str>,
    /// Whether a relay stands between agent and server. Without one, a message can only be watched.
    pub relayed: bool,
}

/// A finding as policy sees it.
#[derive(Clone, Debug)]
pub struct Finding<'a> {
    /// Whom it concerns.
    pub subject: Subject<'a>,
    /// Detector name.
    pub detector: &'a str,
    /// Family.
    pub kind: Kind,
    /// Severity.
    pub severity: Severity,
    /// Sensitive classes, for egress findings.
    pub classes: Vec<&'a str>,
    /// Change class, for drift findings.
    pub change: Option<&'a str>,
    /// State of the tool's baseline, where one is concerned.
    pub baseline: Option<Baseline>,
    /// Fingerprint, for exceptions.
    pub fingerprint: &'a str,
    /// Bytes of the message were lost.
    pub gap: bool,
}

impl<'a> Finding<'a> {
    /// The policy's view of a detector's finding.
    pub fn of(
        finding: &'a kams_detect::finding::Finding,
        subject: Subject<'a>,
        fingerprint: &'a str,
    ) -> Self {
        let mut classes = Vec::new();
        let mut change = None;
        let mut baseline = None;
        match &finding.evidence {
            Evidence::Egress(places) => {
                for place in places {
                    if !classes.contains(&place.class) {
                        classes.push(place.class);
                    }
                }
            }
            Evidence::Drift {
                change: class,
                pinned,
                ..
            } => {
                change = Some(*class);
                baseline = Some(if *pinned {
                    Baseline::Pinned
                } else {
                    Baseline::Provisional
                });
            }
            _ => {}
        }
        Self {
            subject: Subject {
                tool: finding.tool.as_deref().or(subject.tool),
                ..subject
            },
            detector: finding.detector,
            kind: finding.kind,
            severity: finding.severity,
            classes,
            change,
            baseline,
            fingerprint,
            gap: false,
        }
    }
}

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Whom it concerns; the tool is set.
    pub subject: Subject<'a>,
    /// State of the tool's baseline, where known.
    pub baseline: Option<Baseline>,
}

/// A server that was just started.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Whom it concerns; no tool.
    pub subject: Subject<'a>,
}

/// One rule that matched.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hit {
    /// Rule name; for run-level rules the rule id.
    pub rule: String,
    /// What it asks for.
    pub action: Action,
    /// The exception that set it aside, if one did.
    pub excepted: Option<String>,
}

/// The answer for one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What happens to the message.
    pub outcome: Outcome,
    /// The action taken: that of the strongest rule, as far as mode and stream allow.
    pub action: Option<Action>,
    /// The rule (or restriction's rule) that chose it.
    pub rule: Option<String>,
    /// Every rule that matched, in order of the policy.
    pub hits: Vec<Hit>,
    /// What enforce would have done, where it was not done: observe mode, or a stream without relay.
    pub would: Option<Action>,
    /// Mode that applied.
    pub mode: Mode,
    /// The restriction that this decision adds, or the one that caused it.
    pub restriction: Option<Restriction>,
    /// Who may approve, for require_approval: an approver group of the policy; none is the administrators.
    pub approver_group: Option<String>,
    /// Text for the person at the agent.
    pub reason: Option<String>,
    /// A verdict made although bytes of the message were lost.
    pub gap: bool,
}

impl Decision {
    /// Whether the message may pass, changed or not.
    pub const fn passes(&self) -> bool {
        matches!(self.outcome, Outcome::Allow | Outcome::Warn | Outcome::Redact)
    }

    /// As [`Decision::denial_for`], with an administrator to turn to.
    pub fn denial(&self) -> String {
        self.denial_for(Remedy::Administrator)
    }

    /// The text block of a denial: names the rule and says what the person can do (DESIGN section 6). Empty when
    /// the message passes. Nothing of the message itself is in it.
    pub fn denial_for(&self, remedy: Remedy) -> String {
        let rule = self.rule.as_deref().unwrap_or("none");
        let reason = match &self.reason {
            Some(reason) => format!(" {reason}"),
            None => String::new(),
        };
        match self.outcome {
            Outcome::Block => {
                let lift = match (&self.restriction, remedy) {
                    (Some(r), Remedy::Administrator) => {
                        format!(" An administrator can lift it: kams restrictions lift {}.", r.id)
                    }
                    (None, Remedy::Administrator) => {
                        " Ask the owner of the host's Kams policy if this is wrong.".to_owned()
                    }
                    (Some(_), Remedy::Person) => {
                        " Whoever set this server up can lift it: start it once with `kams wrap --lift`.".to_owned()
                    }
                    (None, Remedy::Person) => {
                        " Whoever set this server up with `kams wrap` chose the policy, and can change it if this is wrong."
                            .to_owned()
                    }
                };
                format!("Kams refused this call (policy rule `{rule}`).{reason} Do not retry it.{lift}")
            }
            Outcome::RequireApproval if remedy == Remedy::Person => format!(
                "Kams refused this call (policy rule `{rule}`).{reason} It takes an approval, and without kamsd there is \
                 nobody to ask. Do not retry it."
            ),
            Outcome::RequireApproval => {
                let group = self.approver_group.as_deref().unwrap_or("administrators");
                format!(
                    "Kams holds this call until a member of `{group}` approves it (policy rule `{rule}`).{reason}"
                )
            }
            _ => String::new(),
        }
    }
}
