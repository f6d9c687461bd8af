//! What a relay costs at least: copying alone, and copying with a parser and twenty patterns.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use regex::bytes::RegexSet;
use rustix::event::{PollFd, PollFlags, poll};

const PATTERNS: [&str; 20] = [
    "(?i)disregard (the|all) (above|earlier)",
    "(?i)<system>",
    "AKIA[0-9A-Z]{16}",
    "gh[pousr]_[0-9A-Za-z]{36}",
    "xox[abprs]-[0-9A-Za-z-]{10,}",
    "-----BEGIN [A-Z ]*PRIVATE KEY-----",
    r"AIza[\w-]{35}",
    "(?i)without telling the user",
    "(?i)new instructions:",
    r"/\.ssh/",
    r"/\.aws/credentials",
    r"169\.254\.169\.254",
    r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}",
    "sk-[A-Za-z0-9]{20,}",
    r"(?i)curl [^|]*\| *(ba)?sh",
    r"\x{200b}|\x{202e}",
    "(?i)rm -rf /",
    r"glpat-[\w-]{20}",
    "npm_[A-Za-z0-9]{36}",
    "hf_[A-Za-z]{34}",
];

/// Copies what comes, in one thread.
pub fn copy(command: &[String]) -> Result<()> {
    let (mut child, to_server, from_server) = start(command)?;
    let own = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned();
    let (from_agent, to_agent) = (own(&std::io::stdin())?, own(&std::io::stdout())?);
    let mut ways = [Some((from_agent, to_server)), Some((from_server, to_agent))];
    let mut buffer = vec![0; 64 << 10];
    while ways.iter().any(Option::is_some) {
        let mut fds = Vec::new();
        let mut which = Vec::new();
        for (at, way) in ways.iter().enumerate() {
            if let Some((from, _)) = way {
                fds.push(PollFd::new(from, PollFlags::IN));
                which.push(at);
            }
        }
        poll(&mut fds, None)?;
        let ready: Vec<usize> = which
            .into_iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(at, _)| at)
            .collect();
        drop(fds);
        for at in ready {
            let Some((from, to)) = &ways[at] else { continue };
            let read = rustix::io::read(from, &mut buffer)?;
            if read == 0 {
                ways[at] = None;
            } else {
                write(to, &buffer[..read])?;
            }
        }
    }
    child.wait()?;
    Ok(())
}

/// Copies lines, after parsing each and looking for twenty patterns in it. One thread a direction.
pub fn inspect(command: &[String]) -> Result<()> {
    let (mut child, to_server, from_server) = start(command)?;
    let up = std::thread::spawn(move || pump(std::io::stdin(), std::fs::File::from(to_server)));
    pump(std::fs::File::from(from_server), std::io::stdout())?;
    child.wait()?;
    ensure!(up.join().is_ok(), "the other direction panicked");
    Ok(())
}

fn pump(from: impl Read, mut to: impl Write) -> Result<()> {
    let patterns = RegexSet::new(PATTERNS)?;
    let mut from = BufReader::with_capacity(64 << 10, from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        let parsed = serde_json::from_slice::<serde_json::Value>(&line).is_ok();
        std::hint::black_box((parsed, patterns.is_match(&line)));
        to.write_all(&line)?;
        to.flush()?;
        line.clear();
    }
    Ok(())
}

fn start(command: &[String]) -> Result<(std::process::Child, OwnedFd, OwnedFd)> {
    let (program, arguments) = command.split_first().context("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    Ok((
        child,
        input.context("stdin")?.into(),
        output.context("stdout")?.into(),
    ))
}

fn write(to: &OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let wrote = rustix::io::write(to, bytes)?;
        bytes = &bytes[wrote..];
    }
    Ok(())
}
