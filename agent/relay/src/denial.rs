//! Answers that a server did not give.
//!
//! A refused `tools/call` is answered by a result with `isError: true`, because agents show that to the model; what
//! is refused otherwise is answered by a JSON-RPC error with a code outside the range that JSON-RPC keeps for itself
//! (-32768 to -32000).

use crate::peek::{Head, elements};

/// Code of a refusal by policy.
pub const DENIED: i32 = -31_001;
/// Code of the answer to a request whose server ended before it answered.
pub const SERVER_GONE: i32 = -31_002;
/// Code of a refusal because nobody could judge the message.
pub const UNJUDGED: i32 = -31_003;

/// How a refusal is to be worded.
#[derive(Clone, Copy, Debug)]
pub struct Form<'a> {
    /// Code, where the answer is an error.
    pub code: i32,
    /// For people and the model: names the rule and the remedy.
    pub text: &'a str,
    /// The revision has `resultType` in results (2026-07-28).
    pub typed_results: bool,
}

/// A JSON-RPC error; `id` is JSON text. With a newline.
pub fn error(id: &str, form: Form<'_>) -> Vec<u8> {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{},\"message\":{}}}}}\n",
        form.code,
        quoted(form.text)
    )
    .into_bytes()
}

/// A tool result that says what went wrong; `id` is JSON text. With a newline.
pub fn tool_error(id: &str, form: Form<'_>) -> Vec<u8> {
    let kind = if form.typed_results {
        "\"resultType\":\"complete\","
    } else {
        ""
    };
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{{kind}\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"isError\":true}}}}\n",
        quoted(form.text)
    )
    .into_bytes()
}

/// The answer to a request that is not let through: none for what expects no answer.
pub fn answer_to(request: &Head, form: Form<'_>) -> Option<Vec<u8>> {
    let id = request.id.as_deref()?;
    request.method.as_ref()?;
    // A caller that asked for the handle of a task does not expect a tool's result.
    Some(if request.has_method("tools/call") && !request.as_task {
        tool_error(id, form)
    } else {
        error(id, form)
    })
}

/// The same for a batch: one array with the answers of all requests in it.
pub fn answers_to_batch(line: &[u8], form: Form<'_>) -> Option<Vec<u8>> {
    array(
        elements(line)
            .into_iter()
            .filter_map(|element| answer_to(&Head::of(element), form)),
    )
}

/// Lines as one array, with a newline; none where there is none.
pub fn array(lines: impl Iterator<Item = Vec<u8>>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for line in lines {
        out.push(if out.is_empty() { b'[' } else { b',' });
        out.extend_from_slice(line.trim_ascii());
    }
    if out.is_empty() {
        return None;
    }
    out.extend_from_slice(b"]\n");
    Some(out)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const FORM: Form<'_> = Form {
        code: DENIED,
        text: "No \"x\":\nrule `r`",
        typed_results: false,
    };

    fn read(bytes: Option<Vec<u8>>) -> Value {
        let bytes = bytes.unwrap();
        assert!(bytes.ends_with(b"\n") && !bytes.trim_ascii_end().contains(&b'\n'));
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn calls_get_results_and_others_errors() {
        let call = read(answer_to(
            &Head::of(br#"{"id":"7","method":"tools/call","params":{"name":"x"}}"#),
            FORM,
        ));
        assert_eq!(call["id"], "7");
        assert_eq!(call["result"]["isError"], true);
        assert_eq!(call["result"]["content"][0]["text"], FORM.text);
        assert_eq!(call["result"].get("resultType"), None);
        let other = read(answer_to(&Head::of(br#"{"id":2,"method":"prompts/get"}"#), FORM));
        assert_eq!(
            (&other["id"], &other["error"]["code"]),
            (&2.into(), &DENIED.into())
        );
        let task = read(answer_to(
            &Head::of(br#"{"id":2,"method":"tools/call","params":{"task":{}}}"#),
            FORM,
        ));
        assert!(task.get("error").is_some());
        let late = Form {
            typed_results: true,
            ..FORM
        };
        let call = read(answer_to(&Head::of(br#"{"id":1,"method":"tools/call"}"#), late));
        assert_eq!(call["result"]["resultType"], "complete");
        assert_eq!(
            answer_to(&Head::of(br#"{"method":"notifications/x"}"#), FORM),
            None
        );
    }

    #[test]
    fn a_batch_is_answered_element_by_element() {
        let line = br#"[{"id":1,"method":"tools/call"},{"method":"n"},{"id":2,"method":"ping"}]"#;
        let answers = read(answers_to_batch(line, FORM));
        assert_eq!(answers.as_array().unwrap().len(), 2);
        assert_eq!(answers[0]["result"]["isError"], true);
        assert_eq!(answers[1]["error"]["code"], DENIED);
        assert_eq!(answers_to_batch(b"[]", FORM), None);
    }

    #[test]
    fn codes_stand_outside_the_reserved_range() {
        for code in [DENIED, SERVER_GONE, UNJUDGED] {
            assert!(!(-32_768..=-32_000).contains(&code));
        }
    }
}
