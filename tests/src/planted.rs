//! Secrets that were never issued, and the search for pieces of them in what a program wrote.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// So many characters in a row betray a value.
pub const PIECE: usize = 8;

const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const DIGITS: &str = "0123456789";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";

/// The thirteen classes.
pub const CLASSES: [&str; 13] = [
    "private_key",
    "anthropic_key",
    "github_token",
    "slack_token",
    "aws_key",
    "openai_key",
    "jwt",
    "bearer_token",
    "named_secret",
    "card_number",
    "email",
    "phone",
    "high_entropy_secret",
];

/// What every value of some class has in it, and what therefore betrays none.
const PUBLIC: [&str; 8] = [
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow",
    "\n-----END RSA PRIVATE KEY-----\n",
    "sk-ant-api03-",
    "sk-proj-",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOi",
    "Bearer ",
    "password",
    "github_token",
];

/// All values that were planted, and where.
#[derive(Debug, Default)]
pub struct Planted {
    values: Vec<(String, String)>,
}

impl Planted {
    /// A new random value in the published format of a class, planted at `place`.
    pub fn new_value(&mut self, class: &str, place: &str) -> Result<String> {
        let value = value(class)?;
        self.values.push((format!("{class} in {place}"), value.clone()));
        Ok(value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values of which a piece stands in one of the texts, and in which: each pair once.
    pub fn found_in(&self, written: &[(String, Vec<u8>)]) -> Vec<String> {
        let mut pieces: HashMap<&[u8], &str> = HashMap::new();
        let mut digits: Vec<(&str, &str)> = Vec::new();
        for (name, value) in &self.values {
            for piece in value.as_bytes().windows(PIECE) {
                // Eight digits are a date or a time stamp as well: for digits the whole run is looked for, below.
                if !piece.iter().all(u8::is_ascii_digit) && !is_public(piece) {
                    pieces.insert(piece, name);
                }
            }
            let runs = value.split(|c: char| !c.is_ascii_digit());
            digits.extend(runs.filter(|run| run.len() >= 11).map(|run| (run, name.as_str())));
        }
        let mut found = HashSet::new();
        for (place, bytes) in written {
            for window in bytes.windows(PIECE) {
                if let Some(name) = pieces.get(window) {
                    found.insert(format!("{name}: a piece stands in {place}"));
                }
            }
            let text = String::from_utf8_lossy(bytes);
            for (run, name) in &digits {
                if text.contains(run) {
                    found.insert(format!("{name}: its digits stand in {place}"));
                }
            }
        }
        let mut found: Vec<String> = found.into_iter().collect();
        found.sort();
        found
    }
}

fn is_public(piece: &[u8]) -> bool {
    PUBLIC
        .iter()
        .any(|text| text.as_bytes().windows(piece.len()).any(|window| window == piece))
}

/// In base64, as people write it.
pub fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn value(class: &str) -> Result<String> {
    Ok(match class {
        "private_key" => {
            let lines: Vec<String> = (0..6).map(|_| draw(MIXED, 64)).collect::<Result<_>>()?;
            format!(
                "-----BEGIN RSA {0} KEY-----\nMIIEow{1}\n-----END RSA {0} KEY-----\n",
                "PRIVATE",
                lines.join("\n")
            )
        }
        "anthropic_key" => format!("sk-{}-api03-{}AA", "ant", draw(MIXED, 93)?),
        "github_token" => format!("gh{}_{}", 'p', draw(MIXED, 36)?),
        "slack_token" => format!("xo{}-{}-{}", "xb", draw(DIGITS, 12)?, draw(MIXED, 24)?),
        "aws_key" => format!("AK{}{}", "IA", draw(UPPER, 16)?),
        "openai_key" => format!("sk-{}-{}", "proj", draw(MIXED, 48)?),
        "jwt" => {
            let claims = format!(r#"{{"sub":"{}","iat":1767545}}"#, draw(MIXED, 24)?);
            format!(
                "{}.{}.{}",
                URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#),
                URL_SAFE_NO_PAD.encode(claims),
                draw(MIXED, 43)?
            )
        }
        "bearer_token" => format!("Bearer {}", draw(MIXED, 40)?),
        "named_secret" => draw(MIXED, 18)?,
        "card_number" => card()?,
        "email" => format!("{}@{}.test", draw(LOWER, 12)?, draw(LOWER, 9)?),
        "phone" => format!("+44 20 7{} {}", draw(DIGITS, 3)?, draw(DIGITS, 4)?),
        // A zero, or it could be taken for an address of a ledger, which is public.
        _ => format!("{}0{}", draw(MIXED, 21)?, draw(MIXED, 21)?),
    })
}

/// Sixteen digits of a known issuer with their check digit, in groups as on the card.
fn card() -> Result<String> {
    let mut digits: Vec<u32> = format!("4539{}", draw(DIGITS, 11)?)
        .chars()
        .filter_map(|c| c.to_digit(10))
        .collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(
            |(at, digit)| match digit * (2 - u32::try_from(at % 2).unwrap_or(0)) {
                doubled if doubled > 9 => doubled - 9,
                doubled => doubled,
            },
        )
        .sum();
    digits.push((10 - sum % 10) % 10);
    let groups: Vec<String> = digits
        .chunks(4)
        .map(|group| group.iter().map(u32::to_string).collect())
        .collect();
    Ok(groups.join(" "))
}

fn draw(alphabet: &str, length: usize) -> Result<String> {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut bytes = vec![0_u8; length];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes
        .iter()
        .filter_map(|byte| letters.get(usize::from(*byte) % letters.len()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_is_found_and_public_text_is_not() {
        for class in CLASSES {
            let mut planted = Planted::default();
            let value = planted.new_value(class, "a test").unwrap();
            let chars = value.as_bytes();
            let mut told = 0;
            for at in 0..=chars.len() - PIECE {
                let text = [b"log: ".as_slice(), &chars[at..at + PIECE], b" end"].concat();
                told += usize::from(!planted.found_in(&[("log".to_owned(), text)]).is_empty());
            }
            assert!(
                told * 2 > chars.len() - PIECE,
                "{class}: {told} of {}",
                chars.len()
            );
            let public = PUBLIC.join(" ").into_bytes();
            assert!(
                planted.found_in(&[("log".to_owned(), public)]).is_empty(),
                "{class}"
            );
        }
    }
}
