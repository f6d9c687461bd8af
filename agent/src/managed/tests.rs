//! Files as administrators write them, switched on and off again.

use serde_json::json;

use super::plan::{PlanError, disable, enable, endpoint};
use super::record::Changed;
use super::{Agent, Form};

const HERE: &str = "http://127.0.0.1:4318";

fn on(agent: Agent, text: Option<&str>) -> (String, Changed) {
    let (text, changed) = enable(agent, HERE, text, None, false).unwrap();
    (text.unwrap(), changed)
}

const GEMINI: &str = "{\n    \"theme\" : \"dark\",\n    \"mcpServers\": { \"a\": {\"command\": \"x\", \"args\": [ 1,2 ]} }\n}\n";
const CODEX: &str =
    "# ours\nmodel = \"m\"  # keep\n\n[otel]\nlog_user_prompt = false\n\n[mcp_servers.a]\ncommand = 'x'\n";

#[test]
fn others_keys_stay_as_they_are_written_and_undoing_is_exact() {
    for (agent, text, parts) in [
        (Agent::Gemini, GEMINI, &["\"args\": [ 1,2 ]", "\"theme\""][..]),
        (
            Agent::Codex,
            CODEX,
            &[
                "# ours",
                "model = \"m\"  # keep",
                "command = 'x'",
                "log_user_prompt",
            ],
        ),
        (Agent::Claude, "", &[]),
    ] {
        let (enabled, changed) = on(agent, Some(text));
        assert!(parts.iter().all(|part| enabled.contains(part)), "{enabled}");
        assert!(endpoint(agent, &enabled).unwrap().unwrap().starts_with(HERE));
        for (path, value) in agent.settings(HERE) {
            assert_eq!(agent.form().get(&enabled, path).unwrap(), Some(value));
        }
        assert_eq!(
            disable(agent, Some(&enabled), &changed).unwrap().as_deref(),
            Some(text)
        );
    }
}

#[test]
fn a_file_that_was_not_there_goes_again() {
    for agent in Agent::ALL {
        let (enabled, changed) = on(agent, None);
        assert_eq!(disable(agent, Some(&enabled), &changed).unwrap(), None);
        assert_eq!(
            disable(agent, None, &changed).unwrap(),
            None,
            "somebody took it away"
        );
    }
}

#[test]
fn what_others_wrote_meanwhile_stays() {
    let (enabled, changed) = on(Agent::Gemini, Some(GEMINI));
    let edited = Form::Json
        .set(&enabled, &["theme"], Some(&json!("light")))
        .unwrap();
    let edited = Form::Json
        .set(
            &edited,
            &["telemetry", "otlpEndpoint"],
            Some(&json!("http://theirs")),
        )
        .unwrap();
    let undone = disable(Agent::Gemini, Some(&edited), &changed).unwrap().unwrap();
    let get = |path: &[&str]| Form::Json.get(&undone, path).unwrap();
    assert_eq!(get(&["theme"]), Some(json!("light")));
    assert_eq!(
        get(&["telemetry"]),
        Some(json!({"otlpEndpoint": "http://theirs"}))
    );

    let (enabled, changed) = on(Agent::Codex, Some("model = \"m\"\n"));
    let edited = enabled + "\n[extra]\nx = 1\n";
    let undone = disable(Agent::Codex, Some(&edited), &changed).unwrap().unwrap();
    assert_eq!(Form::Toml.get(&undone, &["otel"]).unwrap(), None, "{undone}");
    assert_eq!(Form::Toml.get(&undone, &["extra", "x"]).unwrap(), Some(json!(1)));
}

#[test]
fn a_second_time_and_another_endpoint_keep_the_first_original() {
    let (enabled, changed) = on(Agent::Gemini, Some(GEMINI));
    let (again, same) = enable(Agent::Gemini, HERE, Some(&enabled), Some(&changed), false).unwrap();
    assert_eq!((again.as_deref(), &same), (Some(enabled.as_str()), &changed));
    let there = "http://127.0.0.1:9999";
    let (moved, changed) = enable(Agent::Gemini, there, Some(&enabled), Some(&changed), false).unwrap();
    assert_eq!(
        endpoint(Agent::Gemini, moved.as_deref().unwrap())
            .unwrap()
            .as_deref(),
        Some(there)
    );
    assert_eq!(changed.original.as_deref(), Some(GEMINI));
}

#[test]
fn what_somebody_else_has_set_is_not_overwritten_unless_told_so() {
    let text = "{\"telemetry\": {\"otlpEndpoint\": \"http://collector:4318\"}}";
    let refused = enable(Agent::Gemini, HERE, Some(text), None, false).unwrap_err();
    assert!(
        matches!(&refused, PlanError::Taken { key, value } if key == "telemetry.otlpEndpoint" && value == "http://collector:4318"),
        "{refused}"
    );
    let (replaced, changed) = enable(Agent::Gemini, HERE, Some(text), None, true).unwrap();
    assert_eq!(
        disable(Agent::Gemini, replaced.as_deref(), &changed)
            .unwrap()
            .as_deref(),
        Some(text)
    );
}

#[test]
fn what_cannot_be_read_is_not_touched() {
    for (agent, text) in [
        (Agent::Gemini, "{ // a comment\n \"theme\": 1 }"),
        (Agent::Gemini, "[]"),
        (Agent::Gemini, "{\"telemetry\": 5}"),
        (Agent::Gemini, "{\"a\": 1, \"a\": 2}"),
        (Agent::Codex, "model = \n"),
        (Agent::Codex, "otel = 5\n"),
    ] {
        let refused = enable(agent, HERE, Some(text), None, false);
        assert!(
            matches!(refused, Err(PlanError::Unreadable(_))),
            "{text}: {refused:?}"
        );
    }
}
