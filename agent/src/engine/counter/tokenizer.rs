//! The tokenizer, in a process of its own.
//!
//! Its tables take some 35 MB, and lists of tools come seldom: they are loaded when one does, and given back soon
//! after. The process is ours (`kamsd --count-tokens`), reads one JSON text a line, and answers with a number a line.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long one answer may take; the largest definition takes a tenth of a second on a slow host, and the start another.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long it may take to see that there is no more.
const TO_END: Duration = Duration::from_secs(1);

/// Where tokens are counted.
#[derive(Debug)]
pub enum Tokenizer {
    /// In this process, for programs that end soon.
    Here,
    /// In a child that runs this program with this argument.
    Child(PathBuf, &'static str, Option<Counting>),
}

/// A child that counts.
#[derive(Debug)]
pub struct Counting {
    child: Child,
    texts: Option<ChildStdin>,
    counts: BufReader<ChildStdout>,
    patience: Duration,
}

impl Tokenizer {
    /// Counts in a child that runs this program, whatever became of its file.
    pub fn child(argument: &'static str) -> Self {
        Self::Child(PathBuf::from("/proc/self/exe"), argument, None)
    }

    /// Tokens of one definition.
    ///
    /// # Errors
    ///
    /// When the child cannot be started, ends, or does not answer in time.
    pub fn count(&mut self, text: &str) -> io::Result<u64> {
        match self {
            Self::Here => Ok(kams_detect::cost::definition_tokens(text)),
            Self::Child(program, argument, running) => {
                let mut counting = match running.take() {
                    Some(counting) => counting,
                    None => Counting::start(program, argument)?,
                };
                let counted = counting.count(text)?;
                *running = Some(counting);
                Ok(counted)
            }
        }
    }

    /// Nothing is to be counted at present.
    pub fn rest(&mut self) {
        if let Self::Child(_, _, running) = self {
            *running = None;
        }
    }
}

impl Counting {
    fn start(program: &PathBuf, argument: &str) -> io::Result<Self> {
        let child = Command::new(program)
            .arg(argument)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        Self::of(child, PATIENCE)
    }

    fn of(mut child: Child, patience: Duration) -> io::Result<Self> {
        let texts = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        rustix::io::ioctl_fionbio(&texts, true)?;
        let counts = child.stdout.take().map(BufReader::new);
        Ok(Self {
            child,
            texts: Some(texts),
            counts: counts.ok_or(io::ErrorKind::BrokenPipe)?,
            patience,
        })
    }

    fn count(&mut self, text: &str) -> io::Result<u64> {
        let mut line = serde_json::to_vec(text)?;
        line.push(b'\n');
        let texts = self.texts.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut rest = line.as_slice();
        while !rest.is_empty() {
            match texts.write(rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    within(self.patience, texts.as_fd(), PollFlags::OUT)?;
                }
                Err(error) => return Err(error),
            }
        }
        within(self.patience, self.counts.get_ref().as_fd(), PollFlags::IN)?;
        let mut answer = String::new();
        self.counts.read_line(&mut answer)?;
        answer.trim_end().parse().map_err(io::Error::other)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // Its end of input; where it is stuck, it is ended. It is ours, and what waits for it is only the next list.
        self.texts = None;
        if within(TO_END, self.counts.get_ref().as_fd(), PollFlags::IN).is_err() {
            drop(self.child.kill());
        }
        drop(self.child.wait());
    }
}

/// Waits for a descriptor.
fn within(patience: Duration, fd: BorrowedFd<'_>, what: PollFlags) -> io::Result<()> {
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&fd, what)], Some(&patience))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// The child's side: counts what comes until there is no more.
///
/// # Errors
///
/// When its input or output fails, or a line is no JSON text.
pub fn serve() -> io::Result<()> {
    // The engine's thread goes ahead of others, and started us; this can wait.
    if rustix::process::getpriority_process(None)? < 0 {
        rustix::process::setpriority_process(None, 0)?;
    }
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        writeln!(out, "{}", kams_detect::cost::definition_tokens(&text))?;
        out.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_reads_nothing_is_an_error_and_no_hang() {
        let stuck = Command::new("/bin/sleep")
            .arg("1000")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut counting = Counting::of(stuck.unwrap(), Duration::from_millis(50)).unwrap();
        // More than a pipe holds.
        let error = counting.count(&"words ".repeat(100_000)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_child_that_fails_is_an_error_and_the_next_one_is_tried() {
        // Echoes the line: a JSON text is no number.
        let mut tokenizer = Tokenizer::Child(PathBuf::from("/bin/cat"), "-", None);
        assert!(tokenizer.count("two words").is_err());
        assert!(matches!(tokenizer, Tokenizer::Child(_, _, None)));
        let mut tokenizer = Tokenizer::Child(PathBuf::from("/nonexistent/kamsd"), "-", None);
        assert!(tokenizer.count("two words").is_err());
        assert_eq!(
            Tokenizer::Here.count("two words").unwrap(),
            kams_detect::cost::definition_tokens("two words")
        );
    }
}
