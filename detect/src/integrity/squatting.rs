//! `integrity.tool_squatting`: names that are not what they look like (UTS 39, SPEC section 2).

use std::collections::{HashMap, HashSet};

use unicode_normalization::UnicodeNormalization;
use unicode_script::{Script, UnicodeScript};
use unicode_security::GeneralSecurityProfile;
use unicode_security::confusable_detection::skeleton;

use crate::finding::{Evidence, Finding, Kind, Severity};
use crate::text::{invisible, lookalike};

/// Detector name.
pub const SQUATTING: &str = "integrity.tool_squatting";

/// A finding when `name` deceives by itself: invisible characters, letters of look-alike alphabets, mixed
/// scripts, or another script spelling an ASCII word.
pub fn deceptive_name(name: &str) -> Option<Finding> {
    reason(name).map(|(reason, imitates)| finding(name, reason, imitates))
}

/// The tool names of one server, as other names may pass for them. Asking costs the same however many there are.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: HashSet<String>,
    /// From what a name looks like to a name that looks so.
    looks: HashMap<String, String>,
}

impl Names {
    /// Whether this very name is among them.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Adds names, until there are `most`.
    pub fn extend(&mut self, names: impl IntoIterator<Item = impl Into<String>>, most: usize) {
        for name in names {
            if self.names.len() >= most {
                return;
            }
            self.insert(name.into());
        }
    }

    fn insert(&mut self, name: String) {
        let (as_is, folded) = shapes(&name);
        for look in [as_is, folded] {
            self.looks.entry(look).or_insert_with(|| name.clone());
        }
        self.names.insert(name);
    }

    fn like(&self, shapes: &(String, String)) -> Option<&String> {
        self.looks.get(&shapes.0).or_else(|| self.looks.get(&shapes.1))
    }
}

impl<S: Into<String>> FromIterator<S> for Names {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut all = Self::default();
        for name in names {
            all.insert(name.into());
        }
        all
    }
}

/// A finding when `name` equals, or passes for, a tool of another server of the same run.
#[expect(single_use_lifetimes, reason = "in this position the language wants it named")]
pub fn shadowing<'a>(name: &str, others: impl IntoIterator<Item = &'a Names>) -> Option<Finding> {
    let own = shapes(name);
    others
        .into_iter()
        .find_map(|other| other.like(&own))
        .map(|other| finding(name, "shadowing", Some(other.clone())))
}

fn finding(name: &str, reason: &'static str, imitates: Option<String>) -> Finding {
    Finding {
        code: "KAMS-INT-003",
        detector: SQUATTING,
        kind: Kind::IntegrityInjection,
        severity: Severity::High,
        confidence: 0.9,
        tool: Some(name.to_owned()),
        cause: format!("{reason} {name}"),
        evidence: Evidence::Name {
            reason,
            imitates,
            codepoints: name.chars().map(|c| format!("U+{:04X}", u32::from(c))).collect(),
        },
    }
}

fn reason(name: &str) -> Option<(&'static str, Option<String>)> {
    if name.is_ascii() {
        return name.chars().any(char::is_control).then_some(("invisible", None));
    }
    let shown: String = name
        .chars()
        .filter(|c| invisible(*c).is_none() && !c.is_control())
        .collect();
    if shown != name {
        return Some(("invisible", Some(shown)));
    }
    let folded: String = name.nfkc().collect();
    let plainer = |c: char| !c.is_ascii() && c.nfkc().all(|n| n.is_ascii_graphic());
    if name.chars().any(plainer) {
        return Some(("compatibility", Some(folded)));
    }
    for word in folded
        .split(|c: char| !c.is_alphabetic())
        .filter(|w| !w.is_ascii() && !w.is_empty())
    {
        if symbol(word) {
            continue;
        }
        if mixed(word) {
            return Some(("mixed_script", Some(ascii_shape(&folded))));
        }
        // Odd Latin letters (script g, dotless forms of phonetic alphabets) that pass for ASCII.
        if word.chars().any(|c| {
            !c.is_ascii() && !GeneralSecurityProfile::identifier_allowed(c) && lookalike(c).is_some()
        }) {
            return Some(("confusable", Some(ascii_shape(&folded))));
        }
    }
    // The whole name, or a word beside ASCII words, written in another script as an ASCII word. One letter is
    // no word; a real word of that script has letters that pass for nothing in ASCII.
    let other: Vec<&str> = folded
        .split(|c: char| !c.is_alphabetic())
        .filter(|w| !w.is_ascii() && !symbol(w))
        .collect();
    let passes = |w: &&str| w.chars().all(|c| c.is_ascii() || strict_lookalike(c));
    let latin_beside = folded.chars().any(|c| c.is_ascii_alphabetic());
    let all_pass = !other.is_empty() && other.iter().all(passes);
    let some_pass = other.iter().any(passes);
    if other
        .iter()
        .any(|w| w.chars().any(|c| c.script() != Script::Latin))
        && (all_pass || some_pass && latin_beside)
    {
        return Some(("confusable", Some(ascii_shape(&folded))));
    }
    None
}

/// Latin together with Cyrillic, Greek, Armenian or another alphabet in one word. Latin with Han, Kana, Hangul
/// or Bopomofo is ordinary (UTS 39 "highly restrictive").
fn mixed(word: &str) -> bool {
    let mut seen: Option<Script> = None;
    for c in word.chars() {
        let script = match c.script() {
            Script::Common
            | Script::Inherited
            | Script::Han
            | Script::Hiragana
            | Script::Katakana
            | Script::Hangul
            | Script::Bopomofo => continue,
            other => other,
        };
        match seen {
            Some(first) if first != script => return true,
            _ => seen = Some(script),
        }
    }
    false
}

/// Units and symbols of mathematics: `μs`, `kΩ`, `Δx`.
fn symbol(word: &str) -> bool {
    const UNITS: [&str; 10] = ["s", "m", "g", "A", "V", "W", "F", "H", "l", "L"];
    if let Some(unit) = word.strip_prefix('μ') {
        return unit.is_empty() || UNITS.contains(&unit);
    }
    if let Some(prefix) = word.strip_suffix('Ω') {
        return matches!(prefix, "" | "k" | "M" | "m" | "G");
    }
    let mut letters = word.chars();
    let (Some(first), rest) = (letters.next(), letters.as_str()) else {
        return false;
    };
    // A Greek letter that looks like no ASCII one, alone or before one variable.
    matches!(
        first,
        'Δ' | 'δ'
            | 'λ'
            | 'π'
            | 'σ'
            | 'Σ'
            | 'θ'
            | 'φ'
            | 'ψ'
            | 'Φ'
            | 'Ψ'
            | 'ε'
            | 'Π'
            | 'Λ'
            | 'Θ'
            | 'Γ'
            | 'β'
            | 'ξ'
            | 'ζ'
    ) && rest.is_ascii()
        && rest.len() <= 1
}

/// Looks exactly like ASCII by UTS 39, unlike the looser [`lookalike`].
fn strict_lookalike(c: char) -> bool {
    let mut buffer = [0; 4];
    let mut shape = skeleton(c.encode_utf8(&mut buffer));
    matches!((shape.next(), shape.next()), (Some(s), None) if s.is_ascii())
}

fn ascii_shape(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii() {
                c
            } else {
                lookalike(c).unwrap_or(c)
            }
        })
        .collect()
}

/// What two names that pass for each other share: one shape as they look (capital I for l), one with case
/// folded; separators count in neither.
fn shapes(name: &str) -> (String, String) {
    let visible: String = name.nfkc().filter(|c| invisible(*c).is_none()).collect();
    let plain = ascii_shape(&visible);
    let joined = |text: &str| {
        skeleton(text)
            .filter(|c| !matches!(c, '_' | '-' | '.' | ' '))
            .collect()
    };
    (joined(&plain), joined(&plain.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(name: &str) -> Option<&'static str> {
        reason(name).map(|r| r.0)
    }

    #[test]
    fn deceptive_names_are_told() {
        for (name, expected) in [
            ("wr\u{456}te_file", "mixed_script"),
            ("\u{3BA}ill_job", "mixed_script"),
            ("\u{0441}\u{043E}\u{0440}\u{0443}", "confusable"),
            ("list_\u{0430}\u{0441}\u{0435}", "confusable"),
            ("\u{261}rep", "confusable"),
            ("read\u{200B}_file", "invisible"),
            ("re\u{AD}ad", "invisible"),
            ("ｒｅａｄ", "compatibility"),
            ("𝗋ead", "compatibility"),
            ("re\u{7}ad", "invisible"),
        ] {
            assert_eq!(why(name), Some(expected), "{name:?}");
        }
    }

    #[test]
    fn honest_names_of_every_script_pass() {
        for name in [
            "read_file",
            "naïve_search",
            "übersetzen",
            "ファイル検索",
            "検索API",
            "검색",
            "поиск_v2",
            "получить_данные",
            "αναζήτηση",
            "wait_μs",
            "R_Ω",
            "Δt",
            "بحث",
            "חיפוש",
            "l1_norm",
            "k8s.apply",
            "ısı_ölç",
            "café.menu",
            "ค้นหา",
            "खोज",
        ] {
            assert_eq!(why(name), None, "{name}");
        }
    }

    #[test]
    fn shadows_are_seen_through_case_separators_and_lookalikes() {
        for (name, other) in [
            ("send_mail", "send_mail"),
            ("sendMail", "send_mail"),
            ("s\u{435}nd_mail", "send_mail"),
            ("send_rnail", "send_mail"),
            ("send_maiI", "send_mail"),
        ] {
            assert!(
                shadowing(name, [&Names::from_iter(["x", other])]).is_some(),
                "{name} {other}"
            );
        }
        assert!(shadowing("send_mail", [&Names::from_iter(["send_mails", "mail"])]).is_none());
    }

    #[test]
    fn evidence_lists_all_code_points() {
        let finding = deceptive_name("s\u{0430}ve").unwrap();
        assert_eq!((finding.severity, finding.confidence), (Severity::High, 0.9));
        let Evidence::Name {
            codepoints, imitates, ..
        } = finding.evidence
        else {
            panic!("evidence of another family")
        };
        assert_eq!(codepoints, ["U+0073", "U+0430", "U+0076", "U+0065"]);
        assert_eq!(imitates.as_deref(), Some("save"));
    }
}
