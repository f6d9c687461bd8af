//! What is wrong with a policy file, and where.

use std::fmt;

use crate::tree::Place;

/// Most problems reported for one file; the rest is counted in one last line.
pub(crate) const MAX_PROBLEMS: usize = 200;

/// Longest excerpt, in characters.
const EXCERPT: usize = 120;

/// Whether a problem stops the file from loading.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// The file is refused.
    Error,
    /// The file loads; a person should look.
    Warning,
}

/// One problem with its place. Its `Display` form is several lines: place and message, the line with a mark
/// under the column, and the suggestion.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// File name as the caller gave it.
    pub file: String,
    /// Whether it stops the file from loading.
    pub level: Level,
    /// 1-based line; 0 when the problem has no place.
    pub line: u32,
    /// 1-based column in characters.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// What to write instead, where that is known.
    pub suggestion: Option<String>,
    /// The line itself, cut to 120 characters around the column.
    pub excerpt: String,
    /// Column of the mark within the excerpt, 1-based.
    mark: u32,
    /// Width of the mark.
    width: u32,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Error => "error",
            Level::Warning => "warning",
        };
        if self.line == 0 {
            write!(f, "{}: {level}: {}", self.file, self.message)?;
        } else {
            write!(
                f,
                "{}:{}:{}: {level}: {}",
                self.file, self.line, self.column, self.message
            )?;
            let number = self.line.to_string();
            let pad = " ".repeat(number.len());
            let lead = " ".repeat(self.mark.saturating_sub(1) as usize);
            let mark = "^".repeat(self.width.max(1) as usize);
            write!(f, "\n  {number} | {}\n  {pad} | {lead}{mark}", self.excerpt)?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, "\n  help: {suggestion}")?;
        }
        Ok(())
    }
}

/// A text with its lines, to make problems from.
pub(crate) struct Source<'t> {
    pub(crate) name: &'t str,
    pub(crate) text: &'t str,
}

impl Source<'_> {
    /// The problem at `place`.
    pub(crate) fn problem(
        &self,
        level: Level,
        place: Place,
        message: String,
        suggestion: Option<String>,
    ) -> Problem {
        let line = match place.line {
            0 => "",
            n => self.text.lines().nth(n as usize - 1).unwrap_or(""),
        };
        let column = place.column.max(1) as usize;
        // A long line is shown around the column, so that the mark is always in view.
        let from = column.saturating_sub(EXCERPT * 2 / 3);
        let from = if line.chars().count() <= EXCERPT { 0 } else { from };
        let excerpt: String = line
            .chars()
            .skip(from)
            .take(EXCERPT)
            .map(|c| if acts(c) { ' ' } else { c })
            .collect();
        let mark = u32::try_from(column - from.min(column - 1)).unwrap_or(1);
        let left = u32::try_from(excerpt.chars().count()).unwrap_or(0);
        let width = place
            .width
            .clamp(1, left.saturating_sub(mark.saturating_sub(1)).max(1));
        Problem {
            file: self.name.to_owned(),
            level,
            line: place.line,
            column: place.column,
            message: shown(message),
            suggestion: suggestion.map(shown),
            excerpt,
            mark,
            width,
        }
    }

    /// The text between two byte offsets of the source.
    pub(crate) fn slice(&self, place: Place) -> Option<&str> {
        let (start, len) = place.bytes?;
        self.text
            .get(start as usize..(start as usize).checked_add(len as usize)?)
    }
}

/// Whether a character does something to a terminal instead of being seen.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text in which all is seen; line breaks stay, since parsers write some.
fn shown(text: String) -> String {
    if !text.contains(|c| acts(c) && c != '\n') {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) && c != '\n' {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// The nearest of `candidates`, when it is near enough to be a slip of the keyboard.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // Long words are no slips, and the distance is quadratic.
    if word.chars().count() > 64 {
        return None;
    }
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .map(|c| (distance(&lower, &c.to_lowercase()), c))
        .filter(|(d, c)| *d <= (c.chars().count().max(3) / 3).max(1))
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Edits between two words, a swap of neighbours counting as one.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &cb) in b.iter().enumerate() {
            let change = last[j] + usize::from(ca != cb);
            let mut best = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && ca == b[j - 1] && a[i - 1] == cb {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, column: u32, width: u32) -> Place {
        Place {
            line,
            column,
            width,
            bytes: None,
        }
    }

    #[test]
    fn shows_the_place() {
        let source = Source {
            name: "p.yaml",
            text: "version: 1\nmoed: enforce\n",
        };
        let problem = source.problem(
            Level::Error,
            at(2, 1, 4),
            "unknown key `moed`".into(),
            Some("did you mean `mode`?".into()),
        );
        assert_eq!(
            problem.to_string(),
            "p.yaml:2:1: error: unknown key `moed`\n  2 | moed: enforce\n    | ^^^^\n  help: did you mean `mode`?"
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_mark() {
        let text = format!("{}X{}", "a".repeat(5000), "b".repeat(5000));
        let source = Source {
            name: "p",
            text: &text,
        };
        let problem = source.problem(Level::Error, at(1, 5001, 1), String::new(), None);
        assert!(problem.excerpt.chars().count() <= EXCERPT);
        let marked = problem.excerpt.chars().nth(problem.mark as usize - 1);
        assert_eq!(marked, Some('X'));
    }

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        assert_eq!(nearest("moed", ["mode", "fail"]), Some("mode"));
        assert_eq!(nearest("aws_keys", ["aws_key", "jwt"]), Some("aws_key"));
        assert_eq!(nearest("banana", ["mode", "fail"]), None);
    }
}
