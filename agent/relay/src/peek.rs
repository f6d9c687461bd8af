//! What a relay must know of a message by itself: whose it is to answer when the engine cannot be asked.
//!
//! This is no parser: it finds a few members of the outermost object and of its `params`, takes any bytes in pieces
//! of any size, and keeps little of it. Where a text is not JSON it finds nothing, or nonsense that is
//! never used for more than an answer to the sender.

use memchr::memchr2;

/// Longest name that is kept, in bytes of JSON text. A longer method stands as an empty one.
const MOST: usize = 1_024;
/// Longest id. A longer one stands as `null`: its sender gets an answer, but cannot tell to what.
const MOST_OF_ID: usize = 64 << 10;

/// What was found, as JSON text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Head {
    /// The line is an array.
    pub batch: bool,
    /// `id`.
    pub id: Option<Box<str>>,
    /// `method`.
    pub method: Option<Box<str>>,
    /// `params.name` or `params.uri`: a tool, a prompt, a resource.
    pub subject: Option<Box<str>>,
    /// `params.requestId`: what a cancellation cancels.
    pub cancels: Option<Box<str>>,
    /// The call asks for the handle of a task (`params.task`).
    pub as_task: bool,
    /// What was opened was closed: the message was not cut short.
    pub whole: bool,
}

impl Head {
    /// Reads a whole message.
    pub fn of(message: &[u8]) -> Self {
        let mut peek = Peek::default();
        peek.feed(message);
        peek.finish()
    }

    /// Has a method and an id.
    pub fn is_request(&self) -> bool {
        self.method.is_some() && self.id.is_some()
    }

    /// Has an id and no method.
    pub fn is_answer(&self) -> bool {
        self.method.is_none() && self.id.is_some()
    }

    /// Whether the method is this one.
    pub fn has_method(&self, name: &str) -> bool {
        self.method
            .as_deref()
            .and_then(|text| text.strip_prefix('"')?.strip_suffix('"'))
            == Some(name)
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Slot {
    #[default]
    Other,
    Id,
    Method,
    Params,
    Subject,
    Cancels,
    Task,
}

const fn most(slot: Slot) -> usize {
    match slot {
        Slot::Id | Slot::Cancels => MOST_OF_ID,
        _ => MOST,
    }
}

/// Reads a message in pieces.
#[derive(Debug, Default)]
pub struct Peek {
    head: Head,
    depth: u32,
    in_string: bool,
    escaped: bool,
    in_params: bool,
    /// The next string is a key.
    expects_key: bool,
    /// The string in progress is one.
    in_key: bool,
    key: Vec<u8>,
    slot: Slot,
    value: Vec<u8>,
}

impl Peek {
    /// Takes the next piece.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                    self.keep(&[byte]);
                    at += 1;
                    continue;
                }
                let rest = bytes.get(at..).unwrap_or_default();
                let run = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                self.keep(rest.get(..run).unwrap_or_default());
                at += run;
                match bytes.get(at) {
                    Some(b'"') => self.end_string(),
                    Some(_) => {
                        self.keep(b"\\");
                        self.escaped = true;
                    }
                    None => {}
                }
                at += 1;
                continue;
            }
            self.structure(byte);
            at += 1;
        }
    }

    /// The message is over.
    pub fn finish(mut self) -> Head {
        self.end_value();
        self.head.whole = self.depth == 0 && !self.in_string;
        self.head
    }

    fn structure(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_string = true;
                self.in_key = self.expects_key;
                if self.in_key {
                    self.key.clear();
                } else {
                    self.keep(b"\"");
                }
            }
            b'{' | b'[' => self.open(byte == b'{'),
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
                self.expects_key = false;
                if self.depth <= 1 {
                    self.in_params = false;
                    self.slot = Slot::Other;
                }
            }
            b',' => {
                self.end_value();
                self.expects_key = self.keys_here();
                if self.expects_key {
                    self.slot = Slot::Other;
                }
            }
            b':' => {
                if self.keys_here() {
                    self.slot = self.slot_of_key();
                    if self.slot == Slot::Task {
                        self.head.as_task = true;
                    }
                }
            }
            b' ' | b'\t' | b'\r' | b'\n' => {}
            other => self.keep(&[other]),
        }
    }

    fn open(&mut self, object: bool) {
        if self.depth == 0 {
            self.head.batch = !object;
        }
        self.value.clear();
        self.depth = self.depth.saturating_add(1);
        if self.depth == 2 {
            self.in_params = object && self.slot == Slot::Params && !self.head.batch;
        }
        self.slot = Slot::Other;
        self.expects_key = object && self.keys_here();
    }

    fn keys_here(&self) -> bool {
        !self.head.batch && (self.depth == 1 || (self.depth == 2 && self.in_params))
    }

    fn slot_of_key(&self) -> Slot {
        match (self.depth, self.key.as_slice()) {
            (1, b"id") => Slot::Id,
            (1, b"method") => Slot::Method,
            (1, b"params") => Slot::Params,
            (2, b"name" | b"uri") => Slot::Subject,
            (2, b"requestId") => Slot::Cancels,
            (2, b"task") => Slot::Task,
            _ => Slot::Other,
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let into = if self.in_key {
            &mut self.key
        } else if matches!(self.slot, Slot::Id | Slot::Method | Slot::Subject | Slot::Cancels) {
            &mut self.value
        } else {
            return;
        };
        // One more than is allowed, so that a longer one shows.
        let room = (most(self.slot) + 1).saturating_sub(into.len());
        into.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn end_string(&mut self) {
        self.in_string = false;
        if self.in_key {
            self.in_key = false;
            self.expects_key = false;
        } else {
            self.keep(b"\"");
        }
    }

    fn end_value(&mut self) {
        if self.value.is_empty() {
            return;
        }
        let value = std::mem::take(&mut self.value);
        let whole = value.len() <= most(self.slot);
        let Some(text) = String::from_utf8(value)
            .ok()
            .filter(|_| whole)
            .or(match self.slot {
                Slot::Id => Some("null".to_owned()),
                Slot::Method => Some("\"\"".to_owned()),
                _ => None,
            })
        else {
            return;
        };
        let place = match self.slot {
            Slot::Id => &mut self.head.id,
            Slot::Method => &mut self.head.method,
            Slot::Subject => &mut self.head.subject,
            Slot::Cancels => &mut self.head.cancels,
            _ => return,
        };
        *place = Some(text.into_boxed_str());
    }
}

/// The elements of a batch, as they are written; none where the line is not an array with whole elements.
pub fn elements(line: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let (mut depth, mut in_string, mut escaped, mut from) = (0_u32, false, false, 0);
    for (at, byte) in line.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth = depth.saturating_add(1);
                if depth == 1 {
                    from = at + 1;
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    found.extend(line.get(from..at).map(<[u8]>::trim_ascii));
                    break;
                }
            }
            b',' if depth == 1 => {
                found.extend(line.get(from..at).map(<[u8]>::trim_ascii));
                from = at + 1;
            }
            _ => {}
        }
    }
    found.retain(|element| !element.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn finds_what_an_answer_needs() {
        let line = br#" { "params" : {"arguments":{"name":"x","id":9},"name":"say","_meta":{"uri":"no"}}, "id" : 1.50 ,"method":"tools\/call"}"#;
        let head = Head::of(line);
        assert_eq!(head.id.as_deref(), Some("1.50"));
        assert_eq!(head.method.as_deref(), Some(r#""tools\/call""#));
        assert_eq!(head.subject.as_deref(), Some("\"say\""));
        assert!(head.is_request() && !head.as_task);
        let head = Head::of(br#"{"jsonrpc":"2.0","result":{"id":3,"method":"no"},"id":"a,\"b}"}"#);
        assert_eq!(head.id.as_deref(), Some(r#""a,\"b}""#));
        assert!(head.is_answer());
        let head = Head::of(br#"{"method":"notifications/cancelled","params":{"requestId":7,"reason":"x"}}"#);
        assert!(head.has_method("notifications/cancelled"));
        assert!(head.whole && !Head::of(br#"{"id":1,"resu"#).whole);
        assert_eq!((head.cancels.as_deref(), head.id), (Some("7"), None));
        assert!(Head::of(br#"{"id":1,"method":"tools/call","params":{"task":{},"name":"x"}}"#).as_task);
        assert_eq!(Head::of(b"hello").id, None);
        // Whoever asked with an odd id or method waits for an answer all the same.
        let long = format!("\"{}\"", "x".repeat(60_000));
        let odd = Head::of(format!(r#"{{"id":{long},"method":{long}}}"#).as_bytes());
        assert_eq!(
            (odd.id.as_deref(), odd.method.as_deref()),
            (Some(&*long), Some("\"\""))
        );
        let longer = format!("\"{}\"", "x".repeat(70_000));
        let odd = Head::of(format!(r#"{{"id":{longer},"method":"m"}}"#).as_bytes());
        assert!(odd.is_request() && odd.id.as_deref() == Some("null"));
    }

    #[test]
    fn a_batch_is_its_elements() {
        let line = br#" [ {"id":1,"a":[1,{"b":"],"}]} ,{"id":"x"}, 3 ]"#;
        assert!(Head::of(line).batch);
        assert_eq!(Head::of(line).id, None);
        let found = elements(line);
        assert_eq!(found.len(), 3);
        assert_eq!(Head::of(found[1]).id.as_deref(), Some("\"x\""));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            text in "[\\[\\]{}\",:\\\\idmethodparams0-9n e]{0,120}", cuts in prop::collection::vec(0_usize..120, 0..6),
        ) {
            let whole = Head::of(text.as_bytes());
            let mut peek = Peek::default();
            let mut from = 0;
            let mut cuts = cuts;
            cuts.sort_unstable();
            for cut in cuts {
                let cut = cut.min(text.len());
                peek.feed(&text.as_bytes()[from..cut]);
                from = cut;
            }
            peek.feed(&text.as_bytes()[from..]);
            prop_assert_eq!(peek.finish(), whole);
            let _ = elements(text.as_bytes());
        }

        #[test]
        fn agrees_with_a_parser(id in any::<i64>(), method in "[a-z/]{1,12}", pad in ".{0,20}") {
            let line = serde_json::json!({"jsonrpc": "2.0", "a": pad, "id": id, "method": method, "params": {"name": pad}});
            let head = Head::of(line.to_string().as_bytes());
            let id = id.to_string();
            prop_assert_eq!(head.id.as_deref(), Some(id.as_str()));
            prop_assert!(head.has_method(&method));
            let subject: String = serde_json::from_str(head.subject.as_deref().unwrap()).unwrap();
            prop_assert_eq!(subject, pad);
        }
    }
}
