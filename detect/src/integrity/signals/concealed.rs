//! Hiding itself: invisible characters, look-alike letters, escapes, disguised words.

use std::ops::Range;

use super::Signal;
use crate::integrity::sentence::Channel;
use crate::integrity::words::Spelling;
use crate::text::{Concealed, Concealment};

/// A way of hiding that was seen. Spans of [`Concealed`] are offsets in the original text.
#[derive(Clone, Debug)]
pub(in crate::integrity) struct Hidden {
    pub(in crate::integrity) signal: Signal,
    pub(in crate::integrity) strength: f64,
    pub(in crate::integrity) span: Range<usize>,
    /// Whether `span` is in the original rather than in the revealed text.
    pub(in crate::integrity) original: bool,
}

/// Strengths of what the normalisation had to undo.
pub(in crate::integrity) fn hidden(
    concealed: &[Concealed],
    spelling: &Spelling,
    channel: Channel,
) -> Vec<Hidden> {
    let result = channel == Channel::Result;
    let mut found: Vec<Hidden> = concealed
        .iter()
        .filter_map(|c| {
            let many = |few: f64, some: f64, lots: f64| match c.count {
                0..=2 => few,
                3..=9 => some,
                _ => lots,
            };
            let (signal, strength) = match c.way {
                Concealment::Tags => (Signal::Invisible, many(0.3, 0.9, 1.0)),
                Concealment::VariationSelectors => (Signal::Invisible, many(0.0, 0.7, 1.0)),
                Concealment::ZeroWidth => (
                    Signal::Invisible,
                    if result {
                        many(0.05, 0.2, 0.6)
                    } else {
                        many(0.15, 0.6, 1.0)
                    },
                ),
                Concealment::Bidi => (Signal::Invisible, if result { 0.3 } else { 0.6 }),
                Concealment::Terminal => (Signal::Invisible, if result { 0.3 } else { 0.9 }),
                Concealment::Compatibility => (Signal::Lookalikes, many(0.05, 0.3, 0.9)),
                Concealment::Escapes => (Signal::Escaped, many(0.0, 0.2, 1.0)),
            };
            (strength > 0.0).then(|| Hidden {
                signal,
                strength,
                span: c.span.clone(),
                original: true,
            })
        })
        .collect();
    let mut spelled = |signal, strength: f64, span: Range<usize>| {
        found.push(Hidden {
            signal,
            strength,
            span,
            original: false,
        });
    };
    let odd = spelling.odd.start..spelling.odd.end;
    match spelling.lookalikes {
        0 | 1 => {}
        2 | 3 => spelled(Signal::Lookalikes, 0.7, odd.clone()),
        _ => spelled(Signal::Lookalikes, 1.0, odd.clone()),
    }
    if spelling.leet >= 3 {
        spelled(Signal::Disguised, 0.9, odd);
    }
    if spelling.spaced.count >= 12 {
        spelled(Signal::Disguised, 0.8, spelling.spaced.start..spelling.spaced.end);
    }
    found
}
