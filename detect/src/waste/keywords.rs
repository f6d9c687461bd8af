//! Words that make a prompt a classification, and a turn a correction: whole words, in any case.

/// Words and phrases of a classification.
const CLASSIFICATION: [&str; 11] = [
    "classify",
    "categorize",
    "categorise",
    "label this",
    "is this a",
    "is this an",
    "which category",
    "yes or no",
    "true or false",
    "rate from 1",
    "rate this on a scale",
];

/// Words and phrases that reject an answer.
const CORRECTION: [&str; 16] = [
    "no",
    "not",
    "wrong",
    "incorrect",
    "actually",
    "i meant",
    "instead",
    "rather",
    "don't",
    "dont",
    "doesn't",
    "doesnt",
    "isn't",
    "isnt",
    "shouldn't",
    "shouldnt",
];

/// The classification words of `text`, each once.
pub(super) fn classification_words(text: &str) -> Vec<&'static str> {
    let lower = text.to_lowercase();
    CLASSIFICATION
        .into_iter()
        .filter(|word| holds(&lower, word))
        .collect()
}

/// Whether `text` rejects what was said before.
pub(super) fn correction(text: &str) -> bool {
    let lower = text.to_lowercase();
    CORRECTION.iter().any(|word| holds(&lower, word))
}

/// Whether `word` stands in `text` with no letter, digit or underscore next to it.
fn holds(text: &str, word: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    memchr::memmem::find_iter(text.as_bytes(), word).any(|start| {
        let (before, after) = (text.get(..start), text.get(start + word.len()..));
        !before.is_some_and(|text| text.ends_with(in_word))
            && !after.is_some_and(|text| text.starts_with(in_word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_alone() {
        let found = classification_words("Reclassify it; is this apple ripe? éclassify classify_it");
        assert!(found.is_empty(), "{found:?}");
        let found = classification_words("CLASSIFY: yes or no? classify! Rate this on a scale.");
        assert_eq!(found, ["classify", "yes or no", "rate this on a scale"]);
    }

    #[test]
    fn corrections() {
        for text in ["No!", "that is not it", "I meant Q3", "it doesn't", "it isnt so"] {
            assert!(correction(text), "{text}");
        }
        for text in ["I know", "a knot", "actual", "nein, falsch"] {
            assert!(!correction(text), "{text}");
        }
    }
}
