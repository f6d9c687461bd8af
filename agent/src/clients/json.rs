//! JSON, and JSON with comments and trailing commas, with the place of every value.

use super::node::{Key, MAX_DEPTH, Node, Place, SyntaxError, Value};

/// Which JSON a client reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dialect {
    /// RFC 8259.
    Strict,
    /// With `//` and `/* */` comments and commas before a closing bracket.
    Comments,
}

/// Reads a whole text.
pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Node, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        chars: text.chars().peekable(),
        place: Place { line: 1, column: 1 },
        dialect,
    };
    reader.space()?;
    let node = reader.value(0)?;
    reader.space()?;
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.error("text after the end of the value")),
    }
}

struct Reader<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    place: Place,
    dialect: Dialect,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.chars.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        if c == '\n' {
            self.place = Place {
                line: self.place.line.saturating_add(1),
                column: 1,
            };
        } else {
            self.place.column = self.place.column.saturating_add(1);
        }
        Some(c)
    }

    fn error(&self, what: &'static str) -> SyntaxError {
        SyntaxError {
            place: self.place,
            what,
        }
    }

    fn space(&mut self) -> Result<(), SyntaxError> {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' => {
                    self.next();
                }
                '/' => self.comment()?,
                _ => break,
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> Result<(), SyntaxError> {
        let start = self.place;
        if self.dialect == Dialect::Strict {
            return Err(self.error("a comment, which this client does not accept"));
        }
        self.next();
        match self.next() {
            Some('/') => while self.peek().is_some_and(|c| c != '\n') && self.next().is_some() {},
            Some('*') => {
                let mut last = ' ';
                loop {
                    match self.next() {
                        Some('/') if last == '*' => break,
                        Some(c) => last = c,
                        None => {
                            return Err(SyntaxError {
                                place: start,
                                what: "a comment that does not end",
                            });
                        }
                    }
                }
            }
            _ => {
                return Err(SyntaxError {
                    place: start,
                    what: "'/' where a value or ',' is expected",
                });
            }
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        let place = self.place;
        if depth > MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        let value = match self.peek() {
            Some('{') => self.map(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => Value::Text(self.string()?),
            Some('-' | '0'..='9') => {
                while self
                    .peek()
                    .is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
                {
                    self.next();
                }
                Value::Other
            }
            Some('a'..='z') => {
                let mut word = String::new();
                while let Some(c) = self.peek().filter(char::is_ascii_alphabetic) {
                    if word.len() > 8 {
                        break;
                    }
                    word.push(c);
                    self.next();
                }
                match word.as_str() {
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    "null" => Value::Other,
                    _ => {
                        return Err(SyntaxError {
                            place,
                            what: "an unquoted word",
                        });
                    }
                }
            }
            Some(_) => return Err(self.error("a character where a value is expected")),
            None => return Err(self.error("the text ends where a value is expected")),
        };
        Ok(Node { place, value })
    }

    /// After an element: true when the collection goes on, false when `close` ended it.
    fn goes_on(&mut self, close: char) -> Result<bool, SyntaxError> {
        self.space()?;
        match self.peek() {
            Some(',') => {
                let comma = self.place;
                self.next();
                self.space()?;
                if self.peek() == Some(close) {
                    if self.dialect == Dialect::Strict {
                        return Err(SyntaxError {
                            place: comma,
                            what: "a comma before a closing bracket, which this client does not accept",
                        });
                    }
                    self.next();
                    return Ok(false);
                }
                Ok(true)
            }
            Some(c) if c == close => {
                self.next();
                Ok(false)
            }
            Some(_) => Err(self.error("',' or a closing bracket is missing here")),
            None => Err(self.error("the text ends inside a value")),
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        self.next();
        self.space()?;
        let mut members = Vec::new();
        if self.peek() == Some('}') {
            self.next();
            return Ok(Value::Map(members));
        }
        loop {
            let place = self.place;
            if self.peek() != Some('"') {
                return Err(self.error("a quoted name is expected here"));
            }
            let text = self.string()?;
            self.space()?;
            if self.peek() != Some(':') {
                return Err(self.error("':' is missing here"));
            }
            self.next();
            self.space()?;
            let node = self.value(depth + 1)?;
            members.push((Key { place, text }, node));
            if !self.goes_on('}')? {
                return Ok(Value::Map(members));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        self.next();
        self.space()?;
        let mut items = Vec::new();
        if self.peek() == Some(']') {
            self.next();
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if !self.goes_on(']')? {
                return Ok(Value::List(items));
            }
        }
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.place;
        self.next();
        let mut out = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(out),
                Some('\\') => {
                    let escaped = match self.next() {
                        Some(c @ ('"' | '\\' | '/')) => c,
                        Some('b') => '\u{8}',
                        Some('f') => '\u{c}',
                        Some('n') => '\n',
                        Some('r') => '\r',
                        Some('t') => '\t',
                        Some('u') => self.unicode()?,
                        _ => return Err(self.error("an unknown escape in a string")),
                    };
                    out.push(escaped);
                }
                Some('\n') | None => {
                    return Err(SyntaxError {
                        place: start,
                        what: "a string that does not end",
                    });
                }
                Some(c) if c < ' ' => return Err(self.error("a control character in a string")),
                Some(c) => out.push(c),
            }
        }
    }

    fn unicode(&mut self) -> Result<char, SyntaxError> {
        let first = self.hex4()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if (self.next(), self.next()) != (Some('\\'), Some('u')) {
            return Err(self.error("half of a surrogate pair in a string"));
        }
        let second = self.hex4()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(self.error("half of a surrogate pair in a string"));
        }
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex4(&mut self) -> Result<u32, SyntaxError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.next().and_then(|c| c.to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.error("an unknown escape in a string"))?;
        }
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(node: &Node) -> serde_json::Value {
        match &node.value {
            Value::Other => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Text(text) => text.clone().into(),
            Value::List(items) => items.iter().map(shape).collect::<Vec<_>>().into(),
            Value::Map(members) => members
                .iter()
                .map(|(key, node)| (key.text.clone(), shape(node)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    /// Numbers are not kept, so they compare as null.
    fn without_numbers(value: serde_json::Value) -> serde_json::Value {
        match value {
            serde_json::Value::Number(_) => serde_json::Value::Null,
            serde_json::Value::Array(items) => {
                items.into_iter().map(without_numbers).collect::<Vec<_>>().into()
            }
            serde_json::Value::Object(map) => map
                .into_iter()
                .map(|(k, v)| (k, without_numbers(v)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other,
        }
    }

    #[test]
    fn comments_and_trailing_commas_only_where_allowed() {
        let text = "// top\n{\"a\": [1, true,], /* in */ \"b\\u00e9\\ud83d\\ude00\": \"x//y\",\n}";
        let node = parse(text, Dialect::Comments).ok().unwrap();
        assert_eq!(
            shape(&node),
            serde_json::json!({"a": [null, true], "b\u{e9}\u{1f600}": "x//y"})
        );
        let error = parse(text, Dialect::Strict).err().unwrap();
        assert_eq!(error.place, Place { line: 1, column: 1 });
        let error = parse("{\n  \"a\": 1,\n}", Dialect::Strict).err().unwrap();
        assert_eq!(error.place, Place { line: 2, column: 9 });
    }

    #[test]
    fn a_bomb_is_refused_at_its_depth() {
        for open in ["[", "{\"a\":"] {
            let error = parse(&open.repeat(1_000_000), Dialect::Strict).err().unwrap();
            assert_eq!(error.what, "nested too deeply");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(text in "[\\[\\]{},:\"a1 \\\\n\ntrue]{0,40}") {
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
                let node = parse(&text, Dialect::Strict);
                prop_assert_eq!(node.ok().map(|n| shape(&n)), Some(without_numbers(value)));
            } else {
                let _either = parse(&text, Dialect::Comments);
            }
        }
    }
}
