//! Runs one guest and judges how it ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::watch::{Console, EXIT_PASSED, PORT, Trouble};

/// What to boot and how.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The emulator.
    pub qemu: PathBuf,
    /// Arguments for it that come first, such as where its firmware is.
    pub qemu_arguments: Vec<String>,
    /// Folders with its libraries, if they are not the system's.
    pub libraries: Option<String>,
    /// Kernel image.
    pub kernel: PathBuf,
    /// The archive with the guest's files.
    pub archive: PathBuf,
    /// Added to the kernel's command line.
    pub kernel_arguments: String,
    /// Processors.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory: u32,
    /// One guest instruction takes one guest nanosecond; needs one processor.
    pub count_instructions: bool,
    /// How long it may take altogether.
    pub limit: Duration,
}

/// How a guest ended, and everything it wrote on its console.
#[derive(Debug)]
pub struct Run {
    /// The console.
    pub log: String,
    /// Programs that passed, or what went wrong.
    pub verdict: Result<usize, Failure>,
    /// How long it took.
    pub time: Duration,
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Programs failed; the console says which.
    #[error("{failed} of {} programs failed", .passed + .failed)]
    Programs {
        /// How many did not.
        passed: usize,
        /// How many failed.
        failed: usize,
    },
    /// The kernel panicked.
    #[error("the guest's kernel panicked")]
    Panic,
    /// The kernel complained of stalls.
    #[error("the guest stalls")]
    Stall,
    /// The guest took too long.
    #[error("the guest was stopped after {0:?}")]
    Limit(Duration),
    /// It ended without a verdict.
    #[error("qemu ended with status {status:?} and the guest's summary is {summary:?}")]
    NoVerdict {
        /// Exit status of qemu.
        status: Option<i32>,
        /// Passed and failed programs, where the guest said so.
        summary: Option<(usize, usize)>,
    },
    /// qemu could not be run.
    #[error("cannot run qemu: {0}")]
    Qemu(#[from] std::io::Error),
}

/// Ends qemu whatever happens.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        // Fails only where it has ended.
        let _already_ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Guest {
    fn command(&self) -> Command {
        // `timeout` is the net under our own limit: it ends qemu even where we are killed.
        let mut command = Command::new("timeout");
        let net = self.limit.as_secs() + 30;
        command.args(["--foreground", "--signal=KILL", &net.to_string()]);
        command.arg(&self.qemu).args(&self.qemu_arguments);
        // Only software emulation: /dev/kvm may exist and not work, and qemu would choose it.
        let accelerator = if self.cpus > 1 { "tcg,thread=multi" } else { "tcg" };
        command.args(["-accel", accelerator, "-M", "q35", "-cpu", "Nehalem"]);
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-monitor",
            "none",
        ]);
        command.args(["-serial", "stdio", "-no-reboot"]);
        let port = format!("isa-debug-exit,iobase={PORT:#x},iosize=1");
        command.args(["-device", &port]);
        command.args(["-smp", &self.cpus.to_string(), "-m", &self.memory.to_string()]);
        if self.count_instructions {
            command.args(["-icount", "shift=0"]);
        }
        command.arg("-kernel").arg(&self.kernel);
        command.arg("-initrd").arg(&self.archive);
        let line = format!("console=ttyS0 panic=-1 quiet {}", self.kernel_arguments);
        command.args(["-append", line.trim_end()]);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        command
    }

    /// Boots the guest and waits for its end. What the console says is passed on to `echo` as it comes.
    pub fn run(&self, echo: &mut dyn Write) -> Run {
        let began = Instant::now();
        let mut log = Vec::new();
        let verdict = self.verdict(began, &mut log, echo);
        Run {
            log: String::from_utf8_lossy(&log).into_owned(),
            verdict,
            time: began.elapsed(),
        }
    }

    fn verdict(&self, began: Instant, log: &mut Vec<u8>, echo: &mut dyn Write) -> Result<usize, Failure> {
        let mut child = Stopped(self.command().spawn()?);
        let output = child
            .0
            .stdout
            .take()
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        let lines = lines_of(output);
        let mut console = Console::default();
        loop {
            let left = self.limit.saturating_sub(began.elapsed());
            match lines.recv_timeout(left) {
                Ok(line) => {
                    log.extend_from_slice(&line);
                    // Nobody may be reading; the log has it all.
                    let _nobody_reads = echo.write_all(&line).and_then(|()| echo.flush());
                    match console.line(&String::from_utf8_lossy(&line)) {
                        None => {}
                        Some(trouble) => {
                            // The lines that follow say where it happened.
                            while let Ok(line) = lines.recv_timeout(Duration::from_secs(2)) {
                                log.extend_from_slice(&line);
                            }
                            return Err(match trouble {
                                Trouble::Panic => Failure::Panic,
                                Trouble::Stall => Failure::Stall,
                            });
                        }
                    }
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return Err(Failure::Limit(self.limit)),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.0.wait()?.code();
        match (status, console.summary) {
            (Some(EXIT_PASSED), Some((passed, 0))) if passed > 0 => Ok(passed),
            (_, Some((passed, failed))) if failed > 0 => Err(Failure::Programs { passed, failed }),
            (status, summary) => Err(Failure::NoVerdict { status, summary }),
        }
    }
}

/// Reads lines in the background; ends with the output.
fn lines_of(output: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    receiver
}
