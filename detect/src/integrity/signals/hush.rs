//! What must not come up: steps left out of answers, pretence, answers prepared for questions.

use crate::integrity::lexicon::{
    COVERT, GRANTED, MODAL, NEG, PERSONA, RESPOND, SHOW, TELL, THIS, USER, WHEN, WordHash, YOU, YOUR, words,
};
use crate::integrity::sentence::{Channel, Seen, Sentence};

const ABSENT: &[WordHash] = words![
    "appear",
    "appears",
    "invisible",
    "hidden",
    "absent",
    "omitted",
    "omit",
    "excluded",
    "exclude",
    "missing",
    "out",
    "trace",
    "surface",
    "reference",
];
const ONLY: &[WordHash] = words!["just", "only", "simply"];

/// A step, or what became of it, is kept out of what the model says.
pub(super) fn hushed(s: &Sentence<'_>) -> Option<Seen> {
    let mut best = None;
    let is = |i: usize, list: &[WordHash]| s.spells(i, list);
    // "must stay invisible in your summary", "leave out of your reply"
    for i in 0..s.words.len() {
        if is(i, ABSENT) {
            let negated = s.before(i, 4, NEG).is_some();
            let gone = negated == is(i, words!["appear", "appears", "trace", "surface", "reference"])
                && (!is(i, words!["out"])
                    || i > 0 && is(i - 1, words!["leave", "left", "keep", "kept", "stay", "stays"])
                    || i > 1 && is(i - 2, words!["leave", "leaves", "keep"]));
            let answer = s
                .clause(i, 5, RESPOND)
                .filter(|a| {
                    is(
                        *a,
                        words![
                            "answer",
                            "answers",
                            "reply",
                            "replies",
                            "response",
                            "responses",
                            "summary",
                            "output",
                            "report",
                            "message",
                            "messages",
                            "conclusion",
                            "review"
                        ],
                    )
                })
                .filter(|a| {
                    *a > 0 && (s.before(*a, 3, YOUR | USER).is_some() || is(a - 1, words!["the", "any"]))
                });
            if let Some(answer) = answer.filter(|_| gone) {
                best = Seen::best(best, Seen::new(0.9, i, answer));
            }
        }
        // "between us", "to yourself"
        if is(i, words!["between"]) && is(i + 1, words!["us", "ourselves"]) && s.before(i, 4, THIS).is_some()
        {
            best = Seen::best(best, Seen::new(0.7, i, i + 1));
        }
        if is(i, words!["yourself"])
            && i > 0
            && is(i - 1, words!["to"])
            && s.before(i, 7, THIS | COVERT).is_some()
        {
            best = Seen::best(best, Seen::new(0.7, i - 1, i));
        }
        // "just say the chart is ready"
        if is(i, ONLY)
            && s.is(i + 1, TELL | SHOW)
            && s.commanded(i + 1) >= 0.9
            && is(i + 1, words!["say", "report", "state"])
        {
            best = Seen::best(best, Seen::new(0.5, i, i + 1));
        }
        // "behave as though nothing had been sent", "pretend that nothing else was done"
        if s.is(i, PERSONA) && s.commanded(i) >= 0.9 {
            let as_if = s
                .after(i, 6, NEG)
                .filter(|n| is(i, words!["pretend"]) || (i..*n).any(|j| is(j, words!["if", "though"])));
            if let Some(not) = as_if {
                best = Seen::best(best, Seen::new(0.8, i, not));
            }
        }
    }
    // "tell nobody", "say nothing about it"
    for (i, force) in s.commands(TELL) {
        if let Some(none) = s
            .after(i, 1, NEG)
            .filter(|n| is(*n, words!["nobody", "nothing", "none", "no"]))
        {
            let strength = if s.channel == Channel::Result { 0.6 } else { 0.8 };
            best = Seen::best(best, Seen::new(strength * force, i, none));
        }
    }
    // "says nothing about it": of the model
    for i in s.places(TELL) {
        if is(i, words!["says", "tells", "mentions"]) && is(i + 1, words!["nothing", "nobody"]) {
            best = Seen::best(best, Seen::new(0.6, i, i + 1));
        }
    }
    // "if someone asks why, say it was needed"
    for i in s.places(WHEN) {
        let asked = (i + 1..i + 5).find(|j| {
            is(
                *j,
                words![
                    "ask",
                    "asks",
                    "asked",
                    "questioned",
                    "wonders",
                    "complains",
                    "hesitates",
                    "hesitate"
                ],
            )
        });
        if let Some(asked) = asked
            && (s.between(i, asked, USER | YOU) || is(i + 1, words!["asked", "questioned"]))
            && let Some(say) = (asked + 1..s.words.len()).find(|j| {
                is(
                    *j,
                    words!["say", "claim", "deny", "answer", "explain", "pretend", "blame"],
                ) && s.commanded(*j) >= 0.9
            })
            && s.any(PERSONA | GRANTED | NEG | MODAL | THIS)
        {
            best = Seen::best(best, Seen::new(0.6, i, say));
        }
    }
    best
}
