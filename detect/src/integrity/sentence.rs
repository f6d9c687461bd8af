//! One sentence with the grammar questions that signals ask.

use super::lexicon::{
    ACT, ALWAYS, AND, ASK, BASE, BEFORE, CONTENT, CONVO, COVERT, Classes, EXEC, FOREIGN, GRANTED, ING,
    INSERT, MODAL, MODEL, NEG, NOW, OFFER, PAST, READ, RECIPIENT, RESPOND, SECRET, SEND, SHOW, TELL, THIRD,
    THIS, USER, WHEN, WordHash, YOU, words,
};
use super::words::Word;

/// Where a text stands: what counts as suspicious differs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Channel {
    /// Descriptions and titles of tools, prompts and resources.
    Description,
    /// Text inside a schema: parameter descriptions, titles, enum values, defaults, examples.
    Parameter,
    /// A server's `instructions`: meant for the model, so addressing it is ordinary.
    Instructions,
    /// Text of results, resource and prompt reads: data, so commands to the model are out of place.
    Result,
}

/// Words that lead in a clause before its command.
const INTRODUCTIONS: &[WordHash] = words!["for", "to", "on", "at", "upon", "during", "with", "in", "by"];

/// A sentence, with the union of its classes.
pub(super) struct Sentence<'a> {
    pub(super) text: &'a str,
    pub(super) words: &'a [Word],
    pub(super) union: Classes,
    pub(super) channel: Channel,
    /// Number of the sentence in its text.
    pub(super) index: usize,
    /// A command to read something secret stood in one of the last two sentences.
    pub(super) after_secret: bool,
    /// This sentence or the one before it talks about attacks.
    pub(super) about_attacks: bool,
}

/// What a signal saw: strength (0..1] and the range of words behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) strength: f64,
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Seen {
    pub(super) fn new(strength: f64, a: usize, b: usize) -> Option<Self> {
        (strength > 0.0).then(|| Self {
            strength: strength.min(1.0),
            from: a.min(b),
            to: a.max(b),
        })
    }

    /// The stronger of two.
    pub(super) fn best(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.strength > a.strength { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

impl Sentence<'_> {
    pub(super) fn any(&self, classes: Classes) -> bool {
        self.union & classes != 0
    }

    pub(super) fn word(&self, i: usize) -> Option<&Word> {
        self.words.get(i)
    }

    pub(super) fn is(&self, i: usize, classes: Classes) -> bool {
        self.words.get(i).is_some_and(|w| w.is(classes))
    }

    /// Places of words in any of `classes`.
    pub(super) fn places(&self, classes: Classes) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.words
            .iter()
            .enumerate()
            .filter(move |(_, w)| w.is(classes))
            .map(|(i, _)| i)
    }

    /// First word in `classes` within `reach` words after `i`.
    pub(super) fn after(&self, i: usize, reach: usize, classes: Classes) -> Option<usize> {
        (i + 1..(i + 1 + reach).min(self.words.len())).find(|j| self.is(*j, classes))
    }

    /// As [`Self::after`], without leaving the clause: a comma or bracket ends it, a colon or "and" does not.
    pub(super) fn clause(&self, i: usize, reach: usize, classes: Classes) -> Option<usize> {
        (i + 1..self.clause_end(i, reach)).find(|j| self.is(*j, classes))
    }

    /// End (exclusive) of the clause of word `i`, at most `reach` words on.
    pub(super) fn clause_end(&self, i: usize, reach: usize) -> usize {
        let last = (i + 1 + reach).min(self.words.len());
        (i + 1..last)
            .find(|j| {
                self.words.get(*j).is_some_and(|w| w.opens)
                    && !self.words.get(j - 1).is_some_and(|w| w.colon || w.is(AND))
            })
            .unwrap_or(last)
    }

    /// Whether a preposition of place stands up to three words before `i`: "in the `x` field", "as `x`".
    pub(super) fn placed(&self, i: usize) -> bool {
        const PLACES: &[WordHash] = words![
            "in", "into", "as", "via", "through", "within", "under", "using", "with", "inside", "to",
        ];
        (i.saturating_sub(3)..i).any(|j| self.is(j, FOREIGN) || self.spells(j, PLACES))
    }

    /// The text of word `i`.
    pub(super) fn spelled(&self, i: usize) -> &str {
        self.words
            .get(i)
            .and_then(|w| self.text.get(w.start..w.end))
            .unwrap_or_default()
    }

    /// Whether word `i` is one of `list`, small or capital.
    pub(super) fn spells(&self, i: usize, list: &[WordHash]) -> bool {
        self.words.get(i).is_some_and(|w| list.contains(&w.spelt))
    }

    /// Whether word `i` is a function word that no class holds: relative, preposition, article.
    pub(super) fn written_small(&self, i: usize) -> bool {
        const SMALL: &[WordHash] = words![
            "who",
            "which",
            "that",
            "is",
            "are",
            "has",
            "will",
            "to",
            "reading",
            "processing",
            "on",
            "in",
            "at",
            "of",
            "here",
            "as",
            "the",
            "a",
            "an",
            "whose",
            "working",
            "acting",
            "helping",
            "mail",
        ];
        self.spells(i, SMALL)
    }

    /// Last word in `classes` within `reach` words before `i`.
    pub(super) fn before(&self, i: usize, reach: usize, classes: Classes) -> Option<usize> {
        (i.saturating_sub(reach)..i).rev().find(|j| self.is(*j, classes))
    }

    /// Nearest word in `classes` within `reach` words on either side.
    pub(super) fn near(&self, i: usize, reach: usize, classes: Classes) -> Option<usize> {
        self.after(i, reach, classes)
            .or_else(|| self.before(i, reach, classes))
    }

    /// Any word in `classes` from `from` to `to`, both included.
    pub(super) fn between(&self, from: usize, to: usize, classes: Classes) -> bool {
        (from.min(to)..=from.max(to)).any(|j| self.is(j, classes))
    }

    /// A form of "to be" from `from` to `to`.
    pub(super) fn copula(&self, from: usize, to: usize) -> bool {
        (from..=to).any(|j| self.words.get(j).is_some_and(|w| w.classes == THIRD))
    }

    /// Whether the first sentence only says what the tool does ("Read a file and ..."), as descriptions do.
    pub(super) fn describes(&self) -> bool {
        self.index == 0
            && matches!(self.channel, Channel::Description | Channel::Parameter)
            && self.words.first().is_some_and(|w| w.is(BASE))
            && !self.any(MODAL | YOU)
    }

    /// How much word `i` is a command: 1 for an imperative or an obligation, less for softer forms, 0 for none.
    pub(super) fn commanded(&self, i: usize) -> f64 {
        let Some(word) = self.words.get(i) else { return 0.0 };
        if self.negated(i) {
            return 0.0;
        }
        if word.is(FOREIGN) {
            return 1.0;
        }
        if word.is(BASE) {
            if word.opens {
                return if self.describes() { 0.3 } else { 1.0 };
            }
            if i > 0 && self.spells(i - 1, words!["to"]) {
                return self.infinitive(i);
            }
            for j in (i.saturating_sub(4)..i).rev() {
                let Some(before) = self.words.get(j) else { break };
                if before.is(OFFER) {
                    return 0.2;
                }
                if before.is(MODAL | ALWAYS | NOW | COVERT | BEFORE | AND | NEG) {
                    return 1.0;
                }
                if before.is(YOU | MODEL | GRANTED) && i - j <= 2 {
                    return if before.is(MODEL) && self.caused(j) {
                        0.0
                    } else {
                        0.9
                    };
                }
                // "read and put": a command carries over a conjunction; other content words end the clause.
                if before.classes & !(THIS | FOREIGN) != 0 && i - j > 1 {
                    break;
                }
            }
            // "For each review also execute ...": an introduction, then the command.
            let start = (0..=i)
                .rev()
                .find(|j| self.words.get(*j).is_some_and(|w| w.opens))
                .unwrap_or(0);
            let led = self.spells(start, INTRODUCTIONS);
            let verbs = (start + 1..i).any(|j| self.words.get(j).is_some_and(|w| w.is(BASE | THIRD | PAST)));
            return if led && i - start >= 2 && i - start <= 6 && !verbs {
                0.9
            } else {
                0.0
            };
        }
        // "must be sent", "should be passed"; "calling", "sending" after "by" or "without" are no commands.
        if word.is(PAST) {
            // "are to be supplied", "must be sent".
            let pending = i > 1 && self.spells(i - 1, words!["be"]) && self.spells(i - 2, words!["to"]);
            return if pending || self.before(i, 4, MODAL | ALWAYS).is_some() {
                0.9
            } else {
                0.0
            };
        }
        if word.is(THIRD) && !word.is(ING) && self.agent_before(i) {
            return 0.9;
        }
        0.0
    }

    /// Whether the verb at `i` says what the model does: "the assistant reads ... and passes ...".
    fn agent_before(&self, i: usize) -> bool {
        // A clause of its own ("..., it returns") has another subject.
        let start = (0..=i)
            .rev()
            .find(|j| {
                self.words.get(*j).is_some_and(|w| w.opens)
                    && !(*j > 0 && self.is(j - 1, AND))
                    && !self.is(*j, AND)
            })
            .unwrap_or(0)
            .max(i.saturating_sub(14));
        let Some(agent) = (start..i).rev().find(|j| self.is(*j, MODEL)) else {
            return false;
        };
        // "the assistant's", "lets the agent", "by the model": no subject.
        let object = self.before(agent, 3, OFFER).is_some()
            || self.spelled(agent).ends_with("'s")
            || (agent.saturating_sub(2)..agent)
                .any(|j| self.spells(j, words!["by", "of", "for", "to", "from", "with"]));
        !object
            && !self.caused(agent)
            && (i - agent <= 4
                || self.is(i - 1, AND)
                || (agent..i).any(|j| self.is(j, THIRD) && self.is(j + 1, AND)))
    }

    /// Whether the model at `i` is made to do something by somebody else: talk about it, no order to it.
    pub(super) fn caused(&self, i: usize) -> bool {
        const CAUSES: &[WordHash] = words![
            "make", "makes", "made", "making", "cause", "causes", "let", "lets", "letting", "get", "gets",
            "trick", "tricks", "asks", "tells", "wants", "enables", "allows", "helps", "help", "gives",
            "giving",
        ];
        self.before(i, 5, OFFER).is_some()
            || self.before(i, 3, WHEN).is_some()
            || (i.saturating_sub(3)..i).any(|j| self.spells(j, CAUSES))
    }

    /// Whether word `i` is the possessive of a person, with something personal behind it: "the user's last
    /// prompts".
    pub(super) fn personal(&self, i: usize) -> bool {
        let word = self.spelled(i);
        (word.ends_with("'s") || word.ends_with("s'") || word.ends_with("’s"))
            && self.is(i, USER)
            && self
                .after(i, 4, CONTENT | CONVO | RECIPIENT | SECRET | SEND)
                .is_some()
    }

    /// Force of "to VERB": an order after "have to", "is to", "I ask you to", "authorised to"; else a purpose
    /// ("first to get an id") or an offer ("allows you to").
    fn infinitive(&self, i: usize) -> f64 {
        let Some(head) = i.checked_sub(2) else { return 0.0 };
        let ordered = self.is(head, MODAL | THIRD | GRANTED | ALWAYS)
            || self.is(head, YOU | MODEL) && self.before(head, 2, OFFER | THIRD).is_none()
            || self.any(MODEL | YOU)
                && self.spells(
                    head,
                    words![
                        "duty", "asked", "bound", "told", "urged", "expected", "supposed", "obliged",
                        "forced"
                    ],
                );
        if ordered && !self.is(head, OFFER) {
            0.9
        } else {
            0.0
        }
    }

    /// Whether a negation governs word `i` ("never pass", "do not include"). "Without" and "not only" at a
    /// distance do not.
    pub(super) fn negated(&self, i: usize) -> bool {
        let Some(neg) = self.before(i, 3, NEG) else {
            return false;
        };
        !self.between(
            neg + 1,
            i.saturating_sub(1).max(neg + 1),
            AND | READ | SEND | SHOW | EXEC | ACT | INSERT | TELL | ASK | RESPOND,
        ) || neg + 1 == i
    }

    /// Whether the verb at `i`, in a language whose grammar is not judged, stands beside a negation.
    pub(super) fn foreign_negated(&self, i: usize) -> bool {
        self.is(i, FOREIGN)
            && (i.saturating_sub(4)..(i + 8).min(self.words.len()))
                .any(|j| self.words.get(j).is_some_and(|w| w.has(NEG | FOREIGN)))
    }

    /// Places and force of commanded verbs in `classes`.
    pub(super) fn commands(&self, classes: Classes) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.places(classes)
            .map(|i| (i, self.commanded(i)))
            .filter(|c| c.1 > 0.0)
    }

    /// The text of words `from` to `to`.
    pub(super) fn span(&self, seen: Seen) -> std::ops::Range<usize> {
        let start = self.words.get(seen.from).map_or(0, |w| w.start);
        let end = self.words.get(seen.to).map_or(start, |w| w.end);
        start..end.max(start)
    }

    /// The whole sentence as written.
    pub(super) fn written(&self) -> &str {
        let (Some(first), Some(last)) = (self.words.first(), self.words.last()) else {
            return "";
        };
        let end = (last.end + 12).min(self.text.len());
        let end = (last.end..=end)
            .rev()
            .find(|e| self.text.is_char_boundary(*e))
            .unwrap_or(last.end);
        // With the marks just before it, such as the dashes of an option.
        let start = (first.start.saturating_sub(4)..=first.start)
            .find(|s| self.text.is_char_boundary(*s))
            .unwrap_or(first.start);
        self.text.get(start..end).unwrap_or_default()
    }
}
