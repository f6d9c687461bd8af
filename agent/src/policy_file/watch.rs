//! Reload on change. Editors write beside the file and rename, so the folder is watched and not the file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecursiveMode, Watcher};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::in_force::PolicyInForce;

/// How long the folder must rest before the file is read.
const REST: Duration = Duration::from_millis(250);
/// So many changes in a row are waited out at most: a folder that never rests is read all the same.
const MOST_WAITS: u32 = 20;

/// Watches the folder of the policy from now on, until `stop` becomes true. Must be called inside the runtime.
///
/// # Errors
/// The folder is not there, or the kernel has no watch left.
pub fn watch_policy(in_force: &Arc<PolicyInForce>, mut stop: watch::Receiver<bool>) -> notify::Result<()> {
    let (changed, mut changes) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An error may hide a change.
        if event.map_or(true, |event| is_change(event.kind)) && changed.try_send(()).is_err() {
            tracing::trace!("a change is waiting already");
        }
    })?;
    let folder = in_force
        .source()
        .path()
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    let in_force = Arc::clone(in_force);
    tokio::spawn(async move {
        let work = async {
            while changes.recv().await.is_some() {
                for _ in 0..MOST_WAITS {
                    if timeout(REST, changes.recv()).await.is_err() {
                        break;
                    }
                }
                let in_force = Arc::clone(&in_force);
                // What came of it is logged and counted there.
                drop(tokio::task::spawn_blocking(move || in_force.look_again().is_ok()).await);
            }
        };
        tokio::select! {
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        drop(watcher);
    });
    Ok(())
}

/// Our own reading of the file must not count.
const fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
