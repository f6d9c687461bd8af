//! From offsets in revealed text back to offsets in the original.

use std::ops::Range;

/// A piecewise shift between two texts. Empty when both are the same.
#[derive(Clone, Debug, Default)]
pub struct OffsetMap {
    // (offset in the new text, offset in the original) where a new piece starts, rising in both.
    pieces: Vec<(u32, u32)>,
}

impl OffsetMap {
    /// Says that from here on `new` stands for `original`. Offsets beyond 4 GiB are not told apart.
    pub(super) fn mark(&mut self, new: usize, original: usize) {
        let piece = (narrow(new), narrow(original));
        match self.pieces.last_mut() {
            Some(last) if last.0 == piece.0 => *last = piece,
            Some(last) if piece.0 - last.0 == piece.1.saturating_sub(last.1) && piece.1 >= last.1 => {}
            None if piece.0 == piece.1 => {}
            _ => self.pieces.push(piece),
        }
    }

    /// The original offset that `offset` of the new text stands for.
    pub fn original(&self, offset: usize) -> usize {
        let new = narrow(offset);
        let after = self.pieces.partition_point(|piece| piece.0 <= new);
        let Some(&(start, original)) = after.checked_sub(1).and_then(|i| self.pieces.get(i)) else {
            return offset;
        };
        let ahead = original.saturating_add(new - start);
        let bound = self.pieces.get(after).map_or(u32::MAX, |next| next.1);
        ahead.min(bound) as usize
    }

    /// The original range that `range` of the new text stands for, cut to `length` bytes.
    pub fn original_range(&self, range: Range<usize>, length: usize) -> Range<usize> {
        let start = self.original(range.start).min(length);
        let end = self.original(range.end).min(length).max(start);
        start..end
    }
}

fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_shift_what_follows_them() {
        let mut map = OffsetMap::default();
        map.mark(0, 0);
        map.mark(2, 5); // three bytes were removed after offset 2
        map.mark(6, 9); // same shift: no new piece
        assert_eq!(map.original(1), 1);
        assert_eq!(map.original(2), 5);
        assert_eq!(map.original_range(1..7, 100), 1..10);
        assert_eq!(map.pieces.len(), 1);
    }
}
