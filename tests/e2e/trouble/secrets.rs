//! A secret that Kams sees never leaves it: everything that Kams writes is searched for pieces of planted ones.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::context::{Context, FORM_SERVER, programs};

/// So many characters in a row betray a value.
const PIECE: usize = 8;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![context.with_kams("secrets::nothing-leaves", nothing_leaves)]
}

/// A planted value: its class, the value, and how much of its start is a published prefix.
struct Planted {
    class: &'static str,
    value: String,
    public: usize,
}

/// Random values in the published formats; none was ever issued.
fn planted() -> Result<Vec<Planted>> {
    let mut random = fs::File::open("/dev/urandom")?;
    let mut draw = |alphabet: &str, length: usize| -> Result<String> {
        let letters: Vec<char> = alphabet.chars().collect();
        let mut bytes = vec![0_u8; length];
        random.read_exact(&mut bytes)?;
        Ok(bytes
            .iter()
            .filter_map(|b| letters.get(usize::from(*b) % letters.len()))
            .collect())
    };
    let upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mixed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let digits = "0123456789";
    let lower = "abcdefghijklmnopqrstuvwxyz";
    let plant = |class, prefix: &str, rest: String| Planted {
        class,
        value: format!("{prefix}{rest}"),
        public: prefix.len(),
    };
    let pem = draw(mixed, 400)?;
    Ok(vec![
        plant("aws_key", "AKIA", draw(upper, 16)?),
        plant("github_token", "ghp_", draw(mixed, 36)?),
        plant(
            "slack_token",
            "xoxb-",
            format!("{}-{}", draw(digits, 12)?, draw(mixed, 24)?),
        ),
        plant("anthropic_key", "sk-ant-api03-", draw(mixed, 93)?),
        plant("openai_key", "sk-proj-", draw(mixed, 48)?),
        plant(
            "jwt",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ",
            format!("{}.{}", draw(mixed, 60)?, draw(mixed, 43)?),
        ),
        plant("bearer_token", "Bearer ", draw(mixed, 40)?),
        plant("named_secret", "", draw(mixed, 18)?),
        plant(
            "email",
            "",
            format!("{}@{}.example.org", draw(lower, 12)?, draw(lower, 9)?),
        ),
        plant("high_entropy_secret", "", draw(mixed, 44)?),
        plant("private_key", "-----BEGIN RSA PRIVATE KEY-----\nMIIEow", pem),
    ])
}

fn arguments(secrets: &[Planted]) -> Vec<Value> {
    let mut all = Vec::new();
    for secret in secrets {
        let plain = match secret.class {
            "named_secret" => json!({"password": secret.value}),
            "bearer_token" => json!({"header": format!("Authorization: {}", secret.value)}),
            _ => json!({"text": secret.value}),
        };
        all.push(json!({"outer": plain.to_string()}));
        all.push(plain);
    }
    all
}

fn nothing_leaves(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let own = std::env::current_exe()?;
    let own = own.file_name().context("a name")?.to_string_lossy().into_owned();
    let settings =
        format!("log: {{level: trace}}\nwatch:\n  agents: [{{name: tester, executable: {own}}}]\n");
    let kams = Kams::start(&programs(), &settings)?;
    let secrets = planted()?;
    let calls = arguments(&secrets);
    // Places that hold secrets and that Kams has no business to quote, either: argv, environment, `_meta`, results.
    let stray = planted()?;
    let odd = |at: usize| stray.get(at).map_or("", |s| s.value.as_str());
    let mut server = Command::new(FORM_SERVER)
        .arg(odd(0))
        .env("API_TOKEN", odd(1))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut to = server.stdin.take().context("piped")?;
    let mut from = BufReader::new(server.stdout.take().context("piped")?);
    let mut ask = |id: usize, method: &str, params: Value| -> Result<()> {
        let meta = json!({"token": odd(2)});
        let mut params = params;
        params
            .as_object_mut()
            .context("an object")?
            .insert("_meta".to_owned(), meta);
        writeln!(
            to,
            "{}",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        )?;
        let mut line = String::new();
        from.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the server ended");
        Ok(())
    };
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    ask(0, "initialize", hello)?;
    for (id, arguments) in calls.iter().enumerate() {
        ask(
            id + 1,
            "tools/call",
            json!({"name": "echo", "arguments": arguments}),
        )?;
    }
    // Lines that are no messages.
    writeln!(to, "not json {}", odd(3))?;
    writeln!(to, "{{\"jsonrpc\": \"2.0\", \"method\": \"{}\"", odd(4))?;
    drop(to);
    server.wait()?;
    let done = |event: &kams_tests::event::Event| event.event == "server_gone";
    kams.wait(0, "the end of the server", |events| events.iter().any(done))?;

    let mut written = vec![("log".to_owned(), kams.log())];
    for command in [
        vec!["status"],
        vec!["servers", "--gone", "-o", "json"],
        vec!["tools", "-o", "json"],
        vec!["events", "-o", "json"],
        vec!["events", "--all"],
        vec!["findings"],
        vec!["findings", "-o", "json"],
        vec!["baseline", "show", "-o", "json"],
        vec!["doctor"],
    ] {
        let output = kams.kams(&command)?;
        written.push((
            command.join(" "),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        ));
        written.push((
            command.join(" "),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    let findings = written
        .iter()
        .find(|(name, _)| name == "findings -o json")
        .map(|(_, text)| text.clone());
    written.push(("metrics".to_owned(), format!("{:?}", kams.metrics()?)));
    let folder = kams.config().parent().context("a folder")?.to_owned();
    files(&folder, &mut written)?;
    let (_, log) = kams.stop()?;
    written.push(("log at the end".to_owned(), log));
    files(&folder.join("state"), &mut written).unwrap_or_default();

    let findings = findings.unwrap_or_default();
    for secret in &secrets {
        ensure!(
            findings.contains(&format!("\"class\":\"{}\"", secret.class)),
            "no finding of class {}: {findings}",
            secret.class
        );
    }
    for secret in secrets.iter().chain(&stray) {
        let value: Vec<char> = secret.value.chars().collect();
        for (at, window) in value.windows(PIECE).enumerate() {
            if at + PIECE <= secret.public {
                continue;
            }
            let piece: String = window.iter().collect();
            for (place, text) in &written {
                ensure!(
                    !text.contains(&piece),
                    "{PIECE} characters of a {} (from the {at}th on) stand in: {place}",
                    secret.class
                );
            }
        }
    }
    Ok(())
}

/// Every file that Kams wrote below a folder; the salt is no output, and the configuration is ours.
fn files(folder: &Path, written: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            files(&entry.path(), written)?;
        } else if entry.file_type()?.is_file() && name != "salt" && name != "kams.yaml" {
            let bytes = fs::read(entry.path())?;
            written.push((name, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(())
}
