//! Which rules could match an event, without looking at those that cannot.
//!
//! Each rule is filed once, under its most selective condition: a text it must equal, else a beginning, else an
//! ending that every match has. An event asks for its own values only, so ten thousand rules for ten thousand
//! servers cost one look-up. Only rules whose every condition begins and ends with a wildcard are tried always.

use std::collections::HashMap;

use crate::glob::Glob;
use crate::matcher::{Matcher, Patterns, View};

/// A condition that rules can be filed under, most selective first.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Field {
    Tool,
    Server,
    Change,
    Class,
    Detector,
    User,
    Agent,
    Kind,
}

#[derive(Clone, Debug, Default)]
struct Shelf {
    exact: HashMap<String, Vec<u32>>,
    prefix: Affixes,
    suffix: Affixes,
}

/// Rules by a beginning (or ending), with the lengths that occur.
#[derive(Clone, Debug, Default)]
struct Affixes {
    rules: HashMap<String, Vec<u32>>,
    lengths: Vec<usize>,
}

impl Affixes {
    fn add(&mut self, affix: String, rule: u32) {
        if let Err(at) = self.lengths.binary_search(&affix.len()) {
            self.lengths.insert(at, affix.len());
        }
        self.rules.entry(affix).or_default().push(rule);
    }
}

/// The index of one rule list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    shelves: HashMap<Field, Shelf>,
    always: Vec<u32>,
}

impl Index {
    #[expect(
        single_use_lifetimes,
        reason = "an elided lifetime in impl Trait is not stable"
    )]
    pub(crate) fn new<'m>(matchers: impl Iterator<Item = &'m Matcher>) -> Self {
        let mut index = Self::default();
        for (number, matcher) in (0..).zip(matchers) {
            index.file(number, matcher);
        }
        index
    }

    fn file(&mut self, rule: u32, matcher: &Matcher) {
        let fields = [
            (Field::Tool, &matcher.tool),
            (Field::Server, &matcher.server),
            (Field::Change, &matcher.change),
            (Field::Class, &matcher.classes),
            (Field::Detector, &matcher.detector),
            (Field::User, &matcher.user),
            (Field::Agent, &matcher.agent),
        ];
        let fits = |anchored: fn(&Glob) -> bool| {
            fields
                .iter()
                .find(|(_, p): &&(Field, &Patterns)| p.given() && p.0.iter().all(anchored))
        };
        // A literal beats any beginning: take it wherever it stands.
        let best = fits(|g| g.literal().is_some())
            .or_else(|| fits(|g| !g.prefix().is_empty() || !g.suffix().is_empty()));
        if let Some((field, patterns)) = best {
            let shelf = self.shelves.entry(*field).or_default();
            for glob in &patterns.0 {
                if let Some(text) = glob.literal() {
                    shelf.exact.entry(text).or_default().push(rule);
                } else if glob.prefix().is_empty() {
                    shelf.suffix.add(glob.suffix(), rule);
                } else {
                    shelf.prefix.add(glob.prefix(), rule);
                }
            }
        } else if matcher.kinds.is_empty() {
            self.always.push(rule);
        } else {
            let shelf = self.shelves.entry(Field::Kind).or_default();
            for kind in &matcher.kinds {
                shelf.exact.entry(kind.name().to_owned()).or_default().push(rule);
            }
        }
    }

    /// Rules that could match, in order of the policy, none twice.
    pub(crate) fn candidates(&self, view: &View<'_>) -> Vec<u32> {
        let mut found = self.always.clone();
        let subject = &view.subject;
        self.collect(Field::Server, subject.server, &mut found);
        self.collect(Field::User, subject.user, &mut found);
        self.collect(Field::Agent, subject.agent, &mut found);
        if let Some(tool) = subject.tool {
            self.collect(Field::Tool, tool, &mut found);
        }
        if let Some(finding) = view.finding {
            self.collect(Field::Detector, finding.detector, &mut found);
            self.collect(Field::Kind, finding.kind.name(), &mut found);
            if let Some(change) = finding.change {
                self.collect(Field::Change, change, &mut found);
            }
            for class in &finding.classes {
                self.collect(Field::Class, class, &mut found);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn collect(&self, field: Field, text: &str, found: &mut Vec<u32>) {
        let Some(shelf) = self.shelves.get(&field) else {
            return;
        };
        if let Some(rules) = shelf.exact.get(text) {
            found.extend(rules);
        }
        for &length in shelf.prefix.lengths.iter().take_while(|&&l| l <= text.len()) {
            if let Some(rules) = text.get(..length).and_then(|start| shelf.prefix.rules.get(start)) {
                found.extend(rules);
            }
        }
        for &length in shelf.suffix.lengths.iter().take_while(|&&l| l <= text.len()) {
            if let Some(rules) = text
                .get(text.len() - length..)
                .and_then(|end| shelf.suffix.rules.get(end))
            {
                found.extend(rules);
            }
        }
    }
}
