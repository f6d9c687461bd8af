//! Whether what an agent first writes to a child is the start of an MCP session.
//!
//! Fed with the bytes from agent to server, in whatever pieces they arrive; keeps at most one line. Key order is
//! not fixed, the first method may be `initialize` or `server/discover` (revision 2026-07-28), and two neighbours
//! look alike: LSP starts with `Content-Length:`, and ACP is newline-delimited JSON-RPC with `initialize` and an
//! integer `protocolVersion`.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest opening line, in bytes. The longest seen from a real client is under 2 KiB.
pub const MAX_LINE: usize = 256 << 10;
/// How much of a session that began before us may pass until a line proves it, in bytes.
pub const MAX_SKIPPED: usize = 4 << 20;

/// Why a stream is not MCP.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NotMcp {
    /// The first byte starts no JSON.
    NotJson,
    /// Language Server Protocol framing.
    Lsp,
    /// Agent Client Protocol: the same framing and method, another protocol.
    Acp,
    /// A whole line that is JSON but no JSON-RPC 2.0 request of MCP's opening.
    OtherJson,
    /// No line end within [`MAX_LINE`].
    TooLong,
}

impl NotMcp {
    /// Stable word for logs and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::Lsp => "lsp",
            Self::Acp => "acp",
            Self::OtherJson => "other_json",
            Self::TooLong => "too_long",
        }
    }
}

impl fmt::Display for NotMcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is known so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Opened {
    /// More bytes are needed.
    Pending,
    /// It is MCP.
    Mcp,
    /// It is not.
    Not(NotMcp),
}

/// The classifier of one stream.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    line: Vec<u8>,
    running: bool,
    skipped: usize,
}

impl Opening {
    /// For a stream that was running before it was seen: any MCP request in any line proves it, and the rest of a
    /// line whose start was missed is passed over.
    pub fn of_running_stream() -> Self {
        Self {
            running: true,
            ..Self::default()
        }
    }

    /// Bytes held at present.
    pub fn held(&self) -> usize {
        self.line.len()
    }

    /// Takes the next bytes. After an answer other than `Pending` nothing more should be pushed.
    pub fn push(&mut self, mut bytes: &[u8]) -> Opened {
        loop {
            // Each piece is scanned once, so the cost is linear whatever the pieces are.
            let end = bytes.iter().position(|b| *b == b'\n');
            let (piece, rest) = match end {
                Some(at) => (
                    bytes.get(..at).unwrap_or_default(),
                    bytes.get(at + 1..).unwrap_or_default(),
                ),
                None => (bytes, &[][..]),
            };
            if self.line.len() + piece.len() > MAX_LINE {
                self.line.clear();
                self.skipped += piece.len();
                if !self.running || self.skipped > MAX_SKIPPED {
                    return Opened::Not(NotMcp::TooLong);
                }
            } else {
                self.line.extend_from_slice(piece);
            }
            if !self.running
                && let Some(first) = self.line.iter().find(|b| !b.is_ascii_whitespace())
                && !matches!(first, b'{' | b'[')
            {
                let start = self.line.trim_ascii_start();
                let lsp = b"content-length:";
                let seen = start.len().min(lsp.len());
                let same = start
                    .get(..seen)
                    .is_some_and(|s| s.eq_ignore_ascii_case(lsp.get(..seen).unwrap_or_default()));
                if !same {
                    return Opened::Not(NotMcp::NotJson);
                }
                if seen == lsp.len() {
                    return Opened::Not(NotMcp::Lsp);
                }
                if end.is_some() {
                    return Opened::Not(NotMcp::NotJson);
                }
            }
            if end.is_none() {
                return Opened::Pending;
            }
            let verdict = self.line_verdict();
            self.skipped += self.line.len() + 1;
            self.line.clear();
            match verdict {
                Opened::Pending if self.skipped > MAX_SKIPPED => return Opened::Not(NotMcp::OtherJson),
                Opened::Pending => bytes = rest,
                decided => return decided,
            }
        }
    }

    fn line_verdict(&self) -> Opened {
        let line = self.line.trim_ascii();
        if line.is_empty() {
            return Opened::Pending;
        }
        let no = if self.running {
            Opened::Pending
        } else {
            Opened::Not(NotMcp::OtherJson)
        };
        let first = match line.first() {
            Some(b'[') => serde_json::from_slice::<Vec<&RawValue>>(line)
                .ok()
                .and_then(|batch| batch.first().map(|raw| raw.get())),
            _ => std::str::from_utf8(line).ok(),
        };
        let Some(request) = first.and_then(|text| serde_json::from_str::<Request<'_>>(text).ok()) else {
            return no;
        };
        if request.jsonrpc != "2.0" {
            return no;
        }
        match &*request.method {
            "initialize" => {
                let version = request
                    .params
                    .and_then(|raw| serde_json::from_str::<Params<'_>>(raw.get()).ok());
                match version.and_then(|params| params.protocol_version) {
                    Some(raw) if raw.get().starts_with(|c: char| c.is_ascii_digit()) => {
                        Opened::Not(NotMcp::Acp)
                    }
                    _ => Opened::Mcp,
                }
            }
            "server/discover" => Opened::Mcp,
            method if self.running && is_mcp_method(method) => Opened::Mcp,
            _ => no,
        }
    }
}

/// Methods of any revision that no neighbouring protocol has.
fn is_mcp_method(method: &str) -> bool {
    const FAMILIES: [&str; 6] = [
        "tools/",
        "resources/",
        "prompts/",
        "completion/",
        "logging/",
        "subscriptions/",
    ];
    FAMILIES.iter().any(|family| method.starts_with(family))
        || matches!(
            method,
            "ping" | "notifications/initialized" | "notifications/cancelled" | "notifications/progress"
        )
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    jsonrpc: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    method: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, rename = "protocolVersion")]
    protocol_version: Option<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLAUDE: &str = r#"{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}},"jsonrpc":"2.0","id":0}"#;
    const CODEX: &str =
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    const COPILOT: &str = r#"{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{}}}"#;
    const ACP: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;

    fn opened(text: &str) -> Opened {
        Opening::default().push(text.as_bytes())
    }

    #[test]
    fn openings_of_real_clients_and_their_neighbours() {
        for line in [CLAUDE, CODEX, COPILOT] {
            assert_eq!(opened(line), Opened::Pending);
            assert_eq!(opened(&format!("{line}\n")), Opened::Mcp);
            assert_eq!(opened(&format!("\n {line}\r\n{{")), Opened::Mcp);
        }
        assert_eq!(opened(&format!("[{CODEX}]\n")), Opened::Mcp);
        assert_eq!(opened(&format!("{ACP}\n")), Opened::Not(NotMcp::Acp));
        assert_eq!(opened("Content-Length: 52\r\n"), Opened::Not(NotMcp::Lsp));
        assert_eq!(opened("Content-"), Opened::Pending);
        assert_eq!(opened("ls -la\n"), Opened::Not(NotMcp::NotJson));
        assert_eq!(opened("\x7fELF"), Opened::Not(NotMcp::NotJson));
        assert_eq!(opened("{\"a\":1}\n"), Opened::Not(NotMcp::OtherJson));
        assert_eq!(
            opened("{\"jsonrpc\":\"2.0\",\"method\":\"tools/list\",\"id\":1}\n"),
            Opened::Not(NotMcp::OtherJson)
        );
        assert_eq!(
            opened(&format!("{{{}", " ".repeat(MAX_LINE))),
            Opened::Not(NotMcp::TooLong)
        );
    }

    #[test]
    fn a_running_stream_is_proved_by_a_later_line() {
        let mut opening = Opening::of_running_stream();
        assert_eq!(opening.push(b"ut off\"}\nnoise\n"), Opened::Pending);
        let long = vec![b'x'; MAX_LINE + 10];
        assert_eq!(opening.push(&long), Opened::Pending);
        assert_eq!(
            opening.push(b"\n{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/call\"}\n"),
            Opened::Mcp
        );
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(cuts in prop::collection::vec(1_usize..40, 0..20)) {
            let text = format!("{CLAUDE}\n");
            let mut opening = Opening::default();
            let mut rest = text.as_bytes();
            let mut last = Opened::Pending;
            for cut in cuts {
                if last != Opened::Pending { break; }
                let (piece, tail) = rest.split_at(cut.min(rest.len()));
                last = opening.push(piece);
                rest = tail;
            }
            if last == Opened::Pending && !rest.is_empty() {
                last = opening.push(rest);
            }
            prop_assert_eq!(last, Opened::Mcp);
        }

        #[test]
        fn no_input_holds_more_than_a_line(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..30), running: bool) {
            let mut opening = if running { Opening::of_running_stream() } else { Opening::default() };
            for chunk in chunks {
                if opening.push(&chunk) != Opened::Pending { break; }
                prop_assert!(opening.held() <= MAX_LINE);
            }
        }
    }
}
