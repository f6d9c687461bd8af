//! Whose run a report belongs to: by the id of a tool call, by the session's name, by processes; never another user's.
//! And what the true counts of reports make of a server's costs.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::desk::Desk;
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::{Completion, Trial};
use serde_json::{Value, json};

use super::receiver::{JSON, NOBODY, post, report};
use super::{AGENTS, boxed_under, until, waste, well};
use crate::context::{Context, DESK_SERVER, LINE_AGENT};

pub(super) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let trial = |name: &str, test: fn(&Kams) -> Result<()>| {
        let context = Arc::clone(context);
        Trial::ignorable_test(format!("waste::joins::{name}"), move || {
            match context.hindrance() {
                Some(hindrance) => Ok(Completion::ignored_with(hindrance)),
                None => boxed_under(AGENTS, &[], test)
                    .map(|()| Completion::Completed)
                    .map_err(|error| format!("{error:#}").into()),
            }
        })
    };
    vec![
        trial("call-and-session", call_and_session),
        trial("processes", processes),
        trial("another-user", another_user),
        trial("true-costs", true_costs),
    ]
}

fn desks(stage: &Stage) -> Result<(Desk, Desk)> {
    let one = || Desk::open(stage, LINE_AGENT, DESK_SERVER, None);
    Ok((one()?, one()?))
}

fn attribute(name: &str, value: &Value) -> Value {
    match value.as_str() {
        Some(text) => json!({"key": name, "value": {"stringValue": text}}),
        None => json!({"key": name, "value": {"intValue": value}}),
    }
}

/// An export of log records of an agent's service, with these attributes each.
fn export(service: &str, resource: &[(&str, Value)], records: &[Value]) -> String {
    let about: Vec<Value> = [("service.name", json!(service))]
        .iter()
        .chain(resource)
        .map(|(name, value)| attribute(name, value))
        .collect();
    let record = |record: &Value| {
        let attributes: Vec<Value> = record
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| attribute(name, value))
            .collect();
        json!({"timeUnixNano": now(), "attributes": attributes})
    };
    let records: Vec<Value> = records.iter().map(record).collect();
    json!({"resourceLogs": [{"resource": {"attributes": about}, "scopeLogs": [{"logRecords": records}]}]})
        .to_string()
}

fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_nanos().to_string()
}

fn sent(body: &str) -> Result<()> {
    let status = post("/v1/logs", &[JSON], body.as_bytes())?;
    ensure!(status == Some(200), "{status:?}");
    Ok(())
}

/// Turns of Claude Code that grow by 5,000 tokens each.
fn claude_turns(session: &str) -> Vec<Value> {
    let turn = |i: u64| {
        json!({"session.id": session, "event.name": "api_request", "model": "claude-haiku-4-5",
               "input_tokens": 1_000 + 5_000 * i, "output_tokens": 10})
    };
    (0..6).map(turn).collect()
}

/// Process and user that the bloat with this slope is told of.
fn bloated(kams: &Kams, number: usize) -> Result<(Value, Value)> {
    let found = until("context bloat", || {
        let found: Vec<Value> = waste(kams)?
            .into_iter()
            .filter(|found| found["detector"] == "waste.context_bloat")
            .collect();
        Ok((found.len() >= number).then_some(found))
    })?;
    let newest = found
        .iter()
        .max_by_key(|found| found["time"].as_str().unwrap_or_default().to_owned());
    let newest = newest.context("a finding")?;
    Ok((newest["agent_pid"].clone(), newest["uid"].clone()))
}

/// A call that the daemon has seen when this returns, as it has long when a real report comes.
fn call(kams: &Kams, agent: &mut Desk, meta: &Value) -> Result<()> {
    let (mark, pid) = (kams.mark(), agent.agent_pid());
    let words = json!({"name": "say", "arguments": {"text": "hello"}, "_meta": meta});
    agent.ask("tools/call", &words)?;
    kams.wait(mark, "the call", |events| {
        events.iter().any(|event| {
            event.agent_pid == Some(pid) && event.tool.as_deref() == Some("say") && event.outcome.is_some()
        })
    })?;
    Ok(())
}

fn call_and_session(kams: &Kams) -> Result<()> {
    let stage = Stage::new()?;
    let (mut first, mut second) = desks(&stage)?;
    call(kams, &mut first, &json!({"claudecode/toolUseId": "toolu_first"}))?;
    call(
        kams,
        &mut second,
        &json!({"claudecode/toolUseId": "toolu_second"}),
    )?;
    // The reports come through the same process; only the ids tell the two apart.
    for (number, (agent, id)) in [(&second, "toolu_second"), (&first, "toolu_first")]
        .into_iter()
        .enumerate()
    {
        let session = format!("session of {id}");
        let result = json!({"session.id": session, "event.name": "tool_result", "tool_name": "mcp_tool",
            "tool_use_id": id});
        sent(&export("claude-code", &[], &[result]))?;
        // From then on the session's name is enough.
        sent(&export("claude-code", &[], &claude_turns(&session)))?;
        let (pid, _) = bloated(kams, number + 1)?;
        ensure!(pid == agent.agent_pid(), "{id}: {pid}");
    }
    // Codex names its session in its requests.
    let codex = |i: u64| {
        json!({"conversation.id": "conv-1", "event.name": "codex.sse_event", "model": "gpt-5",
               "input_token_count": 1_000 + 5_000 * i, "output_token_count": 10})
    };
    let meta = json!({"callId": "call_1", "x-codex-turn-metadata": {"session_id": "conv-1"}});
    call(kams, &mut second, &meta)?;
    sent(&export("codex_exec", &[], &(0..6).map(codex).collect::<Vec<_>>()))?;
    let (pid, _) = bloated(kams, 3)?;
    ensure!(pid == second.agent_pid(), "the session's name: {pid}");
    first.close()?;
    second.close()
}

fn processes(kams: &Kams) -> Result<()> {
    let stage = Stage::new()?;
    let (first, mut second) = desks(&stage)?;
    // The report says which process it is of.
    let turn = |i: u64| {
        json!({"session.id": "gemini session", "event.name": "gemini_cli.api_response", "model": "gemini-2.5-pro",
               "input_token_count": 1_000 + 5_000 * i, "output_token_count": 10})
    };
    let turns: Vec<Value> = (0..6).map(turn).collect();
    let of_second = [("process.pid", json!(second.agent_pid()))];
    sent(&export("gemini-cli", &of_second, &turns))?;
    let (pid, _) = bloated(kams, 1)?;
    ensure!(pid == second.agent_pid(), "by what it says: {pid}");
    // A program that the agent's server has started, which holds the socket.
    let body = stage.write("body.json", export("claude-code", &[], &claude_turns("below")))?;
    let script = format!(
        "import http.client; c = http.client.HTTPConnection('127.0.0.1:4318'); \
         c.request('POST', '/v1/logs', open('{}').read(), {{'content-type': 'application/json'}}); \
         print(c.getresponse().status)",
        body.display()
    );
    let (status, said) = second.shell(&format!("python3 -c \"{script}\""))?;
    ensure!(status == 0 && said.trim() == "200", "{status} {said}");
    let (pid, _) = bloated(kams, 2)?;
    ensure!(pid == second.agent_pid(), "by the socket: {pid}");
    // The ingest API by the agent that it names.
    let calls: Vec<Value> = (0..6)
        .map(|i| json!({"session_id": "told", "prompt_tokens": 1_000 + 5_000 * i}))
        .collect();
    let body = json!({"calls": calls, "agent_pid": first.agent_pid()}).to_string();
    let (status, answer) = report(kams, "application/json", &body)?;
    ensure!(status == 200, "{answer}");
    let (pid, _) = bloated(kams, 3)?;
    ensure!(pid == first.agent_pid(), "by the number that is told: {pid}");
    first.close()?;
    second.close()
}

fn another_user(kams: &Kams) -> Result<()> {
    let stage = Stage::new()?;
    let (mut first, second) = desks(&stage)?;
    call(kams, &mut first, &json!({"claudecode/toolUseId": "toolu_first"}))?;
    // It knows all the ids, and is somebody else.
    let mut records = vec![
        json!({"session.id": "theirs", "event.name": "tool_result", "tool_name": "mcp_tool", "tool_use_id": "toolu_first"}),
    ];
    records.extend(claude_turns("theirs"));
    let body = export(
        "claude-code",
        &[("process.pid", json!(first.agent_pid()))],
        &records,
    );
    let script = "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1:4318'); \
         c.request('POST', '/v1/logs', sys.stdin.read(), {'content-type': 'application/json'}); \
         print(c.getresponse().status)";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .uid(NOBODY)
        .gid(NOBODY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("a pipe")?.write_all(body.as_bytes())?;
    ensure!(well(child.wait_with_output()?)?.trim() == "200");
    let (pid, uid) = bloated(kams, 1)?;
    ensure!(
        (&pid, &uid) == (&json!(0), &json!(NOBODY)),
        "a finding of process {pid}, user {uid}"
    );
    first.close()?;
    second.close()
}

fn true_costs(kams: &Kams) -> Result<()> {
    let stage = Stage::new()?;
    let mut agent = Desk::open(&stage, LINE_AGENT, DESK_SERVER, None)?;
    let turn = |tokens: u64| {
        json!({"session.id": "costs", "event.name": "api_request", "model": "claude-haiku-4-5",
               "input_tokens": tokens, "output_tokens": 20})
    };
    let words =
        json!({"name": "big", "arguments": {"bytes": 40_000}, "_meta": {"claudecode/toolUseId": "toolu_1"}});
    let result = json!({"session.id": "costs", "event.name": "tool_result", "tool_name": "mcp_tool",
        "tool_use_id": "toolu_1"});
    sent(&export("claude-code", &[], &[turn(1_000)]))?;
    agent.ask("tools/call", &words)?;
    let server = |what: &str, enough: &dyn Fn(&Value) -> bool| -> Result<Value> {
        let of = |answer: &Value| {
            let servers = answer["servers"].as_array().cloned().unwrap_or_default();
            servers
                .into_iter()
                .find(|one| one["identity"] == "bin:desk-server")
        };
        let answer = kams.ask_until(&["servers", "--cost"], what, |answer| {
            of(answer).is_some_and(|one| enough(&one))
        })?;
        of(&answer).context("the server")
    };
    server("an estimate", &|one| one["result_tokens"].as_u64() > Some(5_000))?;
    // The next turn holds the turn before, its answer of 20, and 12,345 more: the result.
    sent(&export("claude-code", &[], &[result, turn(1_000 + 20 + 12_345)]))?;
    server("the true count", &|one| {
        one["true_result_tokens"] == json!(12_345)
    })?;
    let table = well(kams.kams(&["servers", "--cost"])?)?;
    ensure!(
        table.contains("REPORTED") && table.replace([',', ' '], "").contains("12345"),
        "{table}"
    );
    agent.close()
}
