//! Every call that moves bytes on a pipe or socket, one function each. The far side of a stream uses plain calls.

use std::fs::File;
use std::os::fd::AsRawFd;

/// How a test moves bytes. Each function transfers what it can of the buffer and returns the count.
pub(crate) type Move = fn(&File, &mut [u8]) -> isize;

/// Name, call, works on pipes.
pub(crate) const WRITES: [(&str, Move, bool); 6] = [
    ("write", write, true),
    ("writev", writev, true),
    ("pwritev2", pwritev2, true),
    ("sendto", sendto, false),
    ("sendmsg", sendmsg, false),
    ("sendmmsg", sendmmsg, false),
];

/// Name, call, works on pipes.
pub(crate) const READS: [(&str, Move, bool); 6] = [
    ("read", read, true),
    ("readv", readv, true),
    ("preadv2", preadv2, true),
    ("recvfrom", recvfrom, false),
    ("recvmsg", recvmsg, false),
    ("recvmmsg", recvmmsg, false),
];

/// Three elements of different lengths, the second empty.
fn vectors(buffer: &mut [u8]) -> [libc::iovec; 3] {
    let first = buffer.len() / 3;
    let base = buffer.as_mut_ptr();
    let element = |at: usize, len: usize| libc::iovec {
        // `at` is at most the length of the buffer.
        iov_base: base.wrapping_add(at).cast(),
        iov_len: len,
    };
    [
        element(0, first),
        element(first, 0),
        element(first, buffer.len() - first),
    ]
}

fn message(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr: no name, no vectors, no control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len();
    header
}

fn write(file: &File, buffer: &mut [u8]) -> isize {
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::write(file.as_raw_fd(), buffer.as_ptr().cast(), buffer.len()) }
}

fn writev(file: &File, buffer: &mut [u8]) -> isize {
    let vectors = vectors(buffer);
    // SAFETY: the vectors lie in the buffer.
    unsafe { libc::writev(file.as_raw_fd(), vectors.as_ptr(), 3) }
}

fn pwritev2(file: &File, buffer: &mut [u8]) -> isize {
    let vectors = vectors(buffer);
    // SAFETY: the vectors lie in the buffer.
    unsafe { libc::pwritev2(file.as_raw_fd(), vectors.as_ptr(), 3, -1, 0) }
}

fn sendto(file: &File, buffer: &mut [u8]) -> isize {
    // SAFETY: the buffer is valid for its length; no address is given.
    unsafe {
        libc::sendto(
            file.as_raw_fd(),
            buffer.as_ptr().cast(),
            buffer.len(),
            libc::MSG_NOSIGNAL,
            std::ptr::null(),
            0,
        )
    }
}

fn sendmsg(file: &File, buffer: &mut [u8]) -> isize {
    let mut vectors = vectors(buffer);
    let header = message(&mut vectors);
    // SAFETY: the header's vectors lie in the buffer.
    unsafe { libc::sendmsg(file.as_raw_fd(), &raw const header, 0) }
}

fn mmsg(file: &File, buffer: &mut [u8], send: bool) -> isize {
    // Two messages in one call.
    let (first, second) = buffer.split_at_mut(buffer.len() / 2);
    let (mut first_vectors, mut second_vectors) = (vectors(first), vectors(second));
    let mut headers = [
        libc::mmsghdr {
            msg_hdr: message(&mut first_vectors),
            msg_len: 0,
        },
        libc::mmsghdr {
            msg_hdr: message(&mut second_vectors),
            msg_len: 0,
        },
    ];
    // A single byte leaves the first message empty, which a stream socket does not send.
    let skip = usize::from(headers[0].msg_hdr.msg_iov.is_null() || buffer.len() < 2);
    let count = 2 - u32::try_from(skip).expect("0 or 1");
    let headers_at = headers[skip..].as_mut_ptr();
    let fd = file.as_raw_fd();
    let done = if send {
        // SAFETY: `count` headers follow, whose vectors lie in the buffer.
        unsafe { libc::sendmmsg(fd, headers_at, count, 0) }
    } else {
        // SAFETY: as above; the buffer is writable.
        unsafe { libc::recvmmsg(fd, headers_at, count, 0, std::ptr::null_mut()) }
    };
    if done < 0 {
        return -1;
    }
    let done = usize::try_from(done).expect("not negative");
    let moved: u32 = headers[skip..skip + done]
        .iter()
        .map(|header| header.msg_len)
        .sum();
    isize::try_from(moved).expect("fits")
}

fn sendmmsg(file: &File, buffer: &mut [u8]) -> isize {
    mmsg(file, buffer, true)
}

fn read(file: &File, buffer: &mut [u8]) -> isize {
    // SAFETY: the buffer is valid for its length.
    unsafe { libc::read(file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) }
}

fn readv(file: &File, buffer: &mut [u8]) -> isize {
    let vectors = vectors(buffer);
    // SAFETY: the vectors lie in the buffer, which is writable.
    unsafe { libc::readv(file.as_raw_fd(), vectors.as_ptr(), 3) }
}

fn preadv2(file: &File, buffer: &mut [u8]) -> isize {
    let vectors = vectors(buffer);
    // SAFETY: the vectors lie in the buffer, which is writable.
    unsafe { libc::preadv2(file.as_raw_fd(), vectors.as_ptr(), 3, -1, 0) }
}

fn recvfrom(file: &File, buffer: &mut [u8]) -> isize {
    // SAFETY: the buffer is valid for its length; no address is asked for.
    unsafe {
        libc::recvfrom(
            file.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }
}

fn recvmsg(file: &File, buffer: &mut [u8]) -> isize {
    let mut vectors = vectors(buffer);
    let mut header = message(&mut vectors);
    // SAFETY: the header's vectors lie in the buffer, which is writable.
    unsafe { libc::recvmsg(file.as_raw_fd(), &raw mut header, 0) }
}

fn recvmmsg(file: &File, buffer: &mut [u8]) -> isize {
    // All of the buffer is one message: a second receive would block when the first took everything.
    let mut vectors = vectors(buffer);
    let mut headers = [libc::mmsghdr {
        msg_hdr: message(&mut vectors),
        msg_len: 0,
    }];
    // SAFETY: one header, whose vectors lie in the buffer.
    let done = unsafe { libc::recvmmsg(file.as_raw_fd(), headers.as_mut_ptr(), 1, 0, std::ptr::null_mut()) };
    if done < 0 {
        -1
    } else {
        isize::try_from(headers[0].msg_len).expect("fits")
    }
}
