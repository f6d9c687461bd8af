//! The Prometheus registry of the daemon (names: SPEC section 7).
//!
//! One [`Metrics`] is made at start and shared. No label ever holds a pid, a session id or an argument; labels
//! that outsiders name are bounded by [`labels::Cap`].

pub mod labels;
mod record;

pub use record::{Operation, value_of};

use prometheus::{
    Encoder, Gauge, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};

use labels::Cap;

/// Content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Bounds, in seconds, that the OpenTelemetry conventions for MCP advise for operation durations.
pub const DURATION_BUCKETS: [f64; 14] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// Bounds, in seconds, for the time of a verdict: from that of a short message to that of 16 MiB.
pub const VERDICT_BUCKETS: [f64; 10] = [
    0.000_02, 0.000_05, 0.000_1, 0.000_25, 0.001, 0.005, 0.025, 0.1, 0.25, 1.0,
];

/// Limits on label values that servers and agents choose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LabelLimits {
    /// Distinct servers.
    pub servers: usize,
    /// Distinct tools; one server may bring a quarter of them.
    pub tools: usize,
}

impl Default for LabelLimits {
    fn default() -> Self {
        Self {
            servers: 200,
            tools: 400,
        }
    }
}

/// A metric could not be registered: the name is taken or malformed, which is an error in this crate.
#[derive(Debug, thiserror::Error)]
#[error("metrics registry: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

/// All metrics. Recording methods are in `record.rs`.
pub struct Metrics {
    registry: Registry,
    servers_seen: Cap,
    tools_seen: Cap,
    errors_seen: Cap,
    operations_seen: Cap,
    rules_seen: Cap,
    operation_seconds: HistogramVec,
    servers: IntGaugeVec,
    agents: IntGauge,
    events: IntCounterVec,
    sensor_events: IntCounterVec,
    sensor_lost: IntCounterVec,
    discovery_limited: IntCounterVec,
    injections: IntCounterVec,
    filters: IntCounterVec,
    filtered: IntGaugeVec,
    probe_attached: IntGaugeVec,
    frames: IntCounterVec,
    map_entries: IntGaugeVec,
    map_capacity: IntGaugeVec,
    enabled: IntGauge,
    config_reload: IntCounterVec,
    drift: IntCounterVec,
    pinned_drift: IntCounterVec,
    findings: IntCounterVec,
    cost_tokens: IntCounterVec,
    definition_tokens: IntGaugeVec,
    store_errors: IntCounterVec,
    policy_reload: IntCounterVec,
    policy_info: IntGaugeVec,
    decisions: IntCounterVec,
    restrictions: IntGaugeVec,
    decision_head: IntGaugeVec,
    waste: IntCounterVec,
    waste_dropped: IntCounterVec,
    llm_calls: IntCounterVec,
    telemetry_requests: IntCounterVec,
    relay_failmode: IntCounterVec,
    relay_verdict: HistogramVec,
    network_blocks: IntGauge,
    network_refused: IntCounterVec,
    network_closed: IntCounterVec,
    network_left_open: IntCounterVec,
    network_errors: IntCounterVec,
    feed_missed: IntCounterVec,
}

impl Metrics {
    /// A registry with nothing counted. `version` and `commit` go into `kams_build_info`; `start` is the
    /// daemon's start in seconds since the epoch.
    pub fn new(version: &str, commit: &str, start: f64, limits: LabelLimits) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let r = &registry;
        let build = gauges(
            r,
            "kams_build_info",
            "Version of the daemon; always 1.",
            &["version", "commit"],
        )?;
        build.with_label_values(&[version, commit]).set(1);
        let start_time = gauge(r, "kams_start_time_seconds", "When the daemon started.")?;
        start_time.set(start);
        let seconds = HistogramOpts::new(
            "mcp_client_operation_duration_seconds",
            "Time from an MCP request to its answer, read at the agent's end.",
        );
        let operation_seconds = register(
            r,
            HistogramVec::new(
                seconds.buckets(DURATION_BUCKETS.to_vec()),
                &[
                    "mcp_method_name",
                    "gen_ai_tool_name",
                    "error_type",
                    "network_transport",
                ],
            )?,
        )?;
        let verdicts = HistogramOpts::new("kams_relay_verdict_seconds", "Time that a verdict took.");
        Ok(Self {
            servers_seen: Cap::new(limits.servers, limits.servers),
            tools_seen: Cap::new(limits.tools, (limits.tools / 4).max(1)),
            errors_seen: Cap::new(32, 8),
            operations_seen: Cap::new(limits.tools.saturating_mul(4), usize::MAX),
            rules_seen: Cap::new(1_000, usize::MAX),
            operation_seconds,
            servers: gauges(r, "kams_servers", "MCP servers by state.", &["state"])?,
            agents: int_gauge(r, "kams_agents", "Agent processes that live now.")?,
            events: counters(r, "kams_events_total", "Events by type.", &["event"])?,
            sensor_events: counters(
                r,
                "kams_sensor_events_total",
                "Records read from the kernel.",
                &["kind"],
            )?,
            sensor_lost: counters(
                r,
                "kams_sensor_lost_total",
                "What was lost, cut or unreadable.",
                &["stage", "reason"],
            )?,
            injections: counters(
                r,
                "kams_injections_total",
                "Servers held at their start to get a relay, by what came of it.",
                &["result"],
            )?,
            filters: counters(
                r,
                "kams_seccomp_total",
                "Filters of system calls that servers were to get, by what came of it.",
                &["result"],
            )?,
            filtered: gauges(
                r,
                "kams_seccomp_servers",
                "Servers that are to be under a filter of system calls, by state.",
                &["state"],
            )?,
            discovery_limited: counters(
                r,
                "kams_discovery_limited_total",
                "Processes and possible servers that a limit of discovery left out.",
                &["reason"],
            )?,
            probe_attached: gauges(
                r,
                "kams_sensor_probe_attached",
                "1 where the probe is attached.",
                &["probe"],
            )?,
            frames: counters(
                r,
                "kams_frames_total",
                "Framed messages by outcome.",
                &["outcome"],
            )?,
            map_entries: gauges(
                r,
                "kams_map_entries",
                "Entries in a kernel or engine table.",
                &["map"],
            )?,
            map_capacity: gauges(
                r,
                "kams_map_capacity",
                "Most entries that table can hold.",
                &["map"],
            )?,
            enabled: int_gauge(r, "kams_enabled", "0 after `kams off`.")?,
            config_reload: counters(
                r,
                "kams_config_reload_total",
                "Reloads of the configuration.",
                &["result"],
            )?,
            drift: counters(
                r,
                "mcp_integrity_drift_count_total",
                "Changes of a tool's definition against its baseline.",
                &["server", "change"],
            )?,
            pinned_drift: counters(
                r,
                "kams_pinned_drift_count_total",
                "Those changes of definitions whose baseline a person had pinned.",
                &["server", "change", "severity"],
            )?,
            findings: counters(
                r,
                "kams_finding_count_total",
                "Findings other than definition drift.",
                &["detector", "severity", "action"],
            )?,
            cost_tokens: counters(
                r,
                "mcp_context_cost_tokens_total",
                "Tokens that results put into the model's context.",
                &["server", "estimated"],
            )?,
            definition_tokens: gauges(
                r,
                "mcp_context_definition_tokens",
                "Tokens that a server's tool definitions occupy in the context (an estimate).",
                &["server"],
            )?,
            store_errors: counters(r, "kams_store_errors_total", "Failed store operations.", &["op"])?,
            policy_reload: counters(
                r,
                "kams_policy_reload_total",
                "Reloads of the policy.",
                &["result"],
            )?,
            policy_info: gauges(r, "kams_policy_info", "The policy in force; always 1.", &["hash"])?,
            decisions: counters(
                r,
                "kams_decisions_total",
                "Policy decisions.",
                &["decision", "rule"],
            )?,
            restrictions: gauges(r, "kams_restrictions", "Restrictions in force.", &["action"])?,
            decision_head: gauges(
                r,
                "kams_decision_head",
                "Number of the newest decision record; its hash shows a cut chain.",
                &["hash"],
            )?,
            relay_failmode: counters(
                r,
                "kams_relay_failmode_total",
                "Messages that relays decided on by themselves, by what they did.",
                &["mode"],
            )?,
            relay_verdict: register(
                r,
                HistogramVec::new(verdicts.buckets(VERDICT_BUCKETS.to_vec()), &[])?,
            )?,
            waste: counters(r, "kams_waste_total", "Waste findings by rule.", &["rule"])?,
            waste_dropped: counters(
                r,
                "kams_waste_dropped_total",
                "Observations that the waste rules had no room for.",
                &["source"],
            )?,
            llm_calls: counters(
                r,
                "kams_llm_calls_total",
                "Model calls and steps of their sessions that were reported.",
                &["source"],
            )?,
            telemetry_requests: counters(
                r,
                "kams_telemetry_requests_total",
                "Reports of model calls, and what became of them.",
                &["signal", "result"],
            )?,
            network_blocks: int_gauge(
                r,
                "kams_network_blocks",
                "Servers that are cut off the network now.",
            )?,
            network_refused: counters(
                r,
                "kams_network_refused_total",
                "Attempts of servers that are cut off to use the network, by what was refused.",
                &["server", "call"],
            )?,
            network_closed: counters(
                r,
                "kams_network_closed_total",
                "Connections and listeners that were closed when their server was cut off.",
                &["server"],
            )?,
            network_left_open: counters(
                r,
                "kams_network_left_open_total",
                "Sockets and rings of servers that were cut off that could not be closed.",
                &["server", "reason"],
            )?,
            network_errors: counters(
                r,
                "kams_network_errors_total",
                "Servers that were to be cut off and were not, and children that found no room.",
                &["reason"],
            )?,
            feed_missed: counters(
                r,
                "kams_follower_missed_total",
                "Records that slow followers of the event stream missed.",
                &[],
            )?,
            registry,
        })
    }

    /// The text exposition of everything counted so far.
    pub fn render(&self) -> Result<Vec<u8>, MetricsError> {
        let mut out = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut out)?;
        Ok(out)
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> Result<C, MetricsError> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, MetricsError> {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, MetricsError> {
    register(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

fn int_gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, MetricsError> {
    register(registry, IntGauge::new(name, help)?)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<Gauge, MetricsError> {
    register(registry, Gauge::new(name, help)?)
}
