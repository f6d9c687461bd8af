//! Path globs: `*` and `?` stay within one path component, `**` crosses components.
//!
//! Matching keeps at most two points to go back to, so its cost is bounded by pattern length times path length,
//! whatever the pattern.

/// A compiled pattern.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Glob {
    tokens: Vec<Token>,
    last_component: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Token {
    Byte(u8),
    One,
    Star,
    Deep,
}

impl Glob {
    /// Longest pattern taken, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Compiles a pattern. None when it is empty or longer than [`Glob::MAX_LEN`].
    pub fn new(pattern: &str) -> Option<Self> {
        if pattern.is_empty() || pattern.len() > Self::MAX_LEN {
            return None;
        }
        let mut tokens = Vec::with_capacity(pattern.len());
        let mut bytes = pattern.bytes().peekable();
        while let Some(b) = bytes.next() {
            match b {
                b'*' if bytes.peek() == Some(&b'*') => {
                    while bytes.next_if_eq(&b'*').is_some() {}
                    tokens.push(Token::Deep);
                }
                b'*' => tokens.push(Token::Star),
                b'?' => tokens.push(Token::One),
                b => tokens.push(Token::Byte(b)),
            }
        }
        let last_component = pattern
            .rsplit('/')
            .next()
            .filter(|last| pattern.contains('/') && !last.is_empty() && !last.contains(['*', '?']))
            .map(str::to_owned);
        Some(Self {
            tokens,
            last_component,
        })
    }

    /// Compiles a pattern for a text that is no path: `*` matches everything, slashes included.
    pub fn of_text(pattern: &str) -> Option<Self> {
        let mut glob = Self::new(pattern)?;
        for token in &mut glob.tokens {
            if *token == Token::Star {
                *token = Token::Deep;
            }
        }
        glob.last_component = None;
        Some(glob)
    }

    /// The literal last component of the pattern, where it has one: a path that ends otherwise cannot match.
    pub fn last_component(&self) -> Option<&str> {
        self.last_component.as_deref()
    }

    /// Whether the whole of `path` matches.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.as_bytes();
        let (mut t, mut p) = (0, 0);
        // Where to go back to: the token after the star, and the byte it would take next.
        let mut star: Option<(usize, usize)> = None;
        let mut deep: Option<(usize, usize)> = None;
        loop {
            let here = path.get(p).copied();
            match (self.tokens.get(t), here) {
                (None, None) => return true,
                (Some(Token::Deep), _) => {
                    deep = Some((t + 1, p));
                    star = None;
                    t += 1;
                    continue;
                }
                (Some(Token::Star), _) => {
                    star = Some((t + 1, p));
                    t += 1;
                    continue;
                }
                (Some(Token::Byte(want)), Some(have)) if *want == have => {
                    t += 1;
                    p += 1;
                    continue;
                }
                (Some(Token::One), Some(have)) if have != b'/' => {
                    t += 1;
                    p += 1;
                    continue;
                }
                _ => {}
            }
            if let Some((back, at)) = star
                && path.get(at).is_some_and(|b| *b != b'/')
            {
                star = Some((back, at + 1));
                (t, p) = (back, at + 1);
            } else if let Some((back, at)) = deep
                && at < path.len()
            {
                star = None;
                deep = Some((back, at + 1));
                (t, p) = (back, at + 1);
            } else {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_respect_components() {
        let table = [
            ("/usr/bin/*", "/usr/bin/claude", true),
            ("/usr/bin/*", "/usr/bin/x/claude", false),
            ("**/claude", "/home/u/.local/bin/claude", true),
            ("**/claude", "/home/u/.local/bin/claude2", false),
            (
                "**/node_modules/@google/gemini-cli/**",
                "/l/node_modules/@google/gemini-cli/dist/i.js",
                true,
            ),
            (
                "**/claude/versions/*",
                "/home/u/.local/share/claude/versions/2.1.197",
                true,
            ),
            (
                "**/claude/versions/*",
                "/home/u/.local/share/claude/versions/2/x",
                false,
            ),
            ("**/a*/b", "/x/a1/c/a2/b", true),
            ("/opt/?ode/code", "/opt/code/code", true),
            ("/opt/?/code", "/opt///code", false),
            ("a**b", "a/x/y/b", true),
            ("*", "", true),
        ];
        for (pattern, path, expected) in table {
            assert_eq!(
                Glob::new(pattern).unwrap().matches(path),
                expected,
                "{pattern} on {path}"
            );
        }
    }

    /// The obvious exponential matcher, as the oracle.
    fn slow(tokens: &[Token], path: &[u8]) -> bool {
        match tokens.split_first() {
            None => path.is_empty(),
            Some((Token::Deep, rest)) => (0..=path.len()).any(|n| slow(rest, &path[n..])),
            Some((Token::Star, rest)) => (0..=path.len())
                .take_while(|n| !path[..*n].contains(&b'/'))
                .any(|n| slow(rest, &path[n..])),
            Some((Token::One, rest)) => path.first().is_some_and(|b| *b != b'/') && slow(rest, &path[1..]),
            Some((Token::Byte(b), rest)) => path.first() == Some(b) && slow(rest, &path[1..]),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_obvious_matcher(pattern in "[ab/*?]{1,8}", path in "[ab/]{0,10}") {
            let glob = Glob::new(&pattern).unwrap();
            prop_assert_eq!(glob.matches(&path), slow(&glob.tokens, path.as_bytes()));
        }
    }
}
