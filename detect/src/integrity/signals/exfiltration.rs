//! Where data should go: secrets taken, contents carried out, commands piped, payments rerouted.

use crate::integrity::lexicon::{
    ACT, ALWAYS, BASE, BEFORE, CONTENT, CONVO, COVERT, DECODE, DEST, EXEC, EXTERN, FOLLOW, FOREIGN, IDENT,
    INSERT, MODAL, MODEL, NEG, PARAM, PAST, PATH, PREFER, QUANT, READ, RECIPIENT, RESPOND, SECRET, SEND,
    SHELL, SHOW, THIRD, THIS, USER, YOU, YOUR, words,
};
use crate::integrity::sentence::{Channel, Seen, Sentence};

/// A command to get at, or pass on, something secret.
pub(super) fn secret(s: &Sentence<'_>) -> Option<Seen> {
    if !s.any(SECRET | CONVO) || !s.any(READ | SEND | INSERT | SHOW) {
        return None;
    }
    let reads = s.commands(READ).any(|c| c.1 >= 0.9);
    let moves = s.commands(INSERT | SEND).any(|(i, force)| {
        force >= 0.9
            && (s.is(i, SEND | FOREIGN) || s.clause(i, 8, THIS | CONTENT | PARAM | RESPOND).is_some())
    });
    let mut best = None;
    for (i, force) in s.commands(READ | SEND | INSERT | SHOW) {
        // Passives and verb-final languages put the object first.
        let object = s.clause(i, 10, SECRET | CONVO).or_else(|| {
            s.is(i, FOREIGN | PAST)
                .then(|| s.before(i, 10, SECRET | CONVO))
                .flatten()
        });
        let Some(target) = object.filter(|t| *t != i) else {
            continue;
        };
        // `cp .env.example .env`: a template filled by hand.
        if s.is(target, PATH) && (i..(target + 4).min(s.words.len())).any(|j| template(s.spelled(j))) {
            continue;
        }
        // `export NAME=...` of a shell.
        if s.is(target, IDENT) && s.spells(i, words!["export"]) {
            continue;
        }
        // "Enter your password": the reader has one of their own, and it is not a model.
        let theirs = s.is(target, SECRET) && s.before(target, 2, YOUR).is_some();
        // `Authorization: Bearer ...`: how a request is documented.
        let documented = (i..(target + 2).min(s.words.len()))
            .any(|j| s.spells(j, words!["header", "headers", "authorization"]));
        let advised = theirs || documented || s.foreign_negated(i);
        let hard = s.is(target, SECRET);
        let mut strength: f64 = if s.is(i, SEND) {
            0.42
        } else if s.is(i, INSERT) {
            0.35
        } else if s.is(i, SHOW) {
            0.3
        } else if hard {
            0.25
        } else {
            0.0
        };
        // A file may be placed or shown honestly; its contents are another matter.
        if s.is(target, PATH) && (s.is(i, READ | SEND) || s.between(i, target, CONTENT)) {
            strength += 0.25;
        }
        if reads && moves && hard {
            strength += 0.3;
        }
        if s.any(DEST | EXTERN) && s.any(SEND | INSERT | SHELL) {
            strength += 0.3;
        }
        if s.between(i, target, QUANT | CONTENT) {
            strength += 0.2;
        }
        if s.places(PARAM)
            .any(|p| (p > i || s.is(p, FOREIGN)) && s.placed(p) && p != target)
            && (reads || s.is(target, PATH | CONVO) || s.any(QUANT | CONTENT))
        {
            strength += 0.2;
        }
        if s.any(BEFORE | COVERT) || s.any(MODAL | ALWAYS | YOU) && s.any(RESPOND | CONTENT) {
            strength += 0.2;
        }
        // "retry with the password", "hand over the token to continue"
        if s.channel == Channel::Result
            && hard
            && (0..s.words.len()).any(|j| {
                s.spells(
                    j,
                    words![
                        "retry",
                        "again",
                        "proceed",
                        "continue",
                        "unlock",
                        "refresh",
                        "restore",
                        "otherwise",
                        "next"
                    ],
                )
            })
        {
            strength += 0.35;
        }
        // Honest descriptions open with the verb: "List secrets", "Get messages of a conversation".
        if force < 0.9 {
            strength *= 0.4;
        }
        let strength = strength.min(1.0) * if advised { 0.35 } else { 1.0 };
        best = Seen::best(best, Seen::new(strength * force.max(0.6), i, target));
    }
    best
}

/// Data is sent to a place outside.
pub(super) fn sent(s: &Sentence<'_>) -> Option<Seen> {
    if !s.any(SEND | INSERT | SHELL | EXEC) || !s.any(DEST | EXTERN) {
        return None;
    }
    let mut best = None;
    for i in s.places(SEND | SHELL) {
        let Some(place) = s.near(i, 14, DEST | EXTERN).filter(|p| *p != i) else {
            continue;
        };
        // "your third-party AI model": where the model itself runs.
        if s.is(place, EXTERN) && s.after(place, 3, MODEL).is_some() {
            continue;
        }
        let force = s.commanded(i);
        let declared = if s.is(i, THIRD) && force == 0.0 && !s.negated(i) {
            0.45
        } else {
            0.0
        };
        // `export NAME=...` of a shell.
        if s.spells(i, words!["export"]) && (s.is(i + 1, IDENT) || s.written().contains('=')) {
            continue;
        }
        // "email address", "email: me@host": the noun.
        if s.is(i + 1, RECIPIENT)
            || s.is(i, BASE) && s.spells(i, words!["email"]) && s.word(i).is_some_and(|w| w.colon || w.quoted)
            || s.is(i, SHELL) && !s.any(CONVO | SECRET | CONTENT)
        {
            continue;
        }
        let force = if s.is(i, SHELL) && force > 0.0 {
            1.0
        } else {
            force.max(declared)
        };
        if force <= 0.0 {
            continue;
        }
        let mut strength: f64 = 0.2;
        // A token in the header of a request is how requests are documented.
        let documented = s.is(i, SHELL) && !s.any(CONVO | PATH) && !s.written().contains("$(");
        if !documented && s.any(CONVO | SECRET) || s.places(USER).any(|p| s.personal(p)) {
            strength += 0.5;
        }
        if s.any(QUANT) && s.any(CONTENT | CONVO | USER) {
            strength += 0.35;
        } else if s.any(CONTENT) {
            strength += 0.2;
        }
        if s.any(ALWAYS | MODAL) || s.any(YOU) {
            strength += 0.2;
        }
        if s.is(place, DEST) {
            strength += 0.1;
        }
        best = Seen::best(best, Seen::new(strength.min(1.0) * force, i, place));
    }
    best
}

/// Content is carried in an argument that has another purpose.
pub(super) fn side_parameter(s: &Sentence<'_>) -> Option<Seen> {
    let mut best = None;
    if s.channel == Channel::Parameter
        && let Some(target) = s.places(CONVO).find(|i| s.before(*i, 4, QUANT).is_some())
    {
        let more = s.any(SECRET) || s.places(CONVO).count() > 1 || s.any(NEG);
        best = Seen::new(if more { 1.0 } else { 0.6 }, target.saturating_sub(1), target);
    }
    let reads = s.commands(READ).find(|c| c.1 >= 0.9).map(|c| c.0);
    for (i, force) in s.commands(INSERT | SEND) {
        if force < 0.5 {
            continue;
        }
        let into = (i + 1..s.clause_end(i, 12)).find(|j| {
            s.word(*j)
                .is_some_and(|w| w.quoted && s.channel != Channel::Result || w.is(PARAM))
                && s.placed(*j)
        });
        let into = into.or_else(|| s.is(i, FOREIGN).then(|| s.before(i, 4, PARAM)).flatten());
        let Some(into) = into else { continue };
        let carried = s.between(i, into, THIS | CONTENT | QUANT | CONVO | SECRET);
        let personal = (i..into).any(|j| s.personal(j));
        let strength = if s.after_secret && carried {
            0.9
        } else if reads.is_some_and(|r| r < i) && carried {
            if s.any(SECRET | PATH | CONVO | QUANT) {
                0.9
            } else {
                0.4
            }
        } else if personal
            || s.between(i, into, CONVO | PATH)
            || s.between(i, into, SECRET) && s.between(i, into, QUANT)
        {
            0.7
        } else if s.between(i, into, SECRET) {
            0.35
        } else if s.between(i, into, QUANT) && s.between(i, into, CONTENT) {
            0.4
        } else {
            0.0
        };
        best = Seen::best(best, Seen::new(strength * force, i, into));
    }
    best
}

/// A shell command that fetches code or carries data out.
pub(super) fn shell(s: &Sentence<'_>) -> Option<Seen> {
    let i = s.places(SHELL).next()?;
    let written = s.written();
    let expands = written.contains("$(") || written.contains("${") || written.contains("=$");
    let piped = ["| sh", "| bash", "|sh", "|bash", "| python", "| zsh"]
        .iter()
        .any(|p| written.contains(p));
    let fetches = s.after(i, 6, DEST);
    let ordered = s
        .commands(EXEC | FOLLOW)
        .find(|c| c.1 >= 0.9 && !s.is(c.0, SHELL) && c.0 < i && i - c.0 < 10);
    let silent = s.any(COVERT | BEFORE | MODAL);
    let mut strength: f64 = 0.0;
    if fetches.is_some() {
        strength += 0.2;
    }
    if expands {
        strength += 0.5;
    }
    if piped {
        strength += 0.25;
    }
    if ordered.is_some() {
        strength += 0.3;
    }
    if silent {
        strength += 0.15;
    }
    if s.channel != Channel::Result && fetches.is_some() && !s.describes() {
        strength += 0.2;
    }
    if fetches.is_none() && !expands {
        strength *= 0.3;
    }
    Seen::new(strength, ordered.map_or(i, |o| o.0), fetches.unwrap_or(i))
}

/// Money or mail goes to somebody else.
pub(super) fn rerouted(s: &Sentence<'_>) -> Option<Seen> {
    let changed = s
        .commands(ACT)
        .find(|c| {
            c.1 >= 0.9
                && s.clause(c.0, 12, RECIPIENT | DEST | SEND).is_some()
                && !s.spells(c.0, words!["confirm", "accept", "approve"])
        })
        .map(|c| c.0);
    let instead = s.places(PREFER).next();
    let obliged = s.any(MODAL | ALWAYS) && s.places(PAST).next().is_some();
    if changed.is_none() && (instead.is_none() || !obliged && !s.any(ALWAYS)) {
        return None;
    }
    let i = s
        .places(RECIPIENT | SEND)
        .find(|i| s.is(*i, RECIPIENT) || s.commanded(*i) > 0.8)
        .or(changed)?;
    // An account or telephone number: one long run of digits, or several groups.
    let digits = |j: usize| s.spelled(j).bytes().filter(u8::is_ascii_digit).count();
    let account =
        || (0..s.words.len()).find(|j| digits(*j) > 0 && (*j..j + 6).map(digits).sum::<usize>() >= 8);
    let place = s.places(DEST).next().or_else(account)?;
    let strength = match (changed, instead) {
        (Some(_), _) if s.any(RECIPIENT) || iban(s.spelled(place)) => 0.75,
        (None, Some(_)) => 0.9,
        _ => 0.0,
    };
    Seen::new(strength, i, place)
}

/// Two letters and at least ten digits.
fn iban(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    digits >= 10 && word.bytes().take(2).all(|b| b.is_ascii_uppercase())
}

/// Decode something and do what it says.
pub(super) fn decode(s: &Sentence<'_>) -> Option<Seen> {
    let (i, force) = s.commands(DECODE).next()?;
    let obey = s
        .commands(FOLLOW | EXEC)
        .find(|c| c.0 > i && c.0 - i <= 14 && c.1 >= 0.9)?
        .0;
    Seen::new(force, i, obey)
}

/// Whether a path is that of a sample to be copied.
fn template(path: &str) -> bool {
    [".example", ".sample", ".template", ".dist", ".tpl"]
        .iter()
        .any(|e| path.ends_with(e))
        && path.starts_with(['.', '/', '~'])
        && !path.contains('@')
}
