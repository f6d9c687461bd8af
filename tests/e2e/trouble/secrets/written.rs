//! All that Kams wrote.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::planted::{CLASSES, Planted};
use kams_tests::stage::Stage;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::context::programs;

/// Texts by where they come from.
#[derive(Debug, Default)]
pub(super) struct Written(Vec<(String, Vec<u8>)>);

impl Written {
    pub(super) fn add(&mut self, place: &str, text: impl Into<Vec<u8>>) {
        self.0.push((place.to_owned(), text.into()));
    }

    /// What one place holds.
    pub(super) fn text(&self, place: &str) -> Result<String> {
        let (_, bytes) = self
            .0
            .iter()
            .find(|(name, _)| name == place)
            .with_context(|| format!("nothing was written by {place}"))?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Fails where a word stands nowhere: then what was searched is not what it should be.
    pub(super) fn is_about(&self, words: &[&str]) -> Result<()> {
        for word in words {
            let found = self
                .0
                .iter()
                .any(|(_, bytes)| bytes.windows(word.len()).any(|window| window == word.as_bytes()));
            ensure!(found, "`{word}` stands nowhere in what Kams wrote");
        }
        Ok(())
    }

    /// Where pieces of planted values stand.
    pub(super) fn leaks(&self, planted: &Planted) -> Vec<String> {
        planted.found_in(&self.0)
    }

    /// Every route of the admin socket, with bodies that are refused among them.
    pub(super) fn admin_api(&mut self, kams: &Kams, planted: &mut Planted) -> Result<()> {
        for route in [
            "whoami",
            "status",
            "doctor",
            "agents",
            "servers?gone=1",
            "tools",
            "events?limit=10000",
            "findings?limit=10000",
            "query/baselines?full=1",
            "query/policy",
            "no-such-route",
        ] {
            self.ask(kams, "GET", route, "")?;
        }
        let mut new = || planted.new_value("named_secret", "the body of an order");
        let bodies = [
            (
                "usage",
                json!({"agent_pid": new()?, "input_tokens": 5}).to_string(),
            ),
            (
                "usage",
                json!({"agent_pid": 1, "input_tokens": 5, "server": [new()?]}).to_string(),
            ),
            ("usage", json!(new()?).to_string()),
            ("usage", format!("{{\"agent_pid\": {}", new()?)),
            (
                "command/baseline",
                json!({"op": "pin", "server": {"name": new()?}}).to_string(),
            ),
            (
                "command/baseline",
                json!({"op": "import", "rows": new()?}).to_string(),
            ),
            ("command/policy", json!({"op": new()?}).to_string()),
            ("command/policy", json!({"op": "reload"}).to_string()),
            ("off", String::new()),
            ("on", String::new()),
        ];
        for (route, body) in bodies {
            self.ask(kams, "POST", route, &body)?;
        }
        Ok(())
    }

    fn ask(&mut self, kams: &Kams, method: &str, route: &str, body: &str) -> Result<()> {
        let mut stream = UnixStream::connect(kams.socket())?;
        write!(
            stream,
            "{method} /v1/{route} HTTP/1.1\r\nHost: kams\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        ensure!(answer.starts_with(b"HTTP/1.1 "), "no answer to {method} {route}");
        self.add(&format!("{method} {route}"), answer);
        Ok(())
    }

    /// Every command of `kams`, with and without a daemon.
    pub(super) fn commands(
        &mut self,
        kams: &Kams,
        stage: &Stage,
        recording: &Path,
        planted: &mut Planted,
    ) -> Result<()> {
        let mut rows = Vec::new();
        for class in CLASSES {
            let value = planted.new_value(class, "a row")?;
            rows.push(json!({"id": class, "kind": "args", "value": {"password": value}}).to_string());
        }
        let mut new = || planted.new_value("github_token", "a row");
        for bad in [
            json!(new()?),
            json!({"id": 1, "kind": new()?}),
            json!({"id": 2, "kind": "waste_rule", "rule": "tool_loop", "config": {"tool_loop.min_calls": new()?}, "calls": []}),
            json!({"id": 3, "kind": "waste_rule", "rule": new()?, "calls": new()?}),
            json!({"id": 4, "kind": "drift", "before": new()?, "after": new()?}),
        ] {
            rows.push(bad.to_string());
        }
        rows.push(format!("{{\"id\": {}", new()?));
        let rows = stage.write("rows.jsonl", rows.join("\n"))?;
        let arguments = json!({"a": [new()?, {"password": new()?}]});
        let arguments = stage.write("arguments.json", arguments.to_string())?;
        let broken = format!("{}\n", json!({"dir": "c>s", "ms": new()?, "raw": "x"}));
        let broken = stage.write("broken.jsonl", broken)?;
        let broken_too = format!("{}\n", json!({"dir": new()?, "raw": "x"}));
        let broken_too = stage.write("broken-too.jsonl", broken_too)?;
        let finding = json!({"detector": "x", "severity": "HIGH", "uid": new()?});
        let finding = stage.write("finding.jsonl", finding.to_string())?;
        let project = stage.path("work");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (recording, rows, arguments) = (text(recording), text(&rows), text(&arguments));
        let (broken, broken_too, project) = (text(&broken), text(&broken_too), text(&project));
        let finding = text(&finding);

        self.run(kams, &["findings", "-n", "10000", "-o", "json"])?;
        let number = self
            .text("kams findings -n 10000 -o json")?
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find_map(|finding| finding["fingerprint"].as_str().map(str::to_owned))
            .context("no finding")?;
        for command in [
            ["status"].as_slice(),
            &["status", "-o", "json"],
            &["doctor"],
            &["doctor", "-o", "json"],
            &["servers", "--gone"],
            &["servers", "--gone", "--cost"],
            &["servers", "--gone", "-o", "json"],
            &["tools"],
            &["tools", "-o", "json"],
            &["events", "-n", "10000"],
            &["events", "-n", "10000", "--all"],
            &["events", "-n", "10000", "-o", "json"],
            &["findings", "-n", "10000"],
            &["baseline", "show"],
            &["baseline", "show", "-o", "json"],
            &["baseline", "diff"],
            &["baseline", "export"],
            &["policy", "show"],
            &["policy", "show", "-o", "json"],
            &["policy", "reload"],
            &["policy", "explain", &number],
            &["policy", "explain", &number, "-o", "json"],
            &["policy", "explain", &finding],
            &["scan", &project],
            &["scan", &project, "-o", "json"],
            &["scan", &project, "--format", "sarif"],
            &["replay", &recording],
            &["replay", &recording, "-o", "json"],
            &["replay", &broken],
            &["replay", &broken_too],
            &["detect", "--corpus", &rows],
            &["detect", "--as", "arguments", &arguments],
            &["detect", "--as", "arguments", &arguments, "-o", "json"],
            &["off"],
            &["on"],
        ] {
            self.run(kams, command)?;
        }
        Ok(())
    }

    fn run(&mut self, kams: &Kams, command: &[&str]) -> Result<()> {
        let output = kams.kams(command)?;
        ensure!(
            !output.stdout.is_empty() || !output.stderr.is_empty(),
            "kams {command:?} says nothing"
        );
        let name = format!("kams {}", command.join(" "));
        self.add(&name, output.stdout);
        self.add(&format!("{name} (stderr)"), output.stderr);
        Ok(())
    }

    /// Every file below the daemon's folder but the salt, which is no output, and the configuration, which is ours.
    pub(super) fn files(&mut self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.files(&entry.path())?;
            } else if kind.is_file() && name != "salt" && name != "kams.yaml" {
                self.add(&name, fs::read(entry.path())?);
            } else {
                ensure!(kind.is_socket() || kind.is_file(), "an odd file: {name}");
            }
        }
        Ok(())
    }
}

/// `kams` with `--follow`, in both forms.
pub(super) struct Follower {
    children: Vec<Child>,
    folder: TempDir,
}

impl Follower {
    pub(super) fn start(kams: &Kams) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut children = Vec::new();
        for (name, words) in [
            ("events", ["events", "--follow", "--all"].as_slice()),
            ("events.json", &["events", "--follow", "-o", "json"]),
            ("findings", &["findings", "--follow"]),
            ("findings.json", &["findings", "--follow", "-o", "json"]),
        ] {
            let out = File::create(folder.path().join(name))?;
            let mut command = Command::new(programs().join("kams"));
            kams.aim(&mut command);
            let child = command
                .args(words)
                .stdin(Stdio::null())
                .stderr(out.try_clone()?)
                .stdout(out)
                .spawn()?;
            children.push(child);
        }
        Ok(Self { children, folder })
    }

    /// What they printed.
    pub(super) fn end(mut self) -> Result<Vec<u8>> {
        let mut printed = Vec::new();
        for child in &mut self.children {
            child.kill()?;
            child.wait()?;
        }
        for entry in fs::read_dir(self.folder.path())? {
            let text = fs::read(entry?.path())?;
            ensure!(!text.is_empty(), "a follower printed nothing");
            printed.extend(text);
        }
        Ok(printed)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        for child in &mut self.children {
            if matches!(child.try_wait(), Ok(None)) {
                // Nothing more can be done about a child that cannot be killed.
                drop(child.kill());
                drop(child.wait());
            }
        }
    }
}

/// Whether a process that is ended by an abort leaves a core dump here: only then does its absence say something.
/// Children get leave to write one.
pub(super) fn dumps_are_possible() -> Result<bool> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE)?;
    setrlimit(Resource::RLIMIT_CORE, hard, hard)?;
    let folder = tempfile::tempdir()?;
    let status = Command::new("sh")
        .args(["-c", "kill -ABRT $$"])
        .current_dir(folder.path())
        .status()?;
    Ok(status.core_dumped())
}
