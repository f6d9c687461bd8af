//! What the waste rules cost: 10,000 calls of one session, 5 MB of tool definitions, arguments of 100 KB, and the
//! reading of a telemetry export of 8 MB.
//!
//! Seen on two busy processors: 20 us a call where arguments are equal, 0.5 ms where 200 different ones are compared, 26 ms
//! (62 at worst) for different arguments of 100 KB, 5 ms for 5 MB of definitions, 0.3 s for the export; a session of 10,000
//! calls costs the same at its end as at its beginning and holds 16 MB at most; 85 MB for the whole run.
#![expect(clippy::print_stdout, reason = "its output")]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use kams_detect::waste::{Config, LlmCall, Monitor, Request, ToolCall, telemetry};
use serde_json::{Value, json};

const SECOND: u64 = 1_000_000_000;

fn run(name: &str, calls: u64, step: u64, arguments: impl Fn(u64) -> Value, request: &Value) {
    let mut monitor = Monitor::new(Config::default());
    let (mut worst, mut findings) = (Duration::ZERO, 0);
    let (mut first_half, start) = (Duration::ZERO, Instant::now());
    for index in 0..calls {
        let arguments = arguments(index);
        let began = Instant::now();
        let call = LlmCall {
            at: index * step,
            tool_calls: vec![ToolCall::measure("fetch", &arguments, monitor.config())],
            request: Request::measure(request, monitor.config()),
            ..LlmCall::default()
        };
        findings += monitor.observe("session", &call).len();
        worst = worst.max(began.elapsed());
        if index == calls / 2 {
            first_half = start.elapsed();
        }
    }
    let whole = start.elapsed();
    println!(
        "{name}: {calls} calls, {:.1} us each, worst {worst:.1?}, second half / first half {:.2}, {} KB held, {findings} findings",
        whole.as_secs_f64() * 1e6 / f64::from(u32::try_from(calls).unwrap_or(u32::MAX)),
        whole.saturating_sub(first_half).as_secs_f64() / first_half.as_secs_f64(),
        monitor.bytes() / 1_024,
    );
}

fn main() {
    let none = json!({});
    run(
        "equal small arguments",
        10_000,
        SECOND,
        |_| json!({"id": "a-1", "q": "bracket"}),
        &none,
    );
    run(
        "different small arguments, 200 in the window",
        10_000,
        SECOND / 100,
        |i| json!({"id": i * 7_919, "q": format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15))}),
        &none,
    );
    let big = |i: u64| {
        let mut text = String::new();
        for k in 0..6_250 {
            // Writing into a string cannot fail.
            write!(text, "{:016x}", (i << 20 | k).wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap_or_default();
        }
        json!({ "text": text })
    };
    run("different arguments of 100 KB", 200, SECOND, big, &none);
    let tools: Vec<Value> = (0..500)
        .map(|i| json!({"name": format!("tool_{i}"), "description": "d".repeat(10_000)}))
        .collect();
    run(
        "5 MB of tool definitions",
        50,
        SECOND,
        |_| json!({}),
        &json!({ "tools": tools }),
    );
    export();
    println!("most memory held: {}", memory());
}

/// An export of 4,000 tool calls with 2 KB of arguments each.
fn export() {
    let text = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
    let records: Vec<Value> = (0..4_000)
        .map(|i| {
            let input = json!({"path": format!("/src/{i}"), "content": "x = 1; ".repeat(280)}).to_string();
            json!({"timeUnixNano": "1796006601836000000", "attributes": [
                text("session.id", "s"), text("event.name", "tool_result"), text("tool_name", "Edit"),
                text("tool_input", &input)]})
        })
        .collect();
    let body = json!({"resourceLogs": [{"resource": {"attributes": [text("service.name", "claude-code")]},
        "scopeLogs": [{"logRecords": records}]}]})
    .to_string();
    drop(records);
    let began = Instant::now();
    let export = telemetry::from_json(telemetry::Signal::Logs, body.as_bytes());
    let read = began.elapsed();
    let calls = export.map_or(0, |export| telemetry::calls(&export, &Config::default()).len());
    println!(
        "export of {} KB: read in {read:.1?}, with measuring {:.1?}, {calls} calls kept",
        body.len() / 1_024,
        began.elapsed(),
    );
}

/// As the kernel tells it.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}
