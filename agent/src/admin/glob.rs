//! Globs for filters: `*` is any run of characters, `?` one character, everything else itself.

/// Whether the whole of `text` matches. Time is at most the product of the lengths.
pub(super) fn matches(glob: &str, text: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut g, mut t) = (0, 0);
    // Where to go back to: after the last star, and how much of the text it covers.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g + 1, t));
                g += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match star {
                Some((after, covered)) => {
                    star = Some((after, covered + 1));
                    g = after;
                    t = covered + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_marks() {
        for (glob, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("npm:@corp/*", "npm:@corp/x", true),
            ("npm:@corp/*", "npm:@corp", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*b*", "aXbY", true),
            ("*ab", "aab", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("日*", "日本", true),
        ] {
            assert_eq!(matches(glob, text), expected, "{glob} {text}");
        }
    }
}
