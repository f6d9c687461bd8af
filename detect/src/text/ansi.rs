//! Terminal control sequences (ECMA-48): how long one is, and whether it hides text.

/// One control sequence at the start of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Sequence {
    /// Bytes it takes.
    pub(super) length: usize,
    /// Whether it makes what follows invisible, or overwrites what came before.
    pub(super) hides: bool,
}

// A sequence longer than this is not one: the escape character alone is dropped. Keeps the pass linear.
const LONGEST: usize = 256;

/// Reads a sequence that starts with ESC, or with the one-character CSI U+009B.
pub(super) fn sequence(text: &str) -> Option<Sequence> {
    let bytes = text.as_bytes();
    let (introducer, start) = match bytes {
        [0x1B, kind, ..] => (*kind, 2),
        [0xC2, 0x9B, ..] => (b'[', 2),
        _ => return None,
    };
    let body = bytes.get(start..)?;
    let body = body.get(..LONGEST).unwrap_or(body);
    match introducer {
        b'[' => {
            let end = body.iter().position(|b| (0x40..=0x7E).contains(b))?;
            let parameters = body.get(..end)?;
            if !parameters.iter().all(|b| (0x20..=0x3F).contains(b)) {
                return None;
            }
            let hides = match body.get(end)? {
                b'm' => conceals(parameters),
                // Cursor moves and erasures rewrite what was shown before.
                b'A' | b'F' | b'G' | b'H' | b'J' | b'K' | b'X' | b'P' => true,
                _ => false,
            };
            Some(Sequence {
                length: start + end + 1,
                hides,
            })
        }
        // Operating system commands, device control strings: up to BEL or ST.
        b']' | b'P' | b'^' | b'_' | b'X' => {
            let end = body.iter().position(|b| *b == 0x07 || *b == 0x1B)?;
            let two = body.get(end) == Some(&0x1B);
            Some(Sequence {
                length: start + end + if two { 2 } else { 1 },
                hides: false,
            })
        }
        0x20..=0x7E => Some(Sequence {
            length: start,
            hides: false,
        }),
        _ => None,
    }
}

/// SGR 8 (conceal), or a black or same-as-background foreground in the common palettes.
fn conceals(parameters: &[u8]) -> bool {
    let mut numbers = parameters.split(|b| *b == b';' || *b == b':').map(|p| {
        std::str::from_utf8(p)
            .ok()
            .and_then(|p| p.parse::<u16>().ok())
            .unwrap_or(0)
    });
    let (mut foreground, mut background) = (None, None);
    while let Some(n) = numbers.next() {
        match n {
            8 => return true,
            30..=37 => foreground = Some(n - 30),
            40..=47 => background = Some(n - 40),
            38 | 48 => {
                let colour = match numbers.next() {
                    Some(5) => numbers.next(),
                    Some(2) => {
                        let rgb = [numbers.next(), numbers.next(), numbers.next()];
                        rgb.iter()
                            .flatten()
                            .copied()
                            .reduce(|a, b| a.wrapping_mul(257).wrapping_add(b))
                            .map(|c| c | 0x8000)
                    }
                    _ => None,
                };
                if n == 38 {
                    foreground = colour;
                } else {
                    background = colour;
                }
            }
            _ => {}
        }
    }
    foreground.is_some() && foreground == background
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conceal_hides_and_colour_does_not() {
        assert_eq!(
            sequence("\u{1b}[8mx"),
            Some(Sequence {
                length: 4,
                hides: true
            })
        );
        assert_eq!(
            sequence("\u{1b}[1;31mx"),
            Some(Sequence {
                length: 7,
                hides: false
            })
        );
        assert_eq!(sequence("\u{1b}[37;47mx").map(|s| s.hides), Some(true));
        assert_eq!(
            sequence("\u{1b}]8;;https://example.com\u{7}x").map(|s| s.length),
            Some(25)
        );
        assert_eq!(sequence("plain"), None);
    }

    #[test]
    fn an_unfinished_sequence_is_none() {
        assert_eq!(sequence("\u{1b}["), None);
        assert_eq!(sequence("\u{1b}"), None);
    }
}
