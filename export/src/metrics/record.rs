//! How the engine writes the metrics.

use std::time::Duration;

use prometheus::IntCounterVec;

use super::Metrics;
use super::labels::{self, OTHER};
use crate::view::{EventKind, ServerState, Transport};

/// One request with its answer, as it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Server identity: bounds how many tools one server may name, and is no label itself.
    pub server: &'a str,
    /// JSON-RPC method.
    pub method: &'a str,
    /// Tool of a `tools/call`.
    pub tool: Option<&'a str>,
    /// Error code in digits, or `tool_error`; none for success.
    pub error: Option<&'a str>,
    /// What carried it.
    pub transport: Transport,
    /// From request to answer.
    pub duration: Duration,
}

impl Metrics {
    /// Counts a finished operation.
    pub fn operation(&self, operation: &Operation<'_>) {
        let method = labels::method(operation.method);
        let mut tool = operation
            .tool
            .map(|t| self.tools_seen.admit(operation.server, t))
            .unwrap_or_default();
        let error = operation
            .error
            .map(|e| self.errors_seen.admit(operation.server, e))
            .unwrap_or_default();
        let transport = match operation.transport {
            Transport::Http => "tcp",
            // The conventions know no Unix sockets between parent and child: stdio is `pipe`.
            Transport::Pipe | Transport::Socket | Transport::Unknown => "pipe",
        };
        // The product of bounded labels is bounded too, but large: bound the series themselves as well.
        let series = format!("{method}\u{0}{tool}\u{0}{error}\u{0}{transport}");
        if !tool.is_empty() && self.operations_seen.admit(operation.server, &series) == OTHER {
            OTHER.clone_into(&mut tool);
        }
        self.operation_seconds
            .with_label_values(&[method, &tool, &error, transport])
            .observe(operation.duration.as_secs_f64());
    }

    /// Sets how many servers are in a state now.
    pub fn set_servers(&self, state: ServerState, count: usize) {
        self.servers
            .with_label_values(&[state.name()])
            .set(saturate(count));
    }

    /// Sets how many agents live now.
    pub fn set_agents(&self, count: usize) {
        self.agents.set(saturate(count));
    }

    /// Counts a published event.
    pub fn event(&self, kind: EventKind) {
        self.events.with_label_values(&[kind.name()]).inc();
    }

    /// Counts records read from the kernel; `kind` is one of the sensor's own words.
    pub fn sensor_events(&self, kind: &'static str, count: u64) {
        self.sensor_events.with_label_values(&[kind]).inc_by(count);
    }

    /// Counts losses as they happen; both words come from the sensor's own lists.
    pub fn sensor_lost(&self, stage: &str, reason: &str, count: u64) {
        self.sensor_lost.with_label_values(&[stage, reason]).inc_by(count);
    }

    /// Brings a loss counter to the total that the kernel side reports. Smaller totals are ignored: counters
    /// never fall.
    pub fn sensor_lost_total(&self, stage: &str, reason: &str, total: u64) {
        advance(&self.sensor_lost, &[stage, reason], total);
    }

    /// Brings the counter of what a limit of discovery left out to its total.
    pub fn discovery_limited_total(&self, reason: &str, total: u64) {
        advance(&self.discovery_limited, &[reason], total);
    }

    /// Counts a server that was held; `result` is one of the injector's own words.
    pub fn injections(&self, result: &'static str) {
        self.injections.with_label_values(&[result]).inc();
    }

    /// Counts a filter of system calls that a server was to get; `result` is `filtered` or a word for why not.
    pub fn filters(&self, result: &str) {
        self.filters.with_label_values(&[result]).inc();
    }

    /// Sets how many servers are in this state of their filters.
    pub fn set_filtered(&self, state: &str, count: usize) {
        self.filtered.with_label_values(&[state]).set(saturate(count));
    }

    /// Sets whether a probe is attached.
    pub fn set_probe(&self, probe: &str, attached: bool) {
        self.probe_attached
            .with_label_values(&[probe])
            .set(attached.into());
    }

    /// Counts framed messages: `request`, `response`, `notification`, `batch`, `malformed`, `oversize`, `gap`.
    pub fn frame(&self, outcome: &'static str) {
        self.frames.with_label_values(&[outcome]).inc();
    }

    /// Sets the fill of a table.
    pub fn set_map(&self, map: &str, entries: usize, capacity: usize) {
        self.map_entries.with_label_values(&[map]).set(saturate(entries));
        self.map_capacity
            .with_label_values(&[map])
            .set(saturate(capacity));
    }

    /// Sets whether Kams is on.
    pub fn set_enabled(&self, enabled: bool) {
        self.enabled.set(enabled.into());
    }

    /// Counts a reload of the configuration.
    pub fn config_reload(&self, ok: bool) {
        self.config_reload.with_label_values(&[result(ok)]).inc();
    }

    /// Counts a definition drift; `change` is one of the change classes.
    pub fn drift(&self, server: &str, change: &'static str) {
        let server = self.server_label(server);
        self.drift.with_label_values(&[server.as_str(), change]).inc();
    }

    /// Counts a drift of a pinned definition: what pages.
    pub fn pinned_drift(&self, server: &str, change: &'static str, severity: &'static str) {
        let server = self.server_label(server);
        self.pinned_drift
            .with_label_values(&[server.as_str(), change, severity])
            .inc();
    }

    /// Counts a finding that is no definition drift.
    pub fn finding(&self, detector: &str, severity: &str, action: &str) {
        self.findings
            .with_label_values(&[detector, severity, action])
            .inc();
    }

    /// Counts tokens that entered the context from a server's results.
    pub fn cost_tokens(&self, server: &str, tokens: u64, estimated: bool) {
        let server = self.server_label(server);
        let estimated = if estimated { "true" } else { "false" };
        self.cost_tokens
            .with_label_values(&[server.as_str(), estimated])
            .inc_by(tokens);
    }

    /// Sets the standing cost of a server's definitions.
    pub fn set_definition_tokens(&self, server: &str, tokens: u64) {
        let server = self.server_label(server);
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        self.definition_tokens.with_label_values(&[&server]).set(tokens);
    }

    /// Enters the sum of failed store operations since the start.
    pub fn store_errors_total(&self, op: &'static str, sum: u64) {
        advance(&self.store_errors, &[op], sum);
    }

    /// Counts a reload of the policy and, where it succeeded, names the one in force.
    pub fn policy_reload(&self, hash: Option<&str>) {
        self.policy_reload
            .with_label_values(&[result(hash.is_some())])
            .inc();
        if let Some(hash) = hash {
            self.policy_info.reset();
            self.policy_info.with_label_values(&[hash]).set(1);
        }
    }

    /// Counts a policy decision.
    pub fn decision(&self, decision: &'static str, rule: &str) {
        let rule = self.rules_seen.admit("", rule);
        self.decisions.with_label_values(&[decision, rule.as_str()]).inc();
    }

    /// Messages that a relay decided on by itself; `mode` is `open` or `closed`.
    pub fn relay_failmode(&self, mode: &'static str, count: u64) {
        self.relay_failmode.with_label_values(&[mode]).inc_by(count);
    }

    /// A verdict took so long.
    pub fn relay_verdict(&self, seconds: f64) {
        self.relay_verdict.with_label_values::<&str>(&[]).observe(seconds);
    }

    /// Shows the newest record of the decision chain.
    pub fn set_decision_head(&self, n: u64, hash: &str) {
        self.decision_head.reset();
        self.decision_head
            .with_label_values(&[hash])
            .set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// Sets how many restrictions with this action are in force.
    pub fn set_restrictions(&self, action: &str, count: usize) {
        self.restrictions
            .with_label_values(&[action])
            .set(saturate(count));
    }

    /// Sets how many servers are cut off the network.
    pub fn set_network_blocks(&self, count: usize) {
        self.network_blocks.set(saturate(count));
    }

    /// Counts attempts of a server that were refused; `call` is `connect`, `send` or `socket`.
    pub fn network_refused(&self, server: &str, call: &'static str, count: u64) {
        let server = self.server_label(server);
        self.network_refused
            .with_label_values(&[server.as_str(), call])
            .inc_by(count);
    }

    /// Counts connections that were closed when their server was cut off.
    pub fn network_closed(&self, server: &str, count: u64) {
        let server = self.server_label(server);
        self.network_closed.with_label_values(&[&server]).inc_by(count);
    }

    /// Counts what could not be closed, by why.
    pub fn network_left_open(&self, server: &str, reason: &'static str, count: u64) {
        let server = self.server_label(server);
        self.network_left_open
            .with_label_values(&[server.as_str(), reason])
            .inc_by(count);
    }

    /// Counts failures to cut off: `refused` by the kernel, or `no_room` for a child.
    pub fn network_error(&self, reason: &'static str, count: u64) {
        self.network_errors.with_label_values(&[reason]).inc_by(count);
    }

    /// Counts a waste finding.
    pub fn waste(&self, rule: &'static str) {
        self.waste.with_label_values(&[rule]).inc();
    }

    /// Counts an observation that the waste rules had no room for; `source` is `mcp`, `otlp` or `api`,
    /// or `findings` where it is something found in reports beyond what their user may have told.
    pub fn waste_dropped(&self, source: &'static str) {
        self.waste_dropped.with_label_values(&[source]).inc();
    }

    /// Counts reported model calls; `source` is `otlp` or `api`.
    pub fn llm_calls(&self, source: &'static str, count: u64) {
        self.llm_calls.with_label_values(&[source]).inc_by(count);
    }

    /// Counts a report; both words come from the receiver's own lists.
    pub fn telemetry_request(&self, signal: &'static str, result: &'static str) {
        self.telemetry_requests.with_label_values(&[signal, result]).inc();
    }

    /// Counts records that a slow follower missed.
    pub fn follower_missed(&self, count: u64) {
        let none: [&str; 0] = [];
        self.feed_missed.with_label_values(&none).inc_by(count);
    }

    fn server_label(&self, server: &str) -> String {
        self.servers_seen.admit("", server)
    }
}

/// Reads a metrics text and gives the value of one exact series; for tests and `kams doctor`.
pub fn value_of(text: &str, series: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|l| l.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn advance(counter: &IntCounterVec, labels: &[&str], total: u64) {
    let counter = counter.with_label_values(labels);
    counter.inc_by(total.saturating_sub(counter.get()));
}

fn saturate(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

const fn result(ok: bool) -> &'static str {
    if ok { "ok" } else { "error" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{LabelLimits, MetricsError};

    fn metrics() -> Result<Metrics, MetricsError> {
        Metrics::new("0.1.0", "abc", 1.0, LabelLimits { servers: 3, tools: 8 })
    }

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render().unwrap()).unwrap()
    }

    fn call<'a>(server: &'a str, tool: &'a str, error: Option<&'a str>) -> Operation<'a> {
        Operation {
            server,
            method: "tools/call",
            tool: Some(tool),
            error,
            transport: Transport::Pipe,
            duration: Duration::from_millis(15),
        }
    }

    #[test]
    fn an_operation_falls_into_its_bucket() {
        let metrics = metrics().unwrap();
        metrics.operation(&call("npm:a", "add", None));
        metrics.operation(&call("npm:a", "add", Some("tool_error")));
        let text = text(&metrics);
        let labels =
            r#"error_type="",gen_ai_tool_name="add",mcp_method_name="tools/call",network_transport="pipe""#;
        let bucket = |le: &str| {
            let name = "mcp_client_operation_duration_seconds_bucket";
            value_of(&text, &format!("{name}{{{labels},le=\"{le}\"}}"))
        };
        assert_eq!(bucket("0.01"), Some(0.0));
        assert_eq!(bucket("0.02"), Some(1.0));
        assert_eq!(bucket("300"), Some(1.0));
        assert!(text.contains(r#"error_type="tool_error""#));
    }

    #[test]
    fn hostile_names_cannot_grow_the_registry() {
        let metrics = metrics().unwrap();
        for n in 0..5_000 {
            let name = format!("tool\n{n}\"");
            let code = n.to_string();
            let server = format!("npm:s{n}");
            metrics.operation(&call(&server, &name, Some(&code)));
            metrics.operation(&Operation {
                method: &name,
                ..call(&server, &name, None)
            });
            metrics.drift(&server, "DESCRIPTION_CHANGED");
            metrics.set_definition_tokens(&server, 5);
        }
        let text = text(&metrics);
        let lines = text.lines().count();
        assert!(lines < 3_000, "{lines} lines");
        let drift = r#"mcp_integrity_drift_count_total{change="DESCRIPTION_CHANGED",server="other"}"#;
        assert_eq!(value_of(&text, drift), Some(4_997.0));
    }

    #[test]
    fn loss_totals_only_rise() {
        let metrics = metrics().unwrap();
        metrics.sensor_lost_total("ring", "reserve", 7);
        metrics.sensor_lost_total("ring", "reserve", 3);
        metrics.sensor_lost("ring", "reserve", 1);
        let text = text(&metrics);
        let series = r#"kams_sensor_lost_total{reason="reserve",stage="ring"}"#;
        assert_eq!(value_of(&text, series), Some(8.0));
    }

    #[test]
    fn refused_writes_of_the_store_are_a_sum_since_the_start() {
        let metrics = metrics().unwrap();
        for sum in [2, 5, 5] {
            metrics.store_errors_total("commit", sum);
        }
        let series = r#"kams_store_errors_total{op="commit"}"#;
        assert_eq!(value_of(&text(&metrics), series), Some(5.0));
    }

    #[test]
    fn a_new_policy_replaces_the_old_one() {
        let metrics = metrics().unwrap();
        metrics.policy_reload(Some("aa"));
        metrics.policy_reload(None);
        metrics.policy_reload(Some("bb"));
        let text = text(&metrics);
        assert!(!text.contains(r#"kams_policy_info{hash="aa"}"#));
        assert_eq!(value_of(&text, r#"kams_policy_info{hash="bb"}"#), Some(1.0));
        assert_eq!(
            value_of(&text, r#"kams_policy_reload_total{result="error"}"#),
            Some(1.0)
        );
    }

    #[test]
    fn state_and_build_are_there() {
        let metrics = metrics().unwrap();
        metrics.set_servers(ServerState::Observed, 2);
        metrics.set_probe("sys_exit", true);
        metrics.set_map("marks", 3, 10);
        let text = text(&metrics);
        for (series, value) in [
            (r#"kams_build_info{commit="abc",version="0.1.0"}"#, 1.0),
            (r#"kams_servers{state="observed"}"#, 2.0),
            (r#"kams_sensor_probe_attached{probe="sys_exit"}"#, 1.0),
            (r#"kams_map_entries{map="marks"}"#, 3.0),
            (r#"kams_map_capacity{map="marks"}"#, 10.0),
        ] {
            assert_eq!(value_of(&text, series), Some(value), "{series}");
        }
    }
}
