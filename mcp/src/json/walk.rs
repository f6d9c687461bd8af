//! Walks over JSON text that is known to be valid. On text that is not, they end early; they never fail.

use memchr::memchr2;

/// One token of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Token<'a> {
    /// `{`
    OpenObject,
    /// `}`
    CloseObject,
    /// `[`
    OpenArray,
    /// `]`
    CloseArray,
    /// A member's key, escapes and all, without quotes.
    Key(&'a str),
    /// A string value, escapes and all, without quotes.
    String(&'a str),
    /// A number, `true`, `false` or `null`.
    Scalar(&'a str),
}

/// The tokens of a value, in order.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn slice(&self, from: usize, to: usize) -> &'a str {
        self.text.get(from..to).unwrap_or("")
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.text.as_bytes();
        loop {
            let byte = *bytes.get(self.at)?;
            let start = self.at;
            self.at += 1;
            return Some(match byte {
                b'{' => Token::OpenObject,
                b'}' => Token::CloseObject,
                b'[' => Token::OpenArray,
                b']' => Token::CloseArray,
                b'"' => {
                    let end = string_end(bytes, start);
                    let inner = self.slice(start + 1, end.saturating_sub(1));
                    self.at = skip_space(bytes, end);
                    if bytes.get(self.at) == Some(&b':') {
                        self.at += 1;
                        Token::Key(inner)
                    } else {
                        Token::String(inner)
                    }
                }
                b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => continue,
                _ => {
                    self.at = scalar_end(bytes, start);
                    Token::Scalar(self.slice(start, self.at))
                }
            });
        }
    }
}

/// The members of an object: key (escapes and all) and value text.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Members<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let at = skip_space(text.as_bytes(), 0);
        let at = if text.as_bytes().get(at) == Some(&b'{') {
            at + 1
        } else {
            text.len()
        };
        Self { text, at }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let open = skip_separators(bytes, self.at);
        if bytes.get(open) != Some(&b'"') {
            self.at = self.text.len();
            return None;
        }
        let close = string_end(bytes, open);
        let key = self.text.get(open + 1..close.saturating_sub(1))?;
        let start = skip_separators(bytes, close);
        let end = value_end(bytes, start);
        self.at = end;
        Some((key, self.text.get(start..end)?))
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Elements<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let at = skip_space(text.as_bytes(), 0);
        let at = if text.as_bytes().get(at) == Some(&b'[') {
            at + 1
        } else {
            text.len()
        };
        Self { text, at }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = super::Json<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_text().map(super::Json::checked)
    }
}

impl<'a> Elements<'a> {
    /// The next element as text of the array.
    pub(crate) fn next_text(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        let start = skip_separators(bytes, self.at);
        if matches!(bytes.get(start), None | Some(b']')) {
            self.at = self.text.len();
            return None;
        }
        let end = value_end(bytes, start);
        self.at = end;
        self.text.get(start..end)
    }
}

fn skip_space(bytes: &[u8], from: usize) -> usize {
    skip(bytes, from, |b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
}

/// Skips space, commas and colons.
fn skip_separators(bytes: &[u8], from: usize) -> usize {
    skip(bytes, from, |b| {
        matches!(b, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':')
    })
}

fn skip(bytes: &[u8], from: usize, while_: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|&b| !while_(b)).unwrap_or(rest.len())
}

/// The place behind the closing quote of the string that opens at `open`.
fn string_end(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(found) = memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        let place = at + found;
        if bytes.get(place) == Some(&b'"') {
            return place + 1;
        }
        at = place + 2;
    }
    bytes.len()
}

fn scalar_end(bytes: &[u8], from: usize) -> usize {
    // At least one byte, so that a walk over an invalid text goes on.
    let next = from + 1;
    skip(bytes, next, |b| {
        !matches!(
            b,
            b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'{' | b'['
        )
    })
}

/// The place behind the value that begins at `start`.
fn value_end(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start) {
        None => bytes.len(),
        Some(b'"') => string_end(bytes, start),
        Some(b'{' | b'[') => {
            let mut depth = 0_usize;
            let mut at = start;
            while let Some(&byte) = bytes.get(at) {
                match byte {
                    b'"' => {
                        at = string_end(bytes, at);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            return at + 1;
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
            bytes.len()
        }
        Some(_) => scalar_end(bytes, start),
    }
}

#[cfg(test)]
mod tests {
    use crate::json::{Json, Token};

    #[test]
    fn members_and_elements_keep_their_text() {
        let json = Json::parse(r#" {"a" : 1.50 , "b":[ "x,]" , {} ,null],"c":{"d":"\"}"}} "#).unwrap();
        let members: Vec<_> = json.members().collect();
        assert_eq!(
            members,
            [
                ("a", "1.50"),
                ("b", r#"[ "x,]" , {} ,null]"#),
                ("c", r#"{"d":"\"}"}"#)
            ]
        );
        let list = json.member("b").unwrap();
        let elements: Vec<_> = list.elements().map(|e| e.get().to_owned()).collect();
        assert_eq!(elements, [r#""x,]""#, "{}", "null"]);
        assert_eq!(json.elements().count(), 0);
        assert_eq!(list.members().count(), 0);
    }

    #[test]
    fn tokens_tell_keys_from_strings() {
        let json = Json::parse(r#"{"k" :["s",-1e5,true]}"#).unwrap();
        let tokens: Vec<_> = json.tokens().collect();
        assert_eq!(
            tokens,
            [
                Token::OpenObject,
                Token::Key("k"),
                Token::OpenArray,
                Token::String("s"),
                Token::Scalar("-1e5"),
                Token::Scalar("true"),
                Token::CloseArray,
                Token::CloseObject
            ]
        );
    }

    #[test]
    fn the_last_of_repeated_members_counts() {
        let json = Json::parse(r#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!(json.member("a").unwrap().as_i64(), Some(2));
    }
}
