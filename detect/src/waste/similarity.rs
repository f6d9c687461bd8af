//! How alike texts are: TF-IDF over character n-grams with smoothed idf and mean pairwise cosine (SPEC section 9), or
//! mean pairwise Jaccard over words.
//!
//! A text is kept as counted, hashed pieces, never as itself. The mean over all pairs needs no pair loop: with unit
//! vectors v1..vN it is (|v1 + ... + vN|^2 - N) / (N (N - 1)), so the work is linear in the pieces.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use serde::Deserialize;

/// How two texts are compared.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Metric {
    /// Cosine of TF-IDF vectors over character n-grams.
    #[default]
    TfidfCharngram,
    /// Shared words over all words.
    Jaccard,
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "tfidf_charngram" => Ok(Self::TfidfCharngram),
            "jaccard" => Ok(Self::Jaccard),
            other => Err(serde::de::Error::custom(format!(
                "no similarity metric {other:?}; one of tfidf_charngram, jaccard"
            ))),
        }
    }
}

/// The pieces of one text: hash of the piece and how often it stands there, sorted by hash.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pieces {
    counts: Arc<[(u32, u32)]>,
}

/// Stands before and after the text, so that its ends count as much as its middle.
const START: char = '\u{2}';
const END: char = '\u{3}';

impl Pieces {
    /// Character n-grams (`n` is clamped to 3 to 5) of the lower-cased text.
    pub fn ngrams(text: &str, n: usize) -> Self {
        let n = n.clamp(3, 5);
        let pad = n - 1;
        let mut window = [0_u32; 5];
        let mut filled = 0;
        let mut hashes = Vec::with_capacity(text.len() + pad);
        let characters = std::iter::repeat_n(START, pad)
            .chain(text.chars().flat_map(char::to_lowercase))
            .chain(std::iter::repeat_n(END, pad));
        for character in characters {
            window.rotate_left(1);
            if let Some(last) = window.last_mut() {
                *last = u32::from(character);
            }
            filled += 1;
            if filled >= n {
                hashes.push(hash(window.iter().skip(window.len() - n).copied()));
            }
        }
        Self::count(hashes)
    }

    /// Words (runs of letters and digits) of the lower-cased text.
    pub fn words(text: &str) -> Self {
        let hashes = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(|word| hash(word.chars().flat_map(char::to_lowercase).map(u32::from)))
            .collect();
        Self::count(hashes)
    }

    fn count(mut hashes: Vec<u32>) -> Self {
        hashes.sort_unstable();
        let mut counts: Vec<(u32, u32)> = Vec::new();
        for hash in hashes {
            match counts.last_mut() {
                Some((last, count)) if *last == hash => *count += 1,
                _ => counts.push((hash, 1)),
            }
        }
        Self {
            counts: counts.into(),
        }
    }

    /// Bytes that the pieces occupy.
    pub fn cost(&self) -> usize {
        size_of_val::<[(u32, u32)]>(&self.counts)
    }
}

/// FNV-1a over code points, finished by a multiply-xor so that all bits move.
fn hash(characters: impl Iterator<Item = u32>) -> u32 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for character in characters {
        state = (state ^ u64::from(character)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let mixed = (state ^ (state >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// The keys are hashes already.
#[derive(Default)]
struct Taken(u64);

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = u64::from(value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Six decimals.
const DECIMALS: f64 = 1e6;

/// How alike the texts are, 0.0 to 1.0: the mean over all pairs, to six decimals as in the reference, so that a threshold
/// is met by what equals it but for rounding. A single text, or none, has no pair: 0.
pub(super) fn mean_pairwise(metric: Metric, texts: &[&Pieces]) -> f64 {
    if texts.len() < 2 {
        return 0.0;
    }
    let mean = match metric {
        Metric::TfidfCharngram => cosine(&distinct(texts), as_f64(texts.len())),
        Metric::Jaccard => {
            // A text without words says nothing.
            let texts: Vec<&Pieces> = texts
                .iter()
                .copied()
                .filter(|text| !text.counts.is_empty())
                .collect();
            if texts.len() < 2 {
                return 0.0;
            }
            jaccard(&distinct(&texts), as_f64(texts.len()))
        }
    };
    (mean.clamp(0.0, 1.0) * DECIMALS).round() / DECIMALS
}

/// Equal texts once, with how often they stand there: a loop of equal calls costs one text.
fn distinct<'a>(texts: &[&'a Pieces]) -> Vec<(&'a Pieces, f64)> {
    let mut seen: Vec<(&Pieces, f64)> = Vec::new();
    for text in texts {
        let known = seen.iter_mut().find(|(other, _)| {
            Arc::ptr_eq(&other.counts, &text.counts)
                || other.counts.len() == text.counts.len() && other.counts == text.counts
        });
        match known {
            Some((_, times)) => *times += 1.0,
            None => seen.push((text, 1.0)),
        }
    }
    seen
}

fn cosine(texts: &[(&Pieces, f64)], all: f64) -> f64 {
    let mut table: HashMap<u32, (f64, f64), BuildHasherDefault<Taken>> = HashMap::default();
    for (text, times) in texts {
        for (piece, _) in text.counts.iter() {
            table.entry(*piece).or_default().0 += times;
        }
    }
    for (containing, _) in table.values_mut() {
        *containing = ((all + 1.0) / (*containing + 1.0)).ln() + 1.0;
    }
    for (text, times) in texts {
        let weight =
            |(piece, count): &(u32, u32)| f64::from(*count) * table.get(piece).map_or(0.0, |(idf, _)| *idf);
        let length = text
            .counts
            .iter()
            .map(|piece| weight(piece).powi(2))
            .sum::<f64>()
            .sqrt();
        if length > 0.0 {
            for (piece, count) in text.counts.iter() {
                if let Some((idf, sum)) = table.get_mut(piece) {
                    *sum += times * f64::from(*count) * *idf / length;
                }
            }
        }
    }
    let squared: f64 = table.values().map(|(_, sum)| sum * sum).sum();
    (squared - all) / (all * (all - 1.0))
}

fn jaccard(texts: &[(&Pieces, f64)], all: f64) -> f64 {
    let mut sum = 0.0;
    for (index, (a, a_times)) in texts.iter().enumerate() {
        sum += a_times * (a_times - 1.0) / 2.0;
        for (b, b_times) in texts.iter().skip(index + 1) {
            sum += a_times * b_times * overlap(a, b);
        }
    }
    sum / (all * (all - 1.0) / 2.0)
}

fn overlap(a: &Pieces, b: &Pieces) -> f64 {
    let mut shared = 0_usize;
    let mut right = b.counts.iter().peekable();
    for (piece, _) in a.counts.iter() {
        while right.next_if(|(other, _)| other < piece).is_some() {}
        if right.next_if(|(other, _)| other == piece).is_some() {
            shared += 1;
        }
    }
    let either = a.counts.len() + b.counts.len() - shared;
    if either == 0 {
        1.0
    } else {
        as_f64(shared) / as_f64(either)
    }
}

/// A count as a float; exact below 2^53, which no count here reaches.
pub(super) fn as_f64(count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let value = count as f64;
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tfidf(texts: &[&str], n: usize) -> f64 {
        let pieces: Vec<Pieces> = texts.iter().map(|text| Pieces::ngrams(text, n)).collect();
        mean_pairwise(Metric::TfidfCharngram, &pieces.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_mean_equals_that_of_the_pair_loop() {
        // Two texts of four 3-grams after padding; all worked out by hand below.
        let got = tfidf(&["ab", "ac"], 3);
        // Shared: "..a" (df 2, idf 1); own: ".ab", "ab!", "b!!" (df 1, idf ln(3/2)+1).
        let own = (1.5_f64).ln() + 1.0;
        let wanted = 1.0 / (1.0 + 3.0 * own * own);
        assert!((got - wanted).abs() < 1e-6, "{got} {wanted}");
    }

    #[test]
    fn case_is_no_difference_and_order_is() {
        assert!((tfidf(&["Steel Bracket", "steel bracket"], 4) - 1.0).abs() < 1e-12);
        assert!(tfidf(&["one two three", "three two one"], 4) < 0.7);
    }

    #[test]
    fn words_are_compared_as_sets() {
        let texts = [
            Pieces::words("a b b"),
            Pieces::words("B_a"),
            Pieces::words("a, c"),
        ];
        let got = mean_pairwise(Metric::Jaccard, &texts.iter().collect::<Vec<_>>());
        assert!((got - 0.555_556).abs() < 1e-12, "to six decimals: {got}");
    }

    #[test]
    fn fewer_than_two_texts_have_no_similarity() {
        let one = Pieces::words("a");
        assert!(mean_pairwise(Metric::Jaccard, &[&one]).abs() < f64::EPSILON);
        assert!(mean_pairwise(Metric::TfidfCharngram, &[]).abs() < f64::EPSILON);
    }

    proptest::proptest! {
        #[test]
        fn it_is_a_share_and_the_order_of_texts_is_no_matter(a in ".{0,40}", b in ".{0,40}", c in ".{0,40}") {
            let one = tfidf(&[&a, &b, &c], 4);
            let other = tfidf(&[&c, &a, &b], 4);
            proptest::prop_assert!((0.0..=1.0).contains(&one));
            proptest::prop_assert!((one - other).abs() < 1e-9);
        }
    }
}
