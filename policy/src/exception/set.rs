//! Exceptions kept outside the policy file: added and removed by people while Kams runs.

use super::Exception;
use crate::problem::Problem;
use crate::time::Now;

/// Most exceptions outside the file. Each is looked at for each finding that a rule matches.
const MAX: usize = 1_024;

/// An exception with what is known of how it came about.
#[derive(Clone, Debug)]
pub struct KeptException {
    /// Number, unique within the set.
    pub id: u64,
    /// Its keys as they were given: JSON or YAML text that [`Exception::parse`] takes.
    pub text: String,
    /// Who added it.
    pub added_by: String,
    /// When, wall clock in milliseconds.
    pub since_ms: u64,
}

/// Why an exception is not taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExceptionError {
    /// Its text does not say what it must.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<Problem>),
    /// It would have no effect.
    #[error("it has expired already")]
    Expired,
    /// There are too many.
    #[error("there are {MAX} exceptions; remove some, or write a `match` that covers more than one finding")]
    TooMany,
}

/// Exceptions outside the file, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct ExceptionSet {
    exceptions: Vec<Exception>,
    /// What is known of the exception at the same place.
    kept: Vec<KeptException>,
    last_id: u64,
}

impl ExceptionSet {
    /// The set as stored. What does not load any more, or has expired, is left out; its numbers are given back.
    pub fn restore(stored: impl IntoIterator<Item = KeptException>, now: Now) -> (Self, Vec<u64>) {
        let mut set = Self::default();
        let mut left_out = Vec::new();
        for kept in stored {
            set.last_id = set.last_id.max(kept.id);
            match Exception::parse(&kept.text) {
                Ok(exception) if exception.active(now) && set.kept.len() < MAX => {
                    set.exceptions.push(exception);
                    set.kept.push(kept);
                }
                _ => left_out.push(kept.id),
            }
        }
        (set, left_out)
    }

    /// Adds one, and returns it with its number.
    ///
    /// # Errors
    /// Every problem of its text, or why it cannot be taken now.
    pub fn add(&mut self, text: &str, by: &str, now: Now) -> Result<&KeptException, ExceptionError> {
        let exception = Exception::parse(text).map_err(ExceptionError::Problems)?;
        if !exception.active(now) {
            return Err(ExceptionError::Expired);
        }
        if self.kept.len() >= MAX {
            return Err(ExceptionError::TooMany);
        }
        self.last_id = self.last_id.saturating_add(1);
        self.exceptions.push(exception);
        let at = self.kept.len();
        self.kept.push(KeptException {
            id: self.last_id,
            text: text.to_owned(),
            added_by: by.to_owned(),
            since_ms: now.wall_ms,
        });
        self.kept.get(at).ok_or(ExceptionError::TooMany)
    }

    /// Takes one away before its end.
    pub fn remove(&mut self, id: u64) -> Option<(KeptException, Exception)> {
        let at = self.kept.iter().position(|kept| kept.id == id)?;
        Some((self.kept.remove(at), self.exceptions.remove(at)))
    }

    /// Takes away those whose day has come, and returns them.
    pub fn expire(&mut self, now: Now) -> Vec<(KeptException, Exception)> {
        let over: Vec<u64> = self
            .list()
            .filter(|(_, exception)| !exception.active(now))
            .map(|(kept, _)| kept.id)
            .collect();
        over.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// All of them, with what is known of each.
    pub fn list(&self) -> impl Iterator<Item = (&KeptException, &Exception)> {
        self.kept.iter().zip(&self.exceptions)
    }

    /// The exceptions alone, for decisions.
    pub fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now::at(1_000_000);

    fn text(fingerprint: &str, expires: &str) -> String {
        format!(r#"{{"fingerprint":"{fingerprint}","owner":"ana","reason":"known","expires":"{expires}"}}"#)
    }

    #[test]
    fn numbers_are_never_given_twice() {
        let mut set = ExceptionSet::default();
        let first = set.add(&text("a", "2100-01-01"), "root", NOW).unwrap().id;
        assert_eq!(set.remove(first).unwrap().0.id, first);
        assert!(set.remove(first).is_none());
        let second = set.add(&text("b", "2100-01-01"), "root", NOW).unwrap().clone();
        assert!(second.id > first);
        let (mut restored, left_out) = ExceptionSet::restore([second.clone()], NOW);
        assert!(left_out.is_empty());
        assert!(restored.add(&text("c", "2100-01-01"), "root", NOW).unwrap().id > second.id);
    }

    #[test]
    fn what_is_over_or_no_exception_is_left_out() {
        let kept = |id, text: String| KeptException {
            id,
            text,
            added_by: "root".to_owned(),
            since_ms: 0,
        };
        let stored = [
            kept(3, text("a", "1970-01-01T00:00:01Z")),
            kept(4, "[]".to_owned()),
            kept(5, text("b", "2100-01-01")),
        ];
        let (set, left_out) = ExceptionSet::restore(stored, NOW);
        assert_eq!(left_out, [3, 4]);
        assert_eq!(set.list().map(|(kept, _)| kept.id).collect::<Vec<_>>(), [5]);
        assert_eq!(set.exceptions().len(), 1);
    }

    #[test]
    fn an_exception_ends_with_its_day() {
        let mut set = ExceptionSet::default();
        set.add(&text("a", "1970-01-01T00:30:00Z"), "root", NOW).unwrap();
        assert!(set.expire(NOW).is_empty());
        let ended = set.expire(NOW.plus(800_000));
        assert_eq!(ended[0].1.owner, "ana");
        assert!(set.exceptions().is_empty());
        let late = set.add(&text("a", "1970-01-01T00:30:00Z"), "root", NOW.plus(800_000));
        assert!(matches!(late, Err(ExceptionError::Expired)), "{late:?}");
    }

    #[test]
    fn there_is_a_most() {
        let mut set = ExceptionSet::default();
        for _ in 0..MAX {
            set.add(&text("a", "2100-01-01"), "root", NOW).unwrap();
        }
        let more = set.add(&text("a", "2100-01-01"), "root", NOW);
        assert!(matches!(more, Err(ExceptionError::TooMany)), "{more:?}");
    }
}
