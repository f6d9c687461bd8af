//! JSON lines: one object per line, safe to print on a terminal.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

use crate::text::is_unsafe;

/// `value` as one line of JSON, newline included. Equal to what `serde_json` writes, except that characters
/// that could act on a terminal are escaped.
pub fn line<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(256);
    value.serialize(&mut Serializer::with_formatter(&mut out, Safe(CompactFormatter)))?;
    out.push(b'\n');
    Ok(out)
}

/// `value` as indented JSON for people, newline included, with the same escapes.
pub fn pretty<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    value.serialize(&mut Serializer::with_formatter(
        &mut out,
        Safe(PrettyFormatter::new()),
    ))?;
    out.push(b'\n');
    Ok(out)
}

/// A formatter that escapes what [`is_unsafe`] names; everything else is the inner formatter's.
struct Safe<F>(F);

impl<F: Formatter> Formatter for Safe<F> {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
            let (plain, tail) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = tail.split_at(c.len_utf8()).1;
        }
        writer.write_all(rest.as_bytes())
    }

    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn escapes_what_acts_on_a_terminal() {
        let out = line(&json!({"name": "a\u{9b}31m\u{202e}\u{e0041}é"})).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"name\":\"a\\u009b31m\\u202e\\udb40\\udc41é\"}\n"
        );
    }

    #[test]
    fn indents_for_people() {
        let out = pretty(&json!({"a": [1, {}]})).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "{\n  \"a\": [\n    1,\n    {}\n  ]\n}\n");
    }

    proptest! {
        #[test]
        fn is_the_same_value_on_one_safe_line(text: String, key: String) {
            let value = json!({key: [text]});
            let out = String::from_utf8(line(&value).unwrap()).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), value);
            prop_assert!(!out.trim_end_matches('\n').chars().any(is_unsafe));
        }
    }
}
