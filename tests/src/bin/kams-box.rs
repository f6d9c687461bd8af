//! Runs a command where the only network is loopback and the only host on it is a mock LLM.
//!
//! `kams-box SCRIPT.json LOG.jsonl COMMAND ARGS...`: the mock listens on port 8399 of 127.0.0.1 and follows the
//! script. Ends with the command's exit code. Where `KAMS_BOX_STAY` is set, the caller has seen to the network already.
#![forbid(unsafe_code)]

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use kams_tests::mock_llm::{MockLlm, Script};
use kams_tests::netbox;

fn main() -> Result<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let script = args.next().context("first argument: the script")?;
    let log = args.next().context("second argument: the log")?;
    let command = args.next().context("third argument: the command")?;
    let script: Script = serde_json::from_reader(File::open(script).context("script")?)?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(log)
        .context("log")?;
    if std::env::var_os("KAMS_BOX_STAY").is_none() {
        netbox::enter()?;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, netbox::LLM_PORT))?;
    MockLlm::serve(listener, script, log);
    let status = Command::new(&command)
        .args(args)
        .status()
        .with_context(|| format!("start {}", command.display()))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
