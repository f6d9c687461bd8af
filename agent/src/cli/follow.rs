//! Reading a record stream, once or for as long as it goes.

use std::time::Duration;

use kams_export::view::Record;
use serde_json::Value;

use super::client::{Client, Lines};
use super::show::LiveView;
use super::{CliError, Out, say};
use crate::admin::Selection;

/// First and longest wait between attempts to reconnect.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What to read.
pub(super) struct Request {
    pub(super) route: &'static str,
    pub(super) selection: Selection,
    pub(super) follow: bool,
    pub(super) reconnect: bool,
    pub(super) last: u64,
}

/// How far we have read: of which start of the daemon, and up to which number.
#[derive(Default)]
struct Position {
    instance: Option<String>,
    seq: u64,
}

/// Reads and shows until the stream ends.
pub(super) async fn run(
    client: &Client,
    request: &Request,
    view: &mut LiveView,
    out: &mut Out,
) -> Result<(), CliError> {
    let mut position = Position::default();
    let mut wait = FIRST_WAIT;
    let mut told = false;
    loop {
        let ended = match client.lines(&address(request, &position)).await {
            Ok(mut lines) => {
                if told {
                    say("connected again");
                }
                (wait, told) = (FIRST_WAIT, false);
                read(&mut lines, &mut position, view, out).await
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) if !request.follow => return Ok(()),
            Err(error) if !(request.reconnect && error.may_pass()) => return Err(error),
            Ok(()) if !request.reconnect => {
                return Err(CliError::Lost {
                    why: "kamsd has stopped".to_owned(),
                    remedy: "use --reconnect to wait until it is back",
                });
            }
            Ok(()) | Err(_) => {}
        }
        if !told {
            say("kamsd is away; waiting for it");
            told = true;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Path and query. After a reconnect to the same daemon it goes on where it was; a new daemon is read from its
/// first record, since none of them can have been seen.
fn address(request: &Request, position: &Position) -> String {
    let mut pairs = request.selection.to_pairs();
    match &position.instance {
        Some(instance) => {
            pairs.push(("instance", instance.clone()));
            pairs.push(("since", position.seq.to_string()));
            pairs.push(("limit", "10000".to_owned()));
        }
        None => pairs.push(("limit", request.last.to_string())),
    }
    if request.follow {
        pairs.push(("follow", "1".to_owned()));
    }
    route(request.route, &pairs)
}

async fn read(
    lines: &mut Lines,
    position: &mut Position,
    view: &mut LiveView,
    out: &mut Out,
) -> Result<(), CliError> {
    while let Some(line) = lines.next().await? {
        let value: Value = serde_json::from_slice(&line).map_err(|error| CliError::Answer {
            why: error.to_string(),
        })?;
        let record = serde::Deserialize::deserialize(&value);
        let record: Record = record.map_err(|error: serde_json::Error| CliError::Answer {
            why: error.to_string(),
        })?;
        match &record {
            Record::Hello { instance, next_seq } => {
                let known = position.instance.as_ref();
                if known.is_some_and(|known| known != instance) {
                    say("kamsd was started anew: what happened while it was away was not seen");
                }
                if known != Some(instance) {
                    *position = Position {
                        instance: Some(instance.clone()),
                        seq: next_seq.saturating_sub(1),
                    };
                }
            }
            Record::Missed { count } => say(&format!("too slow: {count} records were left out here")),
            other => position.seq = position.seq.max(other.seq().unwrap_or(0)),
        }
        view.record(&record, Some(&value), out)?;
        if !lines.has_more() {
            out.flush()?;
        }
    }
    Ok(())
}

/// A path with a percent-encoded query.
pub(super) fn route(path: &str, pairs: &[(&str, String)]) -> String {
    let mut route = path.to_owned();
    for (index, (name, value)) in pairs.iter().enumerate() {
        route.push(if index == 0 { '?' } else { '&' });
        route.push_str(name);
        route.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                route.push(char::from(byte));
            } else {
                route.extend(['%', hex(byte >> 4), hex(byte & 15)]);
            }
        }
    }
    route
}

fn hex(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16)
        .unwrap_or('0')
        .to_ascii_uppercase()
}
