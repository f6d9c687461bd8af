//! Actors, and what they try to reach.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kams_host::clock::NS_PER_TICK;
use kams_host::netblock::{BlockId, Blocks, Process};
use kams_host::procs;

/// Nothing takes longer, however busy the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// What a refused call says.
pub(crate) const EPERM: &str = "1";

/// One test at a time, so that each can say what is attached; none where the tests cannot run. A skipped test is a
/// failure where the environment says so.
pub(crate) fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        return Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let required = ["CI", "KAMS_REQUIRE_ROOT"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    assert!(
        !required,
        "this test needs root, and CI or KAMS_REQUIRE_ROOT forbids skipping it"
    );
    println!("skipped: needs root");
    None
}

/// A process that does what it is told. It ends with its line.
pub(crate) struct Actor {
    child: Option<Child>,
    pid: u32,
    line: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Actor {
    pub(crate) fn start() -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let child = Command::new(std::env::current_exe().expect("own program"))
            .args(["--exact", "actor::actor", "--nocapture"])
            .env(super::actor::ACTOR, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let pid = child.id();
        Self::over(ours, pid, Some(child))
    }

    fn over(line: UnixStream, pid: u32, child: Option<Child>) -> Self {
        line.set_read_timeout(Some(PATIENCE)).expect("set");
        let answers = BufReader::new(line.try_clone().expect("a copy"));
        Self {
            child,
            pid,
            line,
            answers,
        }
    }

    /// Takes up the line of an orphan.
    pub(crate) fn at(path: &Path, pid: u32) -> Self {
        let line = UnixStream::connect(format!("{}.line", path.display())).expect("connected");
        Self::over(line, pid, None)
    }

    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn process(&self) -> Process {
        process(self.pid)
    }

    /// Tells it to do something, and gives its answer.
    pub(crate) fn say(&mut self, what: &str) -> String {
        self.tell(what);
        self.answer()
    }

    /// Tells it to do something.
    pub(crate) fn tell(&mut self, what: &str) {
        writeln!(self.line, "{what}").expect("told");
    }

    /// Its answer to what it was told.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim().to_owned()
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().expect("killed");
            child.wait().expect("waited for");
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // It may have been waited for before.
        let _ended = self.line.shutdown(std::net::Shutdown::Both);
        if let Some(child) = &mut self.child {
            let _ended = child.wait();
        }
    }
}

pub(crate) fn process(pid: u32) -> Process {
    let stat = procs::stat(pid).expect("it lives");
    Process {
        pid,
        start_ns: stat.start_ticks * NS_PER_TICK,
    }
}

/// Listeners on loopback, for as long as the test runs.
pub(crate) struct Goal {
    pub(crate) tcp: TcpListener,
    pub(crate) tcp6: Option<TcpListener>,
    pub(crate) udp: UdpSocket,
    pub(crate) udp6: Option<UdpSocket>,
}

impl Goal {
    pub(crate) fn new() -> Self {
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let udp = UdpSocket::bind(v4).expect("bound");
        udp.set_nonblocking(true).expect("set");
        Self {
            tcp: TcpListener::bind(v4).expect("bound"),
            tcp6: TcpListener::bind(v6).ok(),
            udp,
            udp6: UdpSocket::bind(v6).ok(),
        }
    }

    pub(crate) fn tcp(&self) -> u16 {
        self.tcp.local_addr().expect("known").port()
    }

    pub(crate) fn udp(&self) -> u16 {
        self.udp.local_addr().expect("known").port()
    }

    /// Whether a datagram came since the last call.
    pub(crate) fn heard(&self) -> bool {
        self.udp.recv(&mut [0; 8]).is_ok()
    }
}

/// Blocks this actor with blocks of its own.
pub(crate) fn block(actor: &Actor) -> (Blocks, BlockId) {
    let blocks = Blocks::new(None);
    let id = blocks.block(&[actor.process()]).expect("blocked");
    blocks.sweep(id);
    (blocks, id)
}

/// Programs of the backstop that the kernel has.
pub(crate) fn programs() -> usize {
    aya::programs::loaded_programs()
        .filter_map(Result::ok)
        .filter(|program| {
            program
                .name_as_str()
                .is_some_and(|name| name.starts_with("netblock_"))
        })
        .count()
}

/// The kernel lets go of programs a moment after their last use.
pub(crate) fn no_programs() -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if programs() == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A folder of a BPF filesystem, removed with all in it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        kams_host::hold::mount_bpf_filesystem().expect("mounted");
        Self(kams_host::hold::folder(&format!(
            "kams-test-{name}-{}",
            std::process::id()
        )))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _absent = std::fs::remove_dir_all(&self.0);
    }
}
