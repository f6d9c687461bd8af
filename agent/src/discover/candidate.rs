//! The rule that turns an exec report into a candidate (DESIGN section 5, derived from real spawn traces).
//!
//! A candidate is a process whose fd 0 and fd 1 are streams that an agent can hold a conversation over. The shape
//! alone does not tell a server from a helper (agents also run `sh -c` and git over three socketpairs), so the
//! first line decides later: see [`super::opening`].

use std::fmt;

/// A kernel object behind a descriptor: its kind and its address. Addresses are reused after the object is freed,
/// so whoever keeps one must drop it when the last holder exits.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ObjectId {
    /// Pipe or socket.
    pub kind: StreamKind,
    /// Kernel address of the pipe's inode information or of the socket.
    pub address: u64,
}

/// The kinds of stream that MCP is spoken over.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum StreamKind {
    /// A pipe or FIFO.
    Pipe,
    /// An AF_UNIX SOCK_STREAM socket.
    Unix,
}

/// What a descriptor is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FdKind {
    /// Not open, or not readable by the sensor.
    #[default]
    Closed,
    /// A pipe; both ends are one object.
    Pipe,
    /// An AF_UNIX stream socket; the far end is another object.
    UnixStream,
    /// Another socket (datagram, seqpacket, TCP, netlink).
    OtherSocket,
    /// A regular file, memfd included.
    File,
    /// A character device: a terminal, the null device.
    Device,
    /// Anything else (epoll, eventfd, directory, block device).
    Other,
}

/// Who holds the other end of a stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FarEnd {
    /// This process (thread group id): the parent, or an ancestor that is an agent.
    Held(u32),
    /// Looked for, and neither the parent nor an agent ancestor has it.
    NotHeld,
    /// Could not be looked up in time. Counts as held by the parent for observing, never for enforcing.
    #[default]
    Unknown,
}

/// One of the first three descriptors at exec.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FdShape {
    /// What it is.
    pub kind: FdKind,
    /// Kernel address of the object; 0 where there is none.
    pub object: u64,
    /// For an AF_UNIX stream the peer's address; 0 otherwise, or when the peer is closed.
    pub peer: u64,
    /// Who holds the other end.
    pub far_end: FarEnd,
}

impl FdShape {
    fn stream(self) -> Option<ObjectId> {
        let kind = match self.kind {
            FdKind::Pipe => StreamKind::Pipe,
            FdKind::UnixStream => StreamKind::Unix,
            _ => return None,
        };
        (self.object != 0).then_some(ObjectId {
            kind,
            address: self.object,
        })
    }
}

/// The part of an exec report that the rule looks at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ExecShape {
    /// fd 0, 1 and 2 after the exec.
    pub fds: [FdShape; 3],
    /// Thread group id of the parent.
    pub parent: u32,
    /// Object behind the parent's own fd 0; 0 when closed or unknown.
    pub parent_fd0: u64,
}

/// A process shaped like a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Candidate {
    /// What the server reads.
    pub stdin: ObjectId,
    /// What the server writes. The same as `stdin` when one socket serves both.
    pub stdout: ObjectId,
    /// The object the agent's end writes into: the pipe itself, or the peer socket.
    pub agent_writes: ObjectId,
    /// The object the agent's end reads from.
    pub agent_reads: ObjectId,
    /// Thread group that holds the agent's end.
    pub holder: u32,
    /// fd 2 is the same object as fd 1 (`2>&1`): a relay must replace it too.
    pub stderr_is_stdout: bool,
    /// Both far ends were seen in the holder. Only such a candidate may be relayed.
    pub verified: bool,
}

/// Why an exec is no candidate.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reason {
    /// fd 0 is no pipe and no AF_UNIX stream.
    StdinNotStream,
    /// fd 1 is no pipe and no AF_UNIX stream.
    StdoutNotStream,
    /// fd 0 is the parent's own fd 0: a child of a launcher, or a helper that inherited the agent's input.
    /// Relaying it would eat bytes that belong to the parent.
    StdinInherited,
    /// One pipe is both input and output: nobody can converse over that.
    SamePipe,
    /// The peer of a socket is gone.
    PeerClosed,
    /// The parent and the agent ancestors do not hold the other end.
    FarEndNotHeld,
    /// The two other ends are in different processes (a shell pipeline).
    DifferentHolders,
}

impl Reason {
    /// Stable word for logs and metric labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StdinNotStream => "stdin_not_stream",
            Self::StdoutNotStream => "stdout_not_stream",
            Self::StdinInherited => "stdin_inherited",
            Self::SamePipe => "same_pipe",
            Self::PeerClosed => "peer_closed",
            Self::FarEndNotHeld => "far_end_not_held",
            Self::DifferentHolders => "different_holders",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The objects behind fd 0 and fd 1, where both are streams: what a child shares with the launcher above it.
pub fn stdio(shape: &ExecShape) -> Option<(ObjectId, ObjectId)> {
    Some((shape.fds[0].stream()?, shape.fds[1].stream()?))
}

/// Applies the rule. `Err` says why the process is no candidate; it costs no lookup when fd 0 already rules it out.
pub fn judge(shape: &ExecShape) -> Result<Candidate, Reason> {
    let [fd0, fd1, fd2] = shape.fds;
    let stdin = fd0.stream().ok_or(Reason::StdinNotStream)?;
    let stdout = fd1.stream().ok_or(Reason::StdoutNotStream)?;
    if shape.parent_fd0 == stdin.address {
        return Err(Reason::StdinInherited);
    }
    if stdin == stdout && stdin.kind == StreamKind::Pipe {
        return Err(Reason::SamePipe);
    }
    let agent_writes = far_object(fd0, stdin)?;
    let agent_reads = far_object(fd1, stdout)?;
    let (holder, verified) = match (fd0.far_end, fd1.far_end) {
        (FarEnd::NotHeld, _) | (_, FarEnd::NotHeld) => return Err(Reason::FarEndNotHeld),
        (FarEnd::Held(a), FarEnd::Held(b)) if a == b => (a, true),
        (FarEnd::Held(_), FarEnd::Held(_)) => return Err(Reason::DifferentHolders),
        (FarEnd::Held(a), FarEnd::Unknown) | (FarEnd::Unknown, FarEnd::Held(a)) => (a, false),
        (FarEnd::Unknown, FarEnd::Unknown) => (shape.parent, false),
    };
    Ok(Candidate {
        stdin,
        stdout,
        agent_writes,
        agent_reads,
        holder,
        stderr_is_stdout: fd2.stream() == Some(stdout),
        verified,
    })
}

fn far_object(fd: FdShape, own: ObjectId) -> Result<ObjectId, Reason> {
    match own.kind {
        StreamKind::Pipe => Ok(own),
        StreamKind::Unix if fd.peer == 0 => Err(Reason::PeerClosed),
        StreamKind::Unix => Ok(ObjectId {
            kind: StreamKind::Unix,
            address: fd.peer,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: u32 = 100;

    fn pipe(object: u64) -> FdShape {
        FdShape {
            kind: FdKind::Pipe,
            object,
            peer: 0,
            far_end: FarEnd::Held(AGENT),
        }
    }

    fn unix(object: u64) -> FdShape {
        FdShape {
            kind: FdKind::UnixStream,
            object,
            peer: object + 1,
            far_end: FarEnd::Held(AGENT),
        }
    }

    fn other(kind: FdKind) -> FdShape {
        FdShape {
            kind,
            object: 0x99,
            peer: 0,
            far_end: FarEnd::NotHeld,
        }
    }

    fn shape(fds: [FdShape; 3]) -> ExecShape {
        ExecShape {
            fds,
            parent: AGENT,
            parent_fd0: 0x1,
        }
    }

    #[test]
    fn spawn_shapes_of_real_clients() {
        // (what, fds, parent's fd 0, expected)
        type Row = (&'static str, [FdShape; 3], u64, Result<(), Reason>);
        let table: [Row; 12] = [
            (
                "claude, opencode, gemini: three socketpairs",
                [unix(10), unix(20), unix(30)],
                1,
                Ok(()),
            ),
            (
                "codex, copilot: three pipes",
                [pipe(10), pipe(20), pipe(30)],
                1,
                Ok(()),
            ),
            (
                "python sdk: stderr inherited",
                [pipe(10), pipe(20), other(FdKind::Device)],
                1,
                Ok(()),
            ),
            (
                "one socket for both",
                [unix(10), unix(10), other(FdKind::Device)],
                1,
                Ok(()),
            ),
            (
                "npx -> sh -> node: the chain's stdin",
                [pipe(10), pipe(20), pipe(30)],
                10,
                Err(Reason::StdinInherited),
            ),
            (
                "claude's git: fd 0 null",
                [other(FdKind::Device), unix(20), unix(30)],
                1,
                Err(Reason::StdinNotStream),
            ),
            (
                "claude's rg: fd 0 memfd",
                [other(FdKind::File), unix(20), unix(30)],
                1,
                Err(Reason::StdinNotStream),
            ),
            (
                "claude's Bash tool: fd 1 and 2 a file",
                [unix(10), other(FdKind::File), other(FdKind::File)],
                1,
                Err(Reason::StdoutNotStream),
            ),
            (
                "codex's lsb_release: fd 0 closed",
                [FdShape::default(), pipe(2), pipe(3)],
                1,
                Err(Reason::StdinNotStream),
            ),
            (
                "gemini's git rev-parse: a candidate by shape",
                [unix(10), unix(20), unix(30)],
                1,
                Ok(()),
            ),
            (
                "one pipe as both",
                [pipe(10), pipe(10), pipe(10)],
                1,
                Err(Reason::SamePipe),
            ),
            (
                "datagram socket",
                [other(FdKind::OtherSocket), unix(20), unix(30)],
                1,
                Err(Reason::StdinNotStream),
            ),
        ];
        for (what, fds, parent_fd0, expected) in table {
            let got = judge(&ExecShape {
                fds,
                parent: AGENT,
                parent_fd0,
            })
            .map(|_| ());
            assert_eq!(got, expected, "{what}");
        }
    }

    #[test]
    fn ends_of_a_socketpair_are_two_objects_and_of_a_pipe_one() {
        let c = judge(&shape([unix(10), pipe(20), pipe(20)])).unwrap();
        assert_eq!(c.agent_writes.address, 11);
        assert_eq!(c.agent_reads, c.stdout);
        assert!(c.stderr_is_stdout);
        assert!(c.verified);
        assert_eq!(c.holder, AGENT);
    }

    #[test]
    fn a_pipeline_has_its_ends_in_different_places() {
        let mut fds = [pipe(10), pipe(20), pipe(30)];
        fds[1].far_end = FarEnd::Held(200);
        assert_eq!(judge(&shape(fds)), Err(Reason::DifferentHolders));
        fds[1].far_end = FarEnd::NotHeld;
        assert_eq!(judge(&shape(fds)), Err(Reason::FarEndNotHeld));
    }

    #[test]
    fn an_unknown_far_end_is_observed_but_never_relayed() {
        let mut fds = [pipe(10), pipe(20), pipe(30)];
        fds[0].far_end = FarEnd::Unknown;
        fds[1].far_end = FarEnd::Unknown;
        let c = judge(&shape(fds)).unwrap();
        assert_eq!((c.holder, c.verified), (AGENT, false));
    }

    #[test]
    fn a_closed_peer_is_no_conversation() {
        let mut fds = [unix(10), unix(20), unix(30)];
        fds[0].peer = 0;
        assert_eq!(judge(&shape(fds)), Err(Reason::PeerClosed));
    }
}
