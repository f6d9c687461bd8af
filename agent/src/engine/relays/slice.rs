//! Where relays live: in a control group of their own, so that what stops, kills or starves the daemon's leaves them.
//!
//! Under systemd that is a scope in `kams-relays.slice`, made by the service manager: the daemon's own unit may not
//! write to the control groups. Elsewhere it is a folder in the hierarchy of version 2, where that can be written. Only
//! where neither works do relays stay in the daemon's group, and that is told.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kams_relay::RelayPool;

/// Name of the slice, and of the folder.
const NAME: &str = "kams-relays.slice";
/// There while systemd is the service manager (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

/// Starts the pool in the best place there is.
pub(super) fn start(program: &Path, engine: &Path) -> io::Result<RelayPool> {
    if Path::new(SYSTEMD).is_dir() {
        match RelayPool::spawn(scope(program), engine) {
            Ok(pool) => return Ok(pool),
            Err(error) => tracing::warn!(%error, "systemd-run starts no scope in {NAME}"),
        }
    }
    let folder = folder();
    let pool = RelayPool::spawn(plain(program, folder.as_deref()), engine)?;
    let why = pool
        .misplaced()
        .or_else(|| folder.is_none().then_some("no control group can be made"));
    if let Some(why) = why {
        tracing::warn!(
            why,
            "relays stay in the daemon's control group: what kills it kills them too"
        );
    }
    Ok(pool)
}

/// systemd-run runs a scope's command in its own place, so that the process that is started becomes the pool.
fn scope(program: &Path) -> Command {
    let mut command = Command::new("systemd-run");
    command
        .args(["--scope", "--quiet", "--collect"])
        .arg(format!("--slice={NAME}"))
        .args(["--description=Relays of Kams", "--"])
        .arg(program)
        .arg("pool")
        .process_group(0);
    command
}

fn plain(program: &Path, folder: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    // A group of processes of its own at least: a signal to the daemon's is not theirs.
    command.arg("pool").args(folder).process_group(0);
    command
}

/// The folder of the group, made if it is not there; none where no hierarchy of version 2 can be written.
fn folder() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts
        .lines()
        .filter_map(mounted)
        .map(|mount| mount.join(NAME))
        .find(|folder| made(folder))
}

/// The mount point of a line of mountinfo, if it is the root of a hierarchy of version 2 (proc_pid_mountinfo(5)).
fn mounted(line: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, place) = (fields.next()?, fields.next()?);
    // Escaped characters do not occur where control groups are mounted.
    (after.split(' ').next() == Some("cgroup2") && root == "/").then(|| PathBuf::from(place))
}

fn made(folder: &Path) -> bool {
    match std::fs::create_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::AlreadyExists && folder.join("cgroup.procs").exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_of_version_2_is_found() {
        let line = "42 32 0:27 / /sys/fs/cgroup/unified rw,relatime shared:9 master:3 - cgroup2 cgroup2 rw";
        assert_eq!(mounted(line), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mounted(&line.replace(" / ", " /docker/7 ")), None);
        assert_eq!(mounted(&line.replace("cgroup2 cgroup2", "cgroup cgroup")), None);
        assert_eq!(mounted("nonsense"), None);
    }
}
