//! A secret that Kams sees never leaves it: everything that Kams writes is searched for pieces of planted ones.
//!
//! Secrets stand where the detector looks (it must find each, with class and place) and where Kams has no business:
//! in results, errors, `_meta`, names, ids, broken and over-long lines, command lines, environments and clients' files.

mod session;
mod written;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::planted::{CLASSES, Planted, base64};
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::context::{Context, SPILL_SERVER, programs};
use session::Session;
use written::Written;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("secrets::text-log", |context| {
            nothing_leaves(context, "text", Signal::ABORT)
        }),
        context.with_kams("secrets::json-log", |context| {
            nothing_leaves(context, "json", Signal::KILL)
        }),
    ]
}

/// A finding that must be there: request, class and place.
struct Due {
    request_id: String,
    class: &'static str,
    path: String,
}

fn nothing_leaves(context: &Context, format: &str, end: Signal) -> Result<()> {
    context.stop_shared()?;
    let dumps = written::dumps_are_possible()?;
    let settings = format!(
        "log: {{level: trace, format: {format}}}\nsensor: {{max_message: 64KiB}}\nwatch:\n  unknown_agents: ignore\n  agents: [{{name: line-agent, \
         executable: line-agent}}]\n"
    );
    let mut kams = Kams::start(&programs(), &settings)?;
    let mut written = Written::default();
    let follower = written::Follower::start(&kams)?;
    let stage = Stage::new()?;
    let mut planted = Planted::default();
    clients_files(&stage, &mut planted)?;

    let (launch, spilled) = launch(format, &mut planted)?;
    let mut session = Session::start(&stage, &launch, &spilled, &mut planted)?;
    session.open(&mut planted)?;
    let due = arguments(&mut session, &mut planted)?;
    strays(&mut session, &mut planted)?;
    let recording = session.end(&stage)?;
    kams.wait(0, "the end of the server", |events| {
        events.iter().any(|event| event.event == "server_gone")
    })?;

    written.admin_api(&kams, &mut planted)?;
    written.commands(&kams, &stage, &recording, &mut planted)?;
    let findings = written.text("kams findings -n 10000 -o json")?;
    refused_configuration(&mut kams)?;
    written.add("metrics", kams.metrics_text()?);
    written.add("followers", follower.end()?);
    let told = kams.end_by(end)?;
    ensure!(
        !dumps || !told.contains("core dumped"),
        "kamsd left a core dump: {told}"
    );
    written.files(kams.folder())?;

    for one in &due {
        ensure!(
            is_found(&findings, one),
            "no finding of {} at {} in request {}:\n{findings}",
            one.class,
            one.path,
            one.request_id
        );
    }
    written.is_about(&["TRACE", "egress.sensitive", "spill-server", "kams_frames_total"])?;
    let leaks = written.leaks(&planted);
    ensure!(
        leaks.is_empty(),
        "of {} planted values:\n{}",
        planted.len(),
        leaks.join("\n")
    );
    Ok(())
}

fn is_found(findings: &str, due: &Due) -> bool {
    findings
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|finding| finding["request_id"] == due.request_id)
        .filter_map(|finding| finding["evidence"]["sensitive"].as_array().cloned())
        .flatten()
        .any(|place| place["class"] == due.class && place["path"] == due.path)
}

/// How the server is started, with secrets on its command line and in its environment: directly, or by a shell.
fn launch(format: &str, planted: &mut Planted) -> Result<(Vec<String>, Value)> {
    let mut new = |class: &str, place: &str| planted.new_value(class, place);
    let mut spilled = serde_json::Map::new();
    for place in [
        "version",
        "prompt",
        "uri",
        "resource",
        "sampling",
        "elicitation",
        "error",
        "error data",
        "noise",
        "cut",
        "long",
        "log",
        "progress",
        "id",
        "text",
        "key",
        "meta",
    ] {
        spilled.insert(place.to_owned(), new("github_token", place)?.into());
    }
    let opaque = new("high_entropy_secret", "a result's key")?;
    spilled.insert("opaque key".to_owned(), opaque.into());
    let token = new("openai_key", "the server's arguments")?;
    let launch = if format == "json" {
        let assigned = new("aws_key", "an assignment of the launcher")?;
        let line = format!("TOKEN={assigned} exec {SPILL_SERVER} --token={token}");
        vec!["sh".to_owned(), "-c".to_owned(), line]
    } else {
        let bare = new("high_entropy_secret", "the server's arguments")?;
        vec![SPILL_SERVER.to_owned(), "--token".to_owned(), token, bare]
    };
    Ok((launch, Value::Object(spilled)))
}

/// What clients of this user are configured to start: Kams reads it, and some of it is broken.
fn clients_files(stage: &Stage, planted: &mut Planted) -> Result<()> {
    let mut new = |class: &str| planted.new_value(class, "a client's file");
    let (user, query) = (new("named_secret")?, new("named_secret")?);
    let servers = json!({"mcpServers": {
        "local": {"command": "notes", "args": ["--token", new("github_token")?, new("high_entropy_secret")?],
            "env": {"API_KEY": new("openai_key")?}},
        "one line": {"command": format!("npx -y notes --token {}", new("slack_token")?)},
        "unknown option": {"command": "npx", "args": ["--unknown", new("high_entropy_secret")?, "notes"]},
        "remote": {"url": format!("https://me:{user}@host.example/mcp?key={query}"),
            "headers": {"Authorization": new("bearer_token")?}},
        "odd": {"command": "notes", "args": new("anthropic_key")?},
    }});
    stage.write("work/.mcp.json", servers.to_string())?;
    stage.write(
        "work/.cursor/mcp.json",
        format!("{{\"mcpServers\": {{\"a\": \"{}", new("aws_key")?),
    )?;
    stage.write(
        "work/.codex/config.toml",
        format!("[mcp_servers.a]\nenv = {{ TOKEN = {} }}\n", new("github_token")?),
    )?;
    stage.write(
        "work/.continue/mcpServers/a.yaml",
        format!("mcpServers:\n  - env: [{}\n", new("github_token")?),
    )?;
    Ok(())
}

/// Secrets where the detector looks. What it must find of them.
fn arguments(session: &mut Session, planted: &mut Planted) -> Result<Vec<Due>> {
    let mut due = Vec::new();
    let mut call = |session: &mut Session, arguments: &Value, class, path: &str| -> Result<()> {
        let id = session.ask("tools/call", &json!({"name": "spill", "arguments": arguments}))?;
        due.push(Due {
            request_id: id.to_string(),
            class,
            path: path.to_owned(),
        });
        Ok(())
    };
    for class in CLASSES {
        let mut plain = || -> Result<(Value, &str)> {
            let value = planted.new_value(class, "arguments")?;
            Ok(match class {
                "named_secret" => (json!({"password": value}), "$.password"),
                "bearer_token" => (json!({"header": format!("Authorization: {value}")}), "$.header"),
                "phone" => (json!({"text": format!("call me: {value}")}), "$.text"),
                _ => (json!({"text": value}), "$.text"),
            })
        };
        let (arguments, path) = plain()?;
        call(session, &arguments, class, path)?;
        let nested = json!({"list": [0, json!({"body": plain()?.0.to_string()}).to_string()]});
        call(session, &nested, class, "$.list[1]")?;
    }
    for class in ["github_token", "aws_key", "jwt", "private_key"] {
        let hidden = json!({"blob": base64(&format!("k: {}\n", planted.new_value(class, "base64")?))});
        call(session, &hidden, class, "$.blob")?;
    }
    let in_key = json!({"by": {planted.new_value("github_token", "a key")?: {"note": "x"}}});
    call(
        session,
        &in_key,
        "github_token",
        "$.by.[kams:redacted:github_token]",
    )?;
    let env = format!(
        "HOST=db\nDB_PASSWORD={}\n",
        planted.new_value("named_secret", ".env text")?
    );
    call(session, &json!({"file": env}), "named_secret", "$.file")?;
    let url = planted.new_value("named_secret", "a URL")?;
    let url = json!({"dsn": format!("postgres://app:{url}@db.internal/main")});
    call(session, &url, "named_secret", "$.dsn")?;
    let value = planted.new_value("named_secret", "a value that is a key, too")?;
    let both = json!({"password": value, "mails": {value.clone(): planted.new_value("email", "arguments")?}});
    call(session, &both, "named_secret", "$.password")?;
    call(session, &both, "email", "$.mails.*")?;

    let note = planted.new_value("github_token", "a prompt's arguments")?;
    let id = session.ask(
        "prompts/get",
        &json!({"name": "review", "arguments": {"note": note}}),
    )?;
    let mut also = |request_id: String, class, path: &str| {
        due.push(Due {
            request_id,
            class,
            path: path.to_owned(),
        });
    };
    also(id.to_string(), "github_token", "$.note");
    session.ask("tools/call", &json!({"name": "consult", "arguments": {}}))?;
    let text = planted.new_value("jwt", "a sampled message")?;
    let sampled = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": text}});
    session.answer("sampled", &sampled)?;
    also("\"sampled\"".to_owned(), "jwt", "$.content.text");
    let code = planted.new_value("anthropic_key", "an elicited answer")?;
    session.answer(
        "elicited",
        &json!({"action": "accept", "content": {"code": code}}),
    )?;
    also("\"elicited\"".to_owned(), "anthropic_key", "$.content.code");
    Ok(due)
}

/// Secrets where Kams does not look for them, and must not quote them either.
fn strays(session: &mut Session, planted: &mut Planted) -> Result<()> {
    let mut new = |place: &str| planted.new_value("github_token", place);
    session.ask("tools/call", &json!({"name": "refuse", "arguments": {}}))?;
    session.ask(
        "tools/call",
        &json!({"name": new("a tool's name")?, "arguments": {}}),
    )?;
    session.ask(
        "resources/read",
        &json!({"uri": format!("db://app:{}@host/x", new("an address")?)}),
    )?;
    session.ask(
        "resources/read",
        &json!({"uri": format!("https://host.example/x?sig={}", new("a query")?)}),
    )?;
    session.ask(
        "completion/complete",
        &json!({"ref": {"type": "ref/prompt", "name": "review"},
        "argument": {"name": "a", "value": new("a completion")?}}),
    )?;
    session.ask(&format!("x/{}", new("a method")?), &json!({}))?;
    let open = session.post(
        "tools/call",
        &json!({"name": "silent", "arguments": {},
        "_meta": {"progressToken": new("a progress token")?, "note": new("_meta")?}}),
    )?;
    session.post(
        "resources/read",
        &json!({"uri": format!("db://app:{}@host/silent", new("an open address")?)}),
    )?;
    let reason = new("a cancellation")?;
    session.line(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": open, "reason": reason}})
        .to_string(),
    )?;
    session.line(
        &json!({"jsonrpc": "2.0", "method": format!("notifications/{}", new("a notification")?)}).to_string(),
    )?;
    let id = new("an id")?;
    session.line(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string())?;
    let key = new("a repeated key")?;
    session.line(&format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":9001,\"method\":\"ping\",\"params\":{{\"{key}\":1,\"{key}\":2}}}}"
    ))?;
    session.line(&format!("no message: {}", new("a line")?))?;
    session.line(&format!(
        "{{\"jsonrpc\": \"2.0\", \"method\": \"{}",
        new("a cut line")?
    ))?;
    session.line(&format!(
        "[\"{}\", {{\"jsonrpc\": \"2.0\", \"{}\": 1}}]",
        new("a batch")?,
        new("a batch")?
    ))?;
    session
        .line(&json!({"jsonrpc": "2.0", "id": [new("an id that is none")?], "method": "ping"}).to_string())?;
    let long =
        json!({"name": "spill", "arguments": {"text": new("a long line")?, "rest": "x".repeat(100 << 10)}});
    session
        .line(&json!({"jsonrpc": "2.0", "id": 9002, "method": "tools/call", "params": long}).to_string())?;
    // What came before it has been read by the server, and by Kams.
    session.ask("ping", &json!({})).map(drop)
}

/// A configuration with a mistake: it is refused, and the log says so.
fn refused_configuration(kams: &mut Kams) -> Result<()> {
    let good = std::fs::read_to_string(kams.config())?;
    kams.reload(&format!("{good}colour: blue\n"))?;
    ensure!(
        whole_log(kams.folder())?.contains("colour"),
        "the log says nothing of the bad configuration"
    );
    kams.reload(&good)
}

fn whole_log(folder: &Path) -> Result<String> {
    std::fs::read_to_string(folder.join("kamsd.log")).context("the daemon's log")
}
