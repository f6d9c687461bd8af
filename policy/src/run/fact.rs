//! The projection boundary: what of a call may become a fact.

use serde_json::Value as Json;

use super::key::SafeKey;
use crate::file::runs::FactDecl;

/// Longest identifier, in characters.
pub(crate) const MAX_IDENTIFIER: usize = 128;

/// A declared argument value that has the shape of an identifier: 1 to 128 characters, none of them white space
/// or a control or format character. Free text has blanks, so it can never become one.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Identifier(String);

impl Identifier {
    /// The identifier in a JSON value: a text of that shape, or a whole number as it is written.
    pub fn of(value: &Json) -> Option<Self> {
        match value {
            Json::String(text) => Self::new(text),
            Json::Number(n) if n.is_i64() || n.is_u64() => Some(Self(n.to_string())),
            _ => None,
        }
    }

    /// The text as an identifier, if it has the shape of one.
    pub fn new(text: &str) -> Option<Self> {
        let shaped = !text.is_empty()
            && text.chars().take(MAX_IDENTIFIER + 1).count() <= MAX_IDENTIFIER
            && !text
                .chars()
                .any(|c| c.is_whitespace() || c.is_control() || is_invisible(c));
        shaped.then(|| Self(text.to_owned()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Zero-width, bidi and tag characters: blanks that white space does not cover.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// A finite JSON number. Texts that look like numbers are texts.
pub(crate) fn finite(value: &Json) -> Option<f64> {
    match value {
        Json::Number(n) => n.as_f64().filter(|n| n.is_finite()),
        _ => None,
    }
}

/// What one call adds under one fact key.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// Fact key.
    pub key: String,
    /// Whether the key stands in a declaration; others come from tool names and are bounded in number.
    pub named: bool,
    /// Declared fields with identifier values.
    pub values: Vec<(String, Identifier)>,
    /// Declared fields with numbers.
    pub numbers: Vec<(String, f64)>,
}

/// Everything that crosses from one call's arguments: one contribution for each fact key.
///
/// Several declarations may give one key; their fields are joined and the call counts once. An undeclared tool
/// adds nothing.
pub fn project(decls: &[FactDecl], server: &str, tool: &str, arguments: &Json) -> Vec<Contribution> {
    let mut out: Vec<Contribution> = Vec::new();
    for decl in decls {
        if !decl.tool.matches(tool) || decl.server.as_ref().is_some_and(|glob| !glob.matches(server)) {
            continue;
        }
        let (key, named) = match &decl.key {
            Some(key) => (key.clone(), true),
            None => (
                SafeKey::of(tool).as_str().to_owned(),
                decl.tool.literal().is_some(),
            ),
        };
        let at = out.iter().position(|c| c.key == key).unwrap_or_else(|| {
            out.push(Contribution {
                key,
                named,
                values: Vec::new(),
                numbers: Vec::new(),
            });
            out.len() - 1
        });
        let Some(contribution) = out.get_mut(at) else {
            continue;
        };
        contribution.named |= named;
        for field in &decl.arg_keys {
            if let Some(value) = arguments.get(field).and_then(Identifier::of)
                && contribution.values.iter().all(|(f, _)| f != field)
            {
                contribution.values.push((field.clone(), value));
            }
        }
        for field in &decl.numeric_keys {
            if let Some(number) = arguments.get(field).and_then(finite)
                && contribution.numbers.iter().all(|(f, _)| f != field)
            {
                contribution.numbers.push((field.clone(), number));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::glob::Glob;

    fn decl(tool: &str, key: Option<&str>, args: &[&str], numbers: &[&str]) -> FactDecl {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        FactDecl {
            tool: Glob::new(tool),
            server: None,
            key: key.map(str::to_owned),
            arg_keys: own(args),
            numeric_keys: own(numbers),
        }
    }

    #[test]
    fn only_declared_fields_of_the_right_shape_cross() {
        let decls = [decl("pay_*", Some("pay"), &["to", "memo"], &["amount", "fee"])];
        let args = json!({"to": "bene-1", "memo": "thanks a lot", "amount": 12.5, "fee": "3", "secret": "x"});
        let all = project(&decls, "s", "pay_now", &args);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].values, [("to".to_owned(), Identifier("bene-1".into()))]);
        assert_eq!(all[0].numbers, [("amount".to_owned(), 12.5)]);
        assert!(project(&decls, "s", "read", &args).is_empty());
    }

    #[test]
    fn a_declaration_without_fields_still_counts_the_call() {
        let all = project(&[decl("review", None, &[], &[])], "s", "review", &Json::Null);
        assert_eq!(
            (all.len(), all[0].key.as_str(), all[0].named),
            (1, "review", true)
        );
    }

    proptest! {
        #[test]
        fn raw_text_cannot_enter(text in "\\PC{0,200}|(\\w+ ){1,30}", other in "[ -~]{0,40}") {
            let decls = [decl("*", None, &["a"], &["n"]), decl("t", Some("k"), &["b"], &["m"])];
            let args = json!({"a": text, "n": text, "b": [text], "m": {"x": text}, "z": other});
            for c in project(&decls, &other, "t", &args) {
                prop_assert!(c.numbers.is_empty());
                for (_, value) in &c.values {
                    prop_assert!(value.as_str().chars().count() <= MAX_IDENTIFIER);
                    prop_assert!(!value.as_str().contains(char::is_whitespace));
                    prop_assert_eq!(value.as_str(), text.as_str());
                }
            }
        }
    }
}
