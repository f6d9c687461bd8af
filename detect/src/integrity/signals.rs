//! The table of signals: what an instruction to a model is, one named unit each.
//!
//! A signal's strength (0..1) times its weight goes into the noisy-OR. The name before the dot is the family of
//! seed 001.

mod agent;
mod beacon;
mod block;
mod command;
mod concealed;
mod cross_tool;
mod diverted;
mod exfiltration;
mod hush;
mod secrecy;
mod standing;

pub(super) use block::markup;
pub(super) use concealed::hidden;

use super::lexicon::{
    ACT, ALWAYS, AND, APPLY, ASK, BEFORE, BEHAVE, BYPASS, CONVO, COVERT, Classes, DECODE, DEST, EXEC, EXTERN,
    FAIL, FOLLOW, FOREIGN, GRANTED, GUARD, IDENT, IGNORE, INSERT, MEMORY, MENTION, MODAL, MODEL, NEG, NOTE,
    NOW, OTHER, PERSONA, PREFER, PRIOR, QUANT, READ, RECIPIENT, RESPOND, RULES, SAFETY, SECRET, SEND, SHELL,
    SHOW, SYSTEM, TELL, THIS, TOOL, UNBOUND, USER, WHEN, YOU, YOUR,
};
use super::sentence::{Channel, Seen, Sentence};
use super::words::{Spelling, Visitor, Word, sentences};

macro_rules! signals {
    ($($variant:ident = $name:literal, $weight:literal;)*) => {
        /// A named signal.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub(super) enum Signal { $($variant),* }

        impl Signal {
            /// All signals, in the order of the table.
            pub(super) const ALL: &[Self] = &[$(Self::$variant),*];

            /// Family and name.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Most that the signal can contribute, 0..1.
            pub(super) const fn weight(self) -> f64 {
                match self { $(Self::$variant => $weight),* }
            }
        }
    };
}

signals! {
    Override = "model_directed_imperative.override", 0.75;
    Protections = "model_directed_imperative.protections_off", 0.60;
    Redirected = "model_directed_imperative.answer_redirected", 0.58;
    Secrecy = "model_directed_imperative.secrecy", 0.62;
    Approval = "model_directed_imperative.approval_skipped", 0.58;
    Agent = "model_directed_imperative.agent_does", 0.50;
    Hush = "model_directed_imperative.hushed_up", 0.50;
    Addressed = "model_directed_imperative.addressed", 0.44;
    Obey = "model_directed_imperative.obey_text", 0.50;
    Authority = "model_directed_imperative.authority", 0.34;
    Persona = "model_directed_imperative.persona", 0.58;
    Priority = "model_directed_imperative.priority", 0.60;
    Persistence = "model_directed_imperative.persistence", 0.40;
    Rider = "model_directed_imperative.answer_rider", 0.34;
    Precondition = "model_directed_imperative.precondition", 0.34;
    Task = "model_directed_imperative.task_reference", 0.30;
    Wording = "model_directed_imperative.wording", 0.60;
    Coercion = "model_directed_imperative.coercion", 0.15;
    Template = "instruction_block.template", 0.60;
    Tag = "instruction_block.tag", 0.36;
    Comment = "instruction_block.comment", 0.40;
    PushedAway = "instruction_block.pushed_away", 0.34;
    Secret = "exfiltration_shape.secret", 0.70;
    Sent = "exfiltration_shape.sent_away", 0.66;
    SideParameter = "exfiltration_shape.side_parameter", 0.60;
    Beacon = "exfiltration_shape.link_with_data", 0.60;
    Shell = "exfiltration_shape.shell", 0.66;
    Rerouted = "exfiltration_shape.rerouted", 0.58;
    Servers = "cross_tool_reference.servers", 0.50;
    Occasion = "cross_tool_reference.occasion", 0.50;
    Behaviour = "cross_tool_reference.behaviour", 0.60;
    Call = "cross_tool_reference.call", 0.58;
    Invisible = "invisible_unicode.characters", 0.80;
    Lookalikes = "invisible_unicode.lookalikes", 0.50;
    Escaped = "encoded_blob.escapes", 0.45;
    Disguised = "encoded_blob.disguised_words", 0.45;
    Encoded = "encoded_blob.text", 0.30;
    Decode = "encoded_blob.decode_and_obey", 0.56;
    Rewrite = "rewrite_magnitude.share", 0.15;
}

/// A signal with two sets of classes: unless the sentence has one of each, the unit cannot fire and is not run.
struct Unit {
    signal: Signal,
    needs: [Classes; 2],
    run: fn(&Sentence<'_>) -> Option<Seen>,
}

const ANY: Classes = Classes::MAX;
const DOING: Classes = READ | SEND | INSERT | SHOW | EXEC | ACT;

macro_rules! units {
    ($($signal:ident: [$first:expr, $second:expr] => $run:path;)*) => {
        &[$(Unit { signal: Signal::$signal, needs: [$first, $second], run: $run }),*]
    };
}

const UNITS: &[Unit] = units! {
    Override: [IGNORE | BYPASS | NEG, RULES | GUARD | USER | RESPOND] => command::overrides;
    Protections: [IGNORE | BYPASS | NEG, SAFETY] => command::protections;
    Redirected: [IGNORE, SHOW | EXEC | TELL] => command::redirected;
    Obey: [FOLLOW | EXEC, RULES | SHELL] => command::obey;
    Persona: [PERSONA | UNBOUND | YOU, PERSONA | UNBOUND | NOW | GRANTED] => command::persona;
    Priority: [TOOL, THIS | OTHER] => command::priority;
    Persistence: [MEMORY, DOING | MEMORY | YOU] => command::persistence;
    Rider: [RESPOND, INSERT | SHOW] => command::rider;
    Precondition: [BEFORE, DOING | YOU] => command::precondition;
    Task: [RESPOND | RULES | YOU, DOING | YOU | RULES] => command::task;
    Addressed: [MODEL, ANY] => command::addressed;
    Agent: [MODEL | USER, DOING | TELL | FOLLOW | IGNORE | BYPASS] => agent::does;
    Hush: [RESPOND | COVERT | NEG | PERSONA | WHEN, ANY] => hush::hushed;
    Authority: [SYSTEM | NOTE | RULES, SYSTEM | UNBOUND | BYPASS | SAFETY | COVERT] => command::authority;
    Coercion: [NOTE | MODAL | ALWAYS | FAIL, ANY] => command::coercion;
    Secrecy: [NEG | COVERT | APPLY, ANY] => secrecy::secrecy;
    Approval: [ASK | GRANTED | ACT, ANY] => secrecy::approval;
    Secret: [SECRET | CONVO, READ | SEND | INSERT | SHOW] => exfiltration::secret;
    Sent: [SEND | SHELL, DEST | EXTERN] => exfiltration::sent;
    SideParameter: [INSERT | SEND | CONVO, ANY] => exfiltration::side_parameter;
    Shell: [SHELL, ANY] => exfiltration::shell;
    Rerouted: [ACT | PREFER, ACT | SEND | RECIPIENT] => exfiltration::rerouted;
    Decode: [DECODE, FOLLOW | EXEC] => exfiltration::decode;
    Servers: [OTHER, TOOL] => cross_tool::servers;
    Occasion: [WHEN | MODAL, IDENT] => cross_tool::occasion;
    Behaviour: [BEHAVE | PERSONA, ACT | BYPASS] => cross_tool::behaviour;
    Call: [EXEC, IDENT | TOOL | DEST] => cross_tool::call;
    Priority: [EXEC | ASK | PREFER | THIS, THIS | QUANT | OTHER | NEG] => standing::primacy;
    Priority: [THIS, OTHER | IDENT] => standing::rivals;
    Override: [RULES | GUARD | USER | SYSTEM | PRIOR | SAFETY, ANY] => standing::outranks;
    Obey: [FOLLOW | EXEC | AND, ANY] => standing::at_its_word;
    Persona: [YOU | YOUR | FAIL | NEG, ANY] => standing::renamed;
    Approval: [ASK, ANY] => standing::beforehand;
    Persistence: [INSERT | ACT | SHOW, ANY] => diverted::planted;
    Rerouted: [DEST | PREFER | ACT | SEND | RECIPIENT, ANY] => diverted::diverted;
    Secret: [SECRET | CONVO, SEND | INSERT] => diverted::threatened;
    SideParameter: [SECRET | CONVO, QUANT] => diverted::wanted;
};

/// Who reads a text sentence by sentence. What is kept and met again is that of [`Visitor`].
pub(super) trait Reads {
    /// A sentence; nothing for one without a known word.
    fn sentence(&mut self, sentence: Option<&Sentence<'_>>);

    fn keep(&mut self, slot: usize, start: usize) -> bool;

    fn again(&mut self, slot: usize, start: usize) -> bool;
}

/// Hands each sentence of `text` to `to`.
pub(super) fn read(text: &str, channel: Channel, to: &mut impl Reads) -> Spelling {
    let mut reading = Reading {
        text,
        channel,
        index: 0,
        secret_at: None,
        mentioned: false,
        union: 0,
        ordinary: false,
        to,
    };
    sentences(text, &mut reading)
}

/// What the sentences before say about one.
struct Reading<'t, R> {
    text: &'t str,
    channel: Channel,
    index: usize,
    secret_at: Option<usize>,
    mentioned: bool,
    /// Classes of the last sentence.
    union: Classes,
    /// Nothing before the last sentence had a bearing on it.
    ordinary: bool,
    to: &'t mut R,
}

impl<R> Reading<'_, R> {
    fn after_secret(&self) -> bool {
        self.secret_at.is_some_and(|at| self.index - at <= 2)
    }
}

impl<R: Reads> Visitor for Reading<'_, R> {
    fn sentence(&mut self, words: &[Word]) {
        let union: Classes = words.iter().fold(0, |u, w| u | w.classes);
        let sentence = Sentence {
            text: self.text,
            words,
            union,
            channel: self.channel,
            index: self.index,
            after_secret: self.after_secret(),
            about_attacks: self.mentioned || union & MENTION != 0,
        };
        self.ordinary = self.index > 0 && !self.mentioned && !sentence.after_secret;
        self.mentioned = union & MENTION != 0;
        self.union = union;
        if union & SECRET != 0 && sentence.commands(READ).any(|c| c.1 >= 0.9) {
            self.secret_at = Some(self.index);
        }
        self.index += 1;
        self.to.sentence((union & !FOREIGN != 0).then_some(&sentence));
    }

    fn keep(&mut self, slot: usize, start: usize) -> bool {
        self.ordinary && self.union & (SECRET | MENTION) == 0 && self.to.keep(slot, start)
    }

    fn again(&mut self, slot: usize, start: usize) -> bool {
        let same = self.index > 0 && !self.mentioned && !self.after_secret() && self.to.again(slot, start);
        self.index += usize::from(same);
        same
    }
}

/// Runs every sentence signal that can fire.
pub(super) fn sentence(sentence: &Sentence<'_>, mut hit: impl FnMut(Signal, Seen)) {
    for unit in UNITS {
        if unit.needs.iter().all(|needed| sentence.any(*needed))
            && let Some(seen) = (unit.run)(sentence)
        {
            hit(unit.signal, discounted(sentence, seen));
        }
    }
}

/// Talk about attacks is no attack: quoted words in a sentence on attacks, option lists of a command line.
fn discounted(sentence: &Sentence<'_>, seen: Seen) -> Seen {
    let quoted = (seen.from..=seen.to)
        .filter(|i| sentence.word(*i).is_some_and(|w| w.quoted))
        .count();
    let mostly_quoted = quoted * 2 > seen.to - seen.from + 1;
    let factor = match (sentence.any(MENTION), mostly_quoted) {
        (true, true) => 0.15,
        (false, true) if sentence.about_attacks => 0.3,
        (true, false) => 0.7,
        (false, true) if sentence.channel == Channel::Result => 0.8,
        _ => 1.0,
    };
    Seen {
        strength: seen.strength * factor,
        ..seen
    }
}

#[cfg(test)]
mod tests;
