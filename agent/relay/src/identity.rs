//! Who a relay runs as.
//!
//! Not as the user: the agent is the suspect and runs as the user, so it could stop, trace or kill a relay of the same
//! identity and be believed where one is expected. And not as `nobody`, which other programs share. So: the system user
//! `kams-relay`, where it exists, else a number that no account has.

use std::io;

use rustix::process::{
    DumpableBehavior, Gid, Uid, getpriority_process, set_dumpable_behavior, setpriority_process,
};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The system user of relays.
const NAME: &str = "kams-relay";
/// The number where there is no such user.
const UNNAMED: u32 = 61_184;

/// User id of injected relays. Only they have it, so whoever has it is believed to be one.
pub fn uid() -> u32 {
    numbers().0
}

/// User and group.
fn numbers() -> (u32, u32) {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    accounts
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == NAME).then_some(())?;
            Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
        })
        .filter(|(uid, gid)| *uid != 0 && *gid != 0)
        .unwrap_or((UNNAMED, UNNAMED))
}

/// Gives up every privilege, for good. For a process of one thread.
pub fn drop_privilege() -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = numbers();
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    // The engine's threads go ahead of others and started us; what stands between an agent and its server goes ahead of
    // neither.
    if getpriority_process(None)? < 0 {
        setpriority_process(None, 0)?;
    }
    set_no_new_privs(true)?;
    // Nobody of the same identity reads our memory, and no dump holds what passed.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
