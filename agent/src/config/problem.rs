//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use kams_export::text::visible;

/// One problem, with a place where there is one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    file: Option<PathBuf>,
    line: u32,
    column: u32,
    excerpt: Option<String>,
    message: String,
    help: Option<String>,
}

/// Every problem that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problems(pub Vec<Problem>);

impl Problem {
    /// A problem that belongs to no file.
    pub(super) fn bare(message: String, help: Option<String>) -> Self {
        Self {
            file: None,
            line: 0,
            column: 0,
            excerpt: None,
            message,
            help,
        }
    }

    /// A problem with a file as a whole.
    pub(super) fn of_file(file: &Path, message: String, help: Option<String>) -> Self {
        Self {
            file: Some(file.to_owned()),
            ..Self::bare(message, help)
        }
    }

    /// A problem at a line and column of a file's text, both from 1.
    pub(super) fn at(
        file: &Path,
        text: &str,
        line: u32,
        column: u32,
        message: String,
        help: Option<String>,
    ) -> Self {
        let index = usize::try_from(line).unwrap_or(usize::MAX).checked_sub(1);
        Self {
            line,
            column,
            excerpt: index.and_then(|i| text.lines().nth(i)).map(excerpt),
            ..Self::of_file(file, message, help)
        }
    }

    pub(super) fn place(&self) -> (Option<&Path>, u32, u32) {
        (self.file.as_deref(), self.line, self.column)
    }

    /// What is wrong, without its place.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Line, from 1; 0 where the problem has none.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Column, from 1; 0 where the problem has none.
    pub fn column(&self) -> u32 {
        self.column
    }

    /// What to do.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// The line as it may be shown: safe to print, not too long, and without the value of anything that sounds
/// like a secret, since excerpts end up in logs.
fn excerpt(line: &str) -> String {
    let shown = match line.split_once(':') {
        Some((key, value)) if !value.trim().is_empty() && is_secret(key) => format!("{key}: ***"),
        _ => line.to_owned(),
    };
    visible(&shown.replace('\t', " ")).chars().take(120).collect()
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    [
        "token",
        "secret",
        "passw",
        "api_key",
        "apikey",
        "credential",
        "private",
        "auth",
    ]
    .iter()
    .any(|word| key.contains(word))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error: ")?;
        if let Some(file) = &self.file {
            write!(f, "{}", visible(&file.to_string_lossy()))?;
            if self.line > 0 {
                write!(f, ":{}:{}", self.line, self.column)?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.message)?;
        if let Some(excerpt) = &self.excerpt {
            let number = self.line.to_string();
            let gutter = " ".repeat(number.len());
            let column = usize::try_from(self.column).unwrap_or(1).max(1);
            write!(f, "\n  {number} | {excerpt}\n  {gutter} | {:>column$}", '^')?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
