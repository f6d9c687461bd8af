//! Settings that are one word each.

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mode {
    /// Findings only; each records what enforce would have done.
    #[default]
    Observe,
    /// Decisions are carried out.
    Enforce,
}

impl Mode {
    /// All modes by name.
    pub(crate) const NAMES: [(&'static str, Self); 2] =
        [("observe", Self::Observe), ("enforce", Self::Enforce)];

    /// The name in policy files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}

/// What a relay does while the engine is silent. This is the only place where that choice is written.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Fail {
    /// Messages pass, with a finding.
    #[default]
    Open,
    /// Messages are refused.
    Closed,
}

impl Fail {
    /// All choices by name.
    pub(crate) const NAMES: [(&'static str, Self); 2] = [("open", Self::Open), ("closed", Self::Closed)];

    /// The name in policy files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// What a server may do on the network.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Network {
    /// Anything.
    #[default]
    Allow,
    /// Nothing, loopback included: a proxy there would be a way out. AF_UNIX stays.
    None,
    /// Each new connection is asked for.
    Notify,
}

impl Network {
    /// All choices by name.
    pub(crate) const NAMES: [(&'static str, Self); 3] = [
        ("allow", Self::Allow),
        ("none", Self::None),
        ("notify", Self::Notify),
    ];

    /// The name in policy files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::None => "none",
            Self::Notify => "notify",
        }
    }
}

/// The filter of system calls that a server is started under, where a relay is put before it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Seccomp {
    /// None.
    #[default]
    Off,
    /// One that refuses every socket that leads off the host, for as long as the server lives.
    Deny,
    /// One that lets them through until the server is cut off the network, and refuses them from then on.
    Notify,
}

impl Seccomp {
    /// All choices by name.
    pub(crate) const NAMES: [(&'static str, Self); 3] =
        [("off", Self::Off), ("deny", Self::Deny), ("notify", Self::Notify)];

    /// The name in policy files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Deny => "deny",
            Self::Notify => "notify",
        }
    }
}
