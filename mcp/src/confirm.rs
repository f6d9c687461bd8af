//! Whether a stream that looks like a server's standard streams is MCP.
//!
//! Helpers of an agent (shells, git, language servers) have the same file descriptors as MCP servers; what the
//! agent writes first tells them apart.

use crate::Direction;
use crate::envelope::{Class, Envelope, Message, Unreadable};
use crate::framer::{Frame, FrameKind, Framer};
use crate::json::{JsonKind, pick, string};
use crate::method::Method;
use crate::revision::Revision;

/// JSON lines that are not distinctive, before the stream is given up.
const MAX_PLAIN_LINES: u32 = 16;

const LSP: &[u8] = b"content-length:";

/// What is known of the stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Not enough was seen.
    Pending,
    /// It is MCP.
    Mcp(Confirmed),
    /// It is not.
    Rejected(Reason),
}

/// By what a stream was confirmed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Confirmed {
    /// The evidence.
    pub by: Evidence,
    /// The revision that it names.
    pub revision: Option<Revision>,
}

/// What confirmed a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Evidence {
    /// An `initialize` request with a textual protocol version.
    Initialize,
    /// A `server/discover` request.
    Discover,
    /// A server's answer that only MCP gives: protocol version and server info, or the `_meta` of a stateless result.
    ServerAnswer,
    /// A request or notification that only MCP has.
    Method(Method),
}

/// Why a stream is not MCP.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Reason {
    /// It ended first: a helper whose standard input is closed at once.
    #[error("the stream ended before a message")]
    Eof,
    /// The agent's first byte cannot begin JSON.
    #[error("the agent writes something else than JSON")]
    NotJson,
    /// `Content-Length:` headers: the language server protocol or one like it.
    #[error("the agent writes Content-Length headers, as for a language server")]
    LanguageServer,
    /// JSON-RPC of another protocol, such as the agent client protocol, whose version is a number.
    #[error("JSON-RPC of another protocol")]
    OtherProtocol,
    /// Nothing distinctive within the limit.
    #[error("nothing distinctive within the limit")]
    Limit,
}

/// The classifier of one stream. It keeps no bytes for others: a session has to be fed the stream from its start.
/// Both directions may be fed in any order; once decided it stays decided.
#[derive(Clone, Debug)]
pub struct Confirm {
    to_server: Side,
    to_client: Side,
    limit: u64,
    /// The stream's start was not seen, so its first bytes prove nothing.
    late: bool,
    plain: u32,
    verdict: Verdict,
}

#[derive(Clone, Debug)]
struct Side {
    framer: Framer,
    fed: u64,
    /// The first bytes that are no space, at most as many as the LSP header has.
    head: Vec<u8>,
}

impl Confirm {
    /// A stream that is seen from its start. `limit` bounds what is read of each direction, `line` what is kept of one
    /// line, both in bytes.
    pub fn new(limit: usize, line: usize) -> Self {
        Self::with(limit, line, false)
    }

    /// A stream that was joined midway. What the server says is read from its first newline on. Of what the agent says a
    /// first line that is JSON counts, for a session may say little; the rest of a line whose beginning was missed is none.
    pub fn late(limit: usize, line: usize) -> Self {
        Self::with(limit, line, true)
    }

    fn with(limit: usize, line: usize, late: bool) -> Self {
        let side = |late| Side {
            framer: if late {
                Framer::mid_stream(line)
            } else {
                Framer::new(line)
            },
            fed: 0,
            head: Vec::new(),
        };
        Self {
            to_server: side(false),
            to_client: side(late),
            limit: limit as u64,
            late,
            plain: 0,
            verdict: Verdict::Pending,
        }
    }

    /// What is known so far.
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Takes bytes of one direction.
    pub fn feed(&mut self, direction: Direction, bytes: &[u8]) -> &Verdict {
        if self.verdict != Verdict::Pending {
            return &self.verdict;
        }
        if direction == Direction::ToServer && !self.late {
            self.look_at_head(bytes);
        }
        let mut rest = bytes;
        while self.verdict == Verdict::Pending {
            let side = match direction {
                Direction::ToServer => &mut self.to_server,
                Direction::ToClient => &mut self.to_client,
            };
            let Some(frame) = side.framer.next_frame(&mut rest) else {
                break;
            };
            let line = judge_frame(direction, frame, self.late);
            self.take(line);
        }
        let side = match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        };
        side.fed = side.fed.saturating_add(bytes.len() as u64);
        if self.verdict == Verdict::Pending && side.fed > self.limit {
            self.verdict = Verdict::Rejected(Reason::Limit);
        }
        &self.verdict
    }

    /// Bytes of one direction were lost: from here on the stream counts as joined midway.
    pub fn gap(&mut self, direction: Direction, lost: u64) {
        self.late = true;
        match direction {
            Direction::ToServer => self.to_server.framer.gap(lost),
            Direction::ToClient => self.to_client.framer.gap(lost),
        }
    }

    /// One direction ended.
    pub fn eof(&mut self, direction: Direction) -> &Verdict {
        if self.verdict == Verdict::Pending {
            let side = match direction {
                Direction::ToServer => &mut self.to_server,
                Direction::ToClient => &mut self.to_client,
            };
            let line = side
                .framer
                .finish()
                .map(|frame| judge_frame(direction, frame, self.late));
            if let Some(line) = line {
                self.take(line);
            }
            if self.verdict == Verdict::Pending {
                self.verdict = Verdict::Rejected(Reason::Eof);
            }
        }
        &self.verdict
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Nothing => {}
            Line::Plain => {
                self.plain = self.plain.saturating_add(1);
                // A session under way may say nothing else for long.
                if self.plain > MAX_PLAIN_LINES && !self.late {
                    self.verdict = Verdict::Rejected(Reason::Limit);
                }
            }
            Line::Decides(verdict) => self.verdict = verdict,
        }
    }

    /// Rejects by the first bytes, without waiting for a line that may never end.
    fn look_at_head(&mut self, bytes: &[u8]) {
        let head = &mut self.to_server.head;
        for &byte in bytes {
            if head.len() >= LSP.len() {
                break;
            }
            if !(head.is_empty() && byte.is_ascii_whitespace()) {
                head.push(byte.to_ascii_lowercase());
            }
        }
        match head.first() {
            None | Some(b'{' | b'[') => {}
            Some(_) if head.as_slice() == LSP => self.verdict = Verdict::Rejected(Reason::LanguageServer),
            Some(_) if LSP.starts_with(head) => {}
            Some(_) => self.verdict = Verdict::Rejected(Reason::NotJson),
        }
    }
}

/// What one line says.
enum Line {
    /// Nothing to the question.
    Nothing,
    /// JSON-RPC that several protocols share.
    Plain,
    /// It decides.
    Decides(Verdict),
}

fn judge_frame(direction: Direction, frame: Frame<'_>, late: bool) -> Line {
    let (FrameKind::Line(line) | FrameKind::Unterminated(line)) = frame.kind else {
        return Line::Nothing;
    };
    match Message::parse(line) {
        Ok(Message::Single(envelope)) => judge(direction, &envelope),
        Ok(Message::Batch(elements)) => elements
            .iter()
            .flatten()
            .map(|envelope| judge(direction, envelope))
            .find(|line| matches!(line, Line::Decides(_)))
            .unwrap_or(Line::Plain),
        // Servers print banners on standard output; agents do not write them on a server's standard input.
        Err(Unreadable::NotAnObject) => Line::Plain,
        Err(_) if direction == Direction::ToServer && !late => {
            Line::Decides(Verdict::Rejected(Reason::NotJson))
        }
        Err(_) => Line::Nothing,
    }
}

fn judge(direction: Direction, envelope: &Envelope<'_>) -> Line {
    let mcp = |by, revision| Line::Decides(Verdict::Mcp(Confirmed { by, revision }));
    let other = Line::Decides(Verdict::Rejected(Reason::OtherProtocol));
    match envelope.class() {
        Class::Request | Class::Notification => {
            let method = Method::from_name(envelope.method.as_deref().unwrap_or_default());
            let params = envelope.params.as_ref().map_or("", |params| params.get());
            if method == Method::Initialize {
                return match pick(params, ["protocolVersion"])[0].and_then(string) {
                    Some(version) if !envelope.oddities.version && direction == Direction::ToServer => {
                        mcp(Evidence::Initialize, Some(Revision::from_name(&version)))
                    }
                    _ => other,
                };
            }
            if envelope.oddities.version || !method.is_distinctive() {
                return Line::Plain;
            }
            let revision = crate::meta::Meta::of(params).and_then(|meta| meta.revision);
            match method {
                Method::Discover => mcp(Evidence::Discover, revision),
                method => mcp(Evidence::Method(method), revision),
            }
        }
        Class::Response if direction == Direction::ToClient && !envelope.oddities.version => {
            judge_answer(envelope).unwrap_or(Line::Nothing)
        }
        Class::Response | Class::Malformed if direction == Direction::ToServer => Line::Plain,
        Class::Response | Class::Malformed => Line::Nothing,
    }
}

/// An answer that only an MCP server gives, or that another protocol's server gives to `initialize`.
fn judge_answer(envelope: &Envelope<'_>) -> Option<Line> {
    let result = envelope
        .result
        .as_ref()
        .filter(|result| result.kind() == JsonKind::Object)?;
    let [version, info, meta] = pick(result.get(), ["protocolVersion", "serverInfo", "_meta"]);
    let named = |info: Option<&str>| info.is_some_and(|info| pick(info, ["name"])[0].is_some());
    let by_meta = meta
        .and_then(crate::meta::Meta::read)
        .and_then(|meta| meta.server_info);
    let revision = match version.map(|version| (version, string(version))) {
        Some((_, Some(version))) if named(info) => Some(Revision::from_name(&version)),
        Some((version, None)) if version.starts_with(|c: char| c.is_ascii_digit()) => {
            return Some(Line::Decides(Verdict::Rejected(Reason::OtherProtocol)));
        }
        _ if by_meta.is_some_and(|info| named(Some(info.get()))) => None,
        _ => return None,
    };
    Some(Line::Decides(Verdict::Mcp(Confirmed {
        by: Evidence::ServerAnswer,
        revision,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction::{ToClient, ToServer};

    const DEFAULT_LIMIT: usize = 256 << 10;

    const INITIALIZE: &str = r#"{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}},"jsonrpc":"2.0","id":0}"#;

    fn first(direction: Direction, text: &str) -> Verdict {
        Confirm::new(DEFAULT_LIMIT, DEFAULT_LIMIT)
            .feed(direction, text.as_bytes())
            .clone()
    }

    fn by(verdict: &Verdict) -> Option<&Evidence> {
        match verdict {
            Verdict::Mcp(confirmed) => Some(&confirmed.by),
            _ => None,
        }
    }

    #[test]
    fn both_openings_confirm_in_any_key_order() {
        let verdict = first(ToServer, &format!("{INITIALIZE}\n"));
        let revision = Some(Revision::V2025_11_25);
        assert_eq!(
            verdict,
            Verdict::Mcp(Confirmed {
                by: Evidence::Initialize,
                revision
            })
        );
        let discover = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let revision = Some(Revision::V2026_07_28);
        let verdict = first(ToServer, &format!("{discover}\n"));
        assert_eq!(
            verdict,
            Verdict::Mcp(Confirmed {
                by: Evidence::Discover,
                revision
            })
        );
    }

    #[test]
    fn an_opening_in_pieces_waits_for_its_newline() {
        let mut confirm = Confirm::new(DEFAULT_LIMIT, DEFAULT_LIMIT);
        for byte in INITIALIZE.bytes() {
            assert_eq!(*confirm.feed(ToServer, &[byte]), Verdict::Pending);
        }
        assert!(by(confirm.feed(ToServer, b"\n")).is_some());
        // Decided is decided.
        assert!(by(confirm.eof(ToServer)).is_some());
    }

    #[test]
    fn helpers_are_rejected() {
        let rejected = |text| first(ToServer, text);
        assert_eq!(
            rejected("Content-Length: 120\r\n\r\n"),
            Verdict::Rejected(Reason::LanguageServer)
        );
        assert_eq!(rejected("commit\n"), Verdict::Rejected(Reason::NotJson));
        assert_eq!(rejected("  ls"), Verdict::Rejected(Reason::NotJson));
        assert_eq!(rejected("{broken\n"), Verdict::Rejected(Reason::NotJson));
        assert_eq!(rejected("Con"), Verdict::Pending);
        assert_eq!(
            *Confirm::new(64, 64).eof(ToServer),
            Verdict::Rejected(Reason::Eof)
        );
        let mut long = Confirm::new(64, 64);
        assert_eq!(
            *long.feed(ToServer, "{".repeat(65).as_bytes()),
            Verdict::Rejected(Reason::Limit)
        );
    }

    #[test]
    fn other_json_protocols_are_rejected() {
        let agent_client = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#;
        assert_eq!(
            first(ToServer, &format!("{agent_client}\n")),
            Verdict::Rejected(Reason::OtherProtocol)
        );
        let no_version = r#"{"id":0,"method":"initialize","params":{"clientInfo":{"name":"x"}}}"#;
        assert_eq!(
            first(ToServer, &format!("{no_version}\n")),
            Verdict::Rejected(Reason::OtherProtocol)
        );
        let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{}}}"#;
        let mut late = Confirm::late(DEFAULT_LIMIT, DEFAULT_LIMIT);
        late.feed(ToClient, b"\n");
        assert_eq!(
            *late.feed(ToClient, format!("{answer}\n").as_bytes()),
            Verdict::Rejected(Reason::OtherProtocol)
        );
        let rows = "{\"row\":1}\n".repeat(20);
        assert_eq!(first(ToServer, &rows), Verdict::Rejected(Reason::Limit));
        assert_eq!(
            first(ToServer, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n"),
            Verdict::Pending
        );
    }

    #[test]
    fn a_stream_joined_midway_is_confirmed_by_what_only_mcp_says() {
        let call = r#"{"method":"tools/call","params":{"name":"x"},"jsonrpc":"2.0","id":4}"#;
        let mut confirm = Confirm::late(DEFAULT_LIMIT, DEFAULT_LIMIT);
        assert_eq!(*confirm.feed(ToServer, b"lost start\"}}\n"), Verdict::Pending);
        let verdict = confirm.feed(ToServer, format!("{call}\n").as_bytes());
        assert_eq!(by(verdict), Some(&Evidence::Method(Method::ToolsCall)));

        let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#;
        let mut confirm = Confirm::late(DEFAULT_LIMIT, DEFAULT_LIMIT);
        // The whole first line may be the rest of another: it is not trusted.
        assert_eq!(
            *confirm.feed(ToClient, format!("{answer}\n").as_bytes()),
            Verdict::Pending
        );
        let verdict = confirm.feed(ToClient, format!("{answer}\n").as_bytes());
        assert_eq!(by(verdict), Some(&Evidence::ServerAnswer));
    }

    #[test]
    fn a_banner_of_the_server_does_not_hide_its_answer() {
        let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}}"#;
        let verdict = first(ToClient, &format!("Server running on stdio\n{answer}\n"));
        assert_eq!(by(&verdict), Some(&Evidence::ServerAnswer));
    }
}
