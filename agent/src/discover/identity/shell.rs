//! The command that `sh -c TEXT` ends in, read without running anything.
//!
//! Only what launch lines are made of is understood: quoting, `&&`, `;`, pipes, redirections, assignments, `$HOME`
//! and positional parameters. Whatever depends on the environment or on a substitution stays unknown.

/// Stands for text that only the running shell knows.
pub(super) const UNKNOWN: char = '\u{1}';

const MAX_TEXT: usize = 16 << 10;
const MAX_WORDS: usize = 256;

/// The main command of a shell text.
pub(super) struct Command {
    /// Program and arguments; unknown parts hold [`UNKNOWN`].
    pub(super) words: Vec<String>,
    /// Directory that a `cd` before it went to, as written.
    pub(super) cwd: Option<String>,
}

/// Commands that only prepare for the one that matters.
const PRELUDE: [&str; 20] = [
    "cd", "export", "source", ".", "set", "ulimit", "umask", "true", ":", "echo", "sleep", "test", "[",
    "unset", "alias", "trap", "shopt", "printf", "mkdir", "nvm",
];

/// The first command of `text` that is not preparation. None when there is none, when the text is too long, or when it
/// has control flow. `positional` are `$0`, `$1` and so on.
pub(super) fn main_command(text: &str, positional: &[String], home: &str) -> Option<Command> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let mut cwd = None;
    for words in split(text, positional, home)? {
        let start = words
            .iter()
            .position(|word| !is_assignment(word))
            .unwrap_or(words.len());
        let words = words.get(start..).unwrap_or_default();
        let Some(program) = words.first() else { continue };
        match program.as_str() {
            "cd" => cwd = words.get(1).cloned(),
            "if" | "for" | "while" | "until" | "case" | "function" | "[[" | "eval" => return None,
            word if PRELUDE.contains(&word) => {}
            word if word.contains(UNKNOWN) => return None,
            _ => {
                return Some(Command {
                    words: words.to_vec(),
                    cwd,
                });
            }
        }
    }
    None
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Simple commands of the text, each as its words.
fn split(text: &str, positional: &[String], home: &str) -> Option<Vec<Vec<String>>> {
    let mut reader = Reader {
        chars: text.chars().peekable(),
        positional,
        home,
    };
    let mut commands = vec![Vec::new()];
    let mut total = 0;
    loop {
        let Some(&c) = reader.chars.peek() else {
            return Some(commands);
        };
        match c {
            ' ' | '\t' | '\r' => {
                reader.chars.next();
            }
            '#' => while reader.chars.next_if(|c| *c != '\n').is_some() {},
            ';' | '&' | '|' | '\n' | '(' | ')' => {
                reader.chars.next();
                if commands.last().is_some_and(|words| !words.is_empty()) {
                    commands.push(Vec::new());
                }
            }
            '<' | '>' => {
                while reader
                    .chars
                    .next_if(|c| matches!(c, '<' | '>' | '&' | '|' | ' '))
                    .is_some()
                {}
                reader.word()?; // the file, or the descriptor after `>&`
            }
            _ => {
                let words = reader.word()?;
                // A number right before a redirection is a descriptor, and braces only group.
                let descriptor = matches!(reader.chars.peek(), Some('<' | '>'))
                    && words.iter().all(|word| word.bytes().all(|b| b.is_ascii_digit()));
                total += words.len();
                if total > MAX_WORDS {
                    return None;
                }
                if let (false, Some(command)) = (descriptor, commands.last_mut()) {
                    command.extend(words.into_iter().filter(|word| word != "{" && word != "}"));
                }
            }
        }
    }
}

struct Reader<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    positional: &'a [String],
    home: &'a str,
}

impl Reader<'_> {
    /// One word; several when it is `"$@"`. None on an open quote.
    fn word(&mut self) -> Option<Vec<String>> {
        let mut word = String::new();
        let mut list: Option<Vec<String>> = None;
        if self.chars.peek() == Some(&'~') {
            self.chars.next();
            word.push_str(if matches!(self.chars.peek(), None | Some('/' | ' ')) {
                self.home
            } else {
                "~"
            });
        }
        while let Some(&c) = self.chars.peek() {
            match c {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\'' => {
                    self.chars.next();
                    loop {
                        match self.chars.next()? {
                            '\'' => break,
                            c => word.push(c),
                        }
                    }
                }
                '"' => {
                    self.chars.next();
                    loop {
                        match self.chars.next()? {
                            '"' => break,
                            '\\' => match self.chars.next()? {
                                '\n' => {}
                                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                                c => word.extend(['\\', c]),
                            },
                            '$' => self.expand(&mut word, &mut list),
                            '`' => word.push(UNKNOWN),
                            c => word.push(c),
                        }
                    }
                }
                '\\' => {
                    self.chars.next();
                    match self.chars.next() {
                        Some('\n') | None => {}
                        Some(c) => word.push(c),
                    }
                }
                '$' => {
                    self.chars.next();
                    self.expand(&mut word, &mut list);
                }
                '`' => {
                    self.chars.next();
                    word.push(UNKNOWN);
                    while self.chars.next_if(|c| *c != '`').is_some() {}
                    self.chars.next();
                }
                c => {
                    self.chars.next();
                    word.push(c);
                }
            }
        }
        match list {
            Some(list) if word.is_empty() => Some(list),
            _ => Some(vec![word]),
        }
    }

    /// After `$`.
    fn expand(&mut self, word: &mut String, list: &mut Option<Vec<String>>) {
        let Some(&c) = self.chars.peek() else {
            word.push('$');
            return;
        };
        match c {
            '@' | '*' => {
                self.chars.next();
                *list = Some(self.positional.get(1..).unwrap_or_default().to_vec());
            }
            '0'..='9' => {
                self.chars.next();
                let at = c
                    .to_digit(10)
                    .and_then(|d| usize::try_from(d).ok())
                    .unwrap_or_default();
                match self.positional.get(at) {
                    Some(value) => word.push_str(value),
                    None => word.push(UNKNOWN),
                }
            }
            '(' => {
                let mut depth = 0_usize;
                for c in self.chars.by_ref() {
                    match c {
                        '(' => depth += 1,
                        ')' => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
                word.push(UNKNOWN);
            }
            '{' => {
                let name: String = self.chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                self.variable(&name, word);
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                self.variable(&name, word);
            }
            _ => word.push('$'),
        }
    }

    fn variable(&self, name: &str, word: &mut String) {
        if name == "HOME" {
            word.push_str(self.home);
        } else {
            word.push(UNKNOWN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn command(text: &str) -> Option<Vec<String>> {
        main_command(
            text,
            &["run".to_owned(), "npx".to_owned(), "pkg".to_owned()],
            "/home/u",
        )
        .map(|c| c.words)
    }

    #[test]
    fn launch_lines() {
        let table: [(&str, Option<&[&str]>); 14] = [
            ("mcp-server-everything", Some(&["mcp-server-everything"])),
            (
                "cd /srv && exec node 'my server.js'",
                Some(&["exec", "node", "my server.js"]),
            ),
            ("node server.js; true", Some(&["node", "server.js"])),
            ("A=1 B='x y' npx -y pkg 2>/dev/null", Some(&["npx", "-y", "pkg"])),
            ("npx -y pkg | tee log", Some(&["npx", "-y", "pkg"])),
            ("source ~/.nvm/nvm.sh && npx pkg", Some(&["npx", "pkg"])),
            ("exec \"$@\"", Some(&["exec", "npx", "pkg"])),
            (
                "$HOME/bin/srv --t \"$TOKEN\"",
                Some(&["/home/u/bin/srv", "--t", "\u{1}"]),
            ),
            ("~/bin/srv", Some(&["/home/u/bin/srv"])),
            ("\"$SERVER\" run", None),
            ("if true; then srv; fi", None),
            ("'open", None),
            ("", None),
            ("{ srv; }", Some(&["srv"])),
        ];
        for (text, expected) in table {
            let expected = expected.map(|words| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
            assert_eq!(command(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends(text in "[a-z$(){}'\"`;&|<> \\\\\n@0-9]{0,200}") {
            let _words = command(&text);
        }
    }
}
