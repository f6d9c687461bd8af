//! The wire forms as readers see them.

use kams_detect::finding::{Evidence, Finding, Kind, Sensitive, Severity};
use serde_json::json;

use super::*;
use crate::jsonl;

fn text(record: &Record) -> String {
    String::from_utf8(jsonl::line(record).unwrap()).unwrap()
}

fn tool_result() -> EventView {
    EventView {
        seq: 12,
        agent: Some("claude".into()),
        agent_pid: Some(41),
        server: Some("npm:@modelcontextprotocol/server-memory".into()),
        server_id: Some(3),
        direction: Some(Direction::ToAgent),
        method: Some("tools/call".into()),
        tool: Some("read_graph".into()),
        request_id: Some("7".into()),
        latency_us: Some(1_250),
        outcome: Some(Outcome::ToolError),
        bytes: Some(300),
        ..EventView::new(
            EventKind::ToolResult,
            Time::from_unix_nanos(1_796_011_200_000_000_001),
            1000,
            "ada",
        )
    }
}

#[test]
fn an_event_line_is_this() {
    let expected = concat!(
        r#"{"type":"event","schema":1,"seq":12,"time":"2026-11-30T04:00:00.000000001Z","event":"tool_result","#,
        r#""uid":1000,"user":"ada","agent":"claude","agent_pid":41,"#,
        r#""server":"npm:@modelcontextprotocol/server-memory","server_id":3,"direction":"to_agent","#,
        r#""method":"tools/call","tool":"read_graph","request_id":"7","latency_us":1250,"outcome":"tool_error","#,
        r#""bytes":300,"gap":false,"enforced":false}"#,
        "\n"
    );
    let record = Record::Event(tool_result());
    assert_eq!(text(&record), expected);
    assert_eq!(serde_json::from_str::<Record>(expected).unwrap(), record);
}

#[test]
fn every_event_kind_has_one_name() {
    for kind in EventKind::ALL {
        let name = serde_json::to_value(kind).unwrap();
        assert_eq!(name, kind.name());
        assert_eq!(EventKind::from_name(kind.name()), Some(kind));
    }
    for state in ServerState::ALL {
        assert_eq!(serde_json::to_value(state).unwrap(), state.name());
    }
}

#[test]
fn words_and_members_of_a_newer_daemon_are_read() {
    let newer = r#"{"type":"event","event":"teleported","user":"ada","colour":"blue","outcome":"deferred"}"#;
    let Record::Event(event) = serde_json::from_str(newer).unwrap() else {
        panic!("no event")
    };
    assert_eq!(event.event, EventKind::Unknown);
    assert_eq!(event.outcome, Some(Outcome::Unknown));
    let record: Record = serde_json::from_str(r#"{"type":"hologram","x":1}"#).unwrap();
    assert_eq!(record, Record::Unknown);
}

#[test]
fn a_finding_shows_everything_but_the_secret() {
    let finding = Finding {
        code: "KAMS-EGR-001",
        detector: "egress.sensitive_args",
        kind: Kind::EgressSensitive,
        severity: Severity::Critical,
        confidence: 0.95,
        tool: Some("send".into()),
        cause: "aws_key".into(),
        evidence: Evidence::Egress(vec![Sensitive {
            class: "aws_key",
            path: "$.body".into(),
            count: 2,
            length: 20,
            digest: "0123456789abcdef".into(),
            documented_example: false,
        }]),
    };
    let context = FindingContext {
        uid: 1000,
        user: "ada".into(),
        server: "pypi:mail".into(),
        action: "alert".into(),
        would: Some("block_call".into()),
        fingerprint: "f00d".into(),
        gap: true,
        ..FindingContext::default()
    };
    let value = serde_json::to_value(Record::Finding(FindingRecord::new(&finding, context))).unwrap();
    assert_eq!(
        value,
        json!({
            "type": "finding", "schema": 1, "seq": 0, "time": "1970-01-01T00:00:00.000000000Z",
            "code": "KAMS-EGR-001", "detector": "egress.sensitive_args", "kind": "EGRESS_SENSITIVE",
            "severity": "CRITICAL", "confidence": 0.95, "uid": 1000, "user": "ada", "agent": "",
            "server": "pypi:mail", "tool": "send", "enforced": false, "gap": true,
            "action": "alert", "would": "block_call", "fingerprint": "f00d",
            "evidence": {"sensitive": [{
                "class": "aws_key", "path": "$.body", "count": 2, "length": 20,
                "digest": "0123456789abcdef", "documented_example": false,
            }]},
        })
    );
}

#[test]
fn drift_evidence_keeps_the_names_of_the_seed() {
    let shown = evidence(&Evidence::Drift {
        change: "DESCRIPTION_CHANGED",
        pinned: true,
        score: Some(0.6),
        signals: Vec::new(),
        description_before: Some("a".into()),
        description_after: Some("b".into()),
        paths: vec!["$.properties.x".into()],
    });
    assert_eq!(
        shown,
        json!({
            "change": "DESCRIPTION_CHANGED", "baseline": "pinned", "score": 0.6, "signals": [],
            "description_before": "a", "description_after": "b", "paths": ["$.properties.x"],
        })
    );
}

#[test]
fn the_worst_check_decides() {
    let check = |result| CheckView {
        result,
        ..CheckView::default()
    };
    let mut doctor = DoctorView::default();
    assert_eq!(doctor.worst(), CheckResult::Ok);
    doctor.checks = vec![
        check(CheckResult::Warn),
        check(CheckResult::Unknown),
        check(CheckResult::Info),
    ];
    assert_eq!(doctor.worst(), CheckResult::Warn);
}
