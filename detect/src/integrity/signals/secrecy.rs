//! What is kept from the person: silence, and consent that nobody gave.

use crate::integrity::lexicon::{
    ACT, APPLY, ASK, BASE, BEFORE, BYPASS, COVERT, EXEC, FOLLOW, FOREIGN, GRANTED, IGNORE, ING, INSERT,
    MODAL, MODEL, NEG, NOW, PAST, QUANT, READ, RESPOND, SECRET, SEND, SHOW, SYSTEM, TELL, THIRD, THIS, USER,
    WHEN, words,
};
use crate::integrity::sentence::{Channel, Seen, Sentence};

const DOING: u64 = READ | SEND | INSERT | SHOW | EXEC | ACT;

/// The person is not to know.
pub(super) fn secrecy(s: &Sentence<'_>) -> Option<Seen> {
    let mut best = None;
    for i in s.places(NEG) {
        // "do not tell the user", "without mentioning it"
        if let Some(tell) = s.clause(i, 4, TELL) {
            let word = s.word(tell)?;
            let weak = word.is(SHOW);
            // "Tell the user" names the hearer; "mention users" names the topic, "mention it to the user" the hearer.
            let hears = words![
                "tell",
                "telling",
                "told",
                "inform",
                "informing",
                "notify",
                "notifying",
                "warn",
                "let",
                "alert",
            ];
            let direct = word.is(FOREIGN) || s.spells(tell, hears);
            let person = s
                .after(tell, 6, USER)
                .filter(|p| direct || (tell..*p).any(|j| s.spells(j, words!["to", "with", "before"])));
            let pointer = s.after(tell, 3, THIS);
            let strength = match (person, pointer) {
                // A customer or client is somebody else's person; "anybody" in a mail is no user of a model.
                (Some(p), _) if s.is(p, ING) => 0.5,
                (Some(p), _) if s.channel == Channel::Result && s.spelled(p).starts_with("any") => 0.6,
                // "Never expose errors to the user": what a thing shows, unless the thing is this text.
                (Some(_), None) if weak => 0.5,
                (None, _) if weak => 0.1,
                (Some(p), _) if p - tell <= 4 => 1.0,
                (Some(_), Some(_)) => 1.0,
                (Some(_), None) => 0.6,
                (None, Some(_)) => 0.7,
                (None, None) if s.channel == Channel::Result && word.is(BASE) => 0.4,
                (None, None) => 0.15,
            };
            let form = if word.is(THIRD) && !word.is(BASE) {
                0.4
            } else {
                1.0
            };
            // "does not show the value to the user": said of the tool, not to the model.
            let declared = s.before(i, 2, THIRD | THIS).is_some()
                && s.before(i, 3, MODAL).is_none()
                && !s.is(i + 1, MODAL);
            let strength = if weak { strength * 0.8 } else { strength };
            // "You don't need to tell them" leaves it open.
            let strength = if s.is(i + 1, MODAL) {
                strength * 0.45
            } else {
                strength
            };
            // "... before you have checked": not never.
            let later = person.is_some_and(|p| s.after(p, 12, BEFORE).is_some());
            let strength = if later { strength * 0.45 } else { strength };
            // "Never tell anybody your password": advice to keep a secret, and none about what is done here.
            let guarded = s.after(tell, 4, SECRET).is_some() && pointer.is_none();
            let strength = if guarded { strength * 0.2 } else { strength };
            best = Seen::best(
                best,
                Seen::new(
                    strength * form * if declared { 0.5 } else { 1.0 },
                    i,
                    person.or(pointer).unwrap_or(tell),
                ),
            );
        }
        // "the user should not be informed", "the user cannot see this"
        if let Some(user) = s.before(i, 5, USER)
            && let Some(tell) = s.after(i, 3, TELL)
            && s.clause_end(i, 3) > tell
            // "what the user has not mentioned": the user speaks.
            && !s.spells(user + 1, words!["has", "have", "had", "did"])
            && (s.between(user, i, MODAL | THIRD) || s.after(tell, 2, THIS).is_some())
            && (!s.is(tell, SHOW) || s.between(user, i, MODAL))
        {
            best = Seen::best(best, Seen::new(0.9, user, tell));
        }
    }
    // Languages that negate after the verb.
    for tell in s.places(TELL).filter(|t| s.is(*t, FOREIGN)) {
        if let Some(neg) = s.after(tell, 3, NEG)
            && let Some(user) = s.near(tell, 6, USER | RESPOND)
        {
            best = Seen::best(best, Seen::new(0.9, user, neg));
        }
    }
    // "keep this from the customer", "leave it out of your reply"
    for i in s.places(APPLY) {
        if s.spells(i, words!["keep"])
            && let Some(user) = s.after(i, 6, USER)
            && (i..user).any(|j| s.spells(j, words!["from"]))
        {
            let strength = if s.is(user, ING) { 0.5 } else { 0.9 };
            best = Seen::best(best, Seen::new(strength, i, user));
        }
        if s.spells(i, words!["leave"])
            && s.is(i + 1, THIS)
            && let Some(reply) = s.after(i, 7, RESPOND | TELL)
        {
            best = Seen::best(best, Seen::new(0.7, i, reply));
        }
    }
    for i in s.places(COVERT) {
        // "hide this from the user"
        if s.is(i, BASE)
            && s.commanded(i) >= 0.9
            && let Some(user) = s.after(i, 7, USER)
        {
            let kept = (i..user).any(|j| s.spells(j, words!["from"]));
            best = Seen::best(best, Seen::new(if kept { 0.9 } else { 0.3 }, i, user));
        }
        // "Hides replies" is a verb of its own; only an adverb says how something is done.
        let adverb = !s.is(i, BASE | THIRD | PAST | ING);
        if let Some(verb) = s.near(i, 3, DOING).filter(|v| adverb && !s.is(*v, IGNORE)) {
            let word = s.word(verb)?;
            let strength = if word.is(THIRD) {
                0.7
            } else if word.is(PAST) {
                0.6
            } else if word.is(ING) {
                0.3
            } else {
                0.9
            };
            let states = s.index == 0 && s.words.first().is_some_and(|w| w.is(THIRD));
            let strength = if (s.describes() || states) && s.channel != Channel::Result {
                strength * 0.4
            } else {
                strength
            };
            best = Seen::best(best, Seen::new(strength, i, verb));
        }
        // "keep quiet about it"
        if let Some(about) = s.after(i, 3, THIS | USER)
            && s.word(i).is_some_and(|w| w.has(COVERT | TELL))
        {
            best = Seen::best(best, Seen::new(0.9, i, about));
        }
    }
    best
}

/// Consent is skipped, assumed or given wholesale.
pub(super) fn approval(s: &Sentence<'_>) -> Option<Seen> {
    if !s.any(ASK | GRANTED | ACT) {
        return None;
    }
    // Option lists of a command line offer this honestly.
    let option_list = s.written().contains("--") || s.written().starts_with('-');
    let damp = if option_list { 0.2 } else { 1.0 };
    let mut best = None;
    for i in s.places(NEG | BYPASS) {
        if let Some(ask) = s.after(i, 4, ASK)
            && ask != i
            && !s.is(i, THIRD)
            // "no pending review" is a state.
            && (ask == i + 1
                || !s.spells(ask, words!["review", "question", "questions"]))
        {
            let commanded = s
                .places(DOING | FOLLOW | RESPOND)
                .any(|v| v != i && v != ask && s.commanded(v) > 0.8);
            let skipped = s.is(i, BYPASS) && s.commanded(i) > 0.8 && s.between(i, ask, QUANT);
            // "Never send it without asking": two negations are a demand to ask.
            let demanded = s.before(i, 14, NEG).is_some_and(|first| {
                s.spells(i, words!["without"]) && s.places(DOING).any(|v| first < v && v < i)
            });
            let strength = if demanded {
                0.1
            } else if s.describes() {
                0.2
            } else if (commanded || skipped) && (s.any(USER | QUANT | FOLLOW | NOW) || !s.is(ask, BASE)) {
                0.85
            } else if commanded || skipped {
                0.45
            } else if s.any(NOW) && s.after(ask, 3, ASK).is_some() {
                0.7
            } else if s.any(DOING) {
                0.3
            } else {
                0.1
            };
            best = Seen::best(best, Seen::new(strength * damp, i, ask));
        }
    }
    for i in s.places(ASK) {
        // "confirmation dialogs are disabled"
        if let Some(off) = s.after(i, 4, BYPASS).filter(|o| s.is(*o, PAST)) {
            best = Seen::best(best, Seen::new(0.9, i, off));
        }
        // "answer permission questions with yes"
        if let Some(verb) = s.before(i, 2, RESPOND | FOLLOW | ACT)
            && s.commanded(verb) > 0.8
            && s.after(i, 3, GRANTED).is_some()
        {
            best = Seen::best(best, Seen::new(0.9, verb, i));
        }
    }
    for i in s.places(GRANTED) {
        // "the user has already approved all actions"
        let by = s.before(i, 5, USER | SYSTEM | MODEL);
        let all = s.after(i, 4, QUANT | ACT | DOING);
        if let (Some(by), Some(all)) = (by, all) {
            let strength = if s.is(all, QUANT) || s.is(i + 2, DOING) {
                0.8
            } else {
                0.4
            };
            // "once the user has agreed", "get a yes before sending it": a condition and no consent.
            let condition =
                s.before(by, 4, WHEN | BEFORE | MODAL).is_some() || s.after(i, 2, BEFORE | WHEN).is_some();
            let strength = if condition { strength * 0.2 } else { strength };
            best = Seen::best(best, Seen::new(strength, by, all));
        }
    }
    // "grant every request", "approve each request"
    for (i, force) in s.commands(ACT) {
        if let Some(all) = s.after(i, 1, QUANT)
            && s.after(all, 2, RESPOND | ASK).is_some()
        {
            best = Seen::best(best, Seen::new(0.9 * force, i, all));
        }
    }
    best
}
