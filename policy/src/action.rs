//! What a rule does, and what that means for the message at hand.

use std::fmt;

/// The actions of SPEC section 8, weakest first: of all rules that match, the strongest action wins.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Action {
    /// Record the finding; the message passes.
    Alert,
    /// As alert, and the person at the agent is told.
    Warn,
    /// Replace the sensitive spans of the arguments; the call passes.
    RedactArgs,
    /// Hold the call until a person of the approver group decides.
    RequireApproval,
    /// Refuse this one message.
    BlockCall,
    /// Refuse this and every later call of the tool; leave it out of lists.
    BlockTool,
    /// Refuse this and every later call of the server.
    BlockServer,
    /// Refuse this message and cut the server off the network.
    BlockEgress,
    /// Refuse this message and end the server's process.
    KillServer,
    /// Refuse this message and everything else from this agent and user, on every server.
    SuspendAgent,
}

impl Action {
    /// All actions, weakest first.
    pub const ALL: [Self; 10] = [
        Self::Alert,
        Self::Warn,
        Self::RedactArgs,
        Self::RequireApproval,
        Self::BlockCall,
        Self::BlockTool,
        Self::BlockServer,
        Self::BlockEgress,
        Self::KillServer,
        Self::SuspendAgent,
    ];

    /// The name in policy files and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Warn => "warn",
            Self::RedactArgs => "redact_args",
            Self::RequireApproval => "require_approval",
            Self::BlockCall => "block_call",
            Self::BlockTool => "block_tool",
            Self::BlockServer => "block_server",
            Self::BlockEgress => "block_egress",
            Self::KillServer => "kill_server",
            Self::SuspendAgent => "suspend_agent",
        }
    }

    /// The action with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }

    /// What it does to the message at hand.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Alert => Outcome::Allow,
            Self::Warn => Outcome::Warn,
            Self::RedactArgs => Outcome::Redact,
            Self::RequireApproval => Outcome::RequireApproval,
            _ => Outcome::Block,
        }
    }

    /// Whether it leaves a restriction behind, which may carry a `ttl`.
    pub const fn restricts(self) -> bool {
        matches!(
            self,
            Self::BlockTool | Self::BlockServer | Self::BlockEgress | Self::SuspendAgent
        )
    }

    /// Whether it changes what happens; alert and warn only tell.
    pub const fn enforces(self) -> bool {
        !matches!(self, Self::Alert | Self::Warn)
    }

    /// Whether the host alone can do it, with no relay between agent and server.
    pub const fn without_relay(self) -> bool {
        matches!(self, Self::KillServer | Self::BlockEgress)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What happens to one message, weakest first.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Outcome {
    /// It passes unchanged.
    #[default]
    Allow,
    /// It passes, and somebody is told.
    Warn,
    /// It passes with sensitive spans replaced.
    Redact,
    /// It is held for a person.
    RequireApproval,
    /// It is refused.
    Block,
}

impl Outcome {
    /// All outcomes, weakest first.
    pub const ALL: [Self; 5] = [
        Self::Allow,
        Self::Warn,
        Self::Redact,
        Self::RequireApproval,
        Self::Block,
    ];

    /// The name in records and documents (seed 002's, and `redact`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Warn => "warn",
            Self::Redact => "redact",
            Self::RequireApproval => "require_approval",
            Self::Block => "block",
        }
    }

    /// The outcome with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.name() == name)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_order_agree() {
        for action in Action::ALL {
            assert_eq!(Action::from_name(action.name()), Some(action));
        }
        assert!(Action::ALL.is_sorted());
        assert!(Action::ALL.map(Action::outcome).is_sorted());
        assert!(Action::BlockCall > Action::RequireApproval);
    }
}
