//! What a file must become, worked out before anything is written.

use kams_detect::redact::shown;
use serde_json::Value;

use super::Agent;
use super::record::{Change, Changed, hash};

/// Why a file is left alone.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// It cannot be read for what it is.
    #[error("it cannot be changed safely: {0}")]
    Unreadable(String),
    /// Somebody else has set the key.
    #[error(
        "`{key}` is set to {value} already; take it out, or say --replace (`kams telemetry disable` puts it back)"
    )]
    Taken {
        /// The key, with dots.
        key: String,
        /// Its value, as far as it may be shown.
        value: String,
    },
}

/// A file's next text; none: it must not be there.
pub type Text = Option<String>;

/// What switching on makes of a file: its text, and what is to be recorded. `known` is what is on record of it.
pub fn enable(
    agent: Agent,
    endpoint: &str,
    current: Option<&str>,
    known: Option<&Changed>,
    replace: bool,
) -> Result<(Text, Changed), PlanError> {
    let form = agent.form();
    // What an earlier run of ours set is no setting of somebody else's.
    let base = match known {
        Some(known) => disable(agent, current, known)?,
        None => current.map(str::to_owned),
    };
    let mut text = base.clone().unwrap_or_default();
    let mut changes = Vec::new();
    for (path, after) in agent.settings(endpoint) {
        let before = form.get(&text, path).map_err(PlanError::Unreadable)?;
        match &before {
            Some(value) if *value == after => continue,
            Some(value) if !replace => {
                return Err(PlanError::Taken {
                    key: path.join("."),
                    value: brief(value),
                });
            }
            _ => {}
        }
        text = form
            .set(&text, path, Some(&after))
            .map_err(PlanError::Unreadable)?;
        changes.push(Change {
            path: path.iter().map(|key| (*key).to_owned()).collect(),
            before,
            after,
        });
    }
    let changed = Changed {
        agent: agent.name().to_owned(),
        endpoint: endpoint.to_owned(),
        original: base,
        written: hash(&text),
        folders: known.map(|known| known.folders.clone()).unwrap_or_default(),
        changes,
    };
    Ok((Some(text), changed))
}

/// What switching off makes of a file: exactly what stood there where nobody has touched it since, else only our keys go
/// back, and of those only the ones that still have our value.
pub fn disable(agent: Agent, current: Option<&str>, known: &Changed) -> Result<Text, PlanError> {
    let Some(current) = current else { return Ok(None) };
    if hash(current) == known.written {
        return Ok(known.original.clone());
    }
    let form = agent.form();
    let mut text = current.to_owned();
    for change in known.changes.iter().rev() {
        let now = form.get(&text, &change.path).map_err(PlanError::Unreadable)?;
        if now.as_ref() == Some(&change.after) {
            text = form
                .set(&text, &change.path, change.before.as_ref())
                .map_err(PlanError::Unreadable)?;
        }
    }
    // A section that was made for our keys and holds nothing else goes with them.
    for section in known.changes.iter().filter_map(|change| change.path.get(..1)) {
        let was = known
            .original
            .as_deref()
            .map(|original| form.get(original, section))
            .transpose()
            .map_err(PlanError::Unreadable)?
            .flatten();
        let now = form.get(&text, section).map_err(PlanError::Unreadable)?;
        if was.is_none() && now == Some(Value::Object(serde_json::Map::new())) {
            text = form.set(&text, section, None).map_err(PlanError::Unreadable)?;
        }
    }
    Ok(Some(text))
}

/// Where the file sends reports now: whether by our record, and the endpoint it names.
pub fn endpoint(agent: Agent, current: &str) -> Result<Option<String>, PlanError> {
    let path: &[&str] = match agent {
        Agent::Claude => &["env", "OTEL_EXPORTER_OTLP_ENDPOINT"],
        Agent::Codex => &["otel", "exporter", "otlp-http", "endpoint"],
        Agent::Gemini => &["telemetry", "otlpEndpoint"],
    };
    let value = agent.form().get(current, path).map_err(PlanError::Unreadable)?;
    Ok(value.as_ref().map(brief))
}

/// A value as it may be shown: short, and without a secret.
fn brief(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let text = shown(&text).chars().take(80).collect::<String>();
    kams_export::text::visible(&text)
}
