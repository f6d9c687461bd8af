//! Spans of matches, and how they travel through layers of encoding.
//!
//! A layer (JSON string escapes, percent encoding, ...) is described by its [`Step`]s: which source bytes became
//! how many output bytes. A match found in the output is carried back to the source by running the steps once
//! more, so no offset table is kept however long the text is.

use std::cmp::Reverse;
use std::ops::Range;

use super::class::Class;

/// A match: where it stands and what it is. Holds no text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Hit {
    /// Where the match stands, in the bytes of its layer.
    pub span: Range<usize>,
    /// What it is.
    pub class: Class,
    /// Vendors print this value in their documentation.
    pub documented: bool,
    /// The match is a bare JSON number: its replacement needs quotes, escaped this many times.
    pub number_level: Option<u8>,
}

impl Hit {
    pub(crate) fn new(class: Class, span: Range<usize>) -> Self {
        Self {
            span,
            class,
            documented: false,
            number_level: None,
        }
    }
}

/// One step of a decoder.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Source bytes read.
    pub source: Range<usize>,
    /// Output bytes written.
    pub written: usize,
    /// Output equals source, byte by byte.
    pub verbatim: bool,
}

/// Sorts matches and drops the weaker of each overlapping pair (class order, then length).
pub(crate) fn resolve(hits: &mut Vec<Hit>) {
    if hits.len() < 2 {
        return;
    }
    hits.sort_by_key(|h| (h.span.start, h.class, Reverse(h.span.end)));
    let mut kept: Vec<Hit> = Vec::with_capacity(hits.len());
    'next: for hit in hits.drain(..) {
        while let Some(last) = kept.last() {
            if hit.span.start >= last.span.end {
                break;
            }
            let better =
                hit.class < last.class || (hit.class == last.class && hit.span.len() > last.span.len());
            if !better {
                continue 'next;
            }
            kept.pop();
        }
        kept.push(hit);
    }
    *hits = kept;
}

/// Whether `span` touches any of the sorted, disjoint `hits`.
pub(crate) fn overlaps(hits: &[Hit], span: &Range<usize>) -> bool {
    let at = hits.partition_point(|h| h.span.end <= span.start);
    hits.get(at).is_some_and(|h| h.span.start < span.end)
}

/// Rewrites sorted, disjoint spans of a decoder's output into spans of its source.
pub(crate) fn to_source(steps: impl Iterator<Item = Step>, hits: &mut [Hit]) {
    let mut out = 0;
    let mut next = 0;
    let mut open: Option<usize> = None;
    for step in steps {
        let end = out + step.written;
        loop {
            if let Some(start) = open {
                let Some(hit) = hits.get_mut(next) else { return };
                if hit.span.end > end {
                    break;
                }
                let source_end = if step.verbatim {
                    step.source.start + (hit.span.end - out)
                } else {
                    step.source.end
                };
                hit.span = start..source_end;
                open = None;
                next += 1;
            } else {
                let Some(hit) = hits.get(next) else { return };
                if hit.span.start >= end {
                    break;
                }
                open = Some(if step.verbatim {
                    step.source.start + (hit.span.start - out)
                } else {
                    step.source.start
                });
            }
        }
        out = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_class_keeps_an_overlap() {
        let mut hits = vec![
            Hit::new(Class::NamedSecret, 0..20),
            Hit::new(Class::GithubToken, 4..18),
            Hit::new(Class::Email, 30..40),
            Hit::new(Class::Email, 32..38),
        ];
        resolve(&mut hits);
        let left: Vec<_> = hits.iter().map(|h| (h.class, h.span.clone())).collect();
        assert_eq!(left, [(Class::GithubToken, 4..18), (Class::Email, 30..40)]);
    }

    #[test]
    fn spans_widen_to_whole_escapes() {
        // Output "aXYb" from source "a<...>b" where six source bytes became two.
        let steps = [
            Step {
                source: 0..1,
                written: 1,
                verbatim: true,
            },
            Step {
                source: 1..7,
                written: 2,
                verbatim: false,
            },
            Step {
                source: 7..8,
                written: 1,
                verbatim: true,
            },
        ];
        let mut hits = vec![Hit::new(Class::Email, 0..2), Hit::new(Class::Email, 2..4)];
        to_source(steps.into_iter(), &mut hits);
        assert_eq!(hits.first().map(|h| h.span.clone()), Some(0..7));
        assert_eq!(hits.get(1).map(|h| h.span.clone()), Some(1..8));
    }
}
