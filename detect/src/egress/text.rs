//! One text: a prefilter finds where anything could begin, exact validators decide, layers of encoding are undone
//! once, overlaps are settled.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::assign::{assignment, identified_by, identifier};
use super::card::card;
use super::class::Class;
use super::command::{command, positional, url_password};
use super::email::email;
use super::encoded::{self, Inside};
use super::entropy::is_opaque;
use super::layer::{Plain, plain};
use super::loose::{LABELS, call, labelled, loose, piped, short_flag};
use super::names::{Name, announces_counter, announces_identifier, announces_phone, classify};
use super::pem::{self, Marker};
use super::phone::phone;
use super::qualified::two_words;
use super::scramble::{self, Scramble};
use super::span::{Hit, overlaps, resolve, to_source};
use super::token;
use super::value::{is_literal, looks_opaque};

/// What a trigger of the prefilter leads to.
#[derive(Clone, Copy)]
enum Trigger {
    Begin,
    End,
    Age,
    Putty,
    Aws,
    Github,
    Slack,
    SlackHook,
    Sk,
    Jwt,
    Bearer,
    Url,
    At,
    Name,
    Identified,
    Label,
    Piped,
    Flag,
    Call,
    Positional,
    Command,
    Scrambled(Scramble),
}

const TRIGGERS: &[(&str, Trigger)] = &[
    ("-----begin", Trigger::Begin),
    ("---- begin", Trigger::Begin),
    ("-----end", Trigger::End),
    ("---- end", Trigger::End),
    ("age-secret-key-1", Trigger::Age),
    ("private-lines:", Trigger::Putty),
    ("akia", Trigger::Aws),
    ("asia", Trigger::Aws),
    ("aida", Trigger::Aws),
    ("aroa", Trigger::Aws),
    ("abia", Trigger::Aws),
    ("acca", Trigger::Aws),
    ("ghp_", Trigger::Github),
    ("gho_", Trigger::Github),
    ("ghu_", Trigger::Github),
    ("ghs_", Trigger::Github),
    ("ghr_", Trigger::Github),
    ("github_pat_", Trigger::Github),
    ("xoxa", Trigger::Slack),
    ("xoxb", Trigger::Slack),
    ("xoxc", Trigger::Slack),
    ("xoxd", Trigger::Slack),
    ("xoxe", Trigger::Slack),
    ("xoxo", Trigger::Slack),
    ("xoxp", Trigger::Slack),
    ("xoxr", Trigger::Slack),
    ("xoxs", Trigger::Slack),
    ("xapp-", Trigger::Slack),
    ("hooks.slack.com/services/", Trigger::SlackHook),
    ("sk-", Trigger::Sk),
    ("eyj", Trigger::Jwt),
    ("bearer", Trigger::Bearer),
    ("://", Trigger::Url),
    ("@", Trigger::At),
    ("pass", Trigger::Name),
    ("pwd", Trigger::Name),
    ("pswd", Trigger::Name),
    ("psk", Trigger::Name),
    ("pw\"", Trigger::Name),
    ("pw'", Trigger::Name),
    ("pw\\", Trigger::Name),
    ("pw ", Trigger::Name),
    ("pw:", Trigger::Name),
    ("pw=", Trigger::Name),
    ("identified by ", Trigger::Identified),
    ("secret", Trigger::Name),
    ("token", Trigger::Name),
    ("key", Trigger::Name),
    ("cred", Trigger::Name),
    ("auth", Trigger::Name),
    ("kennwort", Trigger::Name),
    ("senha", Trigger::Name),
    ("contrasena", Trigger::Name),
    ("wachtwoord", Trigger::Name),
    ("curl", Trigger::Command),
    ("http ", Trigger::Command),
    ("sshpass", Trigger::Command),
    ("mysql", Trigger::Command),
    ("mariadb", Trigger::Command),
    ("redis-cli", Trigger::Command),
    ("mongo", Trigger::Command),
    ("docker", Trigger::Command),
    ("podman", Trigger::Command),
    ("helm", Trigger::Command),
    ("mosquitto_", Trigger::Command),
    ("ldapsearch", Trigger::Command),
    ("zip", Trigger::Command),
    ("unzip", Trigger::Command),
    ("sqlcmd", Trigger::Command),
    ("openssl", Trigger::Command),
    ("7z ", Trigger::Command),
    ("smbclient", Trigger::Command),
    ("rpcclient", Trigger::Command),
    ("az ", Trigger::Command),
    ("ldapadd", Trigger::Command),
    ("ldapmodify", Trigger::Command),
    ("login(", Trigger::Call),
    ("signin(", Trigger::Call),
    ("sign_in(", Trigger::Call),
    ("authenticate(", Trigger::Call),
    ("net user ", Trigger::Positional),
    ("htpasswd", Trigger::Positional),
    (" -p ", Trigger::Flag),
    ("sudo -s", Trigger::Piped),
    ("-stdin", Trigger::Piped),
    ("chpasswd", Trigger::Piped),
    ("_phg", Trigger::Scrambled(Scramble::Reversed)),
    ("_ohg", Trigger::Scrambled(Scramble::Reversed)),
    ("_uhg", Trigger::Scrambled(Scramble::Reversed)),
    ("_shg", Trigger::Scrambled(Scramble::Reversed)),
    ("_rhg", Trigger::Scrambled(Scramble::Reversed)),
    ("_tap_buhtig", Trigger::Scrambled(Scramble::Reversed)),
    ("-bxox", Trigger::Scrambled(Scramble::Reversed)),
    ("-pxox", Trigger::Scrambled(Scramble::Reversed)),
    ("-axox", Trigger::Scrambled(Scramble::Reversed)),
    ("-sxox", Trigger::Scrambled(Scramble::Reversed)),
    ("-rxox", Trigger::Scrambled(Scramble::Reversed)),
    ("-1-ppax", Trigger::Scrambled(Scramble::Reversed)),
    ("-tna-ks", Trigger::Scrambled(Scramble::Reversed)),
    ("-ks", Trigger::Scrambled(Scramble::Reversed)),
    ("aika", Trigger::Scrambled(Scramble::Reversed)),
    ("aisa", Trigger::Scrambled(Scramble::Reversed)),
    ("adia", Trigger::Scrambled(Scramble::Reversed)),
    ("aora", Trigger::Scrambled(Scramble::Reversed)),
    ("jye", Trigger::Scrambled(Scramble::Reversed)),
    ("yek etavirp", Trigger::Scrambled(Scramble::Reversed)),
    ("tuc_", Trigger::Scrambled(Scramble::Rot13)),
    ("tub_", Trigger::Scrambled(Scramble::Rot13)),
    ("tuh_", Trigger::Scrambled(Scramble::Rot13)),
    ("tuf_", Trigger::Scrambled(Scramble::Rot13)),
    ("tue_", Trigger::Scrambled(Scramble::Rot13)),
    ("tvguho_cng_", Trigger::Scrambled(Scramble::Rot13)),
    ("kbko-", Trigger::Scrambled(Scramble::Rot13)),
    ("kbkc-", Trigger::Scrambled(Scramble::Rot13)),
    ("kbkn-", Trigger::Scrambled(Scramble::Rot13)),
    ("kbkf-", Trigger::Scrambled(Scramble::Rot13)),
    ("kbke-", Trigger::Scrambled(Scramble::Rot13)),
    ("kncc-", Trigger::Scrambled(Scramble::Rot13)),
    ("fx-", Trigger::Scrambled(Scramble::Rot13)),
    ("nxvn", Trigger::Scrambled(Scramble::Rot13)),
    ("nfvn", Trigger::Scrambled(Scramble::Rot13)),
    ("nvqn", Trigger::Scrambled(Scramble::Rot13)),
    ("nebn", Trigger::Scrambled(Scramble::Rot13)),
    ("rlw", Trigger::Scrambled(Scramble::Rot13)),
    ("cevingr xrl", Trigger::Scrambled(Scramble::Rot13)),
    ("g h p _", Trigger::Scrambled(Scramble::Spread)),
    ("g h o _", Trigger::Scrambled(Scramble::Spread)),
    ("g h u _", Trigger::Scrambled(Scramble::Spread)),
    ("g h s _", Trigger::Scrambled(Scramble::Spread)),
    ("g h r _", Trigger::Scrambled(Scramble::Spread)),
    ("g i t h u b _", Trigger::Scrambled(Scramble::Spread)),
    ("x o x ", Trigger::Scrambled(Scramble::Spread)),
    ("x a p p -", Trigger::Scrambled(Scramble::Spread)),
    ("s k - ", Trigger::Scrambled(Scramble::Spread)),
    ("a k i a", Trigger::Scrambled(Scramble::Spread)),
    ("a s i a", Trigger::Scrambled(Scramble::Spread)),
    ("a i d a", Trigger::Scrambled(Scramble::Spread)),
    ("a r o a", Trigger::Scrambled(Scramble::Spread)),
    ("e y j ", Trigger::Scrambled(Scramble::Spread)),
    ("b e g i n", Trigger::Scrambled(Scramble::Spread)),
];

/// None only if the fixed table above could not be built, which a test rules out.
static PREFILTER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostFirst)
        .kind(Some(aho_corasick::AhoCorasickKind::DFA))
        .build(
            TRIGGERS
                .iter()
                .map(|(word, _)| *word)
                .chain(LABELS.iter().copied()),
        )
        .ok()
});

/// What is known about a text from the place where it stands.
#[derive(Clone, Copy, Default)]
pub(crate) struct Context<'a> {
    /// The name that governs it.
    pub key: Option<&'a [u8]>,
    /// It is the whole of a JSON string value.
    pub whole: bool,
}

/// Everything in `text`, sorted and disjoint; `report` gets class, value and whether it is a documented example.
pub(crate) fn scan(
    text: &[u8],
    context: Context<'_>,
    report: &mut dyn FnMut(Class, &[u8], bool),
) -> Vec<Hit> {
    if text.len() < 3 {
        return Vec::new();
    }
    let (mut hits, scrambles) = one_layer(text, context);
    // Where a hit was seen in the undisguised text, that text is what is reported.
    let mut values: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    let undisguised = plain(text);
    if let Some(shown) = &undisguised {
        let (found, _) = one_layer(shown, context);
        let mut mapped = found.clone();
        to_source(Plain::new(text), &mut mapped);
        let mut more = Vec::new();
        for (hit, seen) in mapped.into_iter().zip(found) {
            if !known(&hits, &hit) {
                values.push((hit.span.clone(), seen.span));
                more.push(hit);
            }
        }
        hits.append(&mut more);
        resolve(&mut hits);
    }
    for hit in &hits {
        let shown = values
            .binary_search_by_key(&hit.span.start, |(at, _)| at.start)
            .ok()
            .and_then(|i| values.get(i))
            .filter(|(at, _)| *at == hit.span)
            .and_then(|(_, seen)| undisguised.as_ref()?.get(seen.clone()));
        let value = shown.or_else(|| text.get(hit.span.clone())).unwrap_or_default();
        report(hit.class, value, hit.documented);
    }
    if scrambles.0 != 0 && text.len() <= scramble::MAX_TEXT {
        for kind in Scramble::ALL.into_iter().filter(|kind| scrambles.has(*kind)) {
            scrambled(text, kind, &mut hits, report);
        }
    }
    let before = hits.len();
    for layer in [Some(text), undisguised.as_deref()].into_iter().flatten() {
        let own = std::ptr::eq(layer, text);
        if own || hits.len() == before {
            encoded_runs(layer, text, own, &mut hits, report);
        }
    }
    if hits.is_empty() && context.whole {
        let value = text.trim_ascii();
        if is_opaque(value) && !context.key.is_some_and(announces_identifier) {
            let start = text.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0);
            report(Class::HighEntropySecret, value, false);
            hits.push(Hit::new(Class::HighEntropySecret, start..start + value.len()));
        }
    }
    hits
}

/// Whether a match as strong stands where `hit` does; `hits` are sorted and disjoint.
fn known(hits: &[Hit], hit: &Hit) -> bool {
    let from = hits.partition_point(|h| h.span.end <= hit.span.start);
    hits.get(from..)
        .unwrap_or_default()
        .iter()
        .take_while(|h| h.span.start < hit.span.end)
        .any(|h| h.class <= hit.class)
}

/// Looks for vendor tokens in `text` without its scrambling.
fn scrambled(text: &[u8], kind: Scramble, hits: &mut Vec<Hit>, report: &mut dyn FnMut(Class, &[u8], bool)) {
    let shown = scramble::undo(text, kind);
    let (mut found, _) = one_layer(&shown, Context::default());
    found.retain(|h| h.class <= Class::Jwt);
    let seen: Vec<Range<usize>> = found.iter().map(|h| h.span.clone()).collect();
    match kind {
        Scramble::Reversed => {
            for hit in &mut found {
                hit.span = text.len() - hit.span.end..text.len() - hit.span.start;
            }
        }
        Scramble::Rot13 => {}
        Scramble::Spread | Scramble::Broken => to_source(scramble::steps(text, kind), &mut found),
    }
    let mut new = Vec::new();
    for (hit, seen) in found.into_iter().zip(seen) {
        if !overlaps(hits, &hit.span) {
            report(hit.class, shown.get(seen).unwrap_or_default(), hit.documented);
            new.push(hit);
        }
    }
    hits.append(&mut new);
    resolve(hits);
}

/// Looks into base64 and hex runs of `layer`, which is `text` itself (`own`) or `text` without its disguise.
fn encoded_runs(
    layer: &[u8],
    text: &[u8],
    own: bool,
    hits: &mut Vec<Hit>,
    report: &mut dyn FnMut(Class, &[u8], bool),
) {
    let mut found = Vec::new();
    encoded::runs(layer, |span, inside| {
        if own && overlaps(hits, &span) {
            return;
        }
        match inside {
            Inside::Key => {
                report(
                    Class::PrivateKey,
                    layer.get(span.clone()).unwrap_or_default(),
                    false,
                );
                found.push(Hit::new(Class::PrivateKey, span));
            }
            Inside::Text(decoded) => {
                let (inner, _) = one_layer(decoded, Context::default());
                for hit in &inner {
                    report(
                        hit.class,
                        decoded.get(hit.span.clone()).unwrap_or_default(),
                        hit.documented,
                    );
                }
                if let Some(strongest) = inner.iter().min_by_key(|h| h.class) {
                    found.push(Hit {
                        documented: strongest.documented,
                        ..Hit::new(strongest.class, span)
                    });
                }
            }
        }
    });
    if !found.is_empty() {
        if !own {
            to_source(Plain::new(text), &mut found);
        }
        hits.append(&mut found);
        resolve(hits);
    }
}

/// Matches in a text as it stands, sorted and disjoint.
fn one_layer(text: &[u8], context: Context<'_>) -> (Vec<Hit>, Scrambles) {
    let mut hits = Vec::new();
    let scrambles = triggers(text, &mut hits);
    digits(text, context, &mut hits);
    if let Some(key) = context.key
        && context.whole
    {
        named(text, key, &mut hits);
    }
    resolve(&mut hits);
    (hits, scrambles)
}

/// Everything that a word or sign gives away.
fn triggers(text: &[u8], hits: &mut Vec<Hit>) -> Scrambles {
    let mut scrambles = Scrambles::default();
    let Some(prefilter) = PREFILTER.as_ref() else {
        return scrambles;
    };
    let mut markers = Vec::new();
    let mut name_end = 0;
    for found in prefilter.find_iter(text) {
        let at = found.start();
        // Labels follow the table.
        let trigger = TRIGGERS
            .get(found.pattern().as_usize())
            .map_or(&Trigger::Label, |(_, trigger)| trigger);
        let hit = match trigger {
            Trigger::Begin => {
                markers.push(Marker::Begin(at));
                None
            }
            Trigger::End => {
                markers.push(Marker::End(at));
                None
            }
            Trigger::Age => pem::age(text, at),
            Trigger::Putty => pem::putty(text, at),
            Trigger::Aws => {
                let id = token::aws_id(text, at);
                if let Some(id) = &id
                    && let Some(secret) = token::aws_secret_near(text, &id.span)
                {
                    hits.push(secret);
                }
                id
            }
            Trigger::Github => token::github(text, at),
            Trigger::Slack => token::slack(text, at),
            Trigger::SlackHook => token::slack_hook(text, at),
            Trigger::Sk => token::sk(text, at),
            Trigger::Jwt => token::jwt(text, at),
            Trigger::Bearer => token::bearer(text, at),
            Trigger::Url => url_password(text, at),
            Trigger::At => email(text, at),
            Trigger::Name if at < name_end => None,
            Trigger::Name => {
                let name = identifier(text, at);
                let announced = |name: &Range<usize>| assignment(text, name).or_else(|| loose(text, name));
                let found =
                    announced(&name).or_else(|| two_words(text, &name).and_then(|whole| announced(&whole)));
                name_end = found.as_ref().map_or(name.end, |hit| hit.span.end.max(name.end));
                found
            }
            Trigger::Identified => identified_by(text, found.end()),
            Trigger::Label => labelled(text, found.end()),
            Trigger::Piped => piped(text, at),
            Trigger::Flag => short_flag(text, found.end()),
            Trigger::Call => call(text, found.end() - 1),
            Trigger::Positional => positional(text, found.end()),
            Trigger::Command => command(text, at),
            Trigger::Scrambled(scramble) => {
                scrambles.set(*scramble);
                None
            }
        };
        let vendor = matches!(
            trigger,
            Trigger::Aws | Trigger::Github | Trigger::Slack | Trigger::Sk | Trigger::Jwt
        );
        if vendor && hit.is_none() && !scrambles.has(Scramble::Broken) {
            let end = text.len().min(at + 512);
            if text.get(at..end).is_some_and(|near| near.contains(&b'\n')) {
                scrambles.set(Scramble::Broken);
            }
        }
        hits.extend(hit);
    }
    if !markers.is_empty() {
        pem::keys(text, &markers, hits);
    }
    scrambles
}

/// Kinds of scrambling that a text may hold.
#[derive(Clone, Copy, Default)]
struct Scrambles(u8);

impl Scrambles {
    fn set(&mut self, scramble: Scramble) {
        self.0 |= 1 << scramble as u8;
    }

    fn has(self, scramble: Scramble) -> bool {
        self.0 & (1 << scramble as u8) != 0
    }
}

/// Cards and telephone numbers.
fn digits(text: &[u8], context: Context<'_>, hits: &mut Vec<Hit>) {
    if text.len() < 7 {
        return;
    }
    let counter = context.key.is_some_and(announces_counter);
    let named_phone = context.whole && context.key.is_some_and(announces_phone);
    let mut at = 0;
    while let Some(skip) = text.get(at..).and_then(|rest| {
        rest.iter()
            .position(|b| b.is_ascii_digit() || matches!(b, b'+' | b'('))
    }) {
        let start = at + skip;
        at = start + 1;
        let before = start
            .checked_sub(1)
            .and_then(|i| text.get(i))
            .copied()
            .unwrap_or(b' ');
        let is_digit = text.get(start).is_some_and(u8::is_ascii_digit);
        if !is_digit && !text.get(start + 1).is_some_and(u8::is_ascii_digit) {
            continue;
        }
        if let Some(hit) = phone(text, start, named_phone) {
            // A card number in groups can look like a telephone number's beginning, never the other way round.
            at = hit.span.end;
            hits.push(hit);
        }
        if !is_digit {
            continue;
        }
        let escaped =
            matches!(before, b'n' | b'r' | b't') && start >= 2 && text.get(start - 2) == Some(&b'\\');
        let opens =
            escaped || !(before.is_ascii_alphanumeric() || matches!(before, b'_' | b'.' | b'-' | b'#'));
        if opens {
            let (hit, next) = card(text, start);
            at = at.max(next);
            if let Some(hit) = hit
                && !(counter
                    && context.whole
                    && hit.span.len() == text.trim_ascii().len()
                    && hit.span.len() <= 19)
            {
                hits.push(hit);
            }
        }
        // The rest of this run of digits begins nothing.
        at += text
            .get(at..)
            .unwrap_or_default()
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
    }
}

/// The whole value of a field whose name announces a secret.
fn named(text: &[u8], key: &[u8], hits: &mut Vec<Hit>) {
    let strength = classify(key);
    if strength == Name::Plain {
        return;
    }
    let value = text.trim_ascii();
    let start = text.iter().position(|b| !b.is_ascii_whitespace()).unwrap_or(0);
    if super::words::ends_with(key, "authorization") || super::words::ends_with(key, "auth") {
        let mut words = value.splitn(2, |b| *b == b' ');
        if let (Some(scheme), Some(credential)) = (words.next(), words.next())
            && is_literal(credential)
            && looks_opaque(credential)
        {
            let from = start + scheme.len() + 1;
            hits.push(Hit::new(Class::NamedSecret, from..from + credential.len()));
            return;
        }
    }
    let accepted = is_literal(value)
        && (value.len() <= 4_096)
        && match strength {
            Name::Plain => false,
            Name::Weak => looks_opaque(value),
            Name::Strong => true,
        };
    if accepted {
        let aws = token::is_aws_secret(value) && super::words::contains(key, "secret");
        let class = if aws { Class::AwsKey } else { Class::NamedSecret };
        let documented = value.ends_with(b"EXAMPLEKEY");
        hits.push(Hit {
            documented,
            ..Hit::new(class, start..start + value.len())
        });
    }
}

/// A bare JSON number: a card, or a secret or telephone number by its name.
pub(crate) fn number(digits: &[u8], key: Option<&[u8]>) -> Option<Class> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let key = key.unwrap_or_default();
    if super::card::is_card(digits) && !announces_counter(key) {
        return Some(Class::CardNumber);
    }
    if (10..=13).contains(&digits.len()) && announces_phone(key) {
        return Some(Class::Phone);
    }
    let password = (4..=32).contains(&digits.len())
        && classify(key) == Name::Strong
        && !super::words::ends_with(key, "token");
    password.then_some(Class::NamedSecret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefilter_builds() {
        assert!(PREFILTER.is_some());
    }
}
