//! Simple scrambling of a token that has a published prefix: reversed, rot13, spread by spaces, broken over lines.
//!
//! The prefilter looks for the scrambled prefixes too (`_phg`, `tuc_`, `g h p _`), so a text without them costs
//! nothing here.

use super::span::Step;

/// How a text is scrambled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scramble {
    /// Last character first.
    Reversed,
    /// Letters moved by 13.
    Rot13,
    /// A space between any two characters.
    Spread,
    /// Line ends inside.
    Broken,
}

impl Scramble {
    /// Every kind.
    pub(crate) const ALL: [Self; 4] = [Self::Reversed, Self::Rot13, Self::Spread, Self::Broken];
}

/// Longest text that is unscrambled.
pub(crate) const MAX_TEXT: usize = 65_536;

/// The text without the scrambling.
pub(crate) fn undo(text: &[u8], scramble: Scramble) -> Vec<u8> {
    match scramble {
        Scramble::Reversed => text.iter().rev().copied().collect(),
        Scramble::Rot13 => text.iter().map(|b| rot13(*b)).collect(),
        Scramble::Spread | Scramble::Broken => {
            let mut out = Vec::with_capacity(text.len());
            for step in steps(text, scramble) {
                if step.verbatim {
                    out.extend_from_slice(text.get(step.source).unwrap_or_default());
                }
            }
            out
        }
    }
}

/// The way back for [`Scramble::Spread`] and [`Scramble::Broken`]: bytes kept, bytes left out.
pub(crate) fn steps(text: &[u8], scramble: Scramble) -> impl Iterator<Item = Step> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        text.get(start)?;
        if left_out(text, start, scramble) {
            at += 1;
            return Some(Step {
                source: start..at,
                written: 0,
                verbatim: false,
            });
        }
        while at < text.len() && !left_out(text, at, scramble) {
            at += 1;
        }
        Some(Step {
            source: start..at,
            written: at - start,
            verbatim: true,
        })
    })
}

/// Whether the byte at `at` was put in by the scrambling.
fn left_out(text: &[u8], at: usize, scramble: Scramble) -> bool {
    let solid = |i: Option<usize>| {
        i.and_then(|i| text.get(i))
            .is_some_and(|b| !b.is_ascii_whitespace())
    };
    let breaks = |i: usize| matches!(text.get(i), Some(b'\n' | b'\r'));
    match scramble {
        // A space between two single characters.
        Scramble::Spread => {
            text.get(at) == Some(&b' ')
                && solid(at.checked_sub(1))
                && !solid(at.checked_sub(2))
                && solid(at.checked_add(1))
                && !solid(at.checked_add(2))
        }
        // A line end, the indentation behind it, the mark of continuation before it.
        Scramble::Broken => match text.get(at) {
            Some(b'\n' | b'\r') => true,
            Some(b' ' | b'\t') => {
                let before = text.get(at.saturating_sub(16)..at).unwrap_or_default();
                let indent = before
                    .iter()
                    .rev()
                    .take_while(|b| matches!(b, b' ' | b'\t'))
                    .count();
                at.checked_sub(indent + 1).is_some_and(breaks)
            }
            Some(b'=' | b'\\') => breaks(at + 1),
            _ => false,
        },
        Scramble::Reversed | Scramble::Rot13 => false,
    }
}

const fn rot13(byte: u8) -> u8 {
    match byte {
        b'a'..=b'm' | b'A'..=b'M' => byte + 13,
        b'n'..=b'z' | b'N'..=b'Z' => byte - 13,
        _ => byte,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrambling_is_undone() {
        for (scramble, hidden, shown) in [
            (Scramble::Reversed, "cba_phg", "ghp_abc"),
            (Scramble::Rot13, "tuc_NoP9", "ghp_AbC9"),
            (Scramble::Spread, "use g h p _ a 1 now", "use ghp_a1 now"),
            (Scramble::Broken, "ghp_ab\n  cd=\nef", "ghp_abcdef"),
        ] {
            assert_eq!(
                undo(hidden.as_bytes(), scramble),
                shown.as_bytes(),
                "{scramble:?}"
            );
        }
    }

    #[test]
    fn steps_cover_the_text() {
        for scramble in [Scramble::Spread, Scramble::Broken] {
            let text = b"a b c\n d =\r\n e  f";
            let mut at = 0;
            for step in steps(text, scramble) {
                assert_eq!(step.source.start, at);
                at = step.source.end;
            }
            assert_eq!(at, text.len());
        }
    }
}
