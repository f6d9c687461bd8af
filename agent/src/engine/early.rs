//! What an agent wrote before its server's streams were watched.
//!
//! The streams of an agent that is known are watched before its server runs. A program that nobody knows yet is first
//! looked at when its child has run an exec, up to a millisecond later, and may have written its opening line by then. That
//! line still lies in the server's standard input, unless the server was quicker: a copy of it goes before what is captured.

use bytes::Bytes;

/// Most bytes that are copied: more than any opening line that a client was seen to write.
pub(super) const MOST: usize = 256 << 10;

/// A copy of what lay unread when the watch began.
#[derive(Debug)]
pub(super) struct Early {
    bytes: Bytes,
    /// What is captured may repeat the copy: a call can return after the copy was made, or have been read twice
    /// between the beginning of the watch and the copy. This far the captured bytes were the copy's; none before the first.
    repeated: Option<usize>,
}

impl Early {
    /// A copy; none where nothing lay there.
    pub(super) fn new(bytes: Vec<u8>) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self {
            bytes: bytes.into(),
            repeated: None,
        })
    }

    /// The copy.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// What of captured bytes is not in the copy, and whether later ones may still be.
    pub(super) fn rest(&mut self, captured: &Bytes) -> (Bytes, bool) {
        let begins = match self.repeated {
            Some(at) => Some(at),
            None => self.lines().find(|at| self.shared(*at, captured) > 0),
        };
        let Some(at) = begins else {
            return (captured.clone(), false);
        };
        let shared = self.shared(at, captured);
        let next = at + shared;
        self.repeated = Some(next);
        (captured.slice(shared..), shared > 0 && next < self.bytes.len())
    }

    /// Where lines of the copy begin: calls begin with a line.
    fn lines(&self) -> impl Iterator<Item = usize> {
        let after = |(at, byte): (usize, &u8)| (*byte == b'\n').then_some(at + 1);
        std::iter::once(0).chain(self.bytes.iter().enumerate().filter_map(after))
    }

    /// How many bytes the two share, if one of them ends there; 0 where they differ before.
    fn shared(&self, at: usize, captured: &[u8]) -> usize {
        let copy = self.bytes.get(at..).unwrap_or_default();
        let both = copy.len().min(captured.len());
        if copy.get(..both) == captured.get(..both) {
            both
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(copy: &str, captured: &[&str]) -> String {
        let mut early = Early::new(copy.as_bytes().to_vec());
        let mut whole = copy.to_owned();
        for piece in captured {
            let piece = Bytes::copy_from_slice(piece.as_bytes());
            let mut kept = piece.clone();
            if let Some(open) = &mut early {
                let (left, more) = open.rest(&piece);
                kept = left;
                if !more {
                    early = None;
                }
            }
            whole.push_str(std::str::from_utf8(&kept).unwrap());
        }
        whole
    }

    #[test]
    fn what_was_copied_and_captured_is_there_once() {
        let all = "{1}\n{2}\n{3}\n{4}\n";
        assert_eq!(rest("{1}\n{2}\n", &["{3}\n", "{4}\n"]), all, "nothing twice");
        assert_eq!(
            rest("{1}\n{2}\n", &["{2}\n", "{3}\n", "{4}\n"]),
            all,
            "the last one"
        );
        assert_eq!(rest("{1}\n{2}\n", &["{1}\n", "{2}\n", "{3}\n{4}\n"]), all, "all");
        assert_eq!(
            rest("{1}\n{2}\n", &["{2}\n{3}\n", "{4}\n"]),
            all,
            "a call that went on"
        );
        assert_eq!(
            rest("{1}\n{2", &["{2}\n", "{3}\n{4}\n"]),
            all,
            "a call that waited for room"
        );
        assert_eq!(
            rest("{1}\n{2}\n{3", &["{2}\n{", "3}", "\n{4}\n"]),
            all,
            "in chunks"
        );
        assert_eq!(rest("", &[all]), all);
    }

    #[test]
    fn equal_lines_are_taken_for_the_earliest() {
        assert_eq!(
            rest("{1}\n{1}\n", &["{1}\n", "{1}\n", "{1}\n"]),
            "{1}\n{1}\n{1}\n"
        );
    }
}
