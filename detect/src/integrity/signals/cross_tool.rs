//! One server's text about the tools of others.

use crate::integrity::lexicon::{
    ACT, ALWAYS, BEFORE, BEHAVE, BYPASS, CONTENT, COVERT, DANGER, DEST, EXEC, IDENT, INSERT, MODAL, NOW,
    OFFER, OTHER, PATH, PERSONA, PREFER, QUANT, READ, RECIPIENT, SECRET, SEND, SHELL, SHOW, TELL, THIS, TOOL,
    WHEN, YOU, words,
};
use crate::integrity::sentence::{Channel, Seen, Sentence};

const DOING: u64 = READ | SEND | INSERT | SHOW | EXEC | ACT;

/// Rules for other servers or all tools.
pub(super) fn servers(s: &Sentence<'_>) -> Option<Seen> {
    // "See other tools" refers to their documentation.
    let i = s.places(OTHER).find(|i| {
        let referred = *i > 0 && s.spelled(*i - 1).eq_ignore_ascii_case("see");
        s.after(*i, 2, TOOL).is_some() && !referred
    })?;
    let ordered = s
        .commands(DOING)
        .find(|c| c.1 >= 0.9 && (c.0 < i || c.0 < s.clause_end(i, 20) || s.any(BEFORE)));
    let urged = s
        .places(MODAL | ALWAYS)
        .any(|m| !s.spells(m, words!["need", "needs", "requires"]));
    let strength = match ordered {
        Some(_) if urged => 0.9,
        Some(_) => 0.5,
        None if urged => 0.5,
        None => 0.0,
    };
    // "Call get_started before any other tool of this server": how honest servers chain their own tools.
    let own = ordered.is_some_and(|(call, _)| {
        s.is(call, EXEC)
            && (s.clause(call, 2, IDENT).is_some() || s.before(call, 4, IDENT).is_some())
            && s.clause(call, 2, THIS).is_none()
    }) || s
        .after(i, 4, THIS)
        .is_some_and(|this| s.before(this, 1, TOOL).is_some() || s.spells(this - 1, words!["of"]));
    let strength = if own && !s.any(PREFER | COVERT | SECRET) {
        strength * 0.25
    } else {
        strength
    };
    Seen::new(strength, i, ordered.map_or(i, |o| o.0))
}

/// "Whenever you call `x`, do y".
pub(super) fn occasion(s: &Sentence<'_>) -> Option<Seen> {
    if s.channel == Channel::Result || !s.any(IDENT | TOOL) {
        return None;
    }
    // "Should `x` be called, ..."
    let inverted = s.spells(0, words!["should"]).then_some(0);
    s.places(WHEN).chain(inverted).find_map(|i| {
        let name = s.after(i, 6, IDENT)?;
        // "When `x` is true, call again": another clause.
        let called = s
            .near(name, 4, EXEC | OFFER)
            .filter(|c| *c < name || s.clause_end(name, 5) > *c)
            .or_else(|| s.before(name, 4, EXEC | OFFER))?;
        let ordered = s
            .commands(DOING | TELL)
            .find(|c| c.1 >= 0.9 && c.0 != called && c.0 > i)?;
        let heavy = s.any(MODAL | QUANT | DEST | PREFER | RECIPIENT | CONTENT);
        Seen::new(if heavy { 0.8 } else { 0.4 }, i, ordered.0.max(name))
    })
}

/// Another tool is said to behave differently now.
pub(super) fn behaviour(s: &Sentence<'_>) -> Option<Seen> {
    s.places(BEHAVE | PERSONA).find_map(|i| {
        let changed = s.near(i, 6, ACT | BYPASS)?;
        let other = s
            .near(i, 6, IDENT)
            .or_else(|| s.places(QUANT | OTHER).find(|q| s.after(*q, 3, TOOL).is_some()))?;
        // "becomes", "acts": of anything.
        Seen::new(if s.is(i, BEHAVE) { 0.9 } else { 0.5 }, changed, other)
    })
}

/// A tool call is ordered.
pub(super) fn call(s: &Sentence<'_>) -> Option<Seen> {
    let mut best = None;
    for (i, force) in s.commands(EXEC) {
        if force < 0.9
            || s.is(i, SHELL)
            || ["use", "install", "start", "issue"].contains(&s.spelled(i).to_ascii_lowercase().as_str())
        {
            continue;
        }
        let tool = |t: usize| s.before(t, 2, THIS).is_none();
        let place = s.clause(i, 8, DEST).filter(|_| s.channel == Channel::Result);
        let name = s
            .clause(i, 5, IDENT | DANGER)
            .or_else(|| s.clause(i, 3, TOOL).filter(|t| tool(*t)));
        let Some(name) = name.or(place) else { continue };
        let mut strength: f64 = 0.0;
        if s.is(name, DANGER | SECRET) || s.is(name, TOOL) && s.is(name.saturating_sub(1), SHELL) {
            strength += 0.4;
        }
        if s.any(DEST) {
            strength += 0.35;
        }
        if s.after(name, 10, SECRET | PATH).is_some() {
            strength += 0.2;
        }
        if s.any(COVERT) {
            strength += 0.3;
        }
        if s.after(name, 8, QUANT).is_some() {
            strength += 0.2;
        }
        if s.channel == Channel::Result {
            strength += 0.15;
            if s.any(MODAL | YOU) {
                strength += 0.2;
            }
            if s.any(NOW | BEFORE) {
                strength += 0.3;
            }
        } else if s.any(ALWAYS) && s.after(name, 12, QUANT).is_some() {
            strength += 0.2;
        }
        best = Seen::best(best, Seen::new(strength, i, name));
    }
    best
}
