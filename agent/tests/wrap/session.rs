//! An agent's side of a wrapped server.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Session {
    pub(crate) process: Child,
    pub(crate) to: Option<File>,
    pub(crate) from: BufReader<File>,
    pub(crate) folder: TempDir,
    next: u32,
}

pub(crate) const POLICY: &str = "version: 1\nmode: enforce\nrules:\n";

impl Session {
    /// A server behind `kams wrap` with these options, greeted.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::with(options, None, false)
    }

    /// With a policy of these rules.
    pub(crate) fn ruled(rules: &str) -> Self {
        Self::with(&[], Some(rules), false)
    }

    pub(crate) fn with(options: &[&str], rules: Option<&str>, sockets: bool) -> Self {
        Self::after(None, options, rules, sockets)
    }

    /// With the state that an earlier session left.
    pub(crate) fn after(
        earlier: Option<&Self>,
        options: &[&str],
        rules: Option<&str>,
        sockets: bool,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = earlier.map_or(folder.path(), |earlier| earlier.folder.path());
        let mut command = Command::new(env!("CARGO_BIN_EXE_kams"));
        command.arg("wrap").args(options);
        if let Some(rules) = rules {
            let file = folder.path().join("policy.yaml");
            std::fs::write(&file, format!("{POLICY}{rules}")).unwrap();
            command.arg("--policy").arg(file);
        }
        command.arg("--record").arg(folder.path().join("record"));
        command.args(["--relays", "/nonexistent/relay.sock", "--"]);
        command
            .arg(std::env::current_exe().unwrap())
            .arg("serve")
            .arg(folder.path());
        command.env("XDG_STATE_HOME", state);
        command.stderr(File::create(folder.path().join("stderr")).unwrap());
        let pair = || {
            if sockets {
                let (a, b) = UnixStream::pair().unwrap();
                (OwnedFd::from(a), OwnedFd::from(b))
            } else {
                let (a, b) = std::io::pipe().unwrap();
                (OwnedFd::from(a), OwnedFd::from(b))
            }
        };
        let ((its_in, to), (from, its_out)) = (pair(), pair());
        command.stdin(Stdio::from(its_in)).stdout(Stdio::from(its_out));
        let process = command.spawn().unwrap();
        drop(command);
        let mut session = Self {
            process,
            to: Some(to.into()),
            from: BufReader::new(from.into()),
            folder,
            next: 0,
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        assert_eq!(
            session.ask("initialize", &hello)["result"]["serverInfo"]["name"],
            "wrapped"
        );
        session.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        session
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.to.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line
    }

    /// Sends a request and reads up to its answer.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        ));
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the server went away: {}", self.file("stderr"));
            if let Ok(answer) = serde_json::from_str::<Value>(&line)
                && answer["id"] == id
            {
                return answer;
            }
        }
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// What the server wrote down, or Kams did.
    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// Hangs up, and waits for the end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.to = None;
        self.from.read_to_end(&mut Vec::new()).unwrap();
        self.process.wait().unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.to = None;
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(self.process.kill());
        }
        drop(self.process.wait());
    }
}

pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{answer}"))
}
