//! The system calls that a target is made to do, one after the other.
//!
//! First the new pairs are made, which changes nothing that the target had; then its descriptors are replaced; then what
//! is left over is closed. A failure while pairs are made is undone by closing them. A failure after the first
//! replacement cannot be undone.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use super::Kind;
use super::descriptors::{self, End, Place, Plan};

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Make(Kind, usize),
    Put(Place),
    Close(u32, u32),
}

/// A new pair, by its numbers in the target, and our copy of our end.
#[derive(Debug)]
struct Pair {
    near: u32,
    far: u32,
    ours: OwnedFd,
}

/// What comes after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another call.
    Call,
    /// Everything is in place.
    Done,
    /// Nothing was changed; the error number says why.
    Undone(i32),
    /// Some descriptors were replaced and others could not be.
    Broken(i32),
}

/// The calls for one target, and how far they are.
#[derive(Debug)]
pub(super) struct Calls {
    plan: Plan,
    pairs: Vec<Pair>,
    queue: VecDeque<Call>,
    replaced: bool,
    failure: Option<i32>,
}

impl Calls {
    pub(super) fn new(plan: Plan) -> Self {
        let queue = plan.pairs().into_iter().enumerate();
        Self {
            queue: queue.map(|(at, kind)| Call::Make(kind, at)).collect(),
            plan,
            pairs: Vec::with_capacity(2),
            replaced: false,
            failure: None,
        }
    }

    /// Number and arguments of the call to do now; `scratch` is where it may write eight bytes.
    pub(super) fn current(&mut self, scratch: u64) -> Option<(libc::c_long, [u64; 4])> {
        let call = *self.queue.front()?;
        Some(match call {
            Call::Make(kind, pair) => {
                let nonblocking = self.plan.is_nonblocking(pair);
                let number = |flags: i32| u64::from(flags.cast_unsigned());
                match kind {
                    Kind::Pipe => {
                        let flags = libc::O_CLOEXEC | if nonblocking { libc::O_NONBLOCK } else { 0 };
                        (libc::SYS_pipe2, [scratch, number(flags), 0, 0])
                    }
                    Kind::Socket => {
                        let more = if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
                        let kind = number(libc::SOCK_STREAM | libc::SOCK_CLOEXEC | more);
                        (libc::SYS_socketpair, [number(libc::AF_UNIX), kind, 0, scratch])
                    }
                }
            }
            Call::Put(place) => {
                self.replaced = true;
                let pair = self.pairs.get(place.pair)?;
                let from = if place.end == End::Near {
                    pair.near
                } else {
                    pair.far
                };
                (libc::SYS_dup3, [u64::from(from), u64::from(place.fd), 0, 0])
            }
            Call::Close(first, last) => (libc::SYS_close_range, [u64::from(first), u64::from(last), 0, 0]),
        })
    }

    /// Takes a call's result. `made` reads the two numbers that a call for a pair has written.
    pub(super) fn finish(
        &mut self,
        result: i64,
        pidfd: &OwnedFd,
        made: impl FnOnce() -> std::io::Result<[u32; 2]>,
    ) -> Next {
        let Some(call) = self.queue.pop_front() else {
            return Next::Done;
        };
        let error = (result < 0).then(|| i32::try_from(-result).unwrap_or(libc::EIO));
        let error = match (call, error) {
            (Call::Make(kind, pair), None) => self.made(kind, pair, pidfd, made).err(),
            // What cannot be closed is left to the target; it is closed on exec.
            (Call::Close(..), _) => None,
            (_, error) => error,
        };
        if let Some(error) = error {
            if self.replaced {
                return Next::Broken(error);
            }
            self.failure = Some(error);
            self.queue.clear();
            self.close_rest();
        } else if self.queue.is_empty() && matches!(call, Call::Make(..)) {
            self.queue.extend(self.plan.places.iter().copied().map(Call::Put));
            self.close_rest();
        }
        match (self.queue.is_empty(), self.failure) {
            (false, _) => Next::Call,
            (true, Some(error)) => Next::Undone(error),
            (true, None) => Next::Done,
        }
    }

    fn made(
        &mut self,
        kind: Kind,
        pair: usize,
        pidfd: &OwnedFd,
        made: impl FnOnce() -> std::io::Result<[u32; 2]>,
    ) -> Result<(), i32> {
        let number = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let [first, second] = made().map_err(number)?;
        // A pipe's first end is for reading: the server's end of its input, ours of its output.
        let (near, far) = if kind == Kind::Pipe && pair == 1 {
            (second, first)
        } else {
            (first, second)
        };
        let ours = descriptors::take(pidfd, far);
        self.pairs.push(Pair {
            near,
            far,
            ours: ours.map_err(number)?,
        });
        Ok(())
    }

    /// Closes the target's copies of every pair: by one call where their numbers follow each other, as they do in a
    /// target that has nothing else open.
    fn close_rest(&mut self) {
        let mut numbers: Vec<u32> = self.pairs.iter().flat_map(|pair| [pair.near, pair.far]).collect();
        numbers.sort_unstable();
        for number in numbers {
            match self.queue.back_mut() {
                Some(Call::Close(_, last)) if *last + 1 == number => *last = number,
                _ => self.queue.push_back(Call::Close(number, number)),
            }
        }
    }

    /// Whether a failure from here on leaves the target without its streams.
    pub(super) const fn replaced(&self) -> bool {
        self.replaced
    }

    /// The plan and our ends of the pairs, once everything is in place: towards standard input, from standard output.
    pub(super) fn into_parts(self) -> Option<(Plan, OwnedFd, OwnedFd)> {
        let mut ours = self.pairs.into_iter().map(|pair| pair.ours);
        let first = ours.next()?;
        let second = match ours.next() {
            Some(second) => second,
            None => first.try_clone().ok()?,
        };
        Some((self.plan, first, second))
    }
}
