//! `retrieval_thrash`: a retriever asked nearly the same question again and again.
//!
//! A retriever is known by its name. Confidence rises from 0.55 at the threshold by 0.4 for each 0.1 of similarity, to
//! 0.95. Paging and polling are no excuse here, as in the reference.

use super::call::digest;
use super::config::Config;
use super::repetition::{by_tool, numbers, similarity};
use super::rule::{Firing, Rule};
use super::session::Session;

pub(super) fn evaluate(session: &Session, config: &Config, told: &dyn Fn(u64) -> bool) -> Option<Firing> {
    let knobs = &config.retrieval_thrash;
    for group in by_tool(session, knobs.window_seconds) {
        let subject = digest(group.tool.as_bytes());
        let retrieves = || is_retriever(group.tool, &knobs.retrieval_tool_patterns);
        if group.calls.len() < knobs.min_calls || told(subject) || !retrieves() {
            continue;
        }
        let mean = similarity(
            &group,
            knobs.similarity_metric,
            knobs.max_total_corpus_bytes,
            |call| &call.arguments.retrieved,
        );
        if mean >= knobs.cosine_threshold {
            return Some(Firing {
                rule: Rule::RetrievalThrash,
                confidence: (0.55 + 4.0 * (mean - knobs.cosine_threshold)).clamp(0.55, 0.95),
                suggested_action: "cache_retrieval_results_or_widen_initial_query_or_dedupe",
                tool: Some(group.tool.to_string()),
                subject,
                numbers: numbers(&group, knobs.window_seconds, mean),
            });
        }
    }
    None
}

fn is_retriever(tool: &str, patterns: &[String]) -> bool {
    let tool = tool.to_lowercase();
    patterns.iter().any(|pattern| {
        let pattern = pattern.to_lowercase();
        if pattern.contains('*') {
            glob(&pattern, &tool)
        } else {
            tool.contains(&pattern)
        }
    })
}

/// `*` stands for any run of characters, all else for itself. Linear in `text` for each star at most.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{fires, tool_calls};
    use super::*;
    use serde_json::json;

    #[test]
    fn small_edits_of_a_query_fire_and_new_questions_do_not() {
        let edits = [
            json!({"q": "gasket size of pump 7"}),
            json!({"q": "gasket size of pump 7?"}),
            json!({"q": "gasket size, pump 7"}),
        ];
        assert!(
            fires(
                Rule::RetrievalThrash,
                &tool_calls("doc_search", &edits, 20.0),
                &json!({})
            )
            .is_some()
        );
        let others = [
            json!({"q": "gasket size of pump 7"}),
            json!({"q": "who sells bolts"}),
            json!({"q": "opening hours"}),
        ];
        assert!(
            fires(
                Rule::RetrievalThrash,
                &tool_calls("doc_search", &others, 20.0),
                &json!({})
            )
            .is_none()
        );
    }

    #[test]
    fn only_retrievers() {
        let same = vec![json!({"q": "x"}); 3];
        let fired =
            |tool: &str| fires(Rule::RetrievalThrash, &tool_calls(tool, &same, 60.0), &json!({})).is_some();
        for tool in [
            "Vector_Search",
            "rag_docs",
            "find_documents",
            "query_status",
            "my_retriever",
        ] {
            assert!(fired(tool), "{tool}");
        }
        for tool in ["open_door", "drag_x", "rag", "fetch"] {
            assert!(!fired(tool), "{tool}");
        }
    }

    #[test]
    fn globs() {
        assert!(
            glob("rag_*", "rag_x") && glob("*_query", "a_query") && glob("a*b*c", "a12b3c") && glob("*", "")
        );
        assert!(!glob("rag_*", "drag_x") && !glob("*_query", "a_query_x") && !glob("a*b*c", "acb"));
        assert!(!glob("ab*b", "ab"), "no character serves twice");
    }
}
