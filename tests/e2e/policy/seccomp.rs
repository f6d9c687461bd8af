//! `seccomp: deny | notify`: a real daemon keeps a real server off the network, also while and after it is killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::Desk;
use kams_tests::kams::Kams;
use kams_tests::kit;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{DESKS, findings, list};
use crate::context::{Context, DESK_SERVER, LINE_AGENT, programs};

/// Succeeds where a TCP socket can be had.
const SOCKET: &str = "python3 -c 'import socket; socket.socket()'";
/// Succeeds where the kernel has no io_uring for this process.
const NO_RING: &str = "python3 -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True); \
     exit(l.syscall(425, 4, ctypes.create_string_buffer(256)) != -1 or ctypes.get_errno() != 38)'";
const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("policy::seccomp-deny", deny),
        context.with_kams("policy::seccomp-behind-a-launcher", launcher),
        context.with_kams("policy::seccomp-behind-npx", npx),
        context.with_kams("policy::seccomp-behind-uvx", uvx),
        context.with_kams("policy::seccomp-notify-and-the-death-of-the-daemon", notify),
        context.with_kams("policy::seccomp-missing-is-told", missing),
    ]
}

fn daemon(context: &Context, policy: &str) -> Result<Kams> {
    context.stop_shared()?;
    let config = format!("relay: candidates\n{DESKS}");
    Kams::start_under(&programs(), &config, &[("policy.yaml", policy)])
}

fn policy(setting: &str) -> String {
    format!(
        "version: 1\nmode: enforce\nservers:\n- {{match: {{}}, seccomp: {setting}}}\nrules:\n\
         - {{name: cut, match: {{on: call, tool: leak}}, action: block_egress}}\n"
    )
}

/// The second start of a server: at its first, nobody knows yet that it is one.
fn known(stage: &Stage, server: &[&str]) -> Result<Desk> {
    Desk::open_words(stage, LINE_AGENT, server, None)?.close()?;
    Desk::open_words(stage, LINE_AGENT, server, None)
}

fn has_network(desk: &mut Desk) -> Result<bool> {
    let (status, said) = desk.shell(SOCKET)?;
    ensure!(
        status == 0 || said.contains("PermissionError"),
        "neither had nor refused: {status} {said}"
    );
    Ok(status == 0)
}

/// What `kams servers` says of the filter of the server that lives.
fn shown(kams: &Kams, state: &str) -> Result<()> {
    kams.ask_until(&["servers"], "the state of the filter", |answer| {
        list(answer, "servers")
            .iter()
            .any(|server| server["state"] != "gone" && server["seccomp"]["state"] == state)
    })?;
    Ok(())
}

fn deny(context: &Context) -> Result<()> {
    let kams = daemon(context, &policy("deny"))?;
    let stage = Stage::new()?;
    let mut desk = known(&stage, &[DESK_SERVER])?;
    ensure!(!has_network(&mut desk)?, "a socket under a filter that refuses");
    ensure!(desk.shell(NO_RING)?.0 == 0, "a ring under a filter");
    shown(&kams, "refusing")?;
    kams.metric_until("kams_seccomp_servers{state=\"refusing\"}", 1.0)?;
    desk.close()
}

fn launcher(context: &Context) -> Result<()> {
    let kams = daemon(context, &policy("deny"))?;
    let stage = Stage::new()?;
    let said = stage.path("launcher-said");
    // What a launcher runs for itself has other streams than the server.
    let line = format!(
        "{SOCKET} >> {0} 2>&1; echo $? >> {0}; exec {DESK_SERVER}",
        said.display()
    );
    let mut desk = known(&stage, &["sh", "-c", &line])?;
    ensure!(
        std::fs::read_to_string(&said)? == "0\n0\n",
        "the launcher had no network: {}",
        std::fs::read_to_string(&said)?
    );
    ensure!(
        !has_network(&mut desk)?,
        "the server of a launcher has the network"
    );
    shown(&kams, "refusing")?;
    desk.close()
}

/// A server of a package: node, started by a shell, started by npx.
const PACKAGE: &str = r"#!/usr/bin/env node
const { spawnSync } = require('child_process');
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  let result = {};
  if (method === 'initialize') {
    const serverInfo = { name: 'chained', version: '1' };
    result = { protocolVersion: params.protocolVersion, capabilities: {}, serverInfo };
  } else if (method === 'tools/call') {
    const run = spawnSync('sh', ['-c', params.arguments.line], { encoding: 'utf8' });
    result = { content: [{ type: 'text', text: `${run.status}\n${run.stdout}${run.stderr}` }] };
  }
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
});
";

/// The same in Python.
const MODULE: &str = r#"
import json, subprocess, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method, params, result = message["method"], message.get("params", {}), {}
    if method == "initialize":
        info = {"name": "chained", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": info}
    elif method == "tools/call":
        run = subprocess.run(["sh", "-c", params["arguments"]["line"]], capture_output=True, text=True)
        result = {"content": [{"type": "text", "text": f"{run.returncode}\n{run.stdout}{run.stderr}"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

fn npx(context: &Context) -> Result<()> {
    let kams = daemon(context, &policy("deny"))?;
    let stage = Stage::new()?;
    let bin = stage.path("package/node_modules/.bin");
    std::fs::create_dir_all(&bin)?;
    let program = bin.join("mcp-chained");
    std::fs::write(&program, PACKAGE)?;
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let line = format!(
        "cd {} && exec npx --no mcp-chained",
        stage.path("package").display()
    );
    let mut desk = known(&stage, &["sh", "-c", &line])?;
    ensure!(!has_network(&mut desk)?, "the server behind npx has the network");
    ensure!(desk.shell(NO_RING)?.0 == 0, "a ring under a filter");
    shown(&kams, "refusing")?;
    first_is_free(&kams)?;
    desk.close()
}

fn uvx(context: &Context) -> Result<()> {
    let kams = daemon(context, &policy("deny"))?;
    let stage = Stage::new()?;
    let module = stage.write("module.py", MODULE)?;
    let installed = kit::installed();
    let line = format!(
        "export UV_OFFLINE=1 UV_NO_INDEX=1 UV_PYTHON_DOWNLOADS=never UV_PYTHON={} UV_FIND_LINKS={} UV_CACHE_DIR={}; \
         exec uvx --from mcp-server-time python {}",
        kit::python_bin("python").display(),
        installed.join("wheels").display(),
        installed.join("uv-cache").display(),
        module.display()
    );
    let mut desk = known(&stage, &["sh", "-c", &line])?;
    ensure!(!has_network(&mut desk)?, "the server behind uvx has the network");
    ensure!(desk.shell(NO_RING)?.0 == 0, "a ring under a filter");
    shown(&kams, "refusing")?;
    first_is_free(&kams)?;
    desk.close()
}

/// A launcher that waits for its server is under no filter: it may have to fetch something.
fn first_is_free(kams: &Kams) -> Result<()> {
    let answer = kams.ask(&["servers"])?;
    let server = list(&answer, "servers")
        .iter()
        .find(|one| one["state"] == "relayed");
    let first = server
        .and_then(|one| one["pid"].as_u64())
        .context("a live server")?;
    let status = std::fs::read_to_string(format!("/proc/{first}/status"))?;
    ensure!(
        status.contains("\nSeccomp:\t0\n"),
        "the launcher is under a filter: {status}"
    );
    Ok(())
}

fn notify(context: &Context) -> Result<()> {
    let kams = daemon(context, &policy("notify"))?;
    let stage = Stage::new()?;
    let mut cut = known(&stage, &[DESK_SERVER])?;
    ensure!(
        has_network(&mut cut)?,
        "a filter that asks refuses before there is a reason"
    );
    ensure!(cut.shell(NO_RING)?.0 == 0, "a ring would open sockets unasked");
    shown(&kams, "allowing")?;
    let refused = cut.call("leak", &json!({}))?;
    ensure!(refused["isError"] == true, "not refused: {refused}");
    until("the server is cut off", || Ok(!has_network(&mut cut)?))?;
    shown(&kams, "refusing")?;
    // Another server of the name is cut off before its first instruction.
    let mut next = Desk::open(&stage, LINE_AGENT, DESK_SERVER, None)?;
    let (status, said) = next.shell(SOCKET)?;
    ensure!(
        status == 1 && said.contains("Permission denied"),
        "a socket under a restriction: {said}"
    );

    let worker = Pid::from_raw(i32::try_from(kams.pid())?).context("a worker")?;
    kill_process(worker, Signal::KILL)?;
    // Nobody of the daemon is there now, or a new one begins: the answer stays, and comes.
    for _ in 0..10 {
        ensure!(
            !has_network(&mut cut)?,
            "a server that was cut off has the network again"
        );
    }
    until("a new worker", || {
        Ok(kams.pid() != 0 && kams.pid() != worker.as_raw_nonzero().get().unsigned_abs())
    })?;
    shown(&kams, "refusing")?;
    ensure!(!has_network(&mut cut)?, "a new worker let it go");

    // Both are let go with the restriction, by a daemon that has only heard of them.
    let restrictions = kams.ask(&["restrictions", "list"])?;
    let one = list(&restrictions, "restrictions")
        .first()
        .context("a restriction")?;
    let number = one["id"].to_string();
    let lifted = kams.kams(&["restrictions", "lift", &number])?;
    ensure!(lifted.status.success(), "not lifted: {lifted:?}");
    until("the first server is let go", || has_network(&mut cut))?;
    until("the second server is let go", || has_network(&mut next))?;
    next.close()?;
    cut.close()
}

fn missing(context: &Context) -> Result<()> {
    let kams = daemon(context, &policy("deny"))?;
    let stage = Stage::new()?;
    // A launcher that serves by itself: there never is an image that could be told to be the server.
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"shell","version":"1"}}}"#;
    let line = format!("read line; echo '{answer}'; read line; read line; true");
    let desk = known(&stage, &["sh", "-c", &line])?;
    kams.metric_until("kams_seccomp_total{result=\"first_seen\"}", 1.0)?;
    kams.metric_until("kams_seccomp_total{result=\"launcher\"}", 1.0)?;
    let found = findings(&kams, "the missing filter", |all| {
        all.iter().any(|one| one["detector"] == "network.unfiltered")
    })?;
    let of_filter = found.iter().find(|one| one["detector"] == "network.unfiltered");
    ensure!(
        of_filter.is_some_and(|one| one["severity"] == "HIGH"),
        "{found:#?}"
    );
    shown(&kams, "failed")?;
    desk.close()
}

fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done()? {
        ensure!(start.elapsed() < LIMIT, "time is up before {what}");
        // Nobody announces it.
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
