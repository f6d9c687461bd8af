//! Which records a reader wants. The CLI builds it, the API reads it.

use kams_detect::Severity;
use kams_export::view::{EventKind, EventView, FindingRecord, Record};

use super::ApiError;
use super::glob::matches;
use super::parameters::Parameters;

/// Longest glob of a filter.
const MAX_GLOB: usize = 256;

/// A choice of records. The default chooses all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selection {
    /// Kinds of events; empty and no findings: everything.
    pub kinds: Vec<EventKind>,
    /// Findings, where kinds are given too.
    pub findings: bool,
    /// Glob over the server's identity, or its instance number.
    pub server: Option<String>,
    /// Glob over the tool.
    pub tool: Option<String>,
    /// Glob over the agent's name.
    pub agent: Option<String>,
    /// Glob over the user's name, or a uid.
    pub user: Option<String>,
    /// Findings below this are left out.
    pub min_severity: Option<Severity>,
    /// Glob over the detector of findings.
    pub detector: Option<String>,
}

impl Selection {
    /// Names of the query parameters that carry a selection.
    pub(super) const NAMES: [&'static str; 7] = [
        "type",
        "server",
        "tool",
        "agent",
        "user",
        "min_severity",
        "detector",
    ];

    /// Whether the record is chosen.
    pub fn admits(&self, record: &Record) -> bool {
        match record {
            Record::Event(event) => self.admits_event(event),
            Record::Finding(finding) => self.admits_finding(finding),
            _ => false,
        }
    }

    fn admits_event(&self, event: &EventView) -> bool {
        let any_kind = self.kinds.is_empty() && !self.findings;
        (any_kind || self.kinds.contains(&event.event))
            && self.admits_server(event.server.as_deref(), event.server_id)
            && admits(self.tool.as_ref(), event.tool.as_deref())
            && admits(self.agent.as_ref(), event.agent.as_deref())
            && self.admits_user(&event.user, event.uid)
    }

    /// Whether the finding is chosen.
    pub fn admits_finding(&self, finding: &FindingRecord) -> bool {
        let severity = Severity::from_name(&finding.severity);
        (self.kinds.is_empty() || self.findings)
            && self.admits_server(Some(&finding.server), finding.server_id)
            && admits(self.tool.as_ref(), finding.tool.as_deref())
            && admits(self.agent.as_ref(), Some(&finding.agent))
            && self.admits_user(&finding.user, finding.uid)
            && admits(self.detector.as_ref(), Some(&finding.detector))
            && self
                .min_severity
                .is_none_or(|min| severity.is_none_or(|s| s >= min))
    }

    fn admits_server(&self, identity: Option<&str>, id: Option<u64>) -> bool {
        let Some(wanted) = &self.server else { return true };
        id.is_some_and(|id| wanted == &id.to_string()) || identity.is_some_and(|name| matches(wanted, name))
    }

    fn admits_user(&self, name: &str, uid: u32) -> bool {
        let Some(wanted) = &self.user else { return true };
        wanted == &uid.to_string() || matches(wanted, name)
    }

    /// As query parameters.
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut kinds: Vec<&str> = self.kinds.iter().map(|k| k.name()).collect();
        if self.findings {
            kinds.push("finding");
        }
        let kinds = (!kinds.is_empty()).then(|| kinds.join(","));
        let severity = self.min_severity.map(|s| s.name().to_owned());
        let values = [
            ("type", kinds),
            ("server", self.server.clone()),
            ("tool", self.tool.clone()),
            ("agent", self.agent.clone()),
            ("user", self.user.clone()),
            ("min_severity", severity),
            ("detector", self.detector.clone()),
        ];
        values
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    pub(super) fn read(parameters: &Parameters) -> Result<Self, ApiError> {
        let mut selection = Self::default();
        for word in parameters
            .text("type")
            .into_iter()
            .flat_map(|list| list.split(','))
        {
            match EventKind::from_name(word) {
                Some(kind) => selection.kinds.push(kind),
                None if word == "finding" => selection.findings = true,
                None => {
                    let known: Vec<&str> = EventKind::ALL.iter().map(|k| k.name()).collect();
                    let remedy = format!("known types: {}, finding", known.join(", "));
                    return Err(ApiError::invalid("unknown value of `type`", &remedy));
                }
            }
        }
        let glob = |name: &str| match parameters.text(name) {
            Some(glob) if glob.len() > MAX_GLOB => Err(ApiError::invalid(
                format!("`{name}` is too long"),
                "use a glob with `*`",
            )),
            glob => Ok(glob.map(str::to_owned)),
        };
        selection.server = glob("server")?;
        selection.tool = glob("tool")?;
        selection.agent = glob("agent")?;
        selection.user = glob("user")?;
        selection.detector = glob("detector")?;
        if let Some(name) = parameters.text("min_severity") {
            let severity = Severity::from_name(name);
            let error = || ApiError::invalid("unknown severity", "use low, medium, high or critical");
            selection.min_severity = Some(severity.ok_or_else(error)?);
        }
        Ok(selection)
    }
}

fn admits(wanted: Option<&String>, name: Option<&str>) -> bool {
    wanted.is_none_or(|glob| name.is_some_and(|name| matches(glob, name)))
}
