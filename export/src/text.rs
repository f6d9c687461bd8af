//! Which characters must never reach a terminal or a log as they are.
//!
//! Server names, tool names and descriptions are written by whoever wrote the server. Printed raw they could
//! colour the screen, overwrite lines, swap the reading order or hide.

/// Whether a terminal, a pager or a person could be misled by this character: control characters, line and
/// paragraph separators, bidirectional controls, invisible and format characters, tags, and private use.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' // soft hyphen
            | '\u{34f}' // combining grapheme joiner
            | '\u{61c}' // arabic letter mark
            | '\u{115f}'..='\u{1160}' // hangul fillers
            | '\u{17b4}'..='\u{17b5}' // khmer inherent vowels
            | '\u{180b}'..='\u{180f}' // mongolian selectors and separator
            | '\u{200b}'..='\u{200f}' // zero width, left-to-right and right-to-left marks
            | '\u{2028}'..='\u{202e}' // separators, embeddings, overrides
            | '\u{2060}'..='\u{206f}' // word joiner, invisible operators, isolates, deprecated formats
            | '\u{3164}' // hangul filler
            | '\u{e000}'..='\u{f8ff}' // private use
            | '\u{fe00}'..='\u{fe0f}' // variation selectors
            | '\u{feff}' // byte order mark
            | '\u{ffa0}' // half-width hangul filler
            | '\u{fff0}'..='\u{fffb}' // specials
            | '\u{1bca0}'..='\u{1bca3}' // shorthand format controls
            | '\u{1d173}'..='\u{1d17a}' // musical format controls
            | '\u{e0000}'..='\u{e0fff}' // tags and variation selectors
            | '\u{f0000}'..='\u{10ffff}' // private use
        )
}

/// `text` with each unsafe character spelled as `\u{202e}`, and `\n`, `\r`, `\t` as such. A backslash before one
/// of these spellings is not doubled: this is for reading, not for reading back.
pub fn visible(text: &str) -> String {
    if !text.chars().any(is_unsafe) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_unsafe(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shows_what_would_act() {
        assert_eq!(visible("\u{1b}[2Jgone"), "\\u{1b}[2Jgone");
        assert_eq!(visible("a\u{202e}b\nc"), "a\\u{202e}b\\nc");
        assert_eq!(visible("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(visible("\u{e0041}"), "\\u{e0041}");
    }

    #[test]
    fn leaves_every_script_alone() {
        for text in ["résumé", "漢字かな", "العربية", "हिन्दी", "🚀", "a-b_c.d/e"]
        {
            assert_eq!(visible(text), text);
        }
    }

    proptest! {
        #[test]
        fn nothing_unsafe_remains(text: String) {
            prop_assert!(!visible(&text).chars().any(is_unsafe));
        }
    }
}
