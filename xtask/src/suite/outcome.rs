//! What a step's tests came to, read off the lines that test programs print.

/// Counts of one step, or of all.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// Name and reason.
    pub(crate) skipped: Vec<(String, String)>,
    /// Names.
    pub(crate) failures: Vec<String>,
}

impl Outcome {
    /// One check that passed, or failed under this name.
    pub(crate) fn single(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self {
                passed: 1,
                ..Self::default()
            },
            Err(name) => Self {
                failed: 1,
                failures: vec![name],
                ..Self::default()
            },
        }
    }

    /// Takes another's counts in.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
    }

    /// Takes in one line of the output of libtest or libtest-mimic.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += number_before(counts, " passed");
            self.failed += number_before(counts, " failed");
        } else if let Some((name, verdict)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
        {
            let name = name.trim_end().to_owned();
            if let Some(reason) = verdict.strip_prefix("ignored") {
                let reason = reason.trim_matches([' ', ',', '(', ')']);
                let reason = if reason.is_empty() {
                    "no reason given"
                } else {
                    reason
                };
                self.skipped.push((name, reason.to_owned()));
            } else if verdict.starts_with("FAILED") {
                self.failures.push(name);
            }
        }
    }
}

fn number_before(text: &str, word: &str) -> usize {
    text.split(word)
        .next()
        .and_then(|before| before.rsplit(|c: char| !c.is_ascii_digit()).next())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_libtest_prints() {
        let mut outcome = Outcome::default();
        for line in [
            "running 4 tests",
            "test a::b ... ok",
            "test c ... ignored, needs root: loads programs",
            "test d ... ignored",
            "test e ... FAILED",
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.01s",
            "test src/lib.rs - x (line 3) ... ok",
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        ] {
            outcome.line(line);
        }
        assert_eq!((outcome.passed, outcome.failed), (13, 1));
        assert_eq!(outcome.failures, ["e"]);
        let skipped: Vec<_> = outcome
            .skipped
            .iter()
            .map(|(n, r)| (n.as_str(), r.as_str()))
            .collect();
        assert_eq!(
            skipped,
            [("c", "needs root: loads programs"), ("d", "no reason given")]
        );
    }
}
