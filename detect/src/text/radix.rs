//! Text written as numbers, dots and dashes, or base-85 digits.

use super::blob::{Blob, Encoding, readable, runs};

// Fewer groups than this are ordinary data.
const FEWEST_GROUPS: usize = 8;

/// Finds runs of binary groups, hexadecimal pairs, decimal codes and Morse code.
pub(super) fn number_runs(text: &str, found: &mut Vec<Blob>) {
    let bytes = text.as_bytes();
    for run in runs(bytes, &NUMERIC, 23) {
        let Some(body) = text.get(run.clone()) else {
            continue;
        };
        if let Some((encoding, text)) = numbers(body) {
            found.push(Blob {
                encoding,
                span: run,
                text,
            });
        }
    }
    for run in runs(bytes, &DOTS, 23) {
        let Some(body) = text.get(run.clone()) else {
            continue;
        };
        if let Some(text) = morse(body).and_then(|t| readable(t.into_bytes())) {
            found.push(Blob {
                encoding: Encoding::Morse,
                span: run,
                text,
            });
        }
    }
}

fn numbers(body: &str) -> Option<(Encoding, String)> {
    let groups = || {
        body.split([' ', ',', '\n', '\t', ';'])
            .map(|g| g.trim_start_matches("0x"))
            .filter(|g| !g.is_empty())
    };
    let count = groups().count();
    if count == 1 {
        // Binary digits without gaps.
        let digits = body.trim();
        let whole = digits.len() >= FEWEST_GROUPS * 8 && digits.len().is_multiple_of(8);
        if whole && digits.bytes().all(|b| matches!(b, b'0' | b'1')) {
            let bytes = digits
                .as_bytes()
                .chunks_exact(8)
                .map(|c| c.iter().fold(0, |n, b| (n << 1) | (b - b'0')));
            return readable(bytes.collect()).map(|text| (Encoding::Binary, text));
        }
        return None;
    }
    (count >= FEWEST_GROUPS).then_some(())?;
    // A stray word of hex letters beside the run (such as "be" or a number) must not spoil it.
    let read = |encoding, radix, fits: fn(&str) -> bool| {
        let bytes: Vec<u8> = groups()
            .filter(|g| fits(g))
            .filter_map(|g| u8::from_str_radix(g, radix).ok())
            .collect();
        (bytes.len() + 2 >= count && bytes.len() >= FEWEST_GROUPS).then_some(())?;
        let text = readable(bytes)?;
        wordlike(&text).then_some((encoding, text))
    };
    read(Encoding::Binary, 2, |g| (7..=8).contains(&g.len()))
        .or_else(|| read(Encoding::CharCodes, 10, |g| (2..=3).contains(&g.len())))
        .or_else(|| read(Encoding::Hex, 16, |g| g.len() == 2))
        .or_else(|| read(Encoding::CharCodes, 8, |g| g.len() == 3))
}

/// Mostly letters and spaces: a column of small numbers is not.
fn wordlike(text: &str) -> bool {
    let letters = text.chars().filter(|c| c.is_alphabetic() || *c == ' ').count();
    letters * 4 >= text.chars().count() * 3
}

fn morse(body: &str) -> Option<String> {
    let mut said = String::new();
    let mut letters = 0;
    for group in body.split([' ', '\n']) {
        if matches!(group, "/" | "|" | "//") {
            said.push(' ');
            continue;
        }
        if group.is_empty() {
            continue;
        }
        let (_, letter) = MORSE.iter().find(|(code, _)| *code == group)?;
        said.push(*letter);
        letters += 1;
    }
    (letters >= FEWEST_GROUPS && wordlike(&said)).then_some(said)
}

/// The byte of two hexadecimal digits.
pub(super) fn hex_pair(pair: &[u8]) -> Option<u8> {
    let digit = |b: &u8| char::from(*b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some((digit(pair.first()?)? << 4) | digit(pair.get(1)?)?)
}

/// Ascii85 (digits `!` to `u`, `z` for four zero bytes).
pub(super) fn ascii85(digits: &[u8]) -> Option<Vec<u8>> {
    let values = digits
        .iter()
        .filter(|b| **b != b'z')
        .map(|b| b.checked_sub(b'!').filter(|v| *v < 85));
    words85(values.collect::<Option<Vec<u8>>>()?.as_slice())
}

/// The base85 of RFC 1924.
pub(super) fn base85(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |b: &u8| {
        RFC1924
            .iter()
            .position(|d| d == b)
            .and_then(|v| u8::try_from(v).ok())
    };
    words85(digits.iter().map(value).collect::<Option<Vec<u8>>>()?.as_slice())
}

fn words85(values: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(values.len());
    for group in values.chunks(5) {
        (group.len() > 1).then_some(())?;
        let padded = group.iter().copied().chain(std::iter::repeat(84)).take(5);
        let word = padded.fold(0_u64, |n, v| n * 85 + u64::from(v));
        let word = u32::try_from(word).ok()?.to_be_bytes();
        bytes.extend_from_slice(word.get(..group.len() - 1)?);
        if bytes.len() >= 8 && bytes.len() < 12 && readable(bytes.get(..8)?.to_vec()).is_none() {
            return None;
        }
    }
    Some(bytes)
}

static RFC1924: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

static NUMERIC: [bool; 256] = table(b"0123456789abcdefABCDEFx ,;\n\t");
static DOTS: [bool; 256] = table(b".-/| \n");

const fn table(members: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < members.len() {
        table[members[i] as usize] = true;
        i += 1;
    }
    table
}

static MORSE: [(&str, char); 43] = [
    (".-", 'a'),
    ("-...", 'b'),
    ("-.-.", 'c'),
    ("-..", 'd'),
    (".", 'e'),
    ("..-.", 'f'),
    ("--.", 'g'),
    ("....", 'h'),
    ("..", 'i'),
    (".---", 'j'),
    ("-.-", 'k'),
    (".-..", 'l'),
    ("--", 'm'),
    ("-.", 'n'),
    ("---", 'o'),
    (".--.", 'p'),
    ("--.-", 'q'),
    (".-.", 'r'),
    ("...", 's'),
    ("-", 't'),
    ("..-", 'u'),
    ("...-", 'v'),
    (".--", 'w'),
    ("-..-", 'x'),
    ("-.--", 'y'),
    ("--..", 'z'),
    ("-----", '0'),
    (".----", '1'),
    ("..---", '2'),
    ("...--", '3'),
    ("....-", '4'),
    (".....", '5'),
    ("-....", '6'),
    ("--...", '7'),
    ("---..", '8'),
    ("----.", '9'),
    (".-.-.-", '.'),
    ("--..--", ','),
    (".--.-.", '@'),
    ("---...", ':'),
    ("-..-.", '/'),
    ("..--.-", '_'),
    ("-....-", '-'),
];
