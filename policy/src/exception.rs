//! Exceptions: findings that a named person has accepted, for a stated reason, until a stated day.

pub(crate) mod set;

use crate::matcher::{Matcher, View};
use crate::problem::{Level, Problem, Source};
use crate::reader::Reader;
use crate::time::{Now, parse_expiry};
use crate::tree::Node;

/// Keys of an exception.
pub(crate) const KEYS: &[&str] = &["fingerprint", "match", "owner", "reason", "expires"];

/// An exception. Without owner, reason and expiry it is refused where it is loaded (SPEC section 8).
#[derive(Clone, Debug)]
pub struct Exception {
    /// Fingerprint of the finding, when it is about one.
    pub fingerprint: Option<String>,
    pub(crate) matcher: Option<Matcher>,
    /// Who answers for it.
    pub owner: String,
    /// Why.
    pub reason: String,
    /// End, wall clock in milliseconds.
    pub expires_ms: u64,
    /// Line of the text that it was read from.
    pub line: u32,
}

impl Exception {
    /// Whether it is still good.
    pub const fn active(&self, now: Now) -> bool {
        now.wall_ms < self.expires_ms
    }

    pub(crate) fn covers(&self, view: &View<'_>, now: Now) -> bool {
        let Some(finding) = view.finding else {
            return false;
        };
        self.active(now)
            && self
                .fingerprint
                .as_deref()
                .is_none_or(|f| f == finding.fingerprint)
            && self.matcher.as_ref().is_none_or(|m| m.matches(view))
    }

    /// Name in records: whom to ask and why.
    pub(crate) fn label(&self) -> String {
        format!("{}: {}", self.owner, self.reason)
    }

    /// Reads one exception as `kams exceptions add` would take it: a YAML or JSON text of its keys.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader::new("exception", text);
        let node = crate::tree::parse("exception", text).map_err(|p| vec![*p])?;
        let exception = read(&mut reader, &node);
        let problems = reader.into_problems();
        match exception {
            Some(exception) if problems.iter().all(|p| p.level == Level::Warning) => Ok(exception),
            _ if problems.is_empty() => Err(vec![
                Source {
                    name: "exception",
                    text,
                }
                .problem(Level::Error, node.place, "not an exception".to_owned(), None),
            ]),
            _ => Err(problems),
        }
    }
}

/// Reads an exception, reporting every problem.
pub(crate) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<Exception> {
    let fields = reader.fields(node, "an exception", KEYS)?;
    let fingerprint = fields
        .get("fingerprint")
        .and_then(|n| reader.name(n, "fingerprint"));
    if let (Some(text), Some(node)) = (&fingerprint, fields.get("fingerprint"))
        && !(text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
    {
        reader.warn(
            node.place,
            format!("`{text}` is no fingerprint of a finding, so this exception accepts nothing"),
            Some("16 hexadecimal digits, as `kams findings -o json` shows them".to_owned()),
        );
    }
    let matcher = fields
        .get("match")
        .map(|n| crate::file::rules::read_matcher(reader, n, "match", false));
    let mut need = |key: &str| {
        let node = fields.get(key);
        if node.is_none() {
            reader.error_hint(
                fields.place,
                format!("an exception needs `{key}`"),
                "each exception names an owner, a reason and a day on which it expires",
            );
        }
        node.and_then(|node| reader.line(node, key, 200).map(|text| (text, node.place)))
    };
    let owner = need("owner");
    let reason = need("reason");
    let expires = need("expires").and_then(|(text, place)| {
        let ms = parse_expiry(&text);
        if ms.is_none() {
            reader.error_hint(
                place,
                format!("expires: `{text}` is no date"),
                "write 2027-01-31 or 2027-01-31T12:00:00Z",
            );
        }
        ms
    });
    let narrow = fingerprint.is_some()
        || matcher
            .as_ref()
            .is_some_and(|m| m.as_ref().is_some_and(|m| !m.is_empty()));
    if !narrow && fields.get("fingerprint").is_none() {
        reader.error_hint(
            fields.place,
            "an exception needs `fingerprint` or a `match` with at least one key",
            "an exception for everything would switch Kams off",
        );
    }
    Some(Exception {
        fingerprint,
        matcher: matcher.flatten(),
        owner: owner?.0,
        reason: reason?.0,
        expires_ms: expires?,
        line: node.place.line,
    })
    .filter(|_| narrow)
}
