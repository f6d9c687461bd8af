//! Who may use the write verbs.
//!
//! The agent is the suspect: it runs as the user, and may run as a member of the admin group. So besides the
//! uid and the groups, the calling process itself must stand outside every agent's tree.

use super::viewer::{Peer, parent_of};
use super::{ApiError, Backend, CommandRight};

/// Deepest process tree that is walked; deeper ones are refused.
const MAX_DEPTH: usize = 256;

/// Whether this peer may write. Blocks on /proc and the backend.
pub(super) fn may_write(peer: &Peer, right: CommandRight, backend: &dyn Backend) -> Result<(), ApiError> {
    let viewer = &peer.viewer;
    if !peer.at_home {
        return Err(ApiError::forbidden(
            "refused: the caller is in another user or pid namespace than kamsd",
            "run the command on the host itself, outside containers and sandboxes",
        ));
    }
    if right == CommandRight::Admin && !viewer.sees_all {
        return Err(ApiError::forbidden(
            format!(
                "refused: uid {} is neither root nor in the admin group",
                viewer.uid
            ),
            "use sudo, or have an administrator add you to the group (`kams` by default) and log in again",
        ));
    }
    if in_agent_tree(viewer.pid, backend)? {
        return Err(ApiError::forbidden(
            format!(
                "refused: process {} belongs to an AI agent's process tree",
                viewer.pid
            ),
            "run the command from a terminal that no agent has started",
        ));
    }
    // Only now is it certain that the walk above was about the process that connected.
    if !peer.is_alive() {
        return Err(ApiError::forbidden(
            format!(
                "refused: process {} ended before it could be looked at",
                viewer.pid
            ),
            "keep the calling process alive until the answer is there",
        ));
    }
    Ok(())
}

fn in_agent_tree(pid: u32, backend: &dyn Backend) -> Result<bool, ApiError> {
    let mut next = Some(pid);
    for _ in 0..MAX_DEPTH {
        let Some(pid) = next else { return Ok(false) };
        if backend.is_in_agent_tree(pid) {
            return Ok(true);
        }
        next = parent_of(pid);
    }
    Err(ApiError::forbidden(
        format!("refused: more than {MAX_DEPTH} processes stand above process {pid}"),
        "run the command from a plain login shell",
    ))
}
