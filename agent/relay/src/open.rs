//! Requests that the server owes an answer, and what an engine must know that was not there.

use std::collections::HashMap;

use crate::peek::{Head, elements};
use crate::wire::{Before, Way};

/// Open requests that are followed; those beyond get no answer when the server dies.
const MOST: usize = 16_384;
/// Bytes of their ids together: those of usual length fit many times.
const BYTES: usize = 1 << 20;
/// Longest line of a handshake that is kept, in bytes.
const HANDSHAKE: usize = 64 << 10;

/// What is kept of a request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    order: u64,
    pub(crate) head: Head,
}

/// Open requests of the agent, and the handshake.
#[derive(Debug, Default)]
pub(crate) struct Open {
    requests: HashMap<Box<str>, Asked>,
    /// Of their ids.
    bytes: usize,
    order: u64,
    handshake: Vec<Before>,
    /// Id of an `initialize` whose answer has not passed.
    greeting: Option<Box<str>>,
    any: bool,
}

impl Open {
    /// A message goes on its way.
    pub(crate) fn passed(&mut self, way: Way, head: &Head, line: &[u8]) {
        self.any = true;
        if head.batch {
            for element in elements(line) {
                self.one(way, &Head::of(element), element);
            }
        } else {
            self.one(way, head, line);
        }
    }

    fn one(&mut self, way: Way, head: &Head, line: &[u8]) {
        match (way, &head.id) {
            (Way::ToServer, Some(id)) if head.method.is_some() => {
                if head.has_method("initialize") {
                    self.greeting = Some(id.clone());
                    self.handshake.clear();
                    self.keep(way, line);
                }
                self.close(id);
                if self.requests.len() < MOST && self.bytes + id.len() <= BYTES {
                    self.order += 1;
                    let asked = Asked {
                        order: self.order,
                        head: head.clone(),
                    };
                    self.bytes += id.len();
                    self.requests.insert(id.clone(), asked);
                }
            }
            (Way::ToServer, None) => {
                if let Some(id) = &head.cancels
                    && head.has_method("notifications/cancelled")
                {
                    self.close(id);
                }
            }
            (Way::ToAgent, Some(id)) if head.method.is_none() => {
                self.close(id);
                if self.greeting.as_ref() == Some(id) {
                    self.greeting = None;
                    self.keep(way, line);
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, id: &str) {
        if self.requests.remove(id).is_some() {
            self.bytes -= id.len();
        }
    }

    fn keep(&mut self, way: Way, line: &[u8]) {
        if line.len() <= HANDSHAKE
            && let Ok(text) = std::str::from_utf8(line)
        {
            let line = text.trim().to_owned();
            self.handshake.push(Before { way, line });
        }
    }

    /// The request that an answer belongs to.
    pub(crate) fn asked(&self, answer: &Head) -> Option<&Head> {
        Some(&self.requests.get(answer.id.as_ref()?)?.head)
    }

    /// Gives up all, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Head> {
        self.bytes = 0;
        let mut all: Vec<Asked> = std::mem::take(&mut self.requests).into_values().collect();
        all.sort_by_key(|asked| asked.order);
        all.into_iter().map(|asked| asked.head).collect()
    }

    /// Whether a message has passed at all.
    pub(crate) const fn any(&self) -> bool {
        self.any
    }

    /// The handshake, and open requests in short form.
    pub(crate) fn before(&self) -> Vec<Before> {
        let mut all: Vec<&Asked> = self.requests.values().collect();
        all.sort_by_key(|asked| asked.order);
        let greeted = |head: &Head| head.has_method("initialize") && !self.handshake.is_empty();
        let requests = all.into_iter().filter(|asked| !greeted(&asked.head)).map(|asked| {
            let Head {
                id, method, subject, ..
            } = &asked.head;
            let id = id.as_deref().unwrap_or("null");
            let method = method.as_deref().unwrap_or("\"\"");
            let subject = subject.as_deref().unwrap_or("\"\"");
            let name = if asked.head.has_method("resources/read") {
                "uri"
            } else {
                "name"
            };
            Before {
                way: Way::ToServer,
                line: format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":{method},\"params\":{{\"{name}\":{subject}}}}}"
                ),
            }
        });
        self.handshake.iter().cloned().chain(requests).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(open: &mut Open, way: Way, line: &str) {
        open.passed(way, &Head::of(line.as_bytes()), line.as_bytes());
    }

    #[test]
    fn answers_and_cancellations_close_what_is_open() {
        let mut open = Open::default();
        pass(
            &mut open,
            Way::ToServer,
            r#"{"id":0,"method":"initialize","params":{"a":1}}"#,
        );
        pass(
            &mut open,
            Way::ToAgent,
            r#"{"id":0,"result":{"capabilities":{}}}"#,
        );
        pass(
            &mut open,
            Way::ToServer,
            r#"[{"id":1,"method":"tools/call","params":{"name":"x"}},{"id":"1","method":"ping"}]"#,
        );
        pass(
            &mut open,
            Way::ToServer,
            r#"{"id":2,"method":"resources/read","params":{"uri":"u"}}"#,
        );
        // The server's own request is none of the agent's.
        pass(&mut open, Way::ToAgent, r#"{"id":2,"method":"roots/list"}"#);
        pass(&mut open, Way::ToAgent, r#"{"id":"1","result":{}}"#);
        let before: Vec<String> = open.before().into_iter().map(|b| b.line).collect();
        assert_eq!(
            before,
            [
                r#"{"id":0,"method":"initialize","params":{"a":1}}"#,
                r#"{"id":0,"result":{"capabilities":{}}}"#,
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#,
                r#"{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"u"}}"#,
            ]
        );
        pass(
            &mut open,
            Way::ToServer,
            r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#,
        );
        let left: Vec<_> = open.take().into_iter().filter_map(|head| head.id).collect();
        assert_eq!(left, [Box::from("2")]);
    }
}
