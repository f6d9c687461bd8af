//! Whether what Kams showed of a session is what the server itself recorded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, ensure};

use crate::event::Event;
use crate::wire::{Side, Talk};

/// How exactly the two must agree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rigour {
    /// Every request and every answer, nothing else, no gap.
    Exact,
    /// As `Exact` for tool calls. Around the end of a session a real agent may send what the server never reads,
    /// and leave answers unread; both are allowed for other methods.
    RealAgent,
}

/// Compares one server's record with the events of the same server. The error lists what is missing and what is
/// too much.
pub fn compare(talk: &Talk, events: &[Event], rigour: Rigour) -> Result<()> {
    let mut balance: BTreeMap<Line, i32> = BTreeMap::new();
    for line in recorded(talk) {
        *balance.entry(line).or_default() -= 1;
    }
    for line in shown(events) {
        *balance.entry(line).or_default() += 1;
    }
    let mut report = String::new();
    for (line, count) in balance {
        let excused = match rigour {
            Rigour::Exact => false,
            Rigour::RealAgent => line.excusable(count, talk),
        };
        if count != 0 && !excused {
            let what = if count < 0 {
                "not shown"
            } else {
                "shown, but not recorded"
            };
            writeln!(report, "{what} ({} x): {line:?}", count.abs())?;
        }
    }
    let gaps = events.iter().filter(|event| event.gap).count();
    ensure!(
        report.is_empty() && gaps == 0,
        "{gaps} events with a gap\n{report}of {}",
        talk.argv.join(" ")
    );
    in_order(talk, events)
}

/// The agent's tool calls must come in the order in which the server read them.
fn in_order(talk: &Talk, events: &[Event]) -> Result<()> {
    let recorded: Vec<_> = talk.tool_calls().map(|call| call.id.as_str()).collect();
    let shown: Vec<_> = events
        .iter()
        .filter(|event| event.event == "tool_call")
        .filter_map(|event| event.request_id.as_deref())
        .collect();
    ensure!(
        recorded == shown,
        "the server read the calls as {recorded:?}, Kams shows {shown:?}"
    );
    Ok(())
}

/// A request or an answer, as both sources can tell it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Line {
    asked_by: Side,
    id: String,
    method: String,
    tool: Option<String>,
    /// None: the request itself.
    outcome: Option<String>,
    code: Option<i64>,
    /// Of a batch only the first message has them.
    bytes: Option<usize>,
}

impl Line {
    fn excusable(&self, count: i32, talk: &Talk) -> bool {
        if self.method == "tools/call" {
            return false;
        }
        // Of a question of the server's own it is the answer that was read or was not.
        let read_by_server = talk.exchanges.iter().any(|e| {
            e.from == self.asked_by && e.id == self.id && (self.outcome.is_none() || e.answer.is_some())
        });
        let to_server = self.outcome.is_none() == (self.asked_by == Side::Agent);
        if to_server {
            // Sent to a server that had stopped reading.
            count > 0 && !read_by_server
        } else {
            // Written to an agent that had stopped reading.
            count < 0
        }
    }
}

fn recorded(talk: &Talk) -> Vec<Line> {
    let mut lines = Vec::new();
    for exchange in &talk.exchanges {
        let request = Line {
            asked_by: exchange.from,
            id: exchange.id.clone(),
            method: exchange.method.clone(),
            tool: exchange.tool.clone(),
            outcome: None,
            code: None,
            bytes: exchange.asked_bytes,
        };
        if let Some(answer) = &exchange.answer {
            lines.push(Line {
                outcome: Some(answer.outcome.to_owned()),
                code: answer.code,
                bytes: answer.bytes,
                ..request.clone()
            });
        }
        lines.push(request);
    }
    lines
}

fn shown(events: &[Event]) -> Vec<Line> {
    let mut lines = Vec::new();
    for event in events {
        let is_request = matches!(event.event.as_str(), "request" | "tool_call");
        let is_answer = matches!(event.event.as_str(), "response" | "tool_result");
        let unanswered = matches!(event.outcome.as_deref(), Some("no_answer" | "cancelled"));
        // An answer without a method is one to nothing: a stray of the server's, or one whose request is missed below.
        let stray = is_answer && event.method.is_none();
        if !is_request && !is_answer || is_answer && unanswered || stray {
            continue;
        }
        let to_server = event.direction.as_deref() == Some("to_server");
        lines.push(Line {
            asked_by: if to_server == is_request {
                Side::Agent
            } else {
                Side::Server
            },
            id: event.request_id.clone().unwrap_or_default(),
            method: event.method.clone().unwrap_or_default(),
            tool: event
                .tool
                .clone()
                .filter(|_| event.method.as_deref() == Some("tools/call")),
            outcome: event.outcome.clone().filter(|_| is_answer),
            code: event.error_code,
            bytes: event.bytes.and_then(|bytes| usize::try_from(bytes).ok()),
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::{Answer, Exchange};

    fn talk() -> Talk {
        let exchange = |method: &str, id: &str, tool: Option<&str>| Exchange {
            from: Side::Agent,
            id: id.to_owned(),
            method: method.to_owned(),
            tool: tool.map(str::to_owned),
            asked_bytes: Some(50),
            answer: Some(Answer {
                outcome: "ok",
                code: None,
                bytes: Some(60),
            }),
        };
        Talk {
            pid: 1,
            argv: vec!["server".to_owned()],
            tree: Vec::new(),
            exchanges: vec![
                exchange("tools/list", "1", None),
                exchange("tools/call", "2", Some("echo")),
            ],
            notifications: (0, 0),
            noise: 0,
        }
    }

    fn events() -> Vec<Event> {
        let event = |kind: &str, direction: &str, id: &str, tool: Option<&str>| {
            let answer = kind == "response" || kind == "tool_result";
            let mut value = json!({"event": kind, "direction": direction, "request_id": id,
                "method": if tool.is_some() { "tools/call" } else { "tools/list" },
                "bytes": if answer { 60 } else { 50 }, "gap": false});
            if answer {
                value["outcome"] = json!("ok");
            }
            if let Some(tool) = tool {
                value["tool"] = json!(tool);
            }
            serde_json::from_value(value).unwrap()
        };
        vec![
            event("request", "to_server", "1", None),
            event("response", "to_agent", "1", None),
            event("tool_call", "to_server", "2", Some("echo")),
            event("tool_result", "to_agent", "2", Some("echo")),
        ]
    }

    #[test]
    fn agreement_passes() {
        compare(&talk(), &events(), Rigour::Exact).unwrap();
    }

    #[test]
    fn each_way_to_be_wrong_fails() {
        for rigour in [Rigour::Exact, Rigour::RealAgent] {
            let mut lost = events();
            lost.pop();
            assert!(compare(&talk(), &lost, rigour).is_err(), "a lost answer");
            let mut doubled = events();
            doubled.push(doubled[2].clone());
            assert!(compare(&talk(), &doubled, rigour).is_err(), "a doubled call");
            let mut cut = events();
            cut[3].bytes = Some(59);
            assert!(compare(&talk(), &cut, rigour).is_err(), "a cut answer");
            let mut crossed = events();
            crossed[3].request_id = Some("1".to_owned());
            assert!(
                compare(&talk(), &crossed, rigour).is_err(),
                "an answer paired with another request"
            );
            let mut flagged = events();
            flagged[0].gap = true;
            assert!(compare(&talk(), &flagged, rigour).is_err(), "a gap");
        }
    }

    #[test]
    fn a_real_agent_may_leave_an_answer_unread() {
        let mut unread = events();
        unread.remove(1);
        assert!(compare(&talk(), &unread, Rigour::Exact).is_err());
        compare(&talk(), &unread, Rigour::RealAgent).unwrap();
    }

    #[test]
    fn a_server_may_end_before_it_reads_what_it_asked_for() {
        let mut talk = talk();
        talk.exchanges.push(Exchange {
            from: Side::Server,
            id: "0".to_owned(),
            method: "roots/list".to_owned(),
            tool: None,
            asked_bytes: Some(50),
            answer: None,
        });
        let mut events = events();
        for (at, kind, direction) in [(0, "request", "to_agent"), (1, "response", "to_server")] {
            let mut event = events[at].clone();
            event.event = kind.to_owned();
            event.direction = Some(direction.to_owned());
            event.method = Some("roots/list".to_owned());
            event.request_id = Some("0".to_owned());
            events.push(event);
        }
        assert!(compare(&talk, &events, Rigour::Exact).is_err());
        compare(&talk, &events, Rigour::RealAgent).unwrap();
        // Read, and shown otherwise: no excuse.
        let read = talk.exchanges.last_mut().unwrap();
        read.answer = Some(Answer {
            outcome: "ok",
            code: None,
            bytes: Some(61),
        });
        assert!(compare(&talk, &events, Rigour::RealAgent).is_err());
    }
}
