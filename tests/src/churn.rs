//! Many processes that live for a moment.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// Starts `count` processes one after the other, each on pipes like a server's, and waits for each.
pub fn processes(count: u32) -> Result<()> {
    for _ in 0..count {
        let status = Command::new("/bin/true")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .status()?;
        ensure!(status.success(), "/bin/true ended with {status}");
    }
    Ok(())
}
