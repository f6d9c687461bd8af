//! Reload on change. Editors write beside the file and rename, so the folder is watched and not the file; where the
//! folder is not there, the nearest one above it, until it is.

use std::path::{Path, PathBuf};
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
/// The kernel has no watch left.
pub fn watch_policy(in_force: &Arc<PolicyInForce>, mut stop: watch::Receiver<bool>) -> notify::Result<()> {
    let (changed, mut changes) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An error may hide a change.
        if event.map_or(true, |event| is_change(event.kind)) && changed.try_send(()).is_err() {
            tracing::trace!("a change is waiting already");
        }
    })?;
    let mut watched = nearest(in_force.source().path());
    watcher.watch(&watched, RecursiveMode::NonRecursive)?;
    let in_force = Arc::clone(in_force);
    tokio::spawn(async move {
        let work = async {
            while changes.recv().await.is_some() {
                for _ in 0..MOST_WAITS {
                    if timeout(REST, changes.recv()).await.is_err() {
                        break;
                    }
                }
                let now = nearest(in_force.source().path());
                // A folder that was made anew under the same name is another folder.
                drop(watcher.unwatch(&watched));
                if let Err(error) = watcher.watch(&now, RecursiveMode::NonRecursive) {
                    tracing::warn!(%error, folder = %now.display(), "changes of the policy are not noticed any more");
                }
                watched = now;
                let in_force = Arc::clone(&in_force);
                // What came of it is logged and counted there.
                drop(tokio::task::spawn_blocking(move || in_force.look_again().is_ok()).await);
            }
        };
        tokio::select! {
            () = work => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
    Ok(())
}

/// The folder of a file, or the nearest one above it that is there.
fn nearest(file: &Path) -> PathBuf {
    let above = file.ancestors().skip(1).find(|folder| folder.is_dir());
    above
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .to_owned()
}

/// Our own reading of the file must not count.
const fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
