//! The thread that walks over the processes of cut off servers and closes their connections: that takes as long as the
//! host has processes.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use kams_host::netblock::{BlockId, Blocks, Swept};

/// The way to the thread, and back.
#[derive(Debug)]
pub(super) struct Sweeper {
    jobs: Sender<(u64, BlockId)>,
    done: Arc<Mutex<Vec<(u64, Swept)>>>,
}

impl Sweeper {
    /// Starts the thread; it ends with this handle.
    pub(super) fn start(blocks: &Arc<Blocks>) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let done = Arc::new(Mutex::new(Vec::new()));
        let (blocks, results) = (Arc::clone(blocks), Arc::clone(&done));
        std::thread::Builder::new()
            .name("netblock".to_owned())
            .spawn(move || run(&queue, &blocks, &results))?;
        Ok(Self { jobs, done })
    }

    /// Looks at the tree of a server, soon.
    pub(super) fn sweep(&self, server: u64, id: BlockId) {
        let _ends_only_after_this_handle = self.jobs.send((server, id));
    }

    /// What was found since the last call.
    pub(super) fn take(&self) -> Vec<(u64, Swept)> {
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn run(queue: &Receiver<(u64, BlockId)>, blocks: &Blocks, results: &Mutex<Vec<(u64, Swept)>>) {
    while let Ok((server, id)) = queue.recv() {
        let swept = blocks.sweep(id);
        results
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((server, swept));
    }
}
