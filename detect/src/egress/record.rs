//! Gathers matches into findings. The only part that touches values, and it keeps none.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::class::Class;
use crate::finding::{Evidence, Finding, Kind, Sensitive, Severity};

/// Places of one class that a finding lists; later matches count under the last of them.
const MAX_PLACES: usize = 64;

/// The host's secret salt for digests. Its bytes are never shown.
#[derive(Clone)]
pub struct Salt(Hmac<Sha256>);

impl Salt {
    /// A salt from key bytes of any length; 32 random bytes are right.
    pub fn new(key: &[u8]) -> Self {
        // HMAC takes keys of any length; the fallback is never reached.
        Self(
            Hmac::new_from_slice(key)
                .unwrap_or_else(|_| Hmac::new(&hmac::digest::Key::<Hmac<Sha256>>::default())),
        )
    }

    /// First 16 hex digits of HMAC-SHA-256 of `value`.
    pub fn digest(&self, value: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(value);
        let digest = mac.finalize().into_bytes();
        hex::encode(digest.get(..8).unwrap_or_default())
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

/// Matches by class and place.
pub(crate) struct Recorder<'a> {
    salt: &'a Salt,
    places: [Vec<Sensitive>; Class::ALL.len()],
    /// The string in which each class was last seen.
    last: [Option<usize>; Class::ALL.len()],
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(salt: &'a Salt) -> Self {
        Self {
            salt,
            places: Default::default(),
            last: [None; Class::ALL.len()],
        }
    }

    /// Notes one match of `class` in the string that begins at offset `string`.
    pub(crate) fn record(
        &mut self,
        class: Class,
        value: &[u8],
        documented: bool,
        string: usize,
        path: impl FnOnce(&dyn Fn(&[u8]) -> bool) -> String,
    ) {
        let slot = class as usize;
        let (Some(places), Some(last)) = (self.places.get_mut(slot), self.last.get_mut(slot)) else {
            return;
        };
        let full = places.len() >= MAX_PLACES;
        if let Some(place) = places.last_mut()
            && (full || *last == Some(string))
        {
            place.count = place.count.saturating_add(1);
            place.documented_example &= documented;
            return;
        }
        *last = Some(string);
        places.push(Sensitive {
            class: class.name(),
            path: path(&|key| shares_eight(key, value)),
            count: 1,
            length: value.len(),
            digest: self.salt.digest(value),
            documented_example: documented,
        });
    }

    /// One finding per class, strongest class first.
    pub(crate) fn into_findings(self, tool: Option<&str>) -> Vec<Finding> {
        Class::ALL
            .into_iter()
            .zip(self.places)
            .filter(|(_, places)| !places.is_empty())
            .map(|(class, places)| {
                let documented = places.iter().all(|p| p.documented_example);
                let first = places.first().map_or("", |p| p.path.as_str());
                Finding {
                    code: class.code(),
                    detector: "egress.sensitive",
                    kind: Kind::EgressSensitive,
                    severity: if documented {
                        Severity::Low
                    } else {
                        class.severity()
                    },
                    confidence: class.confidence(),
                    tool: tool.map(str::to_owned),
                    cause: format!("{class} at {first}"),
                    evidence: Evidence::Egress(places),
                }
            })
            .collect()
    }
}

/// Whether `key` and `value` have eight consecutive bytes in common.
fn shares_eight(key: &[u8], value: &[u8]) -> bool {
    let key = key.get(..key.len().min(512)).unwrap_or(key);
    if value.len() < 8 {
        return !value.is_empty() && key.windows(value.len()).any(|w| w == value);
    }
    let mut windows: Vec<&[u8]> = key.windows(8).collect();
    windows.sort_unstable();
    !windows.is_empty() && value.windows(8).any(|w| windows.binary_search(&w).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_depend_on_the_salt_and_show_neither() {
        let (one, two) = (Salt::new(b"one"), Salt::new(b"two"));
        assert_eq!(one.digest(b"value"), one.digest(b"value"));
        assert_ne!(one.digest(b"value"), two.digest(b"value"));
        assert_eq!(one.digest(b"value").len(), 16);
        assert_eq!(format!("{one:?}"), "Salt(..)");
    }

    #[test]
    fn common_text_is_found() {
        assert!(shares_eight(b"x_hunter2secret_y", b"my hunter2s"));
        assert!(!shares_eight(b"password", b"hunter2secret"));
        assert!(shares_eight(b"a_hunter2", b"hunter2"));
    }
}
