//! What the admin API asks, answered from the shared tables.

pub mod baselines;
pub mod calls;
mod exceptions;
mod findings;
pub mod policy;
pub mod runs;
mod usage;
mod waste;

use std::sync::Arc;
use std::time::Instant;

use kams_export::view::{
    AgentView, CoverageView, DoctorView, FindingRecord, LossView, Mode, PayloadView, ProbeView, SCHEMA,
    ServerState, ServerView, StatusView, Time, ToolView,
};
use kams_store::Store;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::gate::keep::Missing;
use super::live::Live;
use super::{Command, Shared, doctor};
use crate::admin::{
    Backend, BackendError, CommandRight, Feed, FindingQuery, Scope, ServerQuery, ToolQuery, Viewer,
};
use crate::config::Config;
use crate::policy_file::in_force::PolicyInForce;

/// The daemon as the admin API sees it.
pub struct DaemonBackend {
    live: Live,
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    config: Arc<arc_swap::ArcSwap<Config>>,
    store: Arc<Store>,
    policy: Arc<PolicyInForce>,
    /// What is to be said of decision records that an earlier start lost.
    missing: Option<String>,
    started: (Time, Instant),
    kernel: String,
    ingest: Option<calls::Ingest>,
}

impl DaemonBackend {
    /// A backend over the engine's shared state.
    pub fn new(
        live: Live,
        shared: Arc<Shared>,
        commands: mpsc::Sender<Command>,
        config: Arc<arc_swap::ArcSwap<Config>>,
        store: Arc<Store>,
        policy: Arc<PolicyInForce>,
    ) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned();
        Self {
            live,
            shared,
            commands,
            config,
            store,
            policy,
            missing: None,
            started: (Time::now(), Instant::now()),
            kernel,
            ingest: None,
        }
    }

    /// Says in each status which decision records an earlier start lost.
    #[must_use]
    pub fn with_missing(mut self, missing: &Missing) -> Self {
        self.missing = (missing.count() > 0).then(|| {
            format!("Decision records that were made and never reached the disk: {missing}. `kams runs list` shows the end of the chain.")
        });
        self
    }

    /// Servers that are cut off the network, and those that were to be and are not.
    fn network_note(&self, scope: Scope) -> Option<String> {
        let tables = self.live.registry.lock();
        let wanted = || {
            tables
                .live_servers()
                .filter(|server| scope.admits(server.uid))
                .filter_map(|server| server.network.as_ref())
        };
        let (all, cut) = (
            wanted().count(),
            wanted().filter(|network| network.cut_off).count(),
        );
        let open = wanted().filter(|network| network.left_open > 0).count();
        (all > 0).then(|| {
            let failed = match all - cut {
                0 => String::new(),
                failed => format!(", {failed} that should be are NOT (`kams doctor` says why)"),
            };
            let open = match open {
                0 => String::new(),
                open => format!(", {open} of them still have something open"),
            };
            format!("{cut} servers are cut off the network{open}{failed}; `kams servers` shows which.")
        })
    }

    fn coverage(&self, scope: Scope) -> Vec<CoverageView> {
        let tables = self.live.registry.lock();
        let servers = || tables.live_servers().filter(|s| scope.admits(s.uid));
        let in_state = |state| servers().filter(|s| s.state == state).count() as u64;
        let remote = tables
            .servers()
            .filter(|s| s.state == ServerState::Http && scope.admits(s.uid))
            .count() as u64;
        let row = |what: &str, covered, count: Option<u64>, detail: &str| CoverageView {
            what: what.to_owned(),
            covered,
            count,
            detail: detail.to_owned(),
        };
        vec![
            row(
                "servers over stdio",
                true,
                Some(in_state(ServerState::Observed)),
                "read at the agent's end, from the first byte",
            ),
            row(
                "servers that ran before Kams",
                true,
                Some(in_state(ServerState::Adopted)),
                "read from the middle: what they listed before is unknown until they list again",
            ),
            row(
                "servers over HTTP",
                false,
                Some(remote),
                "those that client configurations name; their traffic is not read in this version",
            ),
            row(
                "servers in containers behind a daemon",
                true,
                None,
                "the stream is read at the container client; what the server does inside is not seen",
            ),
            row(
                "agents that use io_uring or splice on a stream",
                false,
                None,
                "counted in kams_sensor_lost_total, not read",
            ),
            row(
                "writers through /proc/PID/fd",
                false,
                None,
                "another process of the same user can write into a server's input unseen",
            ),
        ]
    }
}

fn stopped() -> BackendError {
    BackendError::Unavailable {
        message: "the engine does not answer".to_owned(),
        remedy: "see the daemon's log; restart kamsd".to_owned(),
    }
}

/// Why the payload programs are attached or not; see `Engine::needs_payload`.
const fn payload_reason(attached: bool, agents: bool) -> &'static str {
    match (attached, agents) {
        (true, _) => "an agent is running that may have a server without a relay",
        (false, true) => "every server of every running agent has a relay",
        (false, false) => "no agent is running",
    }
}

impl Backend for DaemonBackend {
    fn status(&self, scope: Scope) -> Result<StatusView, BackendError> {
        let sensor = self.shared.sensor();
        let attached = sensor
            .as_ref()
            .is_some_and(kams_host::SensorControl::payload_attached);
        let method = sensor.as_ref().map(kams_host::SensorControl::payload_method);
        let probes = sensor
            .as_ref()
            .map(kams_host::SensorControl::probes)
            .unwrap_or_default();
        let losses = sensor
            .as_ref()
            .map(kams_host::SensorControl::losses)
            .unwrap_or_default();
        let uid = match scope {
            Scope::All => None,
            Scope::User(uid) => Some(uid),
        };
        let mut notes = Vec::new();
        if sensor.is_none() {
            notes.push("Kams is off: nothing is watched. `kams on` switches it on.".to_owned());
        }
        if losses.iter().any(|l| l.count > 0) {
            notes.push("Something was lost since the start; `kams doctor` says what to do.".to_owned());
        }
        if let Some(refused) = self.policy.refused() {
            notes.push(refused.note());
        }
        notes.extend(self.missing.clone());
        notes.extend(self.network_note(scope));
        let coverage = self.coverage(scope);
        let tables = self.live.registry.lock();
        Ok(StatusView {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: self.live.feed.instance().to_owned(),
            pid: std::process::id(),
            started: self.started.0,
            uptime_seconds: self.started.1.elapsed().as_secs(),
            mode: match self.policy.policy().mode() {
                kams_policy::Mode::Enforce => Mode::Enforce,
                kams_policy::Mode::Observe => Mode::Observe,
            },
            enabled: sensor.is_some(),
            kernel: self.kernel.clone(),
            scope: if uid.is_none() { "host" } else { "own" }.to_owned(),
            coverage,
            probes: probes
                .into_iter()
                .map(|p| ProbeView {
                    name: p.name.to_owned(),
                    attached: p.attached,
                    proved: p.proved,
                    detail: p.tracepoint.to_owned(),
                })
                .collect(),
            payload: PayloadView {
                attached,
                backend: method.map(|method| method.name().to_owned()).unwrap_or_default(),
                reason: payload_reason(attached, tables.agents().any(|agent| agent.live)).to_owned(),
            },
            losses: losses
                .into_iter()
                .filter(|l| l.count > 0)
                .map(|l| LossView {
                    stage: l.reason.stage.as_str().to_owned(),
                    reason: l.reason.reason.to_owned(),
                    count: l.count,
                })
                .collect(),
            agents_live: tables.agents().filter(|a| a.live && scope.admits(a.uid)).count() as u64,
            servers_live: tables
                .live_servers()
                .filter(|s| scope.admits(s.uid) && s.state != ServerState::Candidate)
                .count() as u64,
            calls: tables.calls(uid),
            findings: tables
                .servers()
                .filter(|s| scope.admits(s.uid))
                .map(|s| s.findings)
                .sum(),
            notes,
        })
    }

    fn agents(&self, scope: Scope) -> Result<Vec<AgentView>, BackendError> {
        let tables = self.live.registry.lock();
        let with_servers = |agent: &AgentView| {
            let own = tables
                .live_servers()
                .filter(|s| s.agent_pid == agent.pid && s.state != ServerState::Candidate);
            AgentView {
                servers: u32::try_from(own.count()).unwrap_or(u32::MAX),
                ..agent.clone()
            }
        };
        Ok(tables
            .agents()
            .filter(|a| scope.admits(a.uid))
            .map(with_servers)
            .collect())
    }

    fn servers(&self, scope: Scope, query: &ServerQuery) -> Result<Vec<ServerView>, BackendError> {
        let tables = self.live.registry.lock();
        let wanted = |s: &&ServerView| scope.admits(s.uid) && (query.gone || s.state != ServerState::Gone);
        Ok(tables.servers().filter(wanted).cloned().collect())
    }

    fn tools(&self, scope: Scope, query: &ToolQuery) -> Result<Vec<ToolView>, BackendError> {
        let tables = self.live.registry.lock();
        let wanted = |server: &ServerView| {
            query.server.as_ref().is_none_or(|text| {
                server.identity == *text
                    || server.name.as_ref() == Some(text)
                    || server.id.to_string() == *text
            })
        };
        let tools = tables
            .tools()
            .filter(|(server, _)| scope.admits(server.uid) && wanted(server));
        Ok(tools.map(|(_, tool)| tool.clone()).collect())
    }

    fn findings(&self, scope: Scope, query: &FindingQuery) -> Result<Vec<FindingRecord>, BackendError> {
        self.past_findings(scope, query)
    }

    fn doctor(&self) -> Result<DoctorView, BackendError> {
        Ok(doctor::examine(
            self.shared.sensor().as_ref(),
            self.shared.blocks().as_deref(),
            &self.config.load(),
        ))
    }

    fn set_enabled(&self, enabled: bool, by: &Viewer) -> Result<(), BackendError> {
        let (done, answer) = oneshot::channel();
        let command = Command::SetEnabled {
            enabled,
            by: by.clone(),
            done,
        };
        self.commands
            .blocking_send(command)
            .map_err(|_stopped| stopped())?;
        answer
            .blocking_recv()
            .map_err(|_stopped| stopped())?
            .map_err(|message| BackendError::Refused {
                message,
                remedy: "run `kams doctor`".to_owned(),
            })
    }

    fn query(
        &self,
        name: &str,
        scope: Scope,
        viewer: &Viewer,
        parameters: &[(String, String)],
    ) -> Result<Value, BackendError> {
        match name {
            "baselines" => self.baselines(scope, parameters),
            "policy" => self.show_policy(parameters),
            "restrictions" => self.show_restrictions(scope),
            "runs" => self.show_runs(scope, parameters),
            "approvals" => self.show_approvals(scope, viewer),
            "waste" => self.waste_report(scope, parameters),
            "telemetry" => Ok(self.receiver()),
            "exceptions" => self.show_exceptions(parameters),
            _ => Err(BackendError::Unsupported {
                name: name.to_owned(),
            }),
        }
    }

    fn command_right(&self, name: &str) -> CommandRight {
        // Approvers need not be administrators of Kams: the policy says who they are.
        if name == "approvals" {
            CommandRight::Person
        } else {
            CommandRight::Admin
        }
    }

    fn command(&self, name: &str, viewer: &Viewer, body: Value) -> Result<Value, BackendError> {
        match name {
            "baseline" => self.decide(viewer, body),
            "policy" => self.order_policy(viewer, body),
            "restrictions" => self.order_restrictions(viewer, body),
            "runs" => self.order_runs(viewer, body),
            "approvals" => self.order_approvals(viewer, body),
            "exceptions" => self.order_exceptions(viewer, body),
            _ => Err(BackendError::Unsupported {
                name: name.to_owned(),
            }),
        }
    }

    fn usage(&self, scope: Scope, body: Value) -> Result<Value, BackendError> {
        self.report_usage(scope, body)
    }

    fn admit_report(&self, viewer: &Viewer) -> Result<(), BackendError> {
        self.admit_calls(viewer)
    }

    fn spend_report(&self, viewer: &Viewer, bytes: usize) {
        self.spend_calls(viewer, bytes);
    }

    fn llm_calls(&self, viewer: &Viewer, body: Value) -> Result<Value, BackendError> {
        self.take_calls(viewer, body)
    }

    fn feed(&self) -> &Arc<Feed> {
        &self.live.feed
    }

    fn is_in_agent_tree(&self, pid: u32) -> bool {
        self.shared.is_in_tree(pid)
    }

    fn refresh_metrics(&self) {
        let Some(sensor) = self.shared.sensor() else {
            return;
        };
        for probe in sensor.probes() {
            self.live.metrics.set_probe(probe.name, probe.attached);
        }
        for map in sensor.maps() {
            self.live.metrics.set_map(map.name, map.used, map.capacity);
        }
        if let Some(blocks) = self.shared.blocks() {
            let used = blocks.state().processes;
            self.live
                .metrics
                .set_map("network_processes", used, kams_host::netblock::CAPACITY);
        }
        for loss in sensor.losses() {
            self.live
                .metrics
                .sensor_lost_total(loss.reason.stage.as_str(), loss.reason.reason, loss.count);
        }
    }
}

#[cfg(test)]
mod tests;
