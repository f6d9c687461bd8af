//! Threads without which the daemon is blind.

/// Held by such a thread: if it panics, the process ends and its service manager starts it again. A daemon that goes on
/// without seeing anything would be believed.
#[derive(Debug)]
pub struct EndsAll(pub &'static str);

impl Drop for EndsAll {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "the {} thread has failed; kamsd ends and must be started again",
                self.0
            );
            std::process::abort();
        }
    }
}
