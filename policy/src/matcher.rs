//! `match` and `unless`: conditions on a finding, a call or a server start.

use kams_detect::finding::{Kind, Severity};

use crate::decide::{Call, Finding, Start, Subject};
use crate::glob::Glob;

/// State of a tool's baseline.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Baseline {
    /// Accepted by a person; never moves by itself.
    Pinned,
    /// Taken from the first sighting.
    Provisional,
}

impl Baseline {
    pub(crate) const NAMES: [(&'static str, Self); 2] =
        [("pinned", Self::Pinned), ("provisional", Self::Provisional)];

    /// The name in policy files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Provisional => "provisional",
        }
    }
}

/// What a rule is asked about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// A detector reported something.
    Finding,
    /// A call is about to be made.
    Call,
    /// A server was started.
    ServerStart,
}

impl Event {
    pub(crate) const NAMES: [(&'static str, Self); 3] = [
        ("finding", Self::Finding),
        ("call", Self::Call),
        ("server_start", Self::ServerStart),
    ];

    /// The name in policy files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finding => "finding",
            Self::Call => "call",
            Self::ServerStart => "server_start",
        }
    }
}

/// Alternatives for one text; none given means that the text does not matter.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Patterns(pub(crate) Vec<Glob>);

impl Patterns {
    pub(crate) fn given(&self) -> bool {
        !self.0.is_empty()
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|glob| glob.matches(text))
    }

    pub(crate) fn matches_some(&self, text: Option<&str>) -> bool {
        self.0.is_empty() || text.is_some_and(|text| self.matches(text))
    }

    /// Whether every text that `other` matches is matched here, as far as literals and stars show.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self.0.is_empty() || self.0.iter().any(Glob::is_any) {
            return true;
        }
        other.given()
            && other.0.iter().all(|theirs| {
                self.0
                    .iter()
                    .any(|ours| ours == theirs || theirs.literal().is_some_and(|text| ours.matches(&text)))
            })
    }
}

/// All conditions of one `match` or `unless`; each that is given must hold.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Matcher {
    /// Only in `match`: the events it applies to; empty is findings only.
    pub(crate) on: Vec<Event>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) min_severity: Option<Severity>,
    pub(crate) baseline: Option<Baseline>,
    pub(crate) detector: Patterns,
    pub(crate) classes: Patterns,
    pub(crate) change: Patterns,
    pub(crate) server: Patterns,
    pub(crate) tool: Patterns,
    pub(crate) agent: Patterns,
    pub(crate) user: Patterns,
}

/// What any of the three events looks like to a matcher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) event: Event,
    pub(crate) subject: Subject<'a>,
    pub(crate) baseline: Option<Baseline>,
    pub(crate) finding: Option<&'a Finding<'a>>,
}

impl<'a> From<&'a Finding<'a>> for View<'a> {
    fn from(finding: &'a Finding<'a>) -> Self {
        Self {
            event: Event::Finding,
            subject: finding.subject,
            baseline: finding.baseline,
            finding: Some(finding),
        }
    }
}

impl<'a> From<&Call<'a>> for View<'a> {
    fn from(call: &Call<'a>) -> Self {
        Self {
            event: Event::Call,
            subject: call.subject,
            baseline: call.baseline,
            finding: None,
        }
    }
}

impl<'a> From<&Start<'a>> for View<'a> {
    fn from(start: &Start<'a>) -> Self {
        Self {
            event: Event::ServerStart,
            subject: start.subject,
            baseline: None,
            finding: None,
        }
    }
}

impl Matcher {
    /// Whether no condition is given.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it applies to events of this sort at all.
    pub(crate) fn listens(&self, event: Event) -> bool {
        if self.on.is_empty() {
            event == Event::Finding
        } else {
            self.on.contains(&event)
        }
    }

    pub(crate) fn matches(&self, view: &View<'_>) -> bool {
        self.failing(view).is_none()
    }

    /// The first condition that does not hold, by its key.
    pub(crate) fn failing(&self, view: &View<'_>) -> Option<&'static str> {
        let subject = &view.subject;
        let finding = view.finding;
        let checks: [(&'static str, bool); 10] = [
            (
                "kind",
                self.kinds.is_empty() || finding.is_some_and(|f| self.kinds.contains(&f.kind)),
            ),
            (
                "min_severity",
                self.min_severity
                    .is_none_or(|min| finding.is_some_and(|f| f.severity >= min)),
            ),
            (
                "baseline",
                self.baseline.is_none_or(|want| view.baseline == Some(want)),
            ),
            ("tool", self.tool.matches_some(subject.tool)),
            ("server", self.server.matches(subject.server)),
            ("user", self.user.matches(subject.user)),
            ("agent", self.agent.matches(subject.agent)),
            (
                "detector",
                self.detector.matches_some(finding.map(|f| f.detector)),
            ),
            ("change", self.change.matches_some(finding.and_then(|f| f.change))),
            (
                "classes",
                !self.classes.given()
                    || finding.is_some_and(|f| f.classes.iter().any(|class| self.classes.matches(class))),
            ),
        ];
        checks.into_iter().find(|(_, holds)| !holds).map(|(key, _)| key)
    }

    /// The conditions that only a finding can satisfy, by key.
    pub(crate) fn finding_keys(&self) -> Vec<&'static str> {
        [
            ("kind", !self.kinds.is_empty()),
            ("detector", self.detector.given()),
            ("min_severity", self.min_severity.is_some()),
            ("classes", self.classes.given()),
            ("change", self.change.given()),
        ]
        .into_iter()
        .filter(|(_, given)| *given)
        .map(|(key, _)| key)
        .collect()
    }
}
