//! What can be typed.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use kams_detect::Severity;
use kams_export::view::{EventKind, Time};

use super::baseline::Baseline;
use super::detect::Detect;
use super::exceptions::Exceptions;
use super::policy::PolicyCommand;
use super::runs::{Approvals, Restrictions, Runs};
use super::scan::Scan;
use super::telemetry::Telemetry;
use super::waste::Waste;
use crate::admin::Selection;

/// See and judge the MCP traffic of the AI agents on this host.
#[derive(Debug, Parser)]
#[command(name = "kams", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit status: 0 clean, 1 findings at or above --fail-on, 2 error.")]
pub struct Args {
    /// Form of the output.
    #[arg(short, long, global = true, value_enum, default_value_t = Form::Table, value_name = "FORM")]
    pub output: Form,

    /// When to colour; NO_COLOR is honoured.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,

    /// Socket of kamsd.
    #[arg(
        long,
        global = true,
        default_value = "/run/kams/kams.sock",
        value_name = "PATH"
    )]
    pub socket: PathBuf,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Form {
    /// Aligned columns, for people.
    Table,
    /// JSON, for programs; JSON lines for records.
    Json,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What the daemon does, what it sees and what it does not see.
    Status,
    /// MCP servers, one line each.
    Servers {
        /// Show what definitions and results cost in tokens (estimates).
        #[arg(long)]
        cost: bool,
        /// Show those that have ended, too.
        #[arg(long)]
        gone: bool,
    },
    /// Tools that servers offer.
    Tools {
        /// Only of this server: identity, self-given name or number.
        server: Option<String>,
    },
    /// What happened; with --follow, as it happens.
    Events {
        #[command(flatten)]
        stream: Stream,
        /// Only these types, comma separated (tool_call, tool_result, server_confirmed, ..., finding).
        #[arg(long = "type", value_delimiter = ',', value_parser = parse_kind, value_name = "TYPE")]
        kinds: Vec<KindOrFinding>,
        /// All types in table form too: requests, notifications, candidates.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        filter: Filter,
    },
    /// What the detectors saw.
    Findings {
        #[command(flatten)]
        stream: Stream,
        /// Only at or above this severity.
        #[arg(long, value_parser = parse_severity, value_name = "SEVERITY")]
        min_severity: Option<Severity>,
        /// Only of these detectors (a glob).
        #[arg(long, value_name = "GLOB")]
        detector: Option<String>,
        /// Only since then: a span back from now (`90s`, `30m`, `12h`, `7d`) or a time in RFC 3339.
        #[arg(long, value_parser = parse_since, value_name = "WHEN")]
        since: Option<Time>,
        /// Exit with 1 if there is one at or above this severity.
        #[arg(long, value_parser = parse_severity, value_name = "SEVERITY")]
        fail_on: Option<Severity>,
        #[command(flatten)]
        filter: Filter,
    },
    /// What servers' definitions were, and what is decided about changes.
    #[command(subcommand)]
    Baseline(Baseline),
    /// Check, test, explain and reload the rules.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Runs of agents, what is on record of them, and its proof.
    #[command(subcommand)]
    Runs(Runs),
    /// Findings that somebody accepted until a day.
    #[command(subcommand)]
    Exceptions(Exceptions),
    /// What policy refuses beyond one message.
    #[command(subcommand)]
    Restrictions(Restrictions),
    /// Calls that wait for a person.
    #[command(subcommand)]
    Approvals(Approvals),
    /// Tokens spent for nothing: what fired, how often, what it is worth, what to do.
    Waste(Waste),
    /// Have agents report their model calls to kamsd, host-wide.
    #[command(subcommand)]
    Telemetry(Telemetry),
    /// What the kernel offers, what is used, what is missing and what to do.
    Doctor,
    /// Try a text, a name, arguments or a file of cases against the detectors; needs no daemon.
    Detect(Detect),
    /// Servers that clients are configured to start, and what is known against them.
    Scan(Scan),
    /// Run recorded sessions through the engine; needs no daemon.
    Replay {
        /// Recorded sessions; `-` reads standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Judge by this policy instead of the default one.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Exit with 1 if there is a finding at or above this severity.
        #[arg(long, value_parser = parse_severity, value_name = "SEVERITY")]
        fail_on: Option<Severity>,
    },
    /// Run an MCP server behind a relay: the command of a server in an agent's configuration, where Kams cannot be
    /// installed or is to enforce for one server only. Uses kamsd where it runs.
    Wrap(Wrap),
    /// Watch again after `off`.
    On,
    /// Stop watching: resume everything, detach every program.
    Off,
    /// Completions for a shell, to stdout.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// The manual page, to stdout.
    Man {
        /// Write one page per command into this folder instead.
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
}

/// What is wrapped, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Wrap {
    /// Judge by this policy, in this process, also where kamsd runs.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Enforce the default policy, in this process: by default findings are only told.
    #[arg(long, conflicts_with = "policy")]
    pub enforce: bool,
    /// Append events and findings to this file, as JSON lines.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Without kamsd: end the restrictions that earlier sessions of this server left, such as a blocked tool.
    #[arg(long)]
    pub lift: bool,
    /// Where kamsd listens for relays.
    #[arg(long, value_name = "PATH", default_value = "/run/kams/relay.sock")]
    pub relays: PathBuf,
    /// The server's command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// How much of a stream.
#[derive(Clone, Debug, clap::Args)]
pub struct Stream {
    /// Go on with what happens from now.
    #[arg(short, long)]
    pub follow: bool,
    /// With --follow: wait for kamsd when it is gone, and go on when it is back.
    #[arg(long, requires = "follow")]
    pub reconnect: bool,
    /// How many past ones [default: 100, with --follow 0].
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub last: Option<u64>,
}

/// Whose and which.
#[derive(Clone, Debug, clap::Args)]
pub struct Filter {
    /// Only of this server: a glob over its identity, or its number.
    #[arg(long, value_name = "GLOB")]
    pub server: Option<String>,
    /// Only of this tool (a glob).
    #[arg(long, value_name = "GLOB")]
    pub tool: Option<String>,
    /// Only of this agent (a glob).
    #[arg(long, value_name = "GLOB")]
    pub agent: Option<String>,
    /// Only of this user: a glob over the name, or a uid.
    #[arg(long, value_name = "GLOB")]
    pub user: Option<String>,
}

impl Filter {
    /// As a selection of everything else.
    pub fn selection(&self) -> Selection {
        let Self {
            server,
            tool,
            agent,
            user,
        } = self.clone();
        Selection {
            server,
            tool,
            agent,
            user,
            ..Selection::default()
        }
    }
}

/// A word of `--type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KindOrFinding {
    /// An event.
    Kind(EventKind),
    /// Findings.
    Finding,
}

fn parse_kind(word: &str) -> Result<KindOrFinding, String> {
    if word == "finding" {
        return Ok(KindOrFinding::Finding);
    }
    let known = || EventKind::ALL.map(EventKind::name).join(", ");
    EventKind::from_name(word)
        .map(KindOrFinding::Kind)
        .ok_or_else(|| format!("known types: {}, finding", known()))
}

pub(super) fn parse_severity(word: &str) -> Result<Severity, String> {
    Severity::from_name(word).ok_or_else(|| "use low, medium, high or critical".to_owned())
}

pub(super) fn parse_since(text: &str) -> Result<Time, String> {
    let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];
    let span = text
        .char_indices()
        .last()
        .and_then(|(at, last)| Some((text.get(..at)?, units.iter().find(|(unit, _)| *unit == last)?.1)))
        .and_then(|(count, unit)| {
            count
                .parse::<i64>()
                .ok()?
                .checked_mul(unit)?
                .checked_mul(1_000_000_000)
        });
    match span {
        Some(span) if span >= 0 => Ok(Time::from_unix_nanos(
            Time::now().unix_nanos().saturating_sub(span),
        )),
        _ => Time::parse(text).map_err(|error| {
            format!("{error}; use a span such as 30m, 12h or 7d, or a time such as 2026-11-30T04:00:00Z")
        }),
    }
}
