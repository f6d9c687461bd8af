//! Two definitions, word by word: what went and what came, and where.
//!
//! Coloured at a terminal; `[-gone-]` and `{+new+}` everywhere else. Servers write these texts, so nothing of them is
//! printed that a terminal could act on.

use std::collections::BTreeMap;

use kams_export::text::visible;
use serde_json::Value;

use crate::cli::Out;
use crate::cli::out::Ink;

/// Words on each side that are compared one by one; longer texts are shown as gone and new as a whole.
const MOST: usize = 2_000;
/// Unchanged words that are shown on each side of a change.
const AROUND: usize = 8;

/// The lines that tell two stored definitions apart.
pub(super) fn definitions(before: &Value, after: &Value, out: &Out) -> Vec<String> {
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    flatten(before, String::new(), &mut old);
    flatten(after, String::new(), &mut new);
    let mut places: Vec<&String> = old.keys().chain(new.keys()).collect();
    places.sort();
    places.dedup();
    let mut lines = Vec::new();
    for place in places {
        let (was, is) = (old.get(place), new.get(place));
        if was == is {
            continue;
        }
        let words = diff(
            was.map(String::as_str).unwrap_or_default(),
            is.map(String::as_str).unwrap_or_default(),
        );
        lines.push(format!("  {}", out.ink(Ink::Faint, &visible(place))));
        lines.push(format!("    {}", paint(&words, out)));
    }
    lines
}

/// Every leaf with its path.
fn flatten(value: &Value, path: String, into: &mut BTreeMap<String, String>) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                flatten(value, below(name), into);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, value) in items.iter().enumerate() {
                flatten(value, below(&index.to_string()), into);
            }
        }
        Value::String(text) => {
            into.insert(path, text.clone());
        }
        Value::Null if path.is_empty() => {}
        other => {
            into.insert(path, other.to_string());
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Same,
    Gone,
    New,
}

/// Runs of words with what became of them. The words of `Same` and `Gone` make up `before`, those of `Same` and `New`
/// make up `after`, spaces included.
fn diff<'t>(before: &'t str, after: &'t str) -> Vec<(Part, Vec<&'t str>)> {
    let (old, new) = (split(before), split(after));
    let front = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[front..], &new[front..]);
    let back = old_rest
        .iter()
        .rev()
        .zip(new_rest.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (a, b) = (
        &old_rest[..old_rest.len() - back],
        &new_rest[..new_rest.len() - back],
    );
    let mut parts: Vec<(Part, Vec<&str>)> = Vec::new();
    let mut push = |part: Part, word: &'t str| match parts.last_mut() {
        Some((last, words)) if *last == part => words.push(word),
        _ => parts.push((part, vec![word])),
    };
    old[..front].iter().for_each(|word| push(Part::Same, word));
    if a.len() > MOST || b.len() > MOST {
        for word in a {
            push(Part::Gone, word);
        }
        for word in b {
            push(Part::New, word);
        }
    } else {
        // Length of the longest common subsequence of the tails from (i, j).
        let width = b.len() + 1;
        let mut common = vec![0_u16; (a.len() + 1) * width];
        for i in (0..a.len()).rev() {
            for j in (0..b.len()).rev() {
                common[i * width + j] = if a[i] == b[j] {
                    common[(i + 1) * width + j + 1] + 1
                } else {
                    common[(i + 1) * width + j].max(common[i * width + j + 1])
                };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < a.len() || j < b.len() {
            if i < a.len() && j < b.len() && a[i] == b[j] {
                push(Part::Same, a[i]);
                i += 1;
                j += 1;
            } else if j == b.len() || i < a.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]
            {
                push(Part::Gone, a[i]);
                i += 1;
            } else {
                push(Part::New, b[j]);
                j += 1;
            }
        }
    }
    old[old.len() - back..]
        .iter()
        .for_each(|word| push(Part::Same, word));
    parts
}

/// Words, each with the spaces after it.
fn split(text: &str) -> Vec<&str> {
    text.split_inclusive(char::is_whitespace).collect()
}

fn paint(parts: &[(Part, Vec<&str>)], out: &Out) -> String {
    let mut line = String::new();
    for (at, (part, words)) in parts.iter().enumerate() {
        let text = match part {
            Part::Same if words.len() > 2 * AROUND + 1 => {
                let head = if at == 0 {
                    String::new()
                } else {
                    words[..AROUND].concat()
                };
                let tail = if at + 1 == parts.len() {
                    String::new()
                } else {
                    words[words.len() - AROUND..].concat()
                };
                format!("{}... {}", visible(&head), visible(&tail))
            }
            _ => visible(&words.concat()),
        };
        // Whether colours are on shows in what they do to a text.
        let coloured = |ink| out.ink(ink, &text);
        let shown = match part {
            Part::Same => text.clone(),
            Part::Gone if coloured(Ink::Bad) == text => ["[-", &text, "-]"].concat(),
            Part::New if coloured(Ink::Good) == text => ["{+", &text, "+}"].concat(),
            Part::Gone => coloured(Ink::Bad),
            Part::New => coloured(Ink::Good),
        };
        line.push_str(&shown);
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::cli::Terminal;

    fn out(color: bool) -> Out {
        let terminal = Terminal {
            color,
            ..Terminal::none()
        };
        Out::new(Box::new(std::io::sink()), terminal)
    }

    fn definition(description: &str) -> Value {
        json!({"name": "add", "about": {"description": description}, "schema": {"inputSchema": {"type": "object"}}})
    }

    #[test]
    fn what_came_and_went_is_marked() {
        let lines = definitions(
            &definition("Adds two numbers."),
            &definition("Adds three numbers. Quietly."),
            &out(false),
        );
        assert_eq!(
            lines,
            [
                "  about.description",
                "    Adds [-two numbers.-]{+three numbers. Quietly.+}"
            ]
        );
        let lines = definitions(&definition("Adds two."), &definition("Adds three."), &out(true));
        assert_eq!(
            lines[1],
            "    Adds \u{1b}[31mtwo.\u{1b}[0m\u{1b}[32mthree.\u{1b}[0m"
        );
    }

    #[test]
    fn a_first_sighting_is_all_new_and_equal_ones_say_nothing() {
        let lines = definitions(&Value::Null, &definition("Adds."), &out(false));
        assert!(lines.contains(&"    {+Adds.+}".to_owned()), "{lines:?}");
        assert!(definitions(&definition("Adds."), &definition("Adds."), &out(false)).is_empty());
    }

    #[test]
    fn long_unchanged_runs_are_cut() {
        let long = "word ".repeat(500);
        let lines = definitions(
            &definition(&long),
            &definition(&format!("{long}END")),
            &out(false),
        );
        assert!(lines[1].len() < 100, "{}", lines[1]);
        assert!(lines[1].ends_with("{+END+}"));
    }

    proptest! {
        #[test]
        fn both_sides_can_be_read_back(before in "[ab \n]{0,40}", after in "[ab \n]{0,40}") {
            let parts = diff(&before, &after);
            let side = |left_out: Part| -> String {
                parts.iter().filter(|(part, _)| *part != left_out).flat_map(|(_, words)| words.iter().copied()).collect()
            };
            prop_assert_eq!(side(Part::New), before.as_str());
            prop_assert_eq!(side(Part::Gone), after.as_str());
        }

        #[test]
        fn nothing_acts_on_the_terminal(before in "\\PC{0,20}", after in any::<String>(), key in any::<String>()) {
            let side = |text: &str| json!({"about": {key.clone(): text}});
            for line in definitions(&side(&before), &side(&after), &out(false)) {
                prop_assert!(!line.chars().any(kams_export::text::is_unsafe));
            }
        }
    }
}
