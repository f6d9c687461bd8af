//! Every form that a message can take between an agent and a server: which calls move it, in what pieces, over
//! which kind of file. One table for the agent that plays the forms and for the tests that judge what was seen.

pub mod messages;
pub mod receive;
pub mod send;

/// How long a driver does nothing after its start, as a real agent does (the quickest that was measured writes its
/// first line 80 ms after its start; interpreters take 300). `KAMS_SWIFT` in the environment leaves it out.
pub fn start_like_an_agent() {
    if std::env::var_os("KAMS_SWIFT").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(80));
    }
}

/// What connects agent and server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wire {
    /// Two pipes (Codex, Copilot, Python SDK).
    Pipes,
    /// Two socketpairs (everything on Node and Bun).
    Sockets,
    /// One socketpair for both directions.
    OneSocket,
}

/// How the agent sends a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Send {
    /// One `write` per message, repeated while it comes back short.
    Write,
    /// `write` calls of at most this many bytes.
    Chunks(usize),
    /// Two `write` calls, cut in the middle.
    Halves,
    /// Two messages in one `write`.
    Together,
    /// A message and the start of the next in one `write`, the rest in another.
    Astride,
    /// Non-blocking `write`, taken on where the kernel stopped.
    Partial,
    /// `writev` of three parts.
    Writev,
    /// `pwritev2` at the current position.
    Pwritev2,
    /// `sendto` without an address.
    Send,
    /// `sendmsg` of two parts.
    Sendmsg,
    /// `sendmmsg` of two headers.
    Sendmmsg,
    /// `splice` out of a file.
    Splice,
    /// `sendfile`.
    Sendfile,
    /// `vmsplice` of user memory.
    Vmsplice,
    /// `tee` out of another pipe.
    Tee,
    /// io_uring.
    Uring,
    /// `write` in a forked child.
    Fork,
    /// `write` through a duplicated descriptor.
    Dup,
    /// Two threads, each with messages of its own, at the same time.
    TwoThreads,
    /// The agent and a forked child, each with messages of its own.
    TwoProcesses,
}

/// How the agent receives an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Receive {
    /// `read` into a buffer of this many bytes.
    Read(usize),
    /// `readv` into two buffers.
    Readv,
    /// `preadv2` at the current position.
    Preadv2,
    /// `recvfrom` without an address.
    Recv,
    /// `recvmsg` into two buffers.
    Recvmsg,
    /// `recvmmsg` with two headers.
    Recvmmsg,
    /// `recv` with `MSG_PEEK`, then `recv`.
    Peek,
    /// `splice` into another pipe.
    Splice,
    /// `tee` into another pipe, then `read`.
    Tee,
    /// io_uring.
    Uring,
    /// `read` in a forked child.
    Fork,
    /// `read` in another thread.
    Thread,
}

/// What the messages hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Body {
    /// Letters and digits, this many bytes.
    Ascii(usize),
    /// Characters of one to four bytes, about this many bytes.
    Wide(usize),
    /// Two requests and a notification in one array.
    Batch,
    /// Messages that end in CR LF, with empty lines between them.
    Crlf,
}

/// What a sensor at the agent's end must make of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expect {
    /// Each message, whole and once.
    Whole,
    /// Each message, or a counted loss: the bytes pass no call whose arguments hold them.
    Counted,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name, also the prefix of its request ids.
    pub name: &'static str,
    /// File kind.
    pub wire: Wire,
    /// Requests.
    pub send: Send,
    /// Answers.
    pub receive: Receive,
    /// Content.
    pub body: Body,
    /// Verdict.
    pub expect: Expect,
}

impl Case {
    /// The case with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TABLE.iter().find(|case| case.name == name)
    }
}

const fn whole(name: &'static str, wire: Wire, send: Send, receive: Receive, body: Body) -> Case {
    Case {
        name,
        wire,
        send,
        receive,
        body,
        expect: Expect::Whole,
    }
}

const fn counted(name: &'static str, wire: Wire, send: Send, receive: Receive, body: Body) -> Case {
    Case {
        name,
        wire,
        send,
        receive,
        body,
        expect: Expect::Counted,
    }
}

const READ: Receive = Receive::Read(64 << 10);
const SMALL: Body = Body::Ascii(200);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

use Wire::{OneSocket, Pipes, Sockets};

/// The table. The first 13 rows are the forms that the nearest peer was measured on; the others are the forms
/// that real clients, or people with something to hide, can use.
pub const TABLE: &[Case] = &[
    whole("pipe-write", Pipes, Send::Write, READ, SMALL),
    whole("pipe-two-writes", Pipes, Send::Halves, READ, SMALL),
    whole("pipe-writev", Pipes, Send::Writev, READ, SMALL),
    counted("pipe-splice", Pipes, Send::Splice, READ, SMALL),
    whole("pipe-100k", Pipes, Send::Write, READ, Body::Ascii(100 * KIB)),
    whole("pipe-200k", Pipes, Send::Write, READ, Body::Ascii(200 * KIB)),
    whole("pipe-batch", Pipes, Send::Write, READ, Body::Batch),
    whole("pipe-fork", Pipes, Send::Fork, READ, SMALL),
    whole("socket-write", Sockets, Send::Write, READ, SMALL),
    whole("socket-writev", Sockets, Send::Writev, READ, SMALL),
    whole("socket-send", Sockets, Send::Send, Receive::Recv, SMALL),
    whole("socket-sendmsg", Sockets, Send::Sendmsg, Receive::Recv, SMALL),
    whole("socket-100k", Sockets, Send::Write, READ, Body::Ascii(100 * KIB)),
    // Sizes.
    whole(
        "pipe-1m",
        Pipes,
        Send::Write,
        Receive::Read(8 * KIB),
        Body::Ascii(MIB),
    ),
    whole("socket-1m", Sockets, Send::Send, Receive::Recv, Body::Ascii(MIB)),
    whole("pipe-16m", Pipes, Send::Write, READ, Body::Ascii(16 * MIB)),
    whole(
        "socket-16m",
        Sockets,
        Send::Write,
        Receive::Read(256 * KIB),
        Body::Ascii(16 * MIB),
    ),
    // Pieces.
    whole(
        "pipe-byte-by-byte",
        Pipes,
        Send::Chunks(1),
        Receive::Read(1),
        SMALL,
    ),
    whole(
        "socket-byte-by-byte",
        Sockets,
        Send::Chunks(1),
        Receive::Read(1),
        SMALL,
    ),
    whole(
        "pipe-first-piece-short",
        Pipes,
        Send::Chunks(7),
        Receive::Read(7),
        SMALL,
    ),
    whole(
        "pipe-split-characters",
        Pipes,
        Send::Chunks(3),
        Receive::Read(5),
        Body::Wide(400),
    ),
    whole(
        "socket-split-characters",
        Sockets,
        Send::Chunks(8191),
        Receive::Read(4093),
        Body::Wide(100 * KIB),
    ),
    whole("pipe-partial", Pipes, Send::Partial, READ, Body::Ascii(MIB)),
    whole("socket-partial", Sockets, Send::Partial, READ, Body::Ascii(MIB)),
    whole("pipe-together", Pipes, Send::Together, READ, SMALL),
    whole("socket-together", Sockets, Send::Together, READ, SMALL),
    whole("pipe-astride", Pipes, Send::Astride, READ, SMALL),
    whole("pipe-crlf", Pipes, Send::Write, READ, Body::Crlf),
    whole("socket-batch", Sockets, Send::Send, Receive::Recv, Body::Batch),
    // Calls.
    whole("one-socket", OneSocket, Send::Write, READ, SMALL),
    whole(
        "one-socket-1m",
        OneSocket,
        Send::Send,
        Receive::Recv,
        Body::Ascii(MIB),
    ),
    whole(
        "pipe-readv",
        Pipes,
        Send::Writev,
        Receive::Readv,
        Body::Ascii(100 * KIB),
    ),
    whole(
        "socket-readv",
        Sockets,
        Send::Writev,
        Receive::Readv,
        Body::Ascii(100 * KIB),
    ),
    whole("pipe-preadv2", Pipes, Send::Pwritev2, Receive::Preadv2, SMALL),
    whole(
        "socket-recvmsg",
        Sockets,
        Send::Sendmsg,
        Receive::Recvmsg,
        Body::Ascii(100 * KIB),
    ),
    whole(
        "socket-recvmmsg",
        Sockets,
        Send::Sendmmsg,
        Receive::Recvmmsg,
        Body::Ascii(100 * KIB),
    ),
    whole("socket-peek", Sockets, Send::Send, Receive::Peek, SMALL),
    whole("pipe-dup", Pipes, Send::Dup, READ, SMALL),
    // Who calls.
    whole(
        "pipe-two-threads",
        Pipes,
        Send::TwoThreads,
        Receive::Thread,
        SMALL,
    ),
    whole(
        "socket-two-threads",
        Sockets,
        Send::TwoThreads,
        Receive::Thread,
        SMALL,
    ),
    whole("pipe-two-processes", Pipes, Send::TwoProcesses, READ, SMALL),
    whole("socket-fork-both", Sockets, Send::Fork, Receive::Fork, SMALL),
    // Calls that move bytes past the caller's memory.
    counted("socket-splice", Sockets, Send::Splice, READ, SMALL),
    counted("pipe-splice-both", Pipes, Send::Splice, Receive::Splice, SMALL),
    counted("pipe-sendfile", Pipes, Send::Sendfile, READ, SMALL),
    counted("socket-sendfile", Sockets, Send::Sendfile, READ, SMALL),
    counted("pipe-vmsplice", Pipes, Send::Vmsplice, READ, SMALL),
    counted("pipe-tee", Pipes, Send::Tee, Receive::Tee, SMALL),
    counted("pipe-uring", Pipes, Send::Uring, Receive::Uring, SMALL),
    counted("socket-uring", Sockets, Send::Uring, Receive::Uring, SMALL),
];
