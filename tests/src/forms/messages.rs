//! What the form agent says.

use serde_json::{Value, json};

use super::{Body, Case};

/// Protocol revision that the agent asks for; batches exist in 2025-03-26 only.
pub fn revision(case: &Case) -> &'static str {
    if case.body == Body::Batch {
        "2025-03-26"
    } else {
        "2025-11-25"
    }
}

/// The opening request.
pub fn initialize(case: &Case) -> Vec<u8> {
    line(
        &json!({"jsonrpc": "2.0", "id": format!("{}-0", case.name), "method": "initialize", "params": {
        "protocolVersion": revision(case), "capabilities": {},
        "clientInfo": {"name": "form-agent", "version": "1.0.0"}}}),
    )
}

/// The notification that follows the answer to it.
pub fn initialized() -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
}

/// Call number `n` with the content of the case; a batch holds two requests, `n` and `n-b`.
pub fn call(case: &Case, n: usize) -> Vec<u8> {
    let id = format!("{}-{n}", case.name);
    match case.body {
        Body::Ascii(length) => line(&echo(&id, &ascii(length, n))),
        Body::Wide(length) => line(&echo(&id, &wide(length))),
        Body::Batch => line(&json!([
            echo(&id, "first of a batch"),
            {"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": 1, "progress": 1}},
            echo(&format!("{id}-b"), "second of a batch")])),
        Body::Crlf => {
            let mut bytes = b"\r\n".to_vec();
            bytes.extend(echo(&id, &ascii(200, n)).to_string().into_bytes());
            bytes.extend_from_slice(b"\r\n\n");
            bytes
        }
    }
}

/// A call in the plainest form, whatever the case.
pub fn plain(case: &Case, id: &str) -> Vec<u8> {
    line(&echo(&format!("{}-{id}", case.name), "plain"))
}

fn echo(id: &str, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": text}}})
}

fn line(value: &Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// `length` bytes that differ by place, so that a lost or doubled piece changes the text.
fn ascii(length: usize, seed: usize) -> String {
    let mut text = String::with_capacity(length + 16);
    let mut counter = seed;
    while text.len() < length {
        text.push_str(&counter.to_string());
        text.push('.');
        counter += 1;
    }
    text.truncate(length);
    text
}

/// At least `length` bytes of characters that take one to four bytes.
fn wide(length: usize) -> String {
    "aß漢🦀".repeat(length / 10 + 1)
}
