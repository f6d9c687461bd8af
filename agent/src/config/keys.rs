//! Every key of the configuration: its meaning, its check, its spelling.

mod read;
mod table;

pub(super) use table::KEYS;

use super::Config;
use super::tree::{Entry, Fault, Node, Place, Value};
use super::units::distance;

/// One key.
pub(super) struct Key {
    /// Dotted path.
    pub(super) path: &'static str,
    /// Whether a reload is enough for a new value to take effect.
    pub(super) reload: bool,
    /// What it means, one line per entry.
    pub(super) doc: &'static [&'static str],
    /// Checks the value and stores it.
    pub(super) set: fn(&mut Config, &Node, &mut Vec<Fault>),
    /// The value as YAML.
    pub(super) show: fn(&Config) -> String,
}

/// Builds a configuration from the tree. Returns also which keys were set and where.
pub(super) fn check(root: &Node, faults: &mut Vec<Fault>) -> (Config, Vec<(&'static str, Place)>) {
    let mut config = Config::default();
    let mut set = Vec::new();
    match &root.value {
        Value::Map(entries) => walk("", entries, &mut config, &mut set, faults),
        Value::Null => {}
        other => faults.push(Fault {
            at: Some(root.at),
            message: format!("a configuration is a map of keys, not {}", other.shape()),
            help: None,
        }),
    }
    cross_check(root, &config, faults);
    (config, set)
}

fn walk(
    prefix: &str,
    entries: &[Entry],
    config: &mut Config,
    set: &mut Vec<(&'static str, Place)>,
    faults: &mut Vec<Fault>,
) {
    for Entry { key, key_at, node } in entries {
        let path = format!("{prefix}{key}");
        if let Some(known) = KEYS.iter().find(|k| k.path == path) {
            (known.set)(config, node, faults);
            set.push((known.path, *key_at));
            continue;
        }
        let inner = format!("{path}.");
        if !KEYS.iter().any(|k| k.path.starts_with(&inner)) {
            faults.push(unknown(&path, *key_at));
            continue;
        }
        match &node.value {
            Value::Map(entries) => walk(&inner, entries, config, set, faults),
            Value::Null => {}
            other => faults.push(Fault {
                at: Some(node.at),
                message: format!(
                    "`{path}` is a section with keys of its own, not {}",
                    other.shape()
                ),
                help: None,
            }),
        }
    }
}

fn unknown(path: &str, at: Place) -> Fault {
    let shown = kams_export::text::visible(path);
    let last = path.rsplit('.').next().unwrap_or(path);
    let depth = path.matches('.').count();
    let candidates = KEYS.iter().flat_map(|k| prefixes(k.path));
    // Nearness of the whole path, or of its last part alone for a key in the wrong section.
    let near = |candidate: &&str| {
        let tail = candidate.rsplit('.').next().unwrap_or(candidate);
        let misplaced = tail == last && candidate.matches('.').count() != depth;
        if misplaced || tail == last {
            1
        } else {
            distance(path, candidate)
        }
    };
    let best = candidates
        .min_by_key(near)
        .filter(|c| near(c) <= 2 + last.len() / 5);
    Fault {
        at: Some(at),
        message: format!("unknown key `{shown}`"),
        help: Some(match best {
            Some(best) => format!("did you mean `{best}`?"),
            None => "`kamsd --print-sample` lists all keys".to_owned(),
        }),
    }
}

/// `a`, `a.b` and `a.b.c` for `a.b.c`.
fn prefixes(path: &'static str) -> impl Iterator<Item = &'static str> {
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| path.get(..end))
}

/// What no key can tell alone.
fn cross_check(root: &Node, config: &Config, faults: &mut Vec<Fault>) {
    let place = |path: &str| root.get(path).map(|e| e.node.at);
    if let Some(listen) = config.metrics.listen
        && !listen.ip().is_loopback()
        && !config.metrics.allow_remote
    {
        faults.push(Fault {
            at: place("metrics.listen"),
            message: format!("`metrics.listen: {listen}` can be reached from other hosts, without any login"),
            help: Some("use 127.0.0.1 or [::1], or say `metrics.allow_remote: true` as well".to_owned()),
        });
    }
    if let Some(listen) = config.telemetry.listen
        && !listen.ip().is_loopback()
    {
        faults.push(Fault {
            at: place("telemetry.listen"),
            message: format!(
                "`telemetry.listen: {listen}` can be reached from other hosts, whose users are unknown here"
            ),
            help: Some("use 127.0.0.1 or [::1]".to_owned()),
        });
    }
}
