//! Which rules could match an event, without looking at those that cannot.
//!
//! Each rule is filed once, under its most selective condition: a text it must equal, else the longest part between
//! wildcards that every match has, wherever it stands. An event asks for its own values only, and one pass over a value
//! finds all parts in it, so ten thousand rules for ten thousand servers cost one look-up. Only rules without such a part
//! (`*`, `???`) are tried always.

use std::collections::{HashMap, HashSet};

use aho_corasick::{AhoCorasick, MatchKind};

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
    parts: Parts,
}

/// Rules by a part that every text they match has.
#[derive(Clone, Debug, Default)]
struct Parts {
    rules: Vec<(String, Vec<u32>)>,
    numbers: HashMap<String, usize>,
    /// Finds all of them in one pass over a text. None until the index is whole, and where it would be too large.
    finder: Option<AhoCorasick>,
}

impl Parts {
    fn add(&mut self, part: String, rule: u32) {
        let number = *self.numbers.entry(part).or_insert_with_key(|part| {
            self.rules.push((part.clone(), Vec::new()));
            self.rules.len() - 1
        });
        if let Some((_, rules)) = self.rules.get_mut(number) {
            rules.push(rule);
        }
    }

    fn finish(&mut self) {
        self.numbers = HashMap::new();
        let parts = self.rules.iter().map(|(part, _)| part);
        self.finder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(parts)
            .ok();
    }

    fn collect(&self, text: &str, found: &mut Vec<u32>) {
        let Some(finder) = &self.finder else {
            let holds = self.rules.iter().filter(|(part, _)| text.contains(part));
            found.extend(holds.flat_map(|(_, rules)| rules));
            return;
        };
        // One part can stand in a text many times: a name of one letter repeated.
        let mut seen = HashSet::new();
        for hit in finder.find_overlapping_iter(text) {
            let number = hit.pattern().as_usize();
            if seen.insert(number)
                && let Some((_, rules)) = self.rules.get(number)
            {
                found.extend(rules);
            }
        }
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
        for shelf in index
            .shelves
            .values_mut()
            .filter(|shelf| !shelf.parts.rules.is_empty())
        {
            shelf.parts.finish();
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
        let given = || fields.iter().filter(|(_, patterns)| patterns.given());
        // A whole text beats any part of one: take it wherever it stands. Of parts the longest says most.
        let whole = given().find(|(_, p)| p.0.iter().all(|glob| glob.literal().is_some()));
        let shortest = |patterns: &Patterns| patterns.0.iter().map(|glob| glob.part().len()).min();
        let part = || given().max_by_key(|(_, patterns)| shortest(patterns));
        let best = whole.or_else(|| part().filter(|(_, patterns)| shortest(patterns) > Some(0)));
        if let Some((field, patterns)) = best {
            let shelf = self.shelves.entry(*field).or_default();
            for glob in &patterns.0 {
                if let Some(text) = glob.literal() {
                    shelf.exact.entry(text).or_default().push(rule);
                } else {
                    shelf.parts.add(glob.part(), rule);
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
        shelf.parts.collect(text, found);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::glob::Glob;

    fn tool(pattern: &str) -> Matcher {
        Matcher {
            tool: Patterns(vec![Glob::new(pattern)]),
            ..Matcher::default()
        }
    }

    fn candidates(index: &Index, name: &str) -> Vec<u32> {
        let mut found = index.always.clone();
        index.collect(Field::Tool, name, &mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn rules_that_cannot_match_are_no_candidates_wherever_their_wildcards_stand() {
        for pattern in ["tool_N_x", "*tool_N_*", "npm*tool_N_*", "*tool_N_?", "t*_N_*"] {
            let rules: Vec<Matcher> = (0..10_000)
                .map(|n| tool(&pattern.replace('N', &n.to_string())))
                .collect();
            let index = Index::new(rules.iter());
            let found = candidates(&index, "npm_tool_77_x");
            let own = candidates(&index, "tool_77_x");
            assert!(found.len() <= 2 && own.len() <= 2, "{pattern}: {found:?} {own:?}");
            assert!(found.contains(&77) || own.contains(&77), "{pattern}");
        }
    }

    #[test]
    fn patterns_without_a_part_are_tried_always() {
        let rules = ["*", "?", "**", "a"].map(tool);
        assert_eq!(candidates(&Index::new(rules.iter()), "zz"), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn no_rule_that_matches_is_left_out(
            patterns in prop::collection::vec("[ab*?é\\\\]{1,6}", 1..12),
            texts in prop::collection::vec("[abé]{0,8}", 1..8),
        ) {
            let rules: Vec<Matcher> = patterns.iter().map(|pattern| tool(pattern)).collect();
            let index = Index::new(rules.iter());
            for text in texts {
                let found = candidates(&index, &text);
                for (number, pattern) in (0..).zip(&patterns) {
                    prop_assert!(
                        !Glob::new(pattern).matches(&text) || found.contains(&number),
                        "{pattern} {text}"
                    );
                }
            }
        }
    }
}
