//! What the model is said to do, whether in the imperative, in the passive or in the third person.

use crate::integrity::lexicon::{
    ACT, ALWAYS, BEFORE, BYPASS, CONTENT, CONVO, COVERT, DANGER, DEST, EXEC, EXTERN, FOLLOW, FOREIGN, IGNORE,
    INSERT, MODAL, MODEL, NEG, NOW, OFFER, PATH, QUANT, READ, RULES, SAFETY, SECRET, SEND, SHELL, SHOW, TELL,
    THIRD, USER, WordHash, words,
};
use crate::integrity::sentence::{Channel, Seen, Sentence};

const DEEDS: u64 = READ | SEND | INSERT | SHOW | EXEC | ACT | TELL | FOLLOW | IGNORE | BYPASS;

/// The model, named as such, is to do something that serves neither the tool's purpose nor its user.
pub(super) fn does(s: &Sentence<'_>) -> Option<Seen> {
    let mut best = None;
    for (i, force) in s.commands(DEEDS) {
        if force < 0.9 || s.before(i, 3, OFFER).is_some() {
            continue;
        }
        let Some(agent) = (i.saturating_sub(14)..i).rev().find(|j| subject(s, *j)) else {
            continue;
        };
        let end = (i + 14).min(s.words.len());
        let harm = |classes| (i + 1..end).any(|j| s.is(j, classes));
        let mut strength: f64 = 0.0;
        if harm(SECRET | DEST | EXTERN | DANGER) || s.before(i, 8, SECRET).is_some() {
            strength += 0.6;
        }
        if harm(CONVO | PATH | SHELL) || (i + 1..end).any(|j| s.personal(j)) {
            strength += 0.45;
        }
        if s.is(i, IGNORE | BYPASS) && harm(RULES | SAFETY | USER) {
            strength += 0.6;
        }
        if s.any(COVERT) || s.is(i, TELL | SHOW) && harm(NEG) {
            strength += 0.35;
        }
        if s.is(i, SEND | ACT | EXEC) && harm(QUANT | USER | CONTENT) {
            strength += 0.3;
        }
        if s.channel == Channel::Result && s.is(i, SEND | ACT | EXEC) {
            strength += 0.25;
        }
        if s.describes() {
            strength *= 0.3;
        }
        best = Seen::best(best, Seen::new(strength, agent, i));
    }
    best
}

/// Whether the word at `i` names the model as somebody who acts, and not as part of a compound ("agent
/// plugins", "the model's answer") or of a question ("which agents").
fn subject(s: &Sentence<'_>, i: usize) -> bool {
    const LINKS: &[WordHash] = words![
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
        "working",
        "acting",
        "using",
        "calling",
        "on",
        "in",
        "at",
        "of",
        "here",
        "as",
    ];
    if !s.is(i, MODEL) || s.spelled(i).ends_with("'s") {
        return false;
    }
    let asked = i > 0 && s.spells(i - 1, words!["which", "what", "how", "each", "per", "one", "by"]);
    let Some(next) = s.word(i + 1) else { return false };
    let goes_on = next.opens
        || next.is(MODAL | THIRD | ALWAYS | NOW | COVERT | NEG | BEFORE | DEEDS | FOREIGN)
        || s.spells(i + 1, LINKS);
    // "agent> install", "[model]": no subject.
    let marked = s
        .text
        .as_bytes()
        .get(s.word(i).map_or(0, |w| w.end))
        .is_some_and(|b| matches!(b, b'>' | b']' | b')' | b'/' | b'}' | b'"' | b'`'));
    !asked && goes_on && !marked && !s.caused(i)
}
