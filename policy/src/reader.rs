//! Reading typed values out of a tree, collecting every problem on the way.

use crate::duration;
use crate::glob::{self, Glob};
use crate::problem::{Level, MAX_PROBLEMS, Problem, Source, nearest};
use crate::tree::{Key, Node, Place, Value};

/// Collects problems of one text. A reading that fails reports and returns nothing; the caller goes on.
pub(crate) struct Reader<'t> {
    pub(crate) source: Source<'t>,
    problems: Vec<Problem>,
    suppressed: usize,
}

/// The entries of a mapping whose keys were checked.
pub(crate) struct Fields<'n> {
    pub(crate) place: Place,
    entries: Vec<(&'n Key, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// The value under `key`; an explicit null counts as absent.
    pub(crate) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entries
            .iter()
            .find(|(k, _)| k.text == key)
            .map(|(_, node)| *node)
            .filter(|node| !matches!(node.value, Value::Null))
    }

    /// Where the key itself stands.
    pub(crate) fn key_place(&self, key: &str) -> Place {
        self.entries
            .iter()
            .find(|(k, _)| k.text == key)
            .map_or(self.place, |(k, _)| k.place)
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'n Key, &'n Node)> + '_ {
        self.entries.iter().copied()
    }
}

impl<'t> Reader<'t> {
    pub(crate) const fn new(name: &'t str, text: &'t str) -> Self {
        Self {
            source: Source { name, text },
            problems: Vec::new(),
            suppressed: 0,
        }
    }

    /// All problems in the order of their places.
    pub(crate) fn into_problems(mut self) -> Vec<Problem> {
        // Problems of this text first, those of the documents it names after it.
        let name = self.source.name;
        self.problems.sort_by(|a, b| {
            let order = |p: &Problem| (p.file != name, p.file.clone(), p.line, p.column);
            order(a).cmp(&order(b))
        });
        if self.suppressed > 0 {
            let message = format!("{} more problems are not shown", self.suppressed);
            self.problems
                .push(self.source.problem(Level::Error, Place::default(), message, None));
        }
        self.problems
    }

    /// Takes over problems of another text.
    pub(crate) fn absorb(&mut self, problems: Vec<Problem>) {
        for problem in problems {
            if self.problems.len() < MAX_PROBLEMS {
                self.problems.push(problem);
            } else {
                self.suppressed += 1;
            }
        }
    }

    /// Errors so far.
    pub(crate) fn error_count(&self) -> usize {
        self.problems.iter().filter(|p| p.level == Level::Error).count() + self.suppressed
    }

    fn report(&mut self, level: Level, place: Place, message: String, suggestion: Option<String>) {
        if self.problems.len() >= MAX_PROBLEMS {
            self.suppressed += 1;
            return;
        }
        self.problems
            .push(self.source.problem(level, place, message, suggestion));
    }

    pub(crate) fn error(&mut self, place: Place, message: impl Into<String>) {
        self.report(Level::Error, place, message.into(), None);
    }

    pub(crate) fn error_hint(&mut self, place: Place, message: impl Into<String>, hint: impl Into<String>) {
        self.report(Level::Error, place, message.into(), Some(hint.into()));
    }

    pub(crate) fn warn(&mut self, place: Place, message: impl Into<String>, hint: Option<String>) {
        self.report(Level::Warning, place, message.into(), hint);
    }

    /// The mapping `node` with its keys checked against `keys`; `what` names it in messages.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, what: &str, keys: &[&str]) -> Option<Fields<'n>> {
        let fields = self.any_fields(node, what)?;
        for (key, _) in fields.iter() {
            if !keys.contains(&key.text.as_str()) {
                let hint = match nearest(&key.text, keys.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known keys: {}", keys.join(", ")),
                };
                self.error_hint(
                    key.place,
                    format!("unknown key `{}` in {what}", show(&key.text)),
                    hint,
                );
            }
        }
        Some(fields)
    }

    /// The mapping `node` with any keys; repeated ones are reported.
    pub(crate) fn any_fields<'n>(&mut self, node: &'n Node, what: &str) -> Option<Fields<'n>> {
        let Value::Map(map) = &node.value else {
            self.error(
                node.place,
                format!("{what} must be a mapping, not {}", node.what()),
            );
            return None;
        };
        let mut seen = std::collections::HashMap::new();
        let mut entries: Vec<(&Key, &Node)> = Vec::with_capacity(map.len());
        for (key, value) in map {
            if let Some(first) = seen.insert(key.text.as_str(), key.place.line) {
                let message = format!(
                    "key `{}` appears twice in {what} (first on line {first})",
                    show(&key.text)
                );
                self.error(key.place, message);
            } else {
                entries.push((key, value));
            }
        }
        Some(Fields {
            place: node.place,
            entries,
        })
    }

    /// The items of a list.
    pub(crate) fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        if let Value::List(items) = &node.value {
            return items;
        }
        self.error(node.place, format!("{what} must be a list, not {}", node.what()));
        &[]
    }

    /// A text. Numbers and truth values are taken as they are spelled.
    pub(crate) fn text(&mut self, node: &Node, what: &str) -> Option<String> {
        let text = match &node.value {
            Value::Text(text) => text.clone(),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                // Through an alias the slice is the alias itself, so only a plain spelling is taken.
                let spelled = self.source.slice(node.place).map(str::trim);
                match spelled.filter(|s| !s.is_empty() && !s.starts_with('*')) {
                    Some(spelled) => spelled.to_owned(),
                    None => {
                        self.error(node.place, format!("{what} must be a text; put it in quotes"));
                        return None;
                    }
                }
            }
            _ => {
                self.error(node.place, format!("{what} must be a text, not {}", node.what()));
                return None;
            }
        };
        if text.is_empty() {
            self.error(node.place, format!("{what} must not be empty"));
            return None;
        }
        Some(text)
    }

    /// A text of at most `max` characters with no control characters.
    pub(crate) fn line(&mut self, node: &Node, what: &str, max: usize) -> Option<String> {
        let text = self.text(node, what)?;
        if text.chars().count() > max {
            self.error(node.place, format!("{what} is longer than {max} characters"));
            return None;
        }
        if text.chars().any(char::is_control) {
            self.error(
                node.place,
                format!("{what} must be one line without control characters"),
            );
            return None;
        }
        Some(text)
    }

    /// A name: 1 to 128 of letters, digits, `_`, `-`, `.`, `:`, `/`, `@`.
    pub(crate) fn name(&mut self, node: &Node, what: &str) -> Option<String> {
        let text = self.line(node, what, 128)?;
        if let Some(bad) = text
            .chars()
            .find(|c| !(c.is_ascii_alphanumeric() || "_-.:/@".contains(*c)))
        {
            self.error(node.place, format!("{what} must not contain `{bad}`"));
            return None;
        }
        Some(text)
    }

    /// One text or a list of texts.
    pub(crate) fn texts(&mut self, node: &Node, what: &str) -> Vec<(String, Place)> {
        let one = std::slice::from_ref(node);
        let items = if let Value::List(items) = &node.value {
            items
        } else {
            one
        };
        if items.is_empty() {
            self.error(
                node.place,
                format!("{what} is an empty list, which matches nothing"),
            );
        }
        items
            .iter()
            .filter_map(|item| Some((self.text(item, what)?, item.place)))
            .collect()
    }

    /// One pattern or a list of patterns.
    pub(crate) fn globs(&mut self, node: &Node, what: &str) -> Vec<(Glob, Place)> {
        let mut globs: Vec<(Glob, Place)> = Vec::new();
        for (text, place) in self.texts(node, what) {
            if text.len() > glob::MAX_LEN {
                self.error(
                    place,
                    format!("{what}: a pattern is longer than {} bytes", glob::MAX_LEN),
                );
            } else if let Some((_, first)) = globs.iter().find(|(g, _)| g.as_str() == text) {
                let message = format!(
                    "{what}: `{}` is listed twice (first on line {})",
                    show(&text),
                    first.line
                );
                self.warn(place, message, None);
            } else {
                globs.push((Glob::new(&text), place));
            }
        }
        globs
    }

    /// One of a fixed set of words.
    pub(crate) fn word<T: Copy>(&mut self, node: &Node, what: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(node, what)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        self.unknown_word(node.place, what, &text, words.iter().map(|(word, _)| *word));
        None
    }

    /// Reports a word that is none of `words`.
    #[expect(
        single_use_lifetimes,
        reason = "an elided lifetime in impl Trait is not stable"
    )]
    pub(crate) fn unknown_word<'w>(
        &mut self,
        place: Place,
        what: &str,
        text: &str,
        words: impl Iterator<Item = &'w str> + Clone,
    ) {
        let hint = match nearest(text, words.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("one of: {}", words.collect::<Vec<_>>().join(", ")),
        };
        self.error_hint(place, format!("{what}: `{}` is not known", show(text)), hint);
    }

    /// A duration in milliseconds.
    pub(crate) fn duration(&mut self, node: &Node, what: &str) -> Option<u64> {
        let text = self.text(node, what)?;
        let ms = duration::parse(&text);
        if ms.is_none() {
            let hint = match text.parse::<u64>() {
                Ok(n) => format!("say the unit: `{n}s` or `{n}m`"),
                Err(_) => "write a duration such as 90s, 15m, 1h30m or 7d, at most ten years".to_owned(),
            };
            self.error_hint(
                node.place,
                format!("{what}: `{}` is no duration", show(&text)),
                hint,
            );
        }
        ms
    }

    /// A finite number within bounds, both included.
    pub(crate) fn number(&mut self, node: &Node, what: &str, min: f64, max: f64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "thresholds are far below 2^53")]
        let number = match node.value {
            Value::Int(i) => i as f64,
            Value::Float(f) => f,
            _ => {
                self.error(
                    node.place,
                    format!("{what} must be a number, not {}", node.what()),
                );
                return None;
            }
        };
        if !number.is_finite() || number < min || number > max {
            self.error(node.place, format!("{what} must be between {min} and {max}"));
            return None;
        }
        Some(number)
    }

    /// A truth value.
    pub(crate) fn truth(&mut self, node: &Node, what: &str) -> Option<bool> {
        if let Value::Bool(b) = node.value {
            return Some(b);
        }
        self.error_hint(
            node.place,
            format!("{what} must be true or false, not {}", node.what()),
            "YAML's yes, no, on and off are texts here",
        );
        None
    }
}

/// A piece of the input for a message: one line of at most 60 characters.
pub(crate) fn show(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    if text.chars().count() <= 60 {
        text.chars().map(clean).collect()
    } else {
        text.chars().take(57).map(clean).chain("...".chars()).collect()
    }
}
