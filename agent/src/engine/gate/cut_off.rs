//! Servers that restrictions cut off the network, as the gate tells those who carry it out.

use std::collections::BTreeSet;
use std::sync::Arc;

use kams_policy::{Action, Now};
use tokio::sync::watch;

use super::Gatekeeper;

/// Users and identities of servers under `block_egress`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CutOffs(Arc<BTreeSet<(String, String)>>);

impl CutOffs {
    /// Nobody is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this server of this user is among them.
    pub fn contain(&self, user: &str, server: &str) -> bool {
        // One copy of two short names; the set is empty as a rule.
        !self.0.is_empty() && self.0.contains(&(user.to_owned(), server.to_owned()))
    }
}

impl Gatekeeper {
    /// Who is cut off, now and from now on.
    pub fn cut_offs(&self) -> watch::Receiver<CutOffs> {
        self.cut_offs.subscribe()
    }

    /// Tells of a change, if there is one.
    pub(super) fn publish_cut_offs(&self, now: Now) {
        let standing = self.gate.restrictions.list(now).into_iter();
        let servers = standing
            .filter(|one| one.action == Action::BlockEgress)
            .map(|one| (one.user.clone(), one.server.clone()))
            .collect();
        let new = CutOffs(Arc::new(servers));
        self.cut_offs.send_if_modified(|old| {
            let changed = *old != new;
            if changed {
                *old = new;
            }
            changed
        });
    }
}
