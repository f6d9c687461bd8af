//! The calls that carry requests.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use kams_tests_raw::{Ring, in_child};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, tee, vmsplice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{MsgFlags, MultiHeaders, send, sendmmsg, sendmsg};
use nix::sys::uio::writev;
use nix::unistd::{pipe, write};
use rustix::io::{ReadWriteFlags, pwritev2};

use super::Send;

/// Sends complete messages over `fd`, all of `messages` in one go.
pub fn all(form: Send, fd: &OwnedFd, messages: &[Vec<u8>]) -> io::Result<()> {
    match form {
        Send::Together => written(&messages.concat(), |rest| Ok(write(fd, rest)?)),
        Send::Astride => {
            let bytes = messages.concat();
            let cut = messages.first().map_or(0, Vec::len) + 9;
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            written(first, |rest| Ok(write(fd, rest)?))?;
            written(second, |rest| Ok(write(fd, rest)?))
        }
        Send::TwoThreads => {
            let (odd, even) = halves(messages);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| each(Send::Write, fd, &odd));
                let own = each(Send::Write, fd, &even);
                other
                    .join()
                    .map_err(|_panic| io::Error::other("writer thread"))?
                    .and(own)
            })
        }
        Send::TwoProcesses => {
            let (odd, even) = halves(messages);
            each(Send::Write, fd, odd.get(..1).unwrap_or_default())?;
            in_child(|| each(Send::Write, fd, &even))?;
            each(Send::Write, fd, odd.get(1..).unwrap_or_default())
        }
        _ => each(form, fd, messages),
    }
}

fn halves(messages: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let pick = |rest| {
        messages
            .iter()
            .enumerate()
            .filter(|(n, _)| n % 2 == rest)
            .map(|(_, m)| m.clone())
            .collect()
    };
    (pick(0), pick(1))
}

fn each<M: AsRef<[u8]>>(form: Send, fd: &OwnedFd, messages: &[M]) -> io::Result<()> {
    messages
        .iter()
        .try_for_each(|message| one(form, fd, message.as_ref()))
}

/// Repeats `call` with what is left until nothing is.
fn written(bytes: &[u8], mut call: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        done += call(rest)?;
    }
    Ok(())
}

fn one(form: Send, fd: &OwnedFd, message: &[u8]) -> io::Result<()> {
    let raw = fd.as_raw_fd();
    match form {
        Send::Write | Send::Together | Send::Astride | Send::TwoThreads | Send::TwoProcesses => {
            written(message, |rest| Ok(write(fd, rest)?))
        }
        Send::Chunks(size) => written(message, |rest| Ok(write(fd, rest.get(..size).unwrap_or(rest))?)),
        Send::Halves => {
            let (first, second) = message.split_at(message.len() / 2);
            written(first, |rest| Ok(write(fd, rest)?))?;
            written(second, |rest| Ok(write(fd, rest)?))
        }
        Send::Partial => partial(fd, message),
        Send::Writev => written(message, |rest| Ok(writev(fd, &slices(rest, 3))?)),
        Send::Pwritev2 => written(message, |rest| {
            Ok(pwritev2(fd, &slices(rest, 2), u64::MAX, ReadWriteFlags::empty())?)
        }),
        Send::Send => written(message, |rest| Ok(send(raw, rest, MsgFlags::MSG_NOSIGNAL)?)),
        Send::Sendmsg => written(message, |rest| {
            Ok(sendmsg::<()>(
                raw,
                &slices(rest, 2),
                &[],
                MsgFlags::MSG_NOSIGNAL,
                None,
            )?)
        }),
        Send::Sendmmsg => written(message, |rest| {
            let mut headers = MultiHeaders::<()>::preallocate(2, None);
            let (first, second) = rest.split_at(rest.len() / 2);
            let parts = [[IoSlice::new(first)], [IoSlice::new(second)]];
            let sent = sendmmsg(
                raw,
                &mut headers,
                parts.iter(),
                [None, None],
                [],
                MsgFlags::empty(),
            )?;
            Ok(sent.map(|result| result.bytes).sum())
        }),
        Send::Splice => through_file(message, |file| {
            if is_pipe(fd)? {
                written(message, |rest| {
                    Ok(splice(file, None, fd, None, rest.len(), SpliceFFlags::empty())?)
                })
            } else {
                let (out, into) = pipe()?;
                written(message, |rest| {
                    let count = splice(
                        file,
                        None,
                        &into,
                        None,
                        rest.len().min(4096),
                        SpliceFFlags::empty(),
                    )?;
                    splice(&out, None, fd, None, count, SpliceFFlags::empty())?;
                    Ok(count)
                })
            }
        }),
        Send::Sendfile => through_file(message, |file| {
            written(message, |rest| Ok(sendfile(fd, file, None, rest.len())?))
        }),
        Send::Vmsplice => written(message, |rest| {
            Ok(vmsplice(fd, &[IoSlice::new(rest)], SpliceFFlags::empty())?)
        }),
        Send::Tee => {
            let (out, into) = pipe()?;
            written(message, |rest| {
                let count = write(&into, rest.get(..4096).unwrap_or(rest))?;
                tee(&out, fd, count, SpliceFFlags::empty())?;
                let mut sink = vec![0; count];
                nix::unistd::read(&out, &mut sink)?;
                Ok(count)
            })
        }
        Send::Uring => {
            let mut ring = Ring::new()?;
            written(message, |rest| ring.write(fd.as_fd(), rest))
        }
        Send::Fork => in_child(|| written(message, |rest| Ok(write(fd, rest)?))),
        Send::Dup => {
            let high: OwnedFd = fd.try_clone()?;
            written(message, |rest| Ok(write(&high, rest)?))
        }
    }
}

fn slices(bytes: &[u8], parts: usize) -> Vec<IoSlice<'_>> {
    bytes
        .chunks(bytes.len().div_ceil(parts).max(1))
        .map(IoSlice::new)
        .collect()
}

fn is_pipe(fd: &OwnedFd) -> io::Result<bool> {
    Ok(std::os::unix::fs::FileTypeExt::is_fifo(
        &File::from(fd.try_clone()?).metadata()?.file_type(),
    ))
}

fn through_file(message: &[u8], call: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    use std::io::{Seek, SeekFrom};
    let mut file = tempfile::tempfile()?;
    file.write_all(message)?;
    file.seek(SeekFrom::Start(0))?;
    call(&file)
}

fn partial(fd: &OwnedFd, message: &[u8]) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let outcome = written(message, |rest| match write(fd, rest) {
        Err(Errno::EAGAIN) => {
            poll(
                &mut [PollFd::new(fd.as_fd(), PollFlags::POLLOUT)],
                PollTimeout::NONE,
            )?;
            Ok(0)
        }
        other => Ok(other?),
    });
    fcntl(fd, FcntlArg::F_SETFL(flags))?;
    outcome
}
