//! Changes to a message that leave every other byte as it was.

use std::collections::BTreeSet;
use std::ops::Range;

use kams_mcp::{Json, ListKind};

/// A list's answer without the items of these names; none where it is no such answer. The items go with one comma
/// each, the rest stays.
pub(super) fn without(line: &str, list: ListKind, names: &BTreeSet<String>) -> Option<String> {
    let root = Json::parse(line).ok()?;
    let result = root.member("result")?;
    let items = result.member(list.member())?;
    let spans: Vec<(Range<usize>, bool)> = items
        .elements()
        .map(|item| {
            let goes = name_of(&item, list).is_some_and(|name| names.contains(&name));
            (span(line, item.get()), goes)
        })
        .collect();
    let kept: Vec<&Range<usize>> = spans
        .iter()
        .filter(|(_, goes)| !goes)
        .map(|(span, _)| span)
        .collect();
    let array = span(line, items.get());
    let (first, last) = (spans.first()?.0.start, spans.last()?.0.end);
    let mut out = String::with_capacity(line.len());
    out.push_str(line.get(..first.max(array.start))?);
    for (at, span) in kept.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(line.get((*span).clone())?);
    }
    out.push_str(line.get(last..)?);
    Some(out)
}

/// The names of a page's items.
pub(super) fn names(line: &str, list: ListKind) -> Vec<String> {
    let Ok(root) = Json::parse(line) else {
        return Vec::new();
    };
    let items = root
        .member("result")
        .and_then(|result| Some(result.member(list.member())?.into_owned()));
    items
        .iter()
        .flat_map(Json::elements)
        .filter_map(|item| name_of(&item, list))
        .collect()
}

/// A greeting with this text in place of the server's instructions.
pub(super) fn other_instructions(line: &str, text: &str) -> Option<String> {
    let root = Json::parse(line).ok()?;
    let result = root.member("result")?;
    let instructions = result.member("instructions")?;
    let span = span(line, instructions.get());
    let text = serde_json::Value::from(text).to_string();
    Some([line.get(..span.start)?, &text, line.get(span.end..)?].concat())
}

/// What tells an item: its name, or the address of a resource.
fn name_of(item: &Json<'_>, list: ListKind) -> Option<String> {
    let member = match list {
        ListKind::Tools | ListKind::Prompts => "name",
        ListKind::Resources => "uri",
        ListKind::ResourceTemplates => "uriTemplate",
    };
    Some(item.member(member)?.as_str()?.into_owned())
}

/// Where a part of `line` stands in it.
fn span(line: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "{ \"id\" : 1.50,\"result\":{\"tools\": [ {\"name\":\"a\"} ,{\"name\":\"b\\u0021\", \"x\":[1 , 2]}, {\"name\":\"c\"} ] , \"é\":\"\\u00e9\"}}";

    fn cut(names: &[&str]) -> String {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        without(LIST, ListKind::Tools, &names).unwrap()
    }

    #[test]
    fn items_go_and_the_rest_stays() {
        assert_eq!(names(LIST, ListKind::Tools), ["a", "b!", "c"]);
        let head = "{ \"id\" : 1.50,\"result\":{\"tools\": [ ";
        let tail = " ] , \"é\":\"\\u00e9\"}}";
        assert_eq!(
            cut(&["b!"]),
            format!("{head}{{\"name\":\"a\"}},{{\"name\":\"c\"}}{tail}")
        );
        assert_eq!(cut(&["a", "b!", "c"]), format!("{head}{tail}"));
        assert_eq!(
            cut(&["a", "c"]),
            format!("{head}{{\"name\":\"b\\u0021\", \"x\":[1 , 2]}}{tail}")
        );
        assert!(without("{\"result\":{}}", ListKind::Tools, &BTreeSet::new()).is_none());
    }

    #[test]
    fn instructions_are_replaced() {
        let line = r#"{"id":0,"result":{"instructions" : "send \"all\"", "capabilities":{}}}"#;
        assert_eq!(
            other_instructions(line, "no \"x\"").unwrap(),
            r#"{"id":0,"result":{"instructions" : "no \"x\"", "capabilities":{}}}"#
        );
    }
}
