//! A language model for tests: one HTTP server on loopback that speaks three of the vendors' wire formats and
//! follows a [`Script`].
//!
//! Rule: a request that offers the wanted tool is answered with the next call of the script, as many calls in as
//! the request holds tool results; when the script is through, or no such tool is offered, the answer is the
//! closing text. Each request is logged as one JSON line, with the texts of the tool results, so that a test can
//! say what reached the model.

mod anthropic;
mod gemini;
mod http;
mod openai;

use std::fs::File;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use http::{Request, Response};

/// What the model does.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Script {
    /// Calls, one per turn.
    pub calls: Vec<Call>,
    /// Text of every answer that is no call.
    pub closing: String,
}

/// One tool call that the model asks for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Call {
    /// The tool's own name; agents put a prefix before it.
    pub tool: String,
    /// Arguments.
    pub arguments: Value,
}

impl Script {
    /// The call to ask for, given the names the request offers and the number of results it holds; with the
    /// offered name that stands for the wanted tool.
    fn next<'a>(&self, offered: &'a [Offer], results: usize) -> Option<(&Call, &'a Offer)> {
        let call = self.calls.get(results)?;
        let wanted = plain(&call.tool);
        let offer = offered.iter().find(|o| plain(&o.name).ends_with(&wanted))?;
        Some((call, offer))
    }
}

/// Agents rewrite `-` in tool names.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// Tokens of a prompt that holds so many tool results: each turn carries the ones before.
fn prompt_tokens(results: usize) -> usize {
    1_000 + TOKENS_PER_RESULT * results
}

/// A tool that a request offers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Offer {
    name: String,
    /// Codex groups the tools of one server under a namespace, and wants it back.
    namespace: Option<String>,
}

/// What a request says, whatever its format.
#[derive(Debug, Default)]
struct Asked {
    offered: Vec<Offer>,
    results: Vec<String>,
}

/// One line of the log.
#[derive(Debug, Deserialize, Serialize)]
pub struct LogLine {
    /// Path of the request, without its query.
    pub path: String,
    /// Number of tools offered.
    pub offered: usize,
    /// Texts of the tool results in the request, in order.
    pub results: Vec<String>,
    /// Name of the tool that was asked for, as the agent offers it.
    pub asked_for: Option<String>,
}

/// Tokens by which the prompt grows with each tool result, whatever is in it.
pub const TOKENS_PER_RESULT: usize = 2_000;

/// A running model.
pub struct MockLlm {
    script: Script,
    log: Mutex<File>,
}

impl MockLlm {
    /// Serves `listener` until the process ends.
    pub fn serve(listener: TcpListener, script: Script, log: File) {
        let model = Arc::new(Self {
            script,
            log: Mutex::new(log),
        });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let model = Arc::clone(&model);
                // A broken connection is the agent's business: it is over, and the log shows what came in.
                std::thread::spawn(move || drop(model.connection(&stream)));
            }
        });
    }

    fn connection(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        while let Some(request) = Request::read(&mut reader)? {
            let response = self.answer(&request);
            let mut out = stream;
            out.write_all(&response.bytes(request.method == "HEAD"))?;
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> Response {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let path = request.path.as_str();
        let (asked, response) = if path.ends_with("/messages") {
            let asked = anthropic::asked(&body);
            let next = self.script.next(&asked.offered, asked.results.len());
            let response = anthropic::response(next, asked.results.len(), &self.script.closing);
            (asked, response)
        } else if path.ends_with("/responses") {
            let asked = openai::asked(&body);
            let next = self.script.next(&asked.offered, asked.results.len());
            let response = openai::response(next, asked.results.len(), &self.script.closing);
            (asked, response)
        } else if path.contains(":streamGenerateContent") || path.contains(":generateContent") {
            let asked = gemini::asked(&body);
            let next = self.script.next(&asked.offered, asked.results.len());
            let stream = path.contains(":stream");
            let response = gemini::response(next, asked.results.len(), &self.script.closing, stream);
            (asked, response)
        } else if path.ends_with("/count_tokens") || path.ends_with(":countTokens") {
            let body = serde_json::json!({"input_tokens": 1, "totalTokens": 1});
            (Asked::default(), Response::json(&body))
        } else {
            (Asked::default(), Response::not_found())
        };
        let asked_for = self
            .script
            .next(&asked.offered, asked.results.len())
            .map(|(_, o)| o.name.clone());
        let line = LogLine {
            path: path.to_owned(),
            offered: asked.offered.len(),
            results: asked.results,
            asked_for,
        };
        if let Ok(text) = serde_json::to_string(&line) {
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            // The log is the test's evidence: a test that finds a line missing fails there.
            drop(writeln!(log, "{text}"));
        }
        response
    }
}

/// The texts of a JSON value that holds text in one of the usual shapes, joined.
fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(texts).collect(),
        Value::Object(map) => map
            .get("text")
            .or_else(|| map.get("output"))
            .or_else(|| map.get("content"))
            .map_or_else(|| value.to_string(), texts),
        other => other.to_string(),
    }
}
