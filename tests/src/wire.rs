//! What a server itself read and wrote, as its witness recorded it, paired up without any code of Kams.
//!
//! A witness folder holds, for each server process, `PID.argv` (words separated by NUL), `PID.tree` (its ancestors'
//! process ids), `PID.in` and `PID.out`.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The side that asks.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Side {
    /// The agent.
    Agent,
    /// The server.
    Server,
}

/// One request and its answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exchange {
    /// Who asked.
    pub from: Side,
    /// Id as JSON text.
    pub id: String,
    /// Method.
    pub method: String,
    /// Tool of a `tools/call`.
    pub tool: Option<String>,
    /// Bytes of the line without its newline; of a batch only the first message has them.
    pub asked_bytes: Option<usize>,
    /// The answer, where one was written.
    pub answer: Option<Answer>,
}

/// How a request was answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// In the words of `kams events`: `ok`, `tool_error`, `error` or `input_required`.
    pub outcome: &'static str,
    /// Code of an error.
    pub code: Option<i64>,
    /// Bytes of the line without its newline; of a batch only the first message has them.
    pub bytes: Option<usize>,
}

/// Everything that one server process read and wrote.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Process id of the server.
    pub pid: u32,
    /// Its command line.
    pub argv: Vec<String>,
    /// Process ids of its ancestors, the parent first.
    pub tree: Vec<u32>,
    /// Requests in the order in which each side sent them, the agent's first.
    pub exchanges: Vec<Exchange>,
    /// Messages without an answer: to the server, to the agent.
    pub notifications: (usize, usize),
    /// Lines that are no JSON, both ways; empty lines not counted.
    pub noise: usize,
}

impl Talk {
    /// The `tools/call` requests of the agent.
    pub fn tool_calls(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges
            .iter()
            .filter(|e| e.from == Side::Agent && e.method == "tools/call")
    }
}

/// The talks in a witness folder, by process id. Processes that wrote no command line are launchers.
pub fn talks(folder: &Path) -> Result<Vec<Talk>> {
    let mut talks = Vec::new();
    for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "argv") {
            continue;
        }
        let pid = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| stem.parse().ok());
        let read = |end| std::fs::read(path.with_extension(end)).unwrap_or_default();
        let argv = String::from_utf8_lossy(&read("argv"))
            .split('\0')
            .map(str::to_owned)
            .collect();
        let pid = pid.context("a witness file without a pid")?;
        let mut talk = pair(pid, argv, &read("in"), &read("out"));
        talk.tree = String::from_utf8_lossy(&read("tree"))
            .lines()
            .flat_map(str::parse)
            .collect();
        talks.push(talk);
    }
    talks.sort_by_key(|talk| talk.pid);
    Ok(talks)
}

/// A message with the length of its line, none where an earlier one has it.
struct Message {
    value: Value,
    bytes: Option<usize>,
}

fn messages(stream: &[u8], noise: &mut usize) -> Vec<Message> {
    let mut found = Vec::new();
    for line in stream.split(|byte| *byte == b'\n') {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(Value::Array(items)) => {
                let bytes = |at| (at == 0).then_some(line.len());
                found.extend(items.into_iter().enumerate().map(|(at, value)| Message {
                    value,
                    bytes: bytes(at),
                }));
            }
            Ok(value) => found.push(Message {
                value,
                bytes: Some(line.len()),
            }),
            Err(_) => *noise += 1,
        }
    }
    found
}

impl Talk {
    /// Pairs what a server read with what it wrote.
    pub fn from_streams(pid: u32, argv: Vec<String>, input: &[u8], output: &[u8]) -> Self {
        pair(pid, argv, input, output)
    }
}

fn pair(pid: u32, argv: Vec<String>, input: &[u8], output: &[u8]) -> Talk {
    let mut noise = 0;
    let sides = [
        (Side::Agent, messages(input, &mut noise)),
        (Side::Server, messages(output, &mut noise)),
    ];
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut counts = [0, 0];
    // Requests that wait for an answer, by who asked and id; the same id may be used again later.
    let mut open: BTreeMap<(Side, String), VecDeque<usize>> = BTreeMap::new();
    for ((side, messages), count) in sides.iter().zip(&mut counts) {
        for message in messages {
            let (Some(method), id) = (message.value["method"].as_str(), message.value.get("id")) else {
                continue;
            };
            let Some(id) = id else {
                *count += 1;
                continue;
            };
            open.entry((*side, id.to_string()))
                .or_default()
                .push_back(exchanges.len());
            exchanges.push(Exchange {
                from: *side,
                id: id.to_string(),
                method: method.to_owned(),
                tool: message.value["params"]["name"]
                    .as_str()
                    .filter(|_| method == "tools/call")
                    .map(str::to_owned),
                asked_bytes: message.bytes,
                answer: None,
            });
        }
    }
    for (side, messages) in &sides {
        let asker = if *side == Side::Agent {
            Side::Server
        } else {
            Side::Agent
        };
        for message in messages {
            let (None, Some(id)) = (message.value.get("method"), message.value.get("id")) else {
                continue;
            };
            let place = open
                .get_mut(&(asker, id.to_string()))
                .and_then(VecDeque::pop_front);
            if let Some(exchange) = place.and_then(|place| exchanges.get_mut(place)) {
                exchange.answer = Some(answer(message));
            }
        }
    }
    Talk {
        pid,
        argv,
        tree: Vec::new(),
        exchanges,
        notifications: (counts[0], counts[1]),
        noise,
    }
}

fn answer(message: &Message) -> Answer {
    let (result, error) = (&message.value["result"], &message.value["error"]);
    let outcome = if error.is_object() {
        "error"
    } else if result["isError"] == true {
        "tool_error"
    } else if result["resultType"] == "input_required" {
        "input_required"
    } else {
        "ok"
    };
    Answer {
        outcome,
        code: error["code"].as_i64(),
        bytes: message.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(input: &str, output: &str) -> Talk {
        pair(1, Vec::new(), input.as_bytes(), output.as_bytes())
    }

    #[test]
    fn the_same_id_in_both_directions_is_two_requests() {
        let talk = talk(
            "{\"id\":0,\"method\":\"tools/call\",\"params\":{\"name\":\"t\"}}\n{\"id\":0,\"result\":{}}\n",
            "{\"id\":0,\"method\":\"roots/list\"}\n{\"id\":0,\"result\":{\"isError\":true}}\n",
        );
        let outcomes: Vec<_> = talk
            .exchanges
            .iter()
            .map(|e| (e.from, e.method.as_str(), e.answer.as_ref().map(|a| a.outcome)))
            .collect();
        assert_eq!(
            outcomes,
            [
                (Side::Agent, "tools/call", Some("tool_error")),
                (Side::Server, "roots/list", Some("ok"))
            ]
        );
    }

    #[test]
    fn a_batch_is_its_messages_and_a_reused_id_is_answered_in_turn() {
        let talk = talk(
            "[{\"id\":\"a\",\"method\":\"ping\"},{\"method\":\"n\"},{\"id\":\"a\",\"method\":\"ping\"}]\r\n\nnoise\n",
            "[{\"id\":\"a\",\"result\":{}},{\"id\":\"a\",\"error\":{\"code\":-5}}]\n",
        );
        assert_eq!(talk.notifications, (1, 0));
        assert_eq!(talk.noise, 1);
        let codes: Vec<_> = talk
            .exchanges
            .iter()
            .map(|e| e.answer.as_ref().and_then(|answer| answer.code))
            .collect();
        assert_eq!(codes, [None, Some(-5)]);
        let bytes: Vec<_> = talk.exchanges.iter().map(|e| e.asked_bytes).collect();
        assert_eq!(bytes, [Some(71), None]);
    }
}
