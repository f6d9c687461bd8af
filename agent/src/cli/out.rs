//! Standard output: form, colours, time zone.

use std::io::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use kams_export::jsonl;
use kams_export::view::Time;
use serde::Serialize;

use super::args::{Color, Form};

/// What stands at the other end of stdout.
#[derive(Clone, Debug)]
pub struct Terminal {
    /// A terminal.
    pub tty: bool,
    /// Colours are welcome there.
    pub color: bool,
    /// Zone of the times in tables.
    pub zone: TimeZone,
}

impl Terminal {
    /// The real one: NO_COLOR (any value but the empty one) and TERM=dumb switch colours off.
    pub fn of_stdout(tty: bool) -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self {
            tty,
            color: tty && !plain,
            zone: TimeZone::system(),
        }
    }

    /// A pipe.
    pub fn none() -> Self {
        Self {
            tty: false,
            color: false,
            zone: TimeZone::UTC,
        }
    }
}

/// Colours by meaning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ink {
    Plain,
    Good,
    Odd,
    Bad,
    Faint,
    Strong,
}

/// Standard output.
pub struct Out {
    to: Box<dyn Write + Send>,
    terminal: Terminal,
    form: Form,
}

impl Out {
    /// Writes to `to`, for `terminal`.
    pub fn new(to: Box<dyn Write + Send>, terminal: Terminal) -> Self {
        Self {
            to,
            terminal,
            form: Form::Table,
        }
    }

    /// Takes over what the command line asks for.
    pub(super) fn prefer(&mut self, color: Color, form: Form) {
        self.form = form;
        match color {
            Color::Auto => {}
            Color::Always => self.terminal.color = true,
            Color::Never => self.terminal.color = false,
        }
    }

    pub(super) fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    /// `text` in its colour. The text must be safe to print.
    pub(super) fn ink(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            _ if !self.terminal.color => return text.to_owned(),
            Ink::Plain => return text.to_owned(),
            Ink::Good => "32",
            Ink::Odd => "33",
            Ink::Bad => "31",
            Ink::Faint => "2",
            Ink::Strong => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A time of day in the reader's zone, with milliseconds.
    pub(super) fn clock(&self, time: Time) -> String {
        self.time(time, "%H:%M:%S%.3f")
    }

    /// Date and time in the reader's zone.
    pub(super) fn date(&self, time: Time) -> String {
        self.time(time, "%Y-%m-%d %H:%M:%S")
    }

    fn time(&self, time: Time, format: &str) -> String {
        let stamp = Timestamp::from_nanosecond(i128::from(time.unix_nanos())).unwrap_or_default();
        stamp
            .to_zoned(self.terminal.zone.clone())
            .strftime(format)
            .to_string()
    }

    /// A line of a table or a text.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        self.to.write_all(line.as_bytes())?;
        self.to.write_all(b"\n")
    }

    /// One document: indented on a terminal, on one line for programs.
    pub(super) fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> io::Result<()> {
        let bytes = if self.terminal.tty {
            jsonl::pretty(value)
        } else {
            jsonl::line(value)
        };
        self.to.write_all(&bytes?)
    }

    /// One record on one line.
    pub(super) fn json_line<T: Serialize + ?Sized>(&mut self, value: &T) -> io::Result<()> {
        self.to.write_all(&jsonl::line(value)?)
    }

    /// Bytes as they are: pages and completions.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
