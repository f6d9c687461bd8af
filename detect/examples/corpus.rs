//! Judges corpus rows from standard input: JSON lines in, JSON lines out.
#![expect(clippy::print_stdout, reason = "its output")]

use kams_detect::corpus::{Options, judge};

fn main() {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let Ok(row) = serde_json::from_str(&line) else {
            continue;
        };
        if let Ok(out) = judge(
            &row,
            &Options {
                pinned: true,
                ..Options::default()
            },
        ) {
            println!("{out}");
        }
    }
}
