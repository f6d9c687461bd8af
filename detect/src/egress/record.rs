//! Gathers matches into findings. The only part that touches values, and it keeps none.

use std::collections::HashSet;
use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::class::Class;
use crate::finding::{Evidence, Finding, Kind, Sensitive, Severity};

/// Places of one class that a finding lists; later matches count under the last of them.
const MAX_PLACES: usize = 64;

/// So many bytes in a row betray a value.
const PIECE: usize = 8;

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
    /// All values of eight bytes and more, one after the other: no path may show a piece of any of them.
    values: Vec<u8>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(salt: &'a Salt) -> Self {
        Self {
            salt,
            places: Default::default(),
            last: [None; Class::ALL.len()],
            values: Vec::new(),
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
        if value.len() >= PIECE {
            self.values.extend_from_slice(value);
        }
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
    pub(crate) fn into_findings(mut self, tool: Option<&str>) -> Vec<Finding> {
        self.hide_pieces();
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

impl Recorder<'_> {
    /// A key beside or above one match may hold the value of another: `{"VALUE": {"mail": ...}, "password": "VALUE"}`.
    fn hide_pieces(&mut self) {
        let mut places = self.places.iter_mut().flatten().filter(|p| p.path.len() >= PIECE);
        let Some(first) = places.next() else { return };
        let mut places: Vec<&mut Sensitive> = std::iter::once(first).chain(places).collect();
        let shown: HashSet<&[u8]> = places
            .iter()
            .flat_map(|p| p.path.as_bytes().windows(PIECE))
            .collect();
        let betrayed: HashSet<Vec<u8>> = self
            .values
            .windows(PIECE)
            .filter(|piece| shown.contains(piece))
            .map(<[u8]>::to_vec)
            .collect();
        if betrayed.is_empty() {
            return;
        }
        for place in &mut places {
            place.path = without(&place.path, &betrayed);
        }
    }
}

/// `path` with a star for each run of its text that `pieces` cover.
fn without(path: &str, pieces: &HashSet<Vec<u8>>) -> String {
    let mut covered = vec![false; path.len()];
    for (at, window) in path.as_bytes().windows(PIECE).enumerate() {
        if pieces.contains(window)
            && let Some(run) = covered.get_mut(at..at + PIECE)
        {
            run.fill(true);
        }
    }
    let mut out = String::new();
    let mut hidden = false;
    for (at, c) in path.char_indices() {
        let hide = covered
            .get(at..at + c.len_utf8())
            .is_some_and(|bytes| bytes.contains(&true));
        if !hide {
            out.push(c);
        } else if !hidden {
            out.push('*');
        }
        hidden = hide;
    }
    out
}

/// Whether `key` and `value` have eight consecutive bytes in common.
fn shares_eight(key: &[u8], value: &[u8]) -> bool {
    let key = key.get(..key.len().min(512)).unwrap_or(key);
    if value.len() < PIECE {
        return !value.is_empty() && key.windows(value.len()).any(|w| w == value);
    }
    let mut windows: Vec<&[u8]> = key.windows(PIECE).collect();
    windows.sort_unstable();
    !windows.is_empty() && value.windows(PIECE).any(|w| windows.binary_search(&w).is_ok())
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
    fn a_key_that_is_the_value_of_another_match_is_hidden() {
        let salt = Salt::new(b"salt");
        for document in [
            r#"{"hunter2-secret":{"mail":"k.olsen@corp.example"},"password":"hunter2-secret"}"#,
            r#"{"password":"hunter2-secret","hunter2-secret":{"mail":"k.olsen@corp.example"}}"#,
        ] {
            let found = crate::egress::scan_arguments(document.as_bytes(), None, &salt);
            assert_eq!(found.len(), 2);
            let shown = format!("{found:?}");
            assert!(shown.contains("\"$.*.mail\""), "{shown}");
            assert!(
                shown.contains("\"$.password\"") && !shown.contains("hunter2-"),
                "{shown}"
            );
        }
        let pieces: HashSet<Vec<u8>> = [b"\xbcller-12".to_vec()].into();
        assert_eq!(without("$.müller-123.x", &pieces), "$.m*3.x");
    }

    #[test]
    fn common_text_is_found() {
        assert!(shares_eight(b"x_hunter2secret_y", b"my hunter2s"));
        assert!(!shares_eight(b"password", b"hunter2secret"));
        assert!(shares_eight(b"a_hunter2", b"hunter2"));
    }
}
