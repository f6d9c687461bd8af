//! The daemon's side: finds the holder that an earlier daemon has started, or starts one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::{Answer, Held, Key, Order};
use crate::wire::{self, PACKET};

/// How long an answer may take. The holder does nothing that takes longer than a system call.
const PATIENCE: Duration = Duration::from_millis(500);
/// Daemons that may wait to be let in.
const BACKLOG: i32 = 4;

/// A way to the holder; made when it is first needed, and again when it is gone.
#[derive(Debug)]
pub struct HolderClient {
    program: PathBuf,
    door: PathBuf,
    socket: Option<OwnedFd>,
    process: Option<Child>,
}

impl HolderClient {
    /// `program` is `kams-relay`, `door` where the holder is found, in a folder that only root can write to.
    pub fn new(program: &Path, door: &Path) -> Self {
        Self {
            program: program.to_owned(),
            door: door.to_owned(),
            socket: None,
            process: None,
        }
    }

    /// Finds the holder of an earlier daemon; none is started. Whether there is one.
    pub fn find(&mut self) -> bool {
        if self.socket.is_none() {
            self.socket = self.reached().ok();
        }
        self.socket.is_some()
    }

    /// Has a listener kept. On an error it is closed, and whoever asks is answered with ENOSYS.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the listener is the holder's from here on, and closed here"
    )]
    pub fn keep(&mut self, key: Key, server: u32, allow: bool, listener: OwnedFd) -> io::Result<()> {
        self.ready()?;
        match self.order(Order::Keep { key, server, allow }, Some(&listener))? {
            Answer::Done(_) => Ok(()),
            _ => Err(io::Error::other("the holder of listeners has no room")),
        }
    }

    /// Decides for one, or for all; for how many there was something to decide.
    pub fn set(&mut self, key: Option<Key>, allow: bool) -> io::Result<usize> {
        if !self.find() {
            return Ok(0);
        }
        match self.order(Order::Set { key, allow }, None)? {
            Answer::Done(count) => Ok(count),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// What is kept.
    pub fn held(&mut self) -> io::Result<Vec<Held>> {
        if !self.find() {
            return Ok(Vec::new());
        }
        match self.order(Order::List, None)? {
            Answer::Held(held) => Ok(held),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// A holder is there when this returns.
    pub fn ready(&mut self) -> io::Result<()> {
        if self.find() {
            return Ok(());
        }
        if let Some(mut ended) = self.process.take() {
            // What we started and cannot reach has ended, or is about to.
            let _reaped = ended.try_wait();
        }
        let door = self.open_door()?;
        let mut command = Command::new(&self.program);
        command
            .arg("holder")
            .stdin(Stdio::from(door))
            .stdout(Stdio::null());
        // A group of its own: what ends the daemon's does not end the holder.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        self.process = Some(command.spawn()?);
        self.socket = Some(self.reached()?);
        // It is told from one that fails at its start by its answer.
        self.order(Order::List, None).map(drop)
    }

    fn reached(&self) -> io::Result<OwnedFd> {
        let socket = unconnected()?;
        connect(&socket, &SocketAddrUnix::new(&self.door)?)?;
        Ok(socket)
    }

    fn open_door(&self) -> io::Result<OwnedFd> {
        match std::fs::remove_file(&self.door) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = unconnected()?;
        bind(&socket, &SocketAddrUnix::new(&self.door)?)?;
        // Before it listens: nobody gets in by the mode that it was made with.
        rustix::fs::chmod(&self.door, Mode::RUSR | Mode::WUSR)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    fn order(&mut self, order: Order, fd: Option<&OwnedFd>) -> io::Result<Answer> {
        let answer = self.exchange(order, fd);
        if answer.is_err() {
            // What it says later must not be taken for the answer to another order.
            self.socket = None;
        }
        answer
    }

    fn exchange(&self, order: Order, fd: Option<&OwnedFd>) -> io::Result<Answer> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?.as_fd();
        let text = serde_json::to_vec(&order)?;
        match fd {
            Some(fd) => wire::send_with(socket, &text, &[fd.as_fd()])?,
            None => wire::send(socket, &text, &[])?,
        }
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(PATIENCE.subsec_nanos()),
        };
        poll(
            &mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)],
            Some(&limit),
        )?;
        let mut buffer = vec![0; PACKET];
        let received = wire::receive(socket, &mut buffer)?;
        let (length, _) = received.ok_or(io::ErrorKind::UnexpectedEof)?;
        let text = buffer.get(..length).unwrap_or_default();
        Ok(serde_json::from_slice(text)?)
    }
}

fn unconnected() -> io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    Ok(socket_with(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holder;

    /// The holder in a thread: its own confinement is the program's matter.
    #[test]
    fn what_is_kept_is_told_and_decided_again_by_a_later_daemon() {
        if !rustix::process::geteuid().is_root() {
            // Only root has a say; the refusal is what can be tested then.
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("seccomp.sock");
        let door = HolderClient::new(Path::new("/nowhere"), &path)
            .open_door()
            .expect("opened");
        let thread = std::thread::spawn(move || holder::serve(&door));
        let mut first = HolderClient::new(Path::new("/nowhere"), &path);
        let key = Key { pid: 7, start: 9 };
        // In a listener's place: a pipe without a question, whose end is its end.
        let (reader, writer) = io::pipe().expect("a pipe");
        first.keep(key, 5, true, reader.into()).expect("kept");
        drop(first);
        let mut second = HolderClient::new(Path::new("/nowhere"), &path);
        assert!(second.find());
        let held = second.held().expect("told");
        assert_eq!(held.len(), 1);
        assert_eq!((held[0].key, held[0].server, held[0].allow), (key, 5, true));
        assert_eq!(
            second.set(Some(Key { pid: 8, start: 9 }), false).expect("told"),
            0
        );
        assert_eq!(second.set(None, false).expect("told"), 1);
        assert!(!second.held().expect("told")[0].allow);
        drop(writer);
        while !second.held().expect("told").is_empty() {
            std::thread::yield_now();
        }
        drop(second);
        thread
            .join()
            .expect("no panic")
            .expect("it ends when nothing is left to hold");
    }
}
