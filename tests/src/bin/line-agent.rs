//! An agent that says what it is told: `line-agent SERVER [ARGS...]` starts the server, sends it each line of its own
//! standard input, and prints each line that the server says. It starts the server when it has something to say.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// Bytes passed on at once: long lines travel in pieces, as they do from real agents.
const PIECE: u64 = 64 << 10;

fn main() -> Result<()> {
    let mut words = std::env::args_os().skip(1);
    kams_tests::forms::start_like_an_agent();
    io::stdin().lock().fill_buf()?;
    let mut server = Command::new(words.next().context("first argument: the server")?)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("start the server")?;
    let mut to = server.stdin.take().context("piped input")?;
    let from = server.stdout.take().context("piped output")?;
    let reader = std::thread::spawn(move || pass(&mut BufReader::new(from), &mut io::stdout()));
    pass(&mut io::stdin().lock(), &mut to)?;
    drop(to);
    reader
        .join()
        .map_err(|_panic| anyhow::anyhow!("the reader panicked"))??;
    server.wait()?;
    Ok(())
}

fn pass(from: &mut dyn BufRead, to: &mut dyn Write) -> io::Result<()> {
    let mut piece = Vec::new();
    while from.take(PIECE).read_until(b'\n', &mut piece)? > 0 {
        to.write_all(&piece)?;
        to.flush()?;
        piece.clear();
    }
    Ok(())
}
