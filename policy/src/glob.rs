//! Patterns: `*` is any run of characters, `?` any one character, `\` takes the next one as it stands.

use std::fmt;

/// Longest pattern, in bytes.
pub(crate) const MAX_LEN: usize = 512;

/// A compiled pattern. It matches a whole text, letter case counts, and matching costs at most
/// (length of pattern) x (length of text) steps: no backtracking beyond the last star.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Glob {
    text: Box<str>,
    parts: Box<[Part]>,
}

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
enum Part {
    Char(char),
    One,
    Any,
}

impl Glob {
    /// Compiles a pattern; every text is one. Patterns over 512 bytes are refused where they are loaded.
    pub fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' if parts.last() == Some(&Part::Any) => continue,
                '*' => Part::Any,
                '?' => Part::One,
                '\\' => Part::Char(chars.next().unwrap_or('\\')),
                c => Part::Char(c),
            });
        }
        Self {
            text: text.into(),
            parts: parts.into(),
        }
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        let mut part = 0;
        let mut rest = text.chars();
        // Where to go on after the last star: its part, and the text it has not yet taken.
        let mut star: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            let before = rest.clone();
            match (self.parts.get(part), rest.next()) {
                (Some(Part::Any), _) => {
                    star = Some((part + 1, before.clone()));
                    rest = before;
                    part += 1;
                }
                (Some(Part::One), Some(_)) => part += 1,
                (Some(Part::Char(c)), Some(d)) if *c == d => part += 1,
                (None, None) => return true,
                _ => {
                    let Some((next, taken)) = &mut star else {
                        return false;
                    };
                    if taken.next().is_none() {
                        return false;
                    }
                    part = *next;
                    rest = taken.clone();
                }
            }
        }
    }

    /// The one text it matches, when it holds no wildcard.
    pub(crate) fn literal(&self) -> Option<String> {
        self.parts
            .iter()
            .map(|p| match p {
                Part::Char(c) => Some(*c),
                Part::One | Part::Any => None,
            })
            .collect()
    }

    /// Whether it matches every text.
    pub(crate) fn is_any(&self) -> bool {
        matches!(*self.parts, [Part::Any])
    }

    /// The longest text between wildcards: a part of whatever matches. Empty where there is none.
    pub(crate) fn part(&self) -> String {
        let runs = self.parts.split(|part| !matches!(part, Part::Char(_)));
        let length = |run: &[Part]| {
            let chars = run.iter().map(|part| match part {
                Part::Char(c) => c.len_utf8(),
                Part::One | Part::Any => 0,
            });
            chars.sum::<usize>()
        };
        let longest = runs.max_by_key(|run| length(run)).unwrap_or_default();
        longest
            .iter()
            .filter_map(|part| match part {
                Part::Char(c) => Some(*c),
                Part::One | Part::Any => None,
            })
            .collect()
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Glob({:?})", self.text)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_whole_texts() {
        for (glob, yes, no) in [
            ("npm:@corp/*", "npm:@corp/mail", "npm:@corpo/mail"),
            ("*_key", "aws_key", "aws_keys"),
            ("a*b*c", "aXbYbc", "aXc"),
            ("a?c", "aéc", "ac"),
            (r"50\*", "50*", "500"),
            ("**", "", "never"),
        ] {
            assert!(Glob::new(glob).matches(yes), "{glob} {yes}");
            if glob != "**" {
                assert!(!Glob::new(glob).matches(no), "{glob} {no}");
            }
        }
    }

    #[test]
    fn many_stars_stay_cheap() {
        let glob = Glob::new(&"a*".repeat(200));
        assert!(!glob.matches(&format!("{}b", "a".repeat(199))));
        assert!(!Glob::new("*a*a*a*a*a*a*a*a*b").matches(&"a".repeat(20_000)));
    }

    proptest! {
        #[test]
        fn a_text_matches_itself_escaped(text in "\\PC{0,40}") {
            let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
            prop_assert!(Glob::new(&escaped).matches(&text));
            prop_assert_eq!(Glob::new(&escaped).literal(), Some(text));
        }

        #[test]
        fn agrees_with_a_slow_definition(glob in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn slow(g: &[char], t: &[char]) -> bool {
                match g.split_first() {
                    None => t.is_empty(),
                    Some(('*', rest)) => (0..=t.len()).any(|i| slow(rest, &t[i..])),
                    Some(('?', rest)) => !t.is_empty() && slow(rest, &t[1..]),
                    Some((c, rest)) => t.first() == Some(c) && slow(rest, &t[1..]),
                }
            }
            let g: Vec<char> = glob.chars().collect();
            let t: Vec<char> = text.chars().collect();
            prop_assert_eq!(Glob::new(&glob).matches(&text), slow(&g, &t));
        }
    }
}
