//! The table of keys.

use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::Key;
use super::read::{agents, choice, count, duration, fault, flag, listen, path, size, text};
use crate::config::units::{show_bytes, show_duration};
use crate::config::{AgentPattern, LogFormat, Mode, RelayWhat, UnknownAgents, Unrelayed};

const MODES: &[(&str, Mode)] = &[("observe", Mode::Observe), ("enforce", Mode::Enforce)];
const RELAY: &[(&str, RelayWhat)] = &[("known", RelayWhat::Known), ("candidates", RelayWhat::Candidates)];
const UNRELAYED: &[(&str, Unrelayed)] = &[("report", Unrelayed::Report), ("restart", Unrelayed::Restart)];
const UNKNOWN: &[(&str, UnknownAgents)] = &[
    ("discover", UnknownAgents::Discover),
    ("ignore", UnknownAgents::Ignore),
];
const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
const LEVELS: &[(&str, LevelFilter)] = &[
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Longest path that fits into a socket address.
const MAX_SOCKET_PATH: usize = 107;

/// All keys, in the order in which the sample shows them.
pub(in crate::config) const KEYS: &[Key] = &[
    Key {
        path: "mode",
        reload: false,
        doc: &[
            "observe: report only. enforce: put a relay before servers that start, and carry out what the policy says. A",
            "policy that says `mode` itself is followed instead; it can do so by user, agent and server.",
        ],
        set: |c, n, f| {
            if let Some(mode) = choice(n, "mode", MODES, f) {
                c.mode = mode;
            }
        },
        show: |c| word(c.mode, MODES),
    },
    Key {
        path: "relay",
        reload: true,
        doc: &[
            "In enforce mode, which programs of agents get a relay. known: servers that were seen before, or that a",
            "configuration file of the agent names; others are relayed from their second start on. candidates: whatever an",
            "agent starts with streams like a server's.",
        ],
        set: |c, n, f| {
            if let Some(what) = choice(n, "relay", RELAY, f) {
                c.relay = what;
            }
        },
        show: |c| word(c.relay, RELAY),
    },
    Key {
        path: "unrelayed",
        reload: true,
        doc: &[
            "In enforce mode, what is done about a server that spoke MCP and got no relay at its start. report: it is told,",
            "and the server gets one at its next start. restart: the server is ended as well, so that its agent starts it",
            "again. Servers that ran before kamsd are only told.",
        ],
        set: |c, n, f| {
            if let Some(what) = choice(n, "unrelayed", UNRELAYED, f) {
                c.unrelayed = what;
            }
        },
        show: |c| word(c.unrelayed, UNRELAYED),
    },
    Key {
        path: "watch.unknown_agents",
        reload: true,
        doc: &[
            "discover: a program on no list that starts something like an MCP server is watched for a short",
            "time, and learned as an agent if it speaks MCP. ignore: it is left alone.",
        ],
        set: |c, n, f| {
            if let Some(what) = choice(n, "watch.unknown_agents", UNKNOWN, f) {
                c.watch.unknown_agents = what;
            }
        },
        show: |c| word(c.watch.unknown_agents, UNKNOWN),
    },
    Key {
        path: "watch.agents",
        reload: true,
        doc: &[
            "Agents besides the built-in ones (Claude Code, Codex, Gemini CLI, Cursor, VS Code, ...).",
            "`executable` is a glob over the base name of the program, or over its whole path if it holds a",
            "slash; `arguments` is a glob over all arguments joined by spaces. For example:",
            "  - {name: house-bot, executable: \"python3*\", arguments: \"*house_bot.py*\"}",
        ],
        set: |c, n, f| {
            if let Some(patterns) = agents(n, "watch.agents", f) {
                c.watch.agents = patterns;
            }
        },
        show: |c| {
            format!(
                "[{}]",
                c.watch.agents.iter().map(pattern).collect::<Vec<_>>().join(", ")
            )
        },
    },
    Key {
        path: "sensor.ring_buffer",
        reload: false,
        doc: &[
            "Memory between kernel and daemon, a power of two from 1MiB to 1GiB. When it is full, records are",
            "lost and counted in kams_sensor_lost_total.",
        ],
        set: |c, n, f| {
            let Some(bytes) = size(n, "sensor.ring_buffer", (1 << 20)..=(1 << 30), f) else {
                return;
            };
            match u32::try_from(bytes) {
                Ok(bytes) if bytes.is_power_of_two() => c.sensor.ring_buffer = bytes,
                _ => {
                    let message = "`sensor.ring_buffer` must be a power of two".to_owned();
                    fault(
                        n,
                        message,
                        Some("the kernel takes no other size, for example 32MiB or 64MiB"),
                        f,
                    );
                }
            }
        },
        show: |c| show_bytes(c.sensor.ring_buffer.into()),
    },
    Key {
        path: "sensor.queue",
        reload: false,
        doc: &[
            "Bytes that may wait to be judged, 16MiB to 16GiB: memory that is used only while agents say more than",
            "the daemon can follow. What comes after is lost and counted.",
        ],
        set: |c, n, f| {
            if let Some(bytes) = size(n, "sensor.queue", (16 << 20)..=(16 << 30), f) {
                c.sensor.queue = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
        },
        show: |c| show_bytes(c.sensor.queue as u64),
    },
    Key {
        path: "sensor.max_message",
        reload: false,
        doc: &[
            "Longest MCP message that is read, 64KiB to 1GiB. Longer ones are skipped, counted and reported.",
        ],
        set: |c, n, f| {
            if let Some(bytes) = size(n, "sensor.max_message", (64 << 10)..=(1 << 30), f) {
                c.sensor.max_message = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
        },
        show: |c| show_bytes(c.sensor.max_message as u64),
    },
    Key {
        path: "admin.socket",
        reload: false,
        doc: &["Where `kams` reaches the daemon. Every user may connect; each sees only their own data."],
        set: |c, n, f| {
            if let Some(socket) = path(n, "admin.socket", MAX_SOCKET_PATH, f) {
                c.admin.socket = socket;
            }
        },
        show: |c| c.admin.socket.display().to_string(),
    },
    Key {
        path: "admin.group",
        reload: true,
        doc: &["Members see every user's data and may use `kams on` and `kams off`, as root does."],
        set: |c, n, f| {
            let Some(group) = text(n, "admin.group", "the name of a group", f) else {
                return;
            };
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if group.len() <= 32 && group.bytes().all(plain) {
                group.clone_into(&mut c.admin.group);
            } else {
                fault(n, "`admin.group` is no name of a group".to_owned(), None, f);
            }
        },
        show: |c| c.admin.group.clone(),
    },
    Key {
        path: "metrics.listen",
        reload: false,
        doc: &[
            "Address of the Prometheus endpoint (/metrics), or off. It has no login: names of servers and tools",
            "of all users can be read by whoever reaches it.",
        ],
        set: |c, n, f| {
            if let Some(address) = listen(n, "metrics.listen", f) {
                c.metrics.listen = address;
            }
        },
        show: |c| {
            c.metrics
                .listen
                .map_or_else(|| "off".to_owned(), |a| format!("\"{a}\""))
        },
    },
    Key {
        path: "metrics.allow_remote",
        reload: false,
        doc: &["Whether metrics.listen may be an address that other hosts reach."],
        set: |c, n, f| {
            if let Some(allow) = flag(n, "metrics.allow_remote", f) {
                c.metrics.allow_remote = allow;
            }
        },
        show: |c| c.metrics.allow_remote.to_string(),
    },
    Key {
        path: "metrics.max_servers",
        reload: false,
        doc: &["Distinct servers on metric labels; the others are counted together as `other`."],
        set: |c, n, f| {
            if let Some(servers) = count(n, "metrics.max_servers", 1..=10_000, f) {
                c.metrics.max_servers = servers;
            }
        },
        show: |c| c.metrics.max_servers.to_string(),
    },
    Key {
        path: "metrics.max_tools",
        reload: false,
        doc: &["Distinct tools on metric labels; one server may use up a quarter of them."],
        set: |c, n, f| {
            if let Some(tools) = count(n, "metrics.max_tools", 1..=10_000, f) {
                c.metrics.max_tools = tools;
            }
        },
        show: |c| c.metrics.max_tools.to_string(),
    },
    Key {
        path: "telemetry.listen",
        reload: false,
        doc: &[
            "Loopback address of the OTLP/HTTP receiver, or off. Agents report their model calls to it once",
            "`kams telemetry enable` has told them to; who sends is what the kernel says of the socket.",
        ],
        set: |c, n, f| {
            if let Some(address) = listen(n, "telemetry.listen", f) {
                c.telemetry.listen = address;
            }
        },
        show: |c| {
            c.telemetry
                .listen
                .map_or_else(|| "off".to_owned(), |a| format!("\"{a}\""))
        },
    },
    Key {
        path: "telemetry.max_body",
        reload: false,
        doc: &["Largest request that is read, 64KiB to 64MiB; larger ones are refused (413)."],
        set: |c, n, f| {
            if let Some(bytes) = size(n, "telemetry.max_body", (64 << 10)..=(64 << 20), f) {
                c.telemetry.max_body = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
        },
        show: |c| show_bytes(c.telemetry.max_body as u64),
    },
    Key {
        path: "telemetry.max_unpacked",
        reload: false,
        doc: &["The same for what a compressed request unpacks to."],
        set: |c, n, f| {
            if let Some(bytes) = size(n, "telemetry.max_unpacked", (64 << 10)..=(128 << 20), f) {
                c.telemetry.max_unpacked = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
        },
        show: |c| show_bytes(c.telemetry.max_unpacked as u64),
    },
    Key {
        path: "telemetry.requests_per_second",
        reload: false,
        doc: &[
            "Requests of one user, here and to /v1/llm-calls, in the long run; five times as many may come at",
            "once. What comes beyond is refused (429).",
        ],
        set: |c, n, f| {
            if let Some(requests) = count(n, "telemetry.requests_per_second", 1..=10_000, f) {
                c.telemetry.requests_per_second = requests;
            }
        },
        show: |c| c.telemetry.requests_per_second.to_string(),
    },
    Key {
        path: "telemetry.bytes_per_second",
        reload: false,
        doc: &["Bytes of one user in the long run; five times as many may come at once."],
        set: |c, n, f| {
            if let Some(bytes) = size(n, "telemetry.bytes_per_second", (64 << 10)..=(1 << 30), f) {
                c.telemetry.bytes_per_second = usize::try_from(bytes).unwrap_or(usize::MAX);
            }
        },
        show: |c| show_bytes(c.telemetry.bytes_per_second as u64),
    },
    Key {
        path: "log.level",
        reload: true,
        doc: &["error, warn, info, debug or trace."],
        set: |c, n, f| {
            if let Some(level) = choice(n, "log.level", LEVELS, f) {
                c.log.level = level;
            }
        },
        show: |c| word(c.log.level, LEVELS),
    },
    Key {
        path: "log.format",
        reload: false,
        doc: &["text, or json: one object per line."],
        set: |c, n, f| {
            if let Some(format) = choice(n, "log.format", FORMATS, f) {
                c.log.format = format;
            }
        },
        show: |c| word(c.log.format, FORMATS),
    },
    Key {
        path: "state_dir",
        reload: false,
        doc: &["Where baselines and findings are kept."],
        set: |c, n, f| {
            if let Some(dir) = path(n, "state_dir", 1_024, f) {
                c.state_dir = dir;
            }
        },
        show: |c| c.state_dir.display().to_string(),
    },
    Key {
        path: "retention.findings",
        reload: true,
        doc: &["Findings older than this are deleted: 1h to 3650d."],
        set: |c, n, f| {
            let range = Duration::from_hours(1)..=Duration::from_hours(24 * 3650);
            if let Some(age) = duration(n, "retention.findings", range, f) {
                c.retention.findings = age;
            }
        },
        show: |c| show_duration(c.retention.findings),
    },
    Key {
        path: "retention.findings_per_user",
        reload: true,
        doc: &["Findings kept per user; the oldest go first."],
        set: |c, n, f| {
            if let Some(rows) = count(n, "retention.findings_per_user", 100..=10_000_000, f) {
                c.retention.findings_per_user = rows;
            }
        },
        show: |c| c.retention.findings_per_user.to_string(),
    },
    Key {
        path: "events.per_user",
        reload: false,
        doc: &["Events kept in memory per user, for `kams events`."],
        set: |c, n, f| {
            if let Some(records) = count(n, "events.per_user", 100..=1_000_000, f) {
                c.events.per_user = records;
            }
        },
        show: |c| c.events.per_user.to_string(),
    },
    Key {
        path: "events.users",
        reload: false,
        doc: &["Users whose events are kept."],
        set: |c, n, f| {
            if let Some(users) = count(n, "events.users", 1..=65_536, f) {
                c.events.users = users;
            }
        },
        show: |c| c.events.users.to_string(),
    },
    Key {
        path: "events.follower",
        reload: false,
        doc: &["Events that may wait for one `kams events --follow`; a slower one is told what it missed."],
        set: |c, n, f| {
            if let Some(records) = count(n, "events.follower", 16..=1_000_000, f) {
                c.events.follower = records;
            }
        },
        show: |c| c.events.follower.to_string(),
    },
    Key {
        path: "events.followers",
        reload: false,
        doc: &["How many may follow at once."],
        set: |c, n, f| {
            if let Some(followers) = count(n, "events.followers", 1..=1_024, f) {
                c.events.followers = followers;
            }
        },
        show: |c| c.events.followers.to_string(),
    },
];

fn word<T: PartialEq + Copy>(value: T, words: &[(&str, T)]) -> String {
    let found = words.iter().find(|(_, v)| *v == value);
    found.map_or_else(String::new, |(word, _)| (*word).to_owned())
}

fn pattern(pattern: &AgentPattern) -> String {
    let AgentPattern {
        name,
        executable,
        arguments,
    } = pattern;
    let quoted = |key: &str, value: &Option<String>| {
        value
            .as_ref()
            .map_or_else(String::new, |v| format!(", {key}: {}", quote(v)))
    };
    let executable = quoted("executable", executable);
    let arguments = quoted("arguments", arguments);
    format!("{{name: {name}{executable}{arguments}}}")
}

/// A double-quoted YAML text.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
