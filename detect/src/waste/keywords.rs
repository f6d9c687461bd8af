//! Words that make a prompt a classification, and a turn a correction: whole words, in any case.

/// Words and phrases of a classification.
const CLASSIFICATION: [&str; 10] = [
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
];

/// Words and phrases that reject an answer.
const CORRECTION: [&str; 12] = [
    "no",
    "not",
    "wrong",
    "incorrect",
    "actually",
    "i meant",
    "instead",
    "rather",
    "don't",
    "doesn't",
    "isn't",
    "shouldn't",
];

/// Adds the classification words of `text` to `found`, each once.
pub(super) fn classification_words(text: &str, found: &mut Vec<&'static str>) {
    let lower = text.to_lowercase();
    for word in CLASSIFICATION {
        if !found.contains(&word) && holds(&lower, word) {
            found.push(word);
        }
    }
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
        let mut found = Vec::new();
        classification_words(
            "Reclassify it; is this apple ripe? éclassify classify_it",
            &mut found,
        );
        assert!(found.is_empty(), "{found:?}");
        classification_words("CLASSIFY: yes or no? classify!", &mut found);
        assert_eq!(found, ["classify", "yes or no"]);
    }

    #[test]
    fn corrections() {
        for text in ["No!", "that is not it", "I meant Q3", "it doesn't"] {
            assert!(correction(text), "{text}");
        }
        for text in ["I know", "a knot", "actual", "nein, falsch"] {
            assert!(!correction(text), "{text}");
        }
    }
}
