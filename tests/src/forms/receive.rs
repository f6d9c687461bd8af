//! The calls that carry answers.

use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use kams_tests_raw::{Ring, in_child};
use nix::fcntl::{SpliceFFlags, splice, tee};
use nix::sys::socket::{MsgFlags, MultiHeaders, recv, recvmmsg, recvmsg};
use nix::sys::uio::readv;
use nix::unistd::{pipe, read};
use rustix::io::{ReadWriteFlags, preadv2};

use super::Receive;

const BUFFER: usize = 64 << 10;

/// Reads from `fd` until `lines` newlines came in; the bytes, or an error when the stream ends before.
pub fn lines(form: Receive, fd: &OwnedFd, lines: usize) -> io::Result<Vec<u8>> {
    match form {
        Receive::Fork => {
            let (out, into) = pipe()?;
            in_child(|| {
                std::fs::File::from(into.try_clone()?).write_all(&gather(Receive::Read(BUFFER), fd, lines)?)
            })?;
            drop(into);
            io::read_to_string(std::fs::File::from(out)).map(String::into_bytes)
        }
        Receive::Thread => std::thread::scope(|scope| {
            let reader = scope.spawn(|| gather(Receive::Read(BUFFER), fd, lines));
            reader
                .join()
                .map_err(|_panic| io::Error::other("reader thread"))?
        }),
        _ => gather(form, fd, lines),
    }
}

fn gather(form: Receive, fd: &OwnedFd, lines: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut found = 0;
    while found < lines {
        let before = bytes.len();
        some(form, fd, &mut bytes)?;
        let fresh = bytes.get(before..).unwrap_or_default();
        if fresh.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        found += fresh.split(|byte| *byte == b'\n').count() - 1;
    }
    Ok(bytes)
}

/// Reads once and appends.
fn some(form: Receive, fd: &OwnedFd, bytes: &mut Vec<u8>) -> io::Result<()> {
    let raw = fd.as_raw_fd();
    let mut buffer = vec![
        0;
        if let Receive::Read(size) = form {
            size
        } else {
            BUFFER
        }
    ];
    let half = buffer.len() / 2;
    let (first, second) = buffer.split_at_mut(half);
    let two = &mut [IoSliceMut::new(first), IoSliceMut::new(second)];
    let count = match form {
        Receive::Read(_) | Receive::Fork | Receive::Thread => read(fd, &mut buffer)?,
        Receive::Readv => readv(fd, two)?,
        Receive::Preadv2 => preadv2(fd, two, u64::MAX, ReadWriteFlags::empty())?,
        Receive::Recv => recv(raw, &mut buffer, MsgFlags::empty())?,
        Receive::Recvmsg => recvmsg::<()>(raw, two, None, MsgFlags::empty())?.bytes,
        Receive::Recvmmsg => return many(fd, bytes),
        Receive::Peek => {
            recv(raw, &mut buffer, MsgFlags::MSG_PEEK)?;
            recv(raw, &mut buffer, MsgFlags::empty())?
        }
        Receive::Splice => {
            let (out, into) = pipe()?;
            let count = splice(fd, None, &into, None, BUFFER, SpliceFFlags::empty())?;
            if count == 0 { 0 } else { read(&out, &mut buffer)? }
        }
        Receive::Tee => {
            let (_out, into) = pipe()?;
            tee(fd, &into, BUFFER, SpliceFFlags::empty())?;
            read(fd, &mut buffer)?
        }
        Receive::Uring => Ring::new()?.read(fd.as_fd(), &mut buffer)?,
    };
    bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
    Ok(())
}

/// `recvmmsg` with two headers, which returns when one of them has something.
fn many(fd: &OwnedFd, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut headers = MultiHeaders::<()>::preallocate(2, None);
    let mut buffers = [vec![0; BUFFER], vec![0; BUFFER]];
    let mut slices = buffers.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
    let counts: Vec<usize> = recvmmsg(
        fd.as_raw_fd(),
        &mut headers,
        slices.iter_mut(),
        MsgFlags::MSG_WAITFORONE,
        None,
    )?
    .map(|message| message.bytes)
    .collect();
    for (buffer, count) in buffers.iter().zip(counts) {
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
    Ok(())
}
