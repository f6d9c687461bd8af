//! `kams-relay pool`, `kams-relay worker`: see [`kams_relay::pool`]. `kams-relay holder`: see [`kams_relay::holder`].
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use kams_relay::relay::LIMIT;
use kams_relay::{Connector, Relay, Settings, confine, holder, identity, pool};

fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    let ended = match role.as_deref() {
        Some("pool") => run_pool(),
        Some("worker") => run_worker(),
        Some("holder") => run_holder(),
        _ => {
            say("a part of kamsd, started by it");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Where nobody reads it, that is fine.
fn say(text: &str) {
    let line = format!("kams-relay: {text}\n");
    if std::io::stderr().write_all(line.as_bytes()).is_err() {}
}

fn task_socket() -> std::io::Result<OwnedFd> {
    std::io::stdin().as_fd().try_clone_to_owned()
}

fn run_pool() -> std::io::Result<()> {
    let group = std::env::args_os().nth(2).map(std::path::PathBuf::from);
    pool::serve(&task_socket()?, &std::env::current_exe()?, group.as_deref())
}

fn run_worker() -> std::io::Result<()> {
    let socket = task_socket()?;
    identity::drop_privilege()?;
    let Some((start, ends)) = pool::await_start(&socket)? else {
        return Ok(());
    };
    // From here on nothing leads back to the pool.
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    drop((socket, null));
    let settings = Settings {
        meta: start.meta,
        fail: start.fail,
        limit: LIMIT,
        server_ended: None,
    };
    let mut relay = Relay::new(ends, settings, Connector::Path(start.engine))?;
    confine::confine().map_err(std::io::Error::other)?;
    relay.run().map(drop)
}

fn run_holder() -> std::io::Result<()> {
    let door = task_socket()?;
    identity::drop_privilege()?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    drop(null);
    confine::confine_holder().map_err(std::io::Error::other)?;
    holder::serve(&door)
}
