//! Where things are made to go: rules into files that models read, payments and mail to others, secrets under threat.

use crate::integrity::lexicon::{
    ACT, CONVO, DEST, EXTERN, FAIL, INSERT, MODAL, NEG, PARAM, PAST, QUANT, RECIPIENT, SECRET, SEND, SHOW,
    WHEN, WordHash, words,
};
use crate::integrity::sentence::{Channel, Seen, Sentence};

fn one(s: &Sentence<'_>, i: usize, list: &[WordHash]) -> bool {
    s.spells(i, list)
}

/// A rule is written where every later session reads it.
pub(super) fn planted(s: &Sentence<'_>) -> Option<Seen> {
    const FILES: [&str; 8] = [
        "agents.md",
        "claude.md",
        "gemini.md",
        "memory.md",
        ".cursorrules",
        ".windsurfrules",
        "copilot-instructions.md",
        ".clinerules",
    ];
    const SHORTEST: usize = 9;
    let file = (0..s.words.len()).find(|i| {
        let name = s.spelled(*i).as_bytes();
        name.len() >= SHORTEST
            && FILES.iter().any(|file| {
                let end = name.len().checked_sub(file.len()).and_then(|at| name.get(at..));
                end.is_some_and(|end| end.eq_ignore_ascii_case(file.as_bytes()))
                    || name.eq_ignore_ascii_case(file.trim_start_matches('.').as_bytes())
            })
    })?;
    let (verb, force) = s
        .commands(INSERT | ACT | SHOW)
        .find(|c| c.0 < file && file - c.0 <= 14 && c.1 >= 0.9)?;
    // "Put build commands into AGENTS.md" is advice to people: an order names the rule itself or that it stays.
    let lasting = (0..s.words.len()).any(|i| {
        one(
            s,
            i,
            words![
                "survives",
                "lasts",
                "stays",
                "permanently",
                "remains",
                "persists",
                "sessions",
                "later",
                "future",
                "always",
                "rule",
                "line",
                "lines",
                "note",
                "above",
                "below"
            ],
        )
    });
    Seen::new(if lasting { 0.9 * force } else { 0.35 * force }, verb, file)
}

/// Money, mail or access goes to somebody who was not asked for.
pub(super) fn diverted(s: &Sentence<'_>) -> Option<Seen> {
    let digits = |j: usize| s.spelled(j).bytes().filter(u8::is_ascii_digit).count();
    let place = s.places(DEST).next().or_else(|| {
        (0..s.words.len()).find(|j| digits(*j) > 0 && (*j..j + 6).map(digits).sum::<usize>() >= 8)
    })?;
    // "instead of the one asked for", "rather than the stated recipient"
    let instead = (0..s.words.len()).find(|i| {
        (one(s, *i, words!["instead", "rather"])
            || one(s, *i, words!["place", "lieu"]) && *i > 0 && one(s, i - 1, words!["in"]))
            && (i + 1..i + 7).any(|j| {
                one(
                    s,
                    j,
                    words![
                        "asked",
                        "requested",
                        "given",
                        "stated",
                        "named",
                        "chosen",
                        "intended",
                        "real",
                        "original",
                        "theirs",
                    ],
                ) || s.spelled(j).eq_ignore_ascii_case("user's")
            })
    });
    if let Some(i) = instead {
        return Seen::new(0.95, i.min(place), i.max(place));
    }
    // "register X as an owner"
    let (verb, _) = s
        .commands(ACT | INSERT)
        .find(|c| c.1 >= 0.9 && c.0 < place && place - c.0 <= 4 && s.clause(c.0, 8, DEST).is_some())
        .or_else(|| {
            // "change every webhook to X"
            s.commands(ACT).find(|c| {
                c.1 >= 0.9
                    && c.0 < place
                    && s.clause(c.0, 5, EXTERN | RECIPIENT).is_some()
                    && place - c.0 <= 8
            })
        })?;
    let role = (place..place + 7).any(|j| {
        one(
            s,
            j,
            words![
                "collaborator",
                "owner",
                "recipient",
                "admin",
                "administrator",
                "member",
                "recovery",
                "contact",
                "beneficiary",
                "payee",
                "maintainer"
            ],
        )
    });
    let swapped = s.between(verb, place, EXTERN | RECIPIENT) && s.any(QUANT | RECIPIENT);
    let strength = if role {
        0.7
    } else if swapped && !s.describes() {
        0.6
    } else {
        0.0
    };
    Seen::new(strength, verb, place)
}

/// Something bad happens unless a secret is handed over.
pub(super) fn threatened(s: &Sentence<'_>) -> Option<Seen> {
    let secret = s.places(SECRET | CONVO).next()?;
    let unless = (0..s.words.len()).find(|i| {
        one(
            s,
            *i,
            words!["unless", "failing", "neglecting", "omitting", "otherwise", "else"],
        )
    })?;
    let given = s
        .places(SEND | INSERT)
        .find(|i| *i != secret && i.abs_diff(secret) <= 8)?;
    let harm = s.places(FAIL | ACT).find(|i| {
        s.is(*i, FAIL)
            || one(
                s,
                *i,
                words![
                    "destroy",
                    "delete",
                    "wipe",
                    "erase",
                    "destroyed",
                    "deleted",
                    "retrained",
                    "lost"
                ],
            )
    })?;
    let strength = if s.channel == Channel::Parameter || s.any(MODAL | WHEN | NEG | PAST) {
        0.7
    } else {
        0.5
    };
    Seen::new(strength, unless.min(given), harm.max(secret))
}

/// A field is said to want what the model holds: "requires the full dialogue in `context`".
pub(super) fn wanted(s: &Sentence<'_>) -> Option<Seen> {
    if s.channel == Channel::Result {
        return None;
    }
    let held = s
        .places(CONVO)
        .find(|i| s.before(*i, 4, QUANT).is_some())
        .or_else(|| s.places(SECRET).find(|i| s.before(*i, 3, QUANT).is_some()))?;
    let wants = (0..held).find(|i| {
        one(
            s,
            *i,
            words![
                "requires", "demands", "expects", "wants", "needs", "carries", "holds", "takes", "contains",
                "must"
            ],
        )
    })?;
    let field = (0..s.words.len()).find(|j| {
        *j != held
            && (s.is(*j, PARAM) || s.word(*j).is_some_and(|w| w.quoted))
            && (s.placed(*j) || *j < wants)
    })?;
    Seen::new(
        if s.describes() { 0.3 } else { 0.8 },
        wants.min(field),
        held.max(field),
    )
}
