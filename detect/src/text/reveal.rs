//! One pass that turns what is hidden or spelled in escapes into plain text.

use std::borrow::Cow;
use std::ops::Range;

use unicode_normalization::char::{canonical_combining_class, decompose_compatible};

use super::invisible::{Invisible, invisible, ordinary, variation_byte};
use super::map::OffsetMap;
use super::{ansi, escape};

/// A way in which text was hidden.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Concealment {
    /// Tag characters outside flag emoji.
    Tags,
    /// Zero-width characters where writing needs none.
    ZeroWidth,
    /// Overrides of the writing direction, or other direction controls in left-to-right text.
    Bidi,
    /// Runs of variation selectors.
    VariationSelectors,
    /// Terminal sequences that make text invisible or overwrite it.
    Terminal,
    /// ASCII letters and digits spelled as entities or escapes.
    Escapes,
    /// Letters from full-width, mathematical, circled and similar alphabets.
    Compatibility,
}

/// How often one concealment was met, and where first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Concealed {
    /// The way.
    pub way: Concealment,
    /// Characters concerned.
    pub count: usize,
    /// From the first to the last of them, in bytes of the original.
    pub span: Range<usize>,
}

/// Text as it reads once nothing is hidden.
#[derive(Clone, Debug)]
pub struct Revealed<'a> {
    /// The text. Case and diacritics are kept; compatibility characters are decomposed (NFKD, recomposed
    /// where one character stood for one). Borrowed when nothing had to change.
    pub text: Cow<'a, str>,
    /// Back to the original.
    pub map: OffsetMap,
    /// What had to be undone, at most one entry per way.
    pub concealed: Vec<Concealed>,
}

/// Reveals `text`: invisible characters go, tag characters, selector bytes and zero-width bits are decoded,
/// reversed runs are turned round, terminal sequences go, entities and escapes are decoded, compatibility
/// letters become plain ones. Linear in the length of `text`.
pub fn reveal(text: &str) -> Revealed<'_> {
    let mut pass = Pass::new(text);
    pass.run();
    pass.finish()
}

/// `text` without invisible characters (SPEC section 3 looks for secrets behind them). Borrowed when there are none.
pub fn strip_invisible(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.chars().any(|c| invisible(c).is_some()) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| invisible(*c).is_none()).collect())
}

struct Pass<'a> {
    source: &'a str,
    at: usize,
    // Start of the stretch of `source` not yet copied.
    plain: usize,
    out: String,
    map: OffsetMap,
    concealed: Vec<Concealed>,
    last: Option<char>,
    bits: Vec<bool>,
    bytes: Vec<u8>,
    // Where in `out` an overridden (right-to-left) run started.
    reversed: Option<usize>,
}

impl<'a> Pass<'a> {
    fn new(source: &'a str) -> Self {
        Self {
            source,
            at: 0,
            plain: 0,
            out: String::new(),
            map: OffsetMap::default(),
            concealed: Vec::new(),
            last: None,
            bits: Vec::new(),
            bytes: Vec::new(),
            reversed: None,
        }
    }

    fn run(&mut self) {
        while let Some(rest) = self.source.as_bytes().get(self.at..) {
            let Some(skip) = rest
                .iter()
                .position(|b| SPECIAL.get(usize::from(*b)).copied().unwrap_or(false))
            else {
                break;
            };
            if skip > 0 {
                self.flush_smuggled();
                self.last = rest.get(skip - 1).copied().map(char::from);
            }
            self.at += skip;
            self.special();
        }
        self.at = self.source.len();
        self.flush_smuggled();
        self.end_reversed();
    }

    fn special(&mut self) {
        let Some(rest) = self.source.get(self.at..) else {
            self.at += 1;
            return;
        };
        let Some(c) = rest.chars().next() else { return };
        let width = c.len_utf8();
        if c == '\u{1B}' || c == '\u{9B}' {
            let found = ansi::sequence(rest);
            if found.is_some_and(|s| s.hides) {
                self.note(Concealment::Terminal, width);
            }
            self.drop(found.map_or(width, |s| s.length));
        } else if c.is_ascii() {
            match escape::escape(rest) {
                Some(found) => {
                    // `%20` and `&amp;` are ordinary; a letter has no reason to be spelled that way.
                    if found.character.is_ascii_alphanumeric() {
                        self.note(Concealment::Escapes, found.length);
                    }
                    self.flush_smuggled();
                    if invisible(found.character).is_some() {
                        self.note(Concealment::ZeroWidth, found.length);
                        self.drop(found.length);
                    } else {
                        self.replace(found.length, |out| out.push(found.character));
                        self.last = Some(found.character);
                    }
                }
                None => self.keep(c),
            }
        } else if let Some(kind) = invisible(c) {
            self.hidden(c, kind, rest);
        } else {
            self.visible(c);
        }
    }

    fn hidden(&mut self, c: char, kind: Invisible, rest: &str) {
        let width = c.len_utf8();
        match kind {
            Invisible::SoftHyphen => self.drop(width),
            Invisible::ZeroWidth => {
                let after = rest.chars().nth(1);
                if !ordinary(c, self.last, after) {
                    self.note(Concealment::ZeroWidth, width);
                    match c {
                        '\u{200B}' => self.bits.push(false),
                        '\u{200C}' => self.bits.push(true),
                        _ => {}
                    }
                }
                self.drop(width);
            }
            Invisible::BidiOverride => {
                self.note(Concealment::Bidi, width);
                self.end_reversed();
                self.drop(width);
                if c == '\u{202E}' {
                    self.copy_plain();
                    self.reversed = Some(self.out.len());
                }
            }
            Invisible::BidiMark => {
                // In left-to-right text an isolate or embedding has no work to do; marks are left by editors.
                let embeds = !matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}');
                if embeds && self.reversed.is_none() && self.last.is_some_and(|l| l.is_ascii_alphabetic()) {
                    self.note(Concealment::Bidi, width);
                }
                self.end_reversed();
                self.drop(width);
            }
            Invisible::Variation => {
                if let Some(byte) = variation_byte(c) {
                    self.bytes.push(byte);
                }
                if self.bytes.len() > 1 {
                    self.note(Concealment::VariationSelectors, width);
                }
                self.drop(width);
            }
            Invisible::Tag => {
                // A flag emoji is a black flag followed by tags.
                if self.last == Some('\u{1F3F4}') {
                    self.drop(width);
                    return;
                }
                self.note(Concealment::Tags, width);
                let plain = u8::try_from(u32::from(c) - 0xE0000).ok().map(char::from);
                match plain.filter(|p| p.is_ascii_graphic() || *p == ' ') {
                    Some(plain) => self.replace(width, |out| out.push(plain)),
                    None => self.drop(width),
                }
            }
        }
    }

    fn visible(&mut self, c: char) {
        self.flush_smuggled();
        self.last = Some(c);
        if composed_block(c) {
            self.at += c.len_utf8();
            return;
        }
        let mut first = None;
        let mut more = false;
        decompose_compatible(c, |d| {
            if canonical_combining_class(d) != 0 {
                return;
            }
            more |= first.is_some();
            first = first.or(Some(d));
        });
        // Letters with diacritics keep them: only what compatibility folding changes is rewritten.
        if first == Some(c) || first.is_none() || (!more && canonical_only(c)) {
            self.at += c.len_utf8();
            return;
        }
        if first.is_some_and(|f| f.is_ascii_alphanumeric()) && stylised(c) {
            self.note(Concealment::Compatibility, c.len_utf8());
        }
        self.replace(c.len_utf8(), |out| decompose_compatible(c, |d| out.push(d)));
    }

    fn keep(&mut self, c: char) {
        self.flush_smuggled();
        self.last = Some(c);
        self.at += c.len_utf8();
    }

    fn drop(&mut self, width: usize) {
        self.copy_plain();
        self.at += width;
        self.plain = self.at;
        self.map.mark(self.out.len(), self.at);
    }

    fn replace(&mut self, width: usize, write: impl FnOnce(&mut String)) {
        self.copy_plain();
        self.map.mark(self.out.len(), self.at);
        write(&mut self.out);
        self.at += width;
        self.plain = self.at;
        self.map.mark(self.out.len(), self.at);
    }

    fn copy_plain(&mut self) {
        if let Some(stretch) = self.source.get(self.plain..self.at).filter(|s| !s.is_empty()) {
            self.map.mark(self.out.len(), self.plain);
            self.out.push_str(stretch);
        }
        self.plain = self.at;
    }

    fn note(&mut self, way: Concealment, width: usize) {
        let span = self.at..self.at + width;
        match self.concealed.iter_mut().find(|c| c.way == way) {
            Some(known) => {
                known.count += 1;
                known.span.end = span.end;
            }
            None => self.concealed.push(Concealed { way, count: 1, span }),
        }
    }

    /// Text smuggled in runs of selectors or zero-width bits joins the revealed text as a line of its own.
    fn flush_smuggled(&mut self) {
        if self.bytes.len() < 4 && self.bits.len() < 32 {
            self.bytes.clear();
            self.bits.clear();
            return;
        }
        let packed = |bits: &[bool]| bits.iter().fold(0_u8, |byte, bit| (byte << 1) | u8::from(*bit));
        let from_bits = self.bits.chunks_exact(8).map(packed).collect::<Vec<_>>();
        for bytes in [std::mem::take(&mut self.bytes), from_bits] {
            let text = String::from_utf8(bytes).unwrap_or_default();
            let readable = text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').count();
            if readable >= 4 && readable * 10 >= text.len() * 8 {
                self.copy_plain();
                self.out.push('\n');
                self.out.push_str(&text);
                self.out.push('\n');
                self.map.mark(self.out.len(), self.at);
            }
        }
        self.bits.clear();
    }

    fn end_reversed(&mut self) {
        let Some(start) = self.reversed.take() else { return };
        self.copy_plain();
        let turned: String = self.out.get(start..).unwrap_or_default().chars().rev().collect();
        self.out.truncate(start);
        self.out.push_str(&turned);
    }

    fn finish(mut self) -> Revealed<'a> {
        let text = if self.plain == 0 && self.out.is_empty() {
            Cow::Borrowed(self.source)
        } else {
            self.copy_plain();
            Cow::Owned(self.out)
        };
        Revealed {
            text,
            map: self.map,
            concealed: self.concealed,
        }
    }
}

static SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x80;
    while byte < 256 {
        table[byte] = true;
        byte += 1;
    }
    table[0x1B] = true;
    table[b'&' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'%' as usize] = true;
    table
};

/// Blocks whose characters are never changed by compatibility folding: the common ones of other scripts.
fn composed_block(c: char) -> bool {
    matches!(c, '\u{400}'..='\u{52F}' | '\u{3041}'..='\u{309A}' | '\u{30A1}'..='\u{30FE}' | '\u{3400}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}')
}

fn canonical_only(c: char) -> bool {
    let mut same = true;
    let mut canonical = Vec::with_capacity(4);
    unicode_normalization::char::decompose_canonical(c, |d| canonical.push(d));
    let mut at = canonical.into_iter();
    decompose_compatible(c, |d| same &= at.next() == Some(d));
    same && at.next().is_none()
}

/// Alphabets that only serve to look different; superscripts, ligatures, units and fractions are ordinary.
fn stylised(c: char) -> bool {
    matches!(c, '\u{FF01}'..='\u{FF5E}' | '\u{1D400}'..='\u{1D7FF}' | '\u{2460}'..='\u{24FF}' | '\u{1F100}'..='\u{1F1FF}' | '\u{2100}'..='\u{214F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(text: &str) -> Vec<Concealment> {
        reveal(text).concealed.into_iter().map(|c| c.way).collect()
    }

    #[test]
    fn plain_text_is_borrowed() {
        for text in [
            "plain",
            "Übersetzt Text ins Deutsche.",
            "检索文档",
            "",
            "a & b, 5 % of \\n",
        ] {
            assert!(matches!(reveal(text).text, Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn each_way_of_hiding_is_undone_and_named() {
        let tags: String = "send"
            .chars()
            .filter_map(|c| char::from_u32(0xE0000 + u32::from(c)))
            .collect();
        assert_eq!(reveal(&tags).text, "send");
        assert_eq!(ways(&tags), [Concealment::Tags]);
        assert_eq!(reveal("s\u{200B}e\u{200B}nd").text, "send");
        assert_eq!(ways("s\u{200B}e\u{200B}nd"), [Concealment::ZeroWidth]);
        assert_eq!(reveal("\u{1b}[8msend\u{1b}[0m").text, "send");
        assert_eq!(ways("\u{1b}[8msend\u{1b}[0m"), [Concealment::Terminal]);
        assert_eq!(reveal("&#115;&#101;nd").text, "send");
        assert_eq!(ways("&#115;&#101;nd"), [Concealment::Escapes]);
        assert_eq!(reveal("ｓｅｎｄ 𝗌𝖾𝗇𝖽").text, "send send");
        assert_eq!(ways("ｓｅｎｄ"), [Concealment::Compatibility]);
        assert_eq!(reveal("ok \u{202E}dnes\u{202C} ok").text, "ok send ok");
        assert_eq!(ways("\u{202E}dnes"), [Concealment::Bidi]);
    }

    #[test]
    fn smuggled_bytes_and_bits_are_read() {
        let selectors: String = b"send it"
            .iter()
            .filter_map(|b| {
                if *b < 16 {
                    None
                } else {
                    char::from_u32(0xE0100 + u32::from(*b) - 16)
                }
            })
            .collect();
        assert!(reveal(&format!("x{selectors}y")).text.contains("send it"));
        let bits: String = b"send"
            .iter()
            .flat_map(|b| {
                (0..8)
                    .rev()
                    .map(move |i| if b >> i & 1 == 1 { '\u{200C}' } else { '\u{200B}' })
            })
            .collect();
        assert!(reveal(&format!("x{bits}y")).text.contains("send"));
    }

    #[test]
    fn ordinary_writing_hides_nothing() {
        for text in [
            "emoji 👩\u{200D}💻 and 👍🏽 and ❤\u{FE0F}",
            "می\u{200C}تواند فایل\u{200C}ها",
            "يعيد حالة الطقس \u{200F}والتاريخ\u{200F}.",
            "हिन्दी पाठ",
            "so\u{AD}ft hy\u{AD}phen",
            "\u{FEFF}with a mark",
            "σ² and ½ and ﬁne … “quoted”",
            "https://example.com/a%20b?c=%2Fd",
            "🏴\u{E0067}\u{E0062}\u{E0065}\u{E006E}\u{E0067}\u{E007F}",
        ] {
            assert_eq!(ways(text), [], "{text}");
        }
    }

    #[test]
    fn spans_lead_back_to_the_original() {
        let source = "ab\u{200B}cd&#101;f";
        let shown = reveal(source);
        assert_eq!(shown.text, "abcdef");
        let at = shown.text.find("cd").unwrap_or(0);
        assert_eq!(shown.map.original_range(at..at + 2, source.len()), 5..7);
        let at = shown.text.find('f').unwrap_or(0);
        assert_eq!(shown.map.original_range(at..at + 1, source.len()), 13..14);
    }

    #[test]
    fn stripping_keeps_the_rest() {
        assert_eq!(strip_invisible("gh\u{200B}p_\u{2060}x"), "ghp_x");
        assert!(matches!(strip_invisible("ghp_x"), Cow::Borrowed(_)));
    }
}
