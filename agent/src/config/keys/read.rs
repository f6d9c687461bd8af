//! Reading single values out of the tree. Each returns nothing after it has noted what is wrong.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::tree::{Entry, Fault, Node, Value};
use crate::config::{AgentPattern, units};

/// Most entries of `watch.agents`, and longest glob.
const MAX_PATTERNS: usize = 256;
const MAX_GLOB: usize = 256;

pub(super) fn fault(node: &Node, message: String, help: Option<&str>, faults: &mut Vec<Fault>) {
    faults.push(Fault {
        at: Some(node.at),
        message,
        help: help.map(str::to_owned),
    });
}

fn wrong(node: &Node, key: &str, wanted: &str, faults: &mut Vec<Fault>) {
    let found = match &node.value {
        // Texts may be secrets that were put in the wrong place, so only short words are repeated.
        Value::Text(text) if text.len() <= 24 && !text.contains(|c: char| c.is_ascii_digit()) => {
            format!("`{}`", kams_export::text::visible(text))
        }
        Value::Integer(n) => n.to_string(),
        Value::Bool(b) => b.to_string(),
        other => other.shape().to_owned(),
    };
    fault(
        node,
        format!("`{key}` must be {wanted}, not {found}"),
        None,
        faults,
    );
}

pub(super) fn text<'a>(node: &'a Node, key: &str, wanted: &str, faults: &mut Vec<Fault>) -> Option<&'a str> {
    match &node.value {
        Value::Text(text) if !text.is_empty() => Some(text),
        _ => {
            wrong(node, key, wanted, faults);
            None
        }
    }
}

pub(super) fn flag(node: &Node, key: &str, faults: &mut Vec<Fault>) -> Option<bool> {
    if let Value::Bool(value) = node.value {
        return Some(value);
    }
    wrong(node, key, "true or false", faults);
    None
}

pub(super) fn choice<T: Copy>(
    node: &Node,
    key: &str,
    words: &[(&str, T)],
    faults: &mut Vec<Fault>,
) -> Option<T> {
    if let Value::Text(text) = &node.value
        && let Some((_, value)) = words.iter().find(|(word, _)| word == text)
    {
        return Some(*value);
    }
    let list: Vec<_> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
    wrong(node, key, &format!("one of {}", list.join(", ")), faults);
    None
}

pub(super) fn count(
    node: &Node,
    key: &str,
    range: std::ops::RangeInclusive<usize>,
    faults: &mut Vec<Fault>,
) -> Option<usize> {
    if let Value::Integer(n) = node.value
        && let Ok(n) = usize::try_from(n)
        && range.contains(&n)
    {
        return Some(n);
    }
    let wanted = format!("a whole number from {} to {}", range.start(), range.end());
    wrong(node, key, &wanted, faults);
    None
}

pub(super) fn size(
    node: &Node,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
    faults: &mut Vec<Fault>,
) -> Option<u64> {
    let bytes = match &node.value {
        Value::Integer(n) => u64::try_from(*n).ok(),
        Value::Text(text) => units::bytes(text),
        _ => None,
    };
    if let Some(bytes) = bytes.filter(|b| range.contains(b)) {
        return Some(bytes);
    }
    let show = units::show_bytes;
    let wanted = format!(
        "a size from {} to {}, such as `64MiB`",
        show(*range.start()),
        show(*range.end())
    );
    wrong(node, key, &wanted, faults);
    None
}

pub(super) fn duration(
    node: &Node,
    key: &str,
    range: std::ops::RangeInclusive<Duration>,
    faults: &mut Vec<Fault>,
) -> Option<Duration> {
    if let Value::Text(text) = &node.value
        && let Some(duration) = units::duration(text)
        && range.contains(&duration)
    {
        return Some(duration);
    }
    let show = units::show_duration;
    let wanted = format!(
        "a duration from {} to {}, such as `30d`",
        show(*range.start()),
        show(*range.end())
    );
    wrong(node, key, &wanted, faults);
    None
}

pub(super) fn path(node: &Node, key: &str, longest: usize, faults: &mut Vec<Fault>) -> Option<PathBuf> {
    let wanted = "an absolute path";
    let path = PathBuf::from(text(node, key, wanted, faults)?);
    let plain = path.components().all(|c| c != std::path::Component::ParentDir);
    if path.is_absolute() && plain && path.as_os_str().len() <= longest {
        return Some(path);
    }
    let message = format!("`{key}` must be an absolute path without `..`, of at most {longest} bytes");
    fault(node, message, None, faults);
    None
}

/// An address, or `off`.
#[expect(clippy::option_option, reason = "wrong, off, or an address")]
pub(super) fn listen(node: &Node, key: &str, faults: &mut Vec<Fault>) -> Option<Option<SocketAddr>> {
    match &node.value {
        Value::Text(text) if text == "off" => return Some(None),
        Value::Text(text) => {
            if let Ok(address) = text.parse() {
                return Some(Some(address));
            }
        }
        _ => {}
    }
    wrong(
        node,
        key,
        "an address with its port, such as `127.0.0.1:9464`, or `off`",
        faults,
    );
    None
}

/// `watch.agents`.
pub(super) fn agents(node: &Node, key: &str, faults: &mut Vec<Fault>) -> Option<Vec<AgentPattern>> {
    let Value::List(items) = &node.value else {
        wrong(node, key, "a list of patterns", faults);
        return None;
    };
    if items.len() > MAX_PATTERNS {
        fault(
            node,
            format!("`{key}` has more than {MAX_PATTERNS} patterns"),
            None,
            faults,
        );
        return None;
    }
    Some(items.iter().filter_map(|item| agent(item, key, faults)).collect())
}

fn agent(node: &Node, key: &str, faults: &mut Vec<Fault>) -> Option<AgentPattern> {
    let Value::Map(entries) = &node.value else {
        wrong(
            node,
            key,
            "a list of maps with `name`, `executable`, `arguments`",
            faults,
        );
        return None;
    };
    let (mut name, mut executable, mut arguments) = (None, None, None);
    for Entry {
        key: member,
        key_at,
        node,
    } in entries
    {
        let place = format!("{key}[].{member}");
        match member.as_str() {
            "name" => name = agent_name(node, &place, faults),
            "executable" => executable = glob(node, &place, faults),
            "arguments" => arguments = glob(node, &place, faults),
            _ => faults.push(Fault {
                at: Some(*key_at),
                message: format!("unknown key `{}`", kams_export::text::visible(&place)),
                help: Some("an agent pattern has `name`, `executable` and `arguments`".to_owned()),
            }),
        }
    }
    let named = |member: &str| entries.iter().any(|e| e.key == member);
    if !named("name") {
        fault(node, format!("this entry of `{key}` has no `name`"), None, faults);
    }
    if !named("executable") && !named("arguments") {
        let message = format!("this entry of `{key}` would match every process");
        fault(
            node,
            message,
            Some("give it `executable`, `arguments` or both"),
            faults,
        );
    }
    if executable.is_none() && arguments.is_none() {
        return None;
    }
    Some(AgentPattern {
        name: name?,
        executable,
        arguments,
    })
}

fn agent_name(node: &Node, key: &str, faults: &mut Vec<Fault>) -> Option<String> {
    let wanted = "1 to 32 of a-z, 0-9, `-` and `_`";
    let name = text(node, key, wanted, faults)?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    if name.len() <= 32 && name.bytes().all(plain) {
        return Some(name.to_owned());
    }
    wrong(node, key, wanted, faults);
    None
}

fn glob(node: &Node, key: &str, faults: &mut Vec<Fault>) -> Option<String> {
    let glob = text(node, key, "a glob", faults)?;
    if glob.len() > MAX_GLOB || glob.bytes().all(|b| b == b'*' || b == b'?') {
        let message = format!("`{key}` must be a glob of at most {MAX_GLOB} bytes with some literal text");
        fault(node, message, None, faults);
        return None;
    }
    Some(glob.to_owned())
}
