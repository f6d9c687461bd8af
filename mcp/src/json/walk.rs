//! Walks over JSON text that is known to be valid. On text that is not, they end early; they never fail.

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

/// A place within a value, from which it is read member by member without going back.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The first byte of what comes next.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.at = skip_separators(self.text.as_bytes(), self.at);
        self.text.as_bytes().get(self.at).copied()
    }

    /// Enters an object or an array, as `open` says, if that comes next.
    pub(crate) fn enter(&mut self, open: u8) -> bool {
        let found = self.peek() == Some(open);
        self.at += usize::from(found);
        found
    }

    /// The next key of the object (escapes and all); its value comes next. None at the object's end, which is then
    /// behind.
    pub(crate) fn key(&mut self) -> Option<&'a str> {
        if self.peek()? != b'"' {
            self.at += 1;
            return None;
        }
        let open = self.at;
        self.at = string_end(self.text.as_bytes(), open);
        self.text.get(open + 1..self.at.saturating_sub(1))
    }

    /// Whether the array has another element, which comes next. At the array's end, that is then behind.
    pub(crate) fn element(&mut self) -> bool {
        let more = !matches!(self.peek(), None | Some(b']'));
        self.at += usize::from(!more);
        more
    }

    /// Passes over the value that comes next.
    pub(crate) fn value(&mut self) -> &'a str {
        self.peek();
        let start = self.at;
        self.at = value_end(self.text.as_bytes(), start);
        self.text.get(start..self.at).unwrap_or("")
    }

    /// Where the value that comes next begins.
    pub(crate) fn mark(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// The text from a mark to here.
    pub(crate) fn since(&self, mark: usize) -> &'a str {
        self.text.get(mark..self.at).unwrap_or("")
    }
}

/// The members of an object: key (escapes and all) and value text.
#[derive(Clone, Debug)]
pub struct Members<'a>(Option<Cursor<'a>>);

impl<'a> Members<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut cursor = Cursor::new(text);
        Self(cursor.enter(b'{').then_some(cursor))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let cursor = self.0.as_mut()?;
        let Some(key) = cursor.key() else {
            self.0 = None;
            return None;
        };
        Some((key, cursor.value()))
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a>(Option<Cursor<'a>>);

impl<'a> Elements<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut cursor = Cursor::new(text);
        Self(cursor.enter(b'[').then_some(cursor))
    }

    /// The next element as text of the array.
    pub(crate) fn next_text(&mut self) -> Option<&'a str> {
        let cursor = self.0.as_mut()?;
        if cursor.element() {
            return Some(cursor.value());
        }
        self.0 = None;
        None
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = super::Json<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_text().map(super::Json::checked)
    }
}

pub(super) fn skip_space(bytes: &[u8], from: usize) -> usize {
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
pub(super) fn string_end(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    loop {
        at = find_either(bytes, at, b'"', b'\\');
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(_) => at += 2,
            None => return bytes.len(),
        }
    }
}

/// The place of the first `a` or `b` from `at` on, or the end.
///
/// Eight bytes at a time: strings in messages are short or full of escapes, where a vector search stops every few
/// bytes and its start costs more than it wins.
pub(super) fn find_either(bytes: &[u8], mut at: usize, a: u8, b: u8) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The lowest bit set is that of the first zero byte; bits above it may be wrong.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let (wide_a, wide_b) = (ONES * u64::from(a), ONES * u64::from(b));
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*eight);
        let hits = zeros(word ^ wide_a) | zeros(word ^ wide_b);
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at.saturating_add(
        rest.iter()
            .position(|&byte| byte == a || byte == b)
            .unwrap_or(rest.len()),
    )
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
