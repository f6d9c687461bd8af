//! Aligned columns for a terminal.
//!
//! Cells hold text from servers: it is made safe here, at the one place where tables are made, so that no
//! renderer can forget it. Width is what a terminal shows, not bytes or characters.

use kams_export::text::visible;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::out::{Ink, Out};

/// One cell.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    ink: Ink,
}

impl Cell {
    /// A cell with any text.
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self {
            text: visible(text.as_ref()),
            ink: Ink::Plain,
        }
    }

    /// The same, coloured.
    pub(super) fn ink(mut self, ink: Ink) -> Self {
        self.ink = ink;
        self
    }
}

/// A number, or a dash where there is none.
pub(super) fn number(n: Option<impl ToString>) -> Cell {
    n.map_or_else(|| Cell::new("-").ink(Ink::Faint), |n| Cell::new(n.to_string()))
}

/// One column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    title: &'static str,
    right: bool,
    /// Widest a cell may be.
    most: usize,
    width: usize,
}

impl Column {
    pub(super) fn left(title: &'static str, most: usize) -> Self {
        Self {
            title,
            right: false,
            most,
            width: title.width(),
        }
    }

    pub(super) fn right(title: &'static str) -> Self {
        Self {
            title,
            right: true,
            most: 24,
            width: title.width(),
        }
    }

    /// Starts at this width: for streams, where later rows are not known yet.
    pub(super) fn at_least(mut self, width: usize) -> Self {
        self.width = self.width.max(width);
        self
    }
}

/// A table that grows its columns as rows come; rows already printed stay as they are.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
}

impl Table {
    pub(super) fn new(columns: Vec<Column>) -> Self {
        Self { columns }
    }

    /// The heading.
    pub(super) fn heading(&self, out: &Out) -> String {
        let titles = self.columns.iter().map(|c| Cell::new(c.title).ink(Ink::Strong));
        self.layout(&titles.collect::<Vec<_>>(), out)
    }

    /// One row; widens columns that it does not fit into.
    pub(super) fn row(&mut self, cells: &[Cell], out: &Out) -> String {
        self.fit(cells);
        self.layout(cells, out)
    }

    /// Heading and rows together.
    pub(super) fn all(&mut self, rows: &[Vec<Cell>], out: &Out) -> Vec<String> {
        for row in rows {
            self.fit(row);
        }
        let heading = std::iter::once(self.heading(out));
        heading
            .chain(rows.iter().map(|row| self.layout(row, out)))
            .collect()
    }

    fn fit(&mut self, cells: &[Cell]) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.width = column.width.max(cell.text.width().min(column.most));
        }
    }

    fn layout(&self, cells: &[Cell], out: &Out) -> String {
        let mut line = String::new();
        let last = cells.len().saturating_sub(1);
        for (index, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            let text = shorten(&cell.text, column.most);
            let pad = " ".repeat(column.width.saturating_sub(text.width()));
            let text = out.ink(cell.ink, &text);
            match (column.right, index == last) {
                (true, _) => line.extend([pad.as_str(), &text]),
                (false, true) => line.push_str(&text),
                (false, false) => line.extend([text.as_str(), &pad]),
            }
            if index != last {
                line.push_str("  ");
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// At most `most` columns wide; what is cut shows as an ellipsis in the middle, since both ends of an identity
/// tell something.
pub(super) fn shorten(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(1);
    let tail_room = room / 2;
    let head = take(text.chars(), room - tail_room);
    let tail: String = take(text.chars().rev(), tail_room).chars().rev().collect();
    format!("{head}…{tail}")
}

fn take(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= room
    };
    chars.take_while(fits).collect()
}

/// A duration of `us` microseconds, three digits or so.
pub(super) fn duration(us: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let value = us as f64;
    match us {
        0..1_000 => format!("{us} us"),
        1_000..100_000 => format!("{:.1} ms", value / 1e3),
        100_000..1_000_000 => format!("{:.0} ms", value / 1e3),
        1_000_000..60_000_000 => format!("{:.2} s", value / 1e6),
        _ => span(us / 1_000_000),
    }
}

/// A longer time, in its two largest units.
pub(super) fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A number of bytes.
pub(super) fn bytes(n: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let value = n as f64;
    match n {
        0..1_024 => format!("{n} B"),
        1_024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.1} GiB", value / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli::out::Terminal;

    fn out() -> Out {
        Out::new(Box::new(std::io::sink()), Terminal::none())
    }

    #[test]
    fn wide_and_hostile_cells_keep_the_columns() {
        let mut table = Table::new(vec![Column::left("TOOL", 12), Column::right("CALLS")]);
        let row = |tool: &str, calls: u64| vec![Cell::new(tool), Cell::new(calls.to_string())];
        let lines = table.all(
            &[
                row("add", 7),
                row("漢字", 12),
                row("\u{1b}[2J\r", 3),
                row("an_endless_name_of_a_tool", 4),
            ],
            &out(),
        );
        assert_eq!(
            lines,
            [
                "TOOL          CALLS",
                "add               7",
                "漢字             12",
                "\\u{1b}[2J\\r       3",
                "an_end…_tool      4",
            ]
        );
    }

    #[test]
    fn figures_for_people() {
        let durations = [0, 999, 1_250, 99_949, 250_000, 1_500_000, 125_000_000].map(duration);
        assert_eq!(
            durations,
            [
                "0 us",
                "999 us",
                "1.2 ms",
                "99.9 ms",
                "250 ms",
                "1.50 s",
                "2 min 5 s"
            ]
        );
        assert_eq!(
            [0, 59, 3_700, 200_000].map(span),
            ["0 s", "59 s", "1 h 1 min", "2 d 7 h"]
        );
        assert_eq!(
            [5, 1_536, 3 << 20, 5 << 30].map(bytes),
            ["5 B", "1.5 KiB", "3.0 MiB", "5.0 GiB"]
        );
    }

    proptest! {
        #[test]
        fn no_cell_breaks_its_line(texts in proptest::collection::vec(any::<String>(), 3)) {
            let columns = vec![Column::left("A", 10), Column::left("B", 10), Column::left("C", 10)];
            let cells: Vec<Cell> = texts.iter().map(Cell::new).collect();
            let line = Table::new(columns).row(&cells, &out());
            prop_assert!(!line.chars().any(kams_export::text::is_unsafe));
            prop_assert!(shorten(&Cell::new(&texts[0]).text, 10).width() <= 10);
        }
    }
}
