//! Which ASCII character another character imitates (UTS 39 confusables).

use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_security::confusable_detection::skeleton;

// The scripts and blocks whose letters pass for Latin ones in running text. Compatibility letters (full-width,
// mathematical) are undone by NFKC before this is asked.
const BLOCKS: [std::ops::RangeInclusive<u32>; 7] = [
    0x180..=0x24F,
    0x250..=0x2AF,
    0x370..=0x3FF,
    0x400..=0x52F,
    0x531..=0x587,
    0x13A0..=0x13FF,
    0x1D00..=0x1D7F,
];

static TABLE: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    BLOCKS
        .into_iter()
        .flatten()
        .filter_map(char::from_u32)
        .filter_map(|c| {
            let mut buffer = [0; 4];
            let mut shape = skeleton(c.encode_utf8(&mut buffer));
            let ascii = shape.next()?;
            (shape.next().is_none() && ascii.is_ascii_graphic()).then_some(())?;
            Some((c, u8::try_from(ascii).ok()?))
        })
        // Small letters that UTS 39 maps to nothing in ASCII, yet read as ASCII in a word.
        .chain([
            ('к', b'k'),
            ('т', b't'),
            ('в', b'b'),
            ('м', b'm'),
            ('н', b'h'),
            ('п', b'n'),
            ('κ', b'k'),
            ('τ', b't'),
            ('ε', b'e'),
            ('ι', b'i'),
            ('η', b'n'),
            ('ω', b'w'),
            ('μ', b'u'),
            ('ь', b'b'),
            ('Ь', b'b'),
            ('г', b'r'),
            ('и', b'u'),
        ])
        .collect()
});

/// The ASCII character that `c` (not ASCII itself) passes for; none where it looks like no ASCII character.
pub fn lookalike(c: char) -> Option<char> {
    TABLE.get(&c).copied().map(char::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cyrillic_and_greek_pass_for_latin() {
        let imitated: String = "аеорсіѕοκɡ".chars().filter_map(lookalike).collect();
        assert_eq!(imitated, "aeopcisokg");
        assert_eq!(lookalike('ж'), None);
        assert_eq!(lookalike('漢'), None);
    }
}
