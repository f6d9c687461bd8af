//! The thirteen classes of sensitive data (seed 000) and sets of them.

use std::fmt;

use crate::Severity;

/// What kind of sensitive data a span is. The order is the order of precedence: where two spans overlap, the
/// class that stands first wins, so that `sk-ant-` beats `sk-` and a token beats the name of its field.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// A PEM, PuTTY, age or bare DER private key.
    PrivateKey,
    /// An Anthropic API, admin or OAuth key.
    AnthropicKey,
    /// A GitHub token of any form.
    GithubToken,
    /// A Slack token of any form.
    SlackToken,
    /// An AWS access key id, or the secret beside it.
    AwsKey,
    /// An OpenAI key of any form.
    OpenaiKey,
    /// A JSON web token.
    Jwt,
    /// An opaque token behind `Bearer`.
    BearerToken,
    /// A value whose name says that it is a secret.
    NamedSecret,
    /// A payment card number.
    CardNumber,
    /// A mail address.
    Email,
    /// A telephone number.
    Phone,
    /// A whole value that looks like an opaque credential and like nothing else.
    HighEntropySecret,
}

impl Class {
    /// All classes, in order of precedence.
    pub const ALL: [Self; 13] = [
        Self::PrivateKey,
        Self::AnthropicKey,
        Self::GithubToken,
        Self::SlackToken,
        Self::AwsKey,
        Self::OpenaiKey,
        Self::Jwt,
        Self::BearerToken,
        Self::NamedSecret,
        Self::CardNumber,
        Self::Email,
        Self::Phone,
        Self::HighEntropySecret,
    ];

    /// The contract name of seed 000.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PrivateKey => "private_key",
            Self::AnthropicKey => "anthropic_key",
            Self::GithubToken => "github_token",
            Self::SlackToken => "slack_token",
            Self::AwsKey => "aws_key",
            Self::OpenaiKey => "openai_key",
            Self::Jwt => "jwt",
            Self::BearerToken => "bearer_token",
            Self::NamedSecret => "named_secret",
            Self::CardNumber => "card_number",
            Self::Email => "email",
            Self::Phone => "phone",
            Self::HighEntropySecret => "high_entropy_secret",
        }
    }

    /// The class with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }

    /// Severity of a real value of this class (seed 000); documented examples are LOW instead.
    pub const fn severity(self) -> Severity {
        match self {
            Self::PrivateKey
            | Self::AnthropicKey
            | Self::GithubToken
            | Self::SlackToken
            | Self::AwsKey
            | Self::OpenaiKey => Severity::Critical,
            Self::Jwt | Self::BearerToken | Self::NamedSecret | Self::CardNumber => Severity::High,
            Self::Email | Self::Phone | Self::HighEntropySecret => Severity::Medium,
        }
    }

    /// How sure a match of this class is, 0.0 to 1.0: a published format with a length or checksum is near
    /// certain, a name or a shape is not.
    pub const fn confidence(self) -> f64 {
        match self {
            Self::PrivateKey
            | Self::AnthropicKey
            | Self::GithubToken
            | Self::SlackToken
            | Self::AwsKey
            | Self::OpenaiKey
            | Self::Jwt => 0.98,
            Self::BearerToken | Self::CardNumber => 0.9,
            Self::NamedSecret | Self::Email => 0.85,
            Self::Phone => 0.7,
            Self::HighEntropySecret => 0.6,
        }
    }

    /// Stable finding code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::PrivateKey => "KAMS-EGR-001",
            Self::AwsKey => "KAMS-EGR-002",
            Self::GithubToken => "KAMS-EGR-003",
            Self::SlackToken => "KAMS-EGR-004",
            Self::AnthropicKey => "KAMS-EGR-005",
            Self::OpenaiKey => "KAMS-EGR-006",
            Self::Jwt => "KAMS-EGR-007",
            Self::BearerToken => "KAMS-EGR-008",
            Self::CardNumber => "KAMS-EGR-009",
            Self::NamedSecret => "KAMS-EGR-010",
            Self::Email => "KAMS-EGR-011",
            Self::Phone => "KAMS-EGR-012",
            Self::HighEntropySecret => "KAMS-EGR-013",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of classes: what a redaction rule names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClassSet(u16);

impl ClassSet {
    /// Every class.
    pub const ALL: Self = Self((1 << Class::ALL.len()) - 1);
    /// No class.
    pub const EMPTY: Self = Self(0);

    /// The set with `class` added.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Self(self.0 | class.bit())
    }

    /// Whether `class` is in the set.
    pub const fn contains(self, class: Class) -> bool {
        self.0 & class.bit() != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Class> for ClassSet {
    fn from_iter<I: IntoIterator<Item = Class>>(classes: I) -> Self {
        classes.into_iter().fold(Self::EMPTY, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_codes_are_unique() {
        let mut codes: Vec<_> = Class::ALL.iter().map(|c| c.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Class::ALL.len());
        for class in Class::ALL {
            assert_eq!(Class::from_name(class.name()), Some(class));
            assert!(ClassSet::ALL.contains(class));
            assert!(!ClassSet::EMPTY.contains(class));
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: ClassSet = [Class::Email, Class::Jwt].into_iter().collect();
        assert!(set.contains(Class::Email) && set.contains(Class::Jwt) && !set.contains(Class::Phone));
    }
}
