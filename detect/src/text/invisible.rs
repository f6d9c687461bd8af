//! Characters that leave no mark on the screen, and the places where they are honest.

/// What kind of invisible character this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Invisible {
    /// Unicode tag characters (U+E0000 block): ASCII in disguise.
    Tag,
    /// Zero-width spaces, joiners, fillers and invisible operators.
    ZeroWidth,
    /// Soft hyphen: honest in running text.
    SoftHyphen,
    /// Overrides of the writing direction (U+202D, U+202E).
    BidiOverride,
    /// Embeddings, isolates and marks of the writing direction.
    BidiMark,
    /// Variation selectors.
    Variation,
}

/// Classifies an invisible character; none for everything that shows or is white space.
pub fn invisible(c: char) -> Option<Invisible> {
    Some(match c {
        '\u{AD}' => Invisible::SoftHyphen,
        '\u{34F}'
        | '\u{115F}'
        | '\u{1160}'
        | '\u{17B4}'
        | '\u{17B5}'
        | '\u{180E}'
        | '\u{200B}'..='\u{200D}'
        | '\u{2060}'..='\u{2064}'
        | '\u{206A}'..='\u{206F}'
        | '\u{3164}'
        | '\u{FEFF}'
        | '\u{FFA0}'
        | '\u{1D173}'..='\u{1D17A}' => Invisible::ZeroWidth,
        '\u{202D}' | '\u{202E}' => Invisible::BidiOverride,
        '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202C}' | '\u{2066}'..='\u{2069}' => {
            Invisible::BidiMark
        }
        '\u{180B}'..='\u{180D}' | '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}' => Invisible::Variation,
        '\u{E0000}'..='\u{E007F}' => Invisible::Tag,
        _ => return None,
    })
}

/// Whether a zero-width character is part of ordinary writing between these neighbours: emoji sequences,
/// Arabic and Indic joiners, line-break hints in scripts without spaces, a byte-order mark at the start.
pub(super) fn ordinary(c: char, before: Option<char>, after: Option<char>) -> bool {
    match c {
        '\u{FEFF}' => before.is_none(),
        '\u{200C}' | '\u{200D}' => {
            let joins = |n: Option<char>| n.is_some_and(|n| joining_script(n) || pictograph(n));
            joins(before) || joins(after)
        }
        '\u{200B}' | '\u{2060}' => {
            let spaceless = |n: Option<char>| {
                n.is_some_and(|n| matches!(n, '\u{E00}'..='\u{109F}' | '\u{1780}'..='\u{17FF}' | '\u{3040}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7AF}'))
            };
            spaceless(before) || spaceless(after)
        }
        // Fillers and joiners that belong to Hangul, Mongolian and Khmer writing.
        '\u{115F}' | '\u{1160}' => after.is_some_and(|n| matches!(n, '\u{1100}'..='\u{11FF}')),
        '\u{180E}' => before.is_some_and(|n| matches!(n, '\u{1800}'..='\u{18AF}')),
        _ => false,
    }
}

/// The byte that a variation selector can smuggle (selector number minus one).
pub(super) fn variation_byte(c: char) -> Option<u8> {
    match c {
        '\u{FE00}'..='\u{FE0F}' => u8::try_from(u32::from(c) - 0xFE00).ok(),
        '\u{E0100}'..='\u{E01EF}' => u8::try_from(u32::from(c) - 0xE0100 + 16).ok(),
        _ => None,
    }
}

fn joining_script(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{8FF}' | '\u{900}'..='\u{DFF}' | '\u{1000}'..='\u{109F}' | '\u{1780}'..='\u{18AF}' | '\u{FB50}'..='\u{FDFF}' | '\u{FE70}'..='\u{FEFE}')
}

fn pictograph(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{2BFF}' | '\u{3030}' | '\u{303D}' | '\u{FE0F}' | '\u{1F000}'..='\u{1FAFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joiners_are_ordinary_where_writing_needs_them() {
        assert!(ordinary('\u{200D}', Some('\u{1F469}'), Some('\u{1F4BB}')));
        assert!(ordinary('\u{200C}', Some('\u{6CC}'), Some('\u{62A}')));
        assert!(ordinary('\u{FEFF}', None, Some('a')));
        assert!(!ordinary('\u{200B}', Some('i'), Some('g')));
        assert!(!ordinary('\u{FEFF}', Some('a'), Some('b')));
    }
}
