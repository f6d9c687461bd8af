//! From the decisions about a message to what happens to it.

use std::collections::BTreeSet;

use kams_detect::egress::{Class, ClassSet};
use kams_policy::{Action, Decision, Outcome, Remedy};

use super::collect::Decisions;

/// What happens to one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Fate {
    /// It goes on as it is.
    #[default]
    Pass,
    /// It goes on without the values of these classes.
    Redact(ClassSet),
    /// It is a list, and goes on without these items; the text is for whoever wonders.
    Without(BTreeSet<String>, String),
    /// It is the server's greeting, and goes on without its instructions; this text stands in their place.
    WithoutInstructions(String),
    /// It waits for a person.
    Hold(Box<Held>),
    /// It is refused with this text.
    Refuse(String),
}

/// What a message waits for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    /// Number of the request for approval; none where it is still to be asked for.
    pub(super) approval: Option<u64>,
    pub(super) decision: Decision,
}

/// What kind of message it is, as far as fates differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    /// A call of a tool.
    Call,
    /// Other things that go to the server.
    Outgoing,
    /// A page of a list.
    Page,
    /// The server's greeting.
    Greeting,
    /// Other things that go to the agent.
    Incoming,
}

/// Actions against a whole server: nothing of the message is of use after them.
const fn is_sweeping(action: Action) -> bool {
    matches!(
        action,
        Action::BlockServer | Action::BlockEgress | Action::KillServer | Action::SuspendAgent
    )
}

/// The fate that decisions make.
pub(super) fn of(decisions: &Decisions, role: Role, remedy: Remedy) -> Fate {
    // Without a daemon nobody could approve.
    let can_wait = role == Role::Call && remedy == Remedy::Administrator;
    let mut classes = ClassSet::EMPTY;
    let mut without = BTreeSet::new();
    let mut softened: Option<&Decision> = None;
    let mut refusal: Option<&Decision> = None;
    let mut held: Option<Held> = None;
    for ruled in &decisions.ruled {
        let decision = &ruled.decision;
        match decision.outcome {
            Outcome::Allow | Outcome::Warn => {}
            Outcome::Redact => {
                for class in ruled.classes.iter().copied().filter_map(Class::from_name) {
                    classes = classes.with(class);
                }
            }
            Outcome::RequireApproval if can_wait => {
                held.get_or_insert_with(|| Held {
                    approval: None,
                    decision: decision.clone(),
                });
            }
            Outcome::RequireApproval | Outcome::Block => {
                let whole = decision.action.is_some_and(is_sweeping);
                match (role, &ruled.tool) {
                    (Role::Page, Some(tool)) if !whole => {
                        without.insert(tool.clone());
                        softened = softened.or(Some(decision));
                    }
                    (Role::Greeting, None) if !whole => softened = softened.or(Some(decision)),
                    _ => refusal = Some(stronger(refusal, decision)),
                }
            }
        }
    }
    for verdict in [&decisions.call, &decisions.answer].into_iter().flatten() {
        match verdict.decision.outcome {
            Outcome::RequireApproval if can_wait => {
                held = Some(Held {
                    approval: verdict.approval,
                    decision: verdict.decision.clone(),
                });
            }
            Outcome::Block | Outcome::RequireApproval => refusal = Some(stronger(refusal, &verdict.decision)),
            _ => {}
        }
    }
    if let Some(decision) = refusal {
        return Fate::Refuse(text(decision, remedy));
    }
    if let Some(held) = held {
        return Fate::Hold(Box::new(held));
    }
    match (role, softened) {
        (Role::Page, Some(decision)) => Fate::Without(without, text(decision, remedy)),
        (Role::Greeting, Some(decision)) => Fate::WithoutInstructions(text(decision, remedy)),
        _ if !classes.is_empty() => Fate::Redact(classes),
        _ => Fate::Pass,
    }
}

fn stronger<'d>(old: Option<&'d Decision>, new: &'d Decision) -> &'d Decision {
    old.filter(|old| old.action >= new.action).unwrap_or(new)
}

/// What the agent is told.
pub(super) fn text(decision: &Decision, remedy: Remedy) -> String {
    if decision.outcome == Outcome::RequireApproval && remedy == Remedy::Administrator {
        let rule = decision.rule.as_deref().unwrap_or("none");
        return format!(
            "Kams withheld this: policy rule `{rule}` wants it approved, and only a call can wait for approval. Ask \
             the owner of the host's Kams policy."
        );
    }
    decision.denial_for(remedy)
}
