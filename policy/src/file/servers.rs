//! `servers`: mode, fail mode and network by server, user and agent. The first entry that matches wins.

use std::collections::HashMap;

use crate::matcher::Matcher;
use crate::mode::{Fail, Mode, Network, Seccomp};
use crate::policy::ServerEntry;
use crate::reader::Reader;
use crate::tree::Node;

/// Keys of an entry.
pub(crate) const KEYS: &[&str] = &["match", "mode", "fail", "network", "seccomp", "description"];
/// Keys of its `match`.
pub(crate) const MATCH_KEYS: &[&str] = &["server", "user", "agent"];

/// Entries compared pairwise for coverage; beyond it only equal ones are found.
const MAX_PAIRWISE: usize = 300;

pub(crate) fn read(reader: &mut Reader<'_>, node: &Node) -> Vec<ServerEntry> {
    let mut entries: Vec<ServerEntry> = Vec::new();
    let mut seen: HashMap<Matcher, u32> = HashMap::new();
    for item in reader.list(node, "servers") {
        let Some(fields) = reader.fields(item, "a servers entry", KEYS) else {
            continue;
        };
        let mut matcher = Matcher::default();
        match fields.get("match") {
            None => reader.error_hint(
                fields.place,
                "a servers entry needs `match`",
                "`match: {}` is for all servers",
            ),
            Some(node) => {
                if let Some(keys) = reader.fields(node, "match", MATCH_KEYS) {
                    for (key, place) in [
                        ("server", &mut matcher.server),
                        ("user", &mut matcher.user),
                        ("agent", &mut matcher.agent),
                    ] {
                        if let Some(node) = keys.get(key) {
                            place.0 = reader
                                .globs(node, key)
                                .into_iter()
                                .map(|(glob, _)| glob)
                                .collect();
                        }
                    }
                }
            }
        }
        if let Some(node) = fields.get("description") {
            reader.text(node, "description");
        }
        let entry = ServerEntry {
            mode: fields
                .get("mode")
                .and_then(|n| reader.word(n, "mode", &Mode::NAMES)),
            fail: fields
                .get("fail")
                .and_then(|n| reader.word(n, "fail", &Fail::NAMES)),
            network: fields
                .get("network")
                .and_then(|n| reader.word(n, "network", &Network::NAMES)),
            seccomp: fields
                .get("seccomp")
                .and_then(|n| reader.word(n, "seccomp", &Seccomp::NAMES)),
            line: item.place.line,
            matcher,
        };
        if let (Some(Mode::Observe), Some(Seccomp::Deny | Seccomp::Notify), Some(node)) =
            (entry.mode, entry.seccomp, fields.get("seccomp"))
        {
            let message =
                "`seccomp` does nothing here: only in enforce mode is a server stopped at its start";
            reader.warn(node.place, message, None);
        }
        if ["mode", "fail", "network", "seccomp"]
            .iter()
            .all(|key| fields.get(key).is_none())
        {
            reader.warn(item.place, "this entry sets nothing", None);
        }
        let earlier = seen.get(&entry.matcher).copied().or_else(|| {
            let covering = entries
                .iter()
                .take(MAX_PAIRWISE)
                .find(|e| covers(&e.matcher, &entry.matcher));
            covering.map(|e| e.line)
        });
        if let Some(line) = earlier {
            reader.warn(
                item.place,
                format!("this entry is never reached: the one on line {line} matches first"),
                Some("put the narrower entry first".to_owned()),
            );
        }
        seen.entry(entry.matcher.clone()).or_insert(entry.line);
        entries.push(entry);
    }
    entries
}

fn covers(wide: &Matcher, narrow: &Matcher) -> bool {
    wide.server.covers(&narrow.server) && wide.user.covers(&narrow.user) && wide.agent.covers(&narrow.agent)
}
