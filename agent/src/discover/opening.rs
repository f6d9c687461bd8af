//! Whether what an agent first writes to a child is the start of an MCP session.
//!
//! [`Confirm`] decides; this module feeds it with what goes from agent to server, bounds it, and keeps the words
//! that logs and metrics have for its answers.

use std::fmt;

use kams_mcp::confirm::Reason;
use kams_mcp::{Confirm, Direction, Verdict};

/// Longest opening line, in bytes, and how much may pass on a stream that is seen from its start. The longest opening
/// seen from a real client is under 2 KiB.
pub const MAX_LINE: usize = 256 << 10;
/// How much of a session that began before us may pass until a line proves it, in bytes.
pub const MAX_SKIPPED: usize = 4 << 20;

/// Why a stream is not MCP.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NotMcp {
    /// The first byte starts no JSON, or a line is none.
    NotJson,
    /// Language Server Protocol framing.
    Lsp,
    /// The same framing and opening method, another protocol: the Agent Client Protocol.
    Acp,
    /// Nothing that only MCP has within the limits.
    OtherJson,
}

impl NotMcp {
    /// Stable word for logs and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::Lsp => "lsp",
            Self::Acp => "acp",
            Self::OtherJson => "other_json",
        }
    }
}

impl fmt::Display for NotMcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Reason> for NotMcp {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Eof | Reason::NotJson => Self::NotJson,
            Reason::LanguageServer => Self::Lsp,
            Reason::OtherProtocol => Self::Acp,
            Reason::Limit => Self::OtherJson,
        }
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
#[derive(Clone, Debug)]
pub struct Opening(Confirm);

impl Default for Opening {
    fn default() -> Self {
        Self(Confirm::new(MAX_LINE, MAX_LINE))
    }
}

impl Opening {
    /// For a stream that was running before it was seen: any line that only MCP has proves it, and the rest of a
    /// line whose start was missed is passed over.
    pub fn of_running_stream() -> Self {
        Self(Confirm::late(MAX_SKIPPED, MAX_LINE))
    }

    /// Takes the next bytes. After an answer other than `Pending` nothing more should be pushed.
    pub fn push(&mut self, bytes: &[u8]) -> Opened {
        match self.0.feed(Direction::ToServer, bytes) {
            Verdict::Pending => Opened::Pending,
            Verdict::Mcp(_) => Opened::Mcp,
            Verdict::Rejected(why) => Opened::Not((*why).into()),
        }
    }
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
        assert_eq!(opened("{\"a\":1}\n"), Opened::Pending);
        assert_eq!(opened(&"{\"a\":1}\n".repeat(20)), Opened::Not(NotMcp::OtherJson));
        // A session may begin without a handshake.
        assert_eq!(
            opened("{\"jsonrpc\":\"2.0\",\"method\":\"tools/list\",\"id\":1}\n"),
            Opened::Mcp
        );
        assert_eq!(
            opened(&format!("{{{}", " ".repeat(MAX_LINE))),
            Opened::Not(NotMcp::OtherJson)
        );
    }

    #[test]
    fn a_running_stream_is_proved_by_a_later_line() {
        let mut opening = Opening::of_running_stream();
        assert_eq!(opening.push(b"ut off\"}\nnoise\n"), Opened::Pending);
        let long = vec![b'x'; MAX_LINE + 10];
        assert_eq!(opening.push(&long), Opened::Pending);
        // What two protocols share proves nothing, however often it comes.
        let ping = "\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}".repeat(100);
        assert_eq!(opening.push(ping.as_bytes()), Opened::Pending);
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
    }
}
