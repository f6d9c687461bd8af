//! What is told of servers that are cut off: that they are, what they tried, what is still open.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kams_detect::Finding;
use kams_detect::network as findings;
use kams_export::view::{EventKind, EventView, ServerState, ServerView, Transport};
use kams_host::clock;
use kams_host::netblock::{Attempt, BlockCounts, BlockId, HOOK_CONNECT, HOOK_SEND, HOOK_SOCKET, Left, Swept};

use super::{Reason, now};
use crate::engine::Engine;
use crate::engine::conversation::Party;
use crate::engine::judging::Work;
use crate::engine::sink::Sink;

/// Least time between two tellings of one server's attempts, ns: a server that tries without pause is told of once a
/// minute.
const PAUSE: u64 = 60_000_000_000;

const CALLS: [(u32, &str); 3] = [
    (HOOK_CONNECT, "connect"),
    (HOOK_SEND, "send"),
    (HOOK_SOCKET, "socket"),
];

/// What was told of a server.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// When attempts were last told, CLOCK_BOOTTIME ns.
    at: Option<u64>,
    /// Attempts that were not told yet.
    waiting: u64,
    /// What is open was told.
    left: bool,
}

impl Engine {
    pub(super) fn tell_cut_off(&mut self, view: &ServerView, reason: Reason, failed: Option<String>) {
        let name = reason.name();
        if let Some(why) = &failed {
            tracing::error!(server = %view.identity, uid = view.uid, pid = view.pid, why, "a server is to be cut off the network and is not");
            self.live.metrics.network_error("refused", 1);
        } else {
            tracing::warn!(server = %view.identity, uid = view.uid, pid = view.pid, reason = name, "a server is cut off the network");
        }
        self.live.event(EventView {
            reason: Some(name.to_owned()),
            stage: failed.is_some().then(|| "failed".to_owned()),
            detail: failed,
            ..of_server(view, EventKind::NetworkCutOff)
        });
    }

    pub(super) fn tell_restored(&mut self, view: &ServerView, reason: Reason) {
        tracing::warn!(server = %view.identity, uid = view.uid, pid = view.pid, "a server may use the network again");
        self.live.event(EventView {
            reason: Some(reason.name().to_owned()),
            ..of_server(view, EventKind::NetworkRestored)
        });
    }

    /// Takes what was found in trees: what was closed, and what is open.
    pub(super) fn take_sweeps(&mut self) {
        let swept = self
            .network
            .sweeper
            .as_ref()
            .map(super::Sweeper::take)
            .unwrap_or_default();
        for (number, swept) in swept {
            self.take_sweep(number, &swept);
        }
    }

    fn take_sweep(&mut self, number: u64, swept: &Swept) {
        let Some(cut) = self.network.by_server.get_mut(&number) else {
            return;
        };
        let server = cut.server.identity.clone();
        let first = !std::mem::replace(&mut cut.told.left, true);
        let view = cut.server.clone();
        self.live
            .metrics
            .network_closed(&server, u64::try_from(swept.closed).unwrap_or(u64::MAX));
        if let Some(entry) = self.live.registry.lock().server_mut(number)
            && let Some(network) = &mut entry.network
        {
            network.closed += u64::try_from(swept.closed).unwrap_or(u64::MAX);
            network.left_open = u64::try_from(swept.left.len()).unwrap_or(u64::MAX);
        }
        if !first {
            return;
        }
        for (why, left) in by_reason(&swept.left) {
            let count = u64::try_from(left.len()).unwrap_or(u64::MAX);
            self.live.metrics.network_left_open(&server, why, count);
            tracing::error!(server = %server, pid = view.pid, why, count, "something of a cut off server is still open");
            self.report(&view, findings::left_open(count, why));
        }
    }

    /// Counts and tells what cut off servers have tried.
    pub(super) fn look_at_refusals(&mut self) {
        let looked: Vec<(u64, bool, ServerView, BlockId, BlockCounts)> = self
            .network
            .by_server
            .iter()
            .filter_map(|(number, cut)| {
                cut.id
                    .map(|id| (*number, cut.gone, cut.server.clone(), id, cut.counts))
            })
            .collect();
        for (number, gone, view, id, before) in looked {
            self.count_refused(number, gone, &view, id, before);
        }
    }

    /// The same for one server, whose counts stood at `before`.
    pub(super) fn count_refused(
        &mut self,
        number: u64,
        gone: bool,
        view: &ServerView,
        id: BlockId,
        before: BlockCounts,
    ) {
        let counts = self.network.blocks.counts(id);
        let mut new = 0;
        for (hook, call) in CALLS {
            let at = usize::try_from(hook).unwrap_or(usize::MAX);
            let of = |counts: &BlockCounts| counts.refused.get(at).copied().unwrap_or(0);
            let more = of(&counts).saturating_sub(of(&before));
            if more > 0 {
                self.live.metrics.network_refused(&view.identity, call, more);
                new += more;
            }
        }
        if new > 0
            && !gone
            && let Some(entry) = self.live.registry.lock().server_mut(number)
            && let Some(network) = &mut entry.network
        {
            network.refused += new;
        }
        let time = clock::boot_ns();
        let Some(cut) = self.network.by_server.get_mut(&number) else {
            return;
        };
        cut.counts = counts;
        cut.told.waiting += new;
        let due = cut.told.at.is_none_or(|at| time.saturating_sub(at) >= PAUSE);
        if cut.told.waiting == 0 || !due {
            return;
        }
        let since = cut.told.at.replace(time);
        let count = std::mem::take(&mut cut.told.waiting);
        let restricted = cut.reason == Reason::Restriction;
        let attempt = self.network.blocks.take_attempt(id);
        let detail = attempt.as_ref().map(describe);
        tracing::warn!(
            server = %view.identity, uid = view.uid, count, first = detail.as_deref().unwrap_or("?"),
            "a cut off server tried to use the network"
        );
        self.live.event(EventView {
            count: Some(count),
            detail,
            ..of_server(view, EventKind::NetworkRefused)
        });
        #[expect(clippy::cast_precision_loss, reason = "seconds, for people")]
        let seconds = since.map_or(0.0, |since| time.saturating_sub(since) as f64 / 1e9);
        self.report(view, findings::refused(count, seconds, restricted));
    }

    fn report(&self, view: &ServerView, finding: Finding) {
        let party = Party {
            server_id: view.id,
            uid: view.uid,
            user: view.user.as_str().into(),
            agent: view.agent.as_str().into(),
            agent_pid: view.agent_pid,
            agent_start: self.start_of(view.agent_pid).unwrap_or(0),
            server: view.identity.as_str().into(),
            server_pid: view.pid,
            transport: if view.transport == Transport::Socket {
                Transport::Socket
            } else {
                Transport::Pipe
            },
            relayed: view.state == ServerState::Relayed,
        };
        self.judging.hand(Work::Found {
            party: Box::new(party),
            finding: Box::new(finding),
        });
    }
}

fn of_server(view: &ServerView, kind: EventKind) -> EventView {
    EventView {
        agent: Some(view.agent.clone()),
        agent_pid: Some(view.agent_pid),
        server: Some(view.identity.clone()),
        server_id: Some(view.id),
        server_pid: Some(view.pid),
        ..EventView::new(kind, now(), view.uid, &*view.user)
    }
}

fn by_reason(left: &[Left]) -> BTreeMap<&'static str, Vec<&Left>> {
    let mut by_reason: BTreeMap<&'static str, Vec<&Left>> = BTreeMap::new();
    for one in left {
        by_reason.entry(one.why.name()).or_default().push(one);
    }
    by_reason
}

/// An attempt in words.
fn describe(attempt: &Attempt) -> String {
    let v6 = attempt.family == 10;
    let family = match attempt.family {
        2 => "AF_INET".to_owned(),
        10 => "AF_INET6".to_owned(),
        other => format!("family {other}"),
    };
    let protocol = match (attempt.protocol, attempt.kind) {
        (6, _) | (0, 1) => "tcp".to_owned(),
        (17, _) | (0, 2) => "udp".to_owned(),
        (_, 3) => "raw".to_owned(),
        (other, _) => format!("protocol {other}"),
    };
    let pid = attempt.pid;
    if attempt.hook == HOOK_SOCKET {
        return format!("process {pid}: a new socket, {family}, {protocol}");
    }
    let bytes = attempt.address.map(u32::to_ne_bytes);
    let address = if v6 {
        let mut all = [0; 16];
        for (to, from) in all.iter_mut().zip(bytes.as_flattened()) {
            *to = *from;
        }
        IpAddr::V6(Ipv6Addr::from(all))
    } else {
        IpAddr::V4(Ipv4Addr::from(bytes[0]))
    };
    let verb = if attempt.hook == HOOK_SEND {
        "a datagram to"
    } else {
        "a connection to"
    };
    let to = std::net::SocketAddr::new(address, u16::try_from(attempt.port).unwrap_or(0));
    format!("process {pid}: {verb} {to}, {protocol}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_told_in_words() {
        let v4 = Attempt {
            pid: 7,
            hook: HOOK_CONNECT,
            family: 2,
            kind: 1,
            protocol: 6,
            port: 443,
            address: [u32::from_ne_bytes([192, 0, 2, 1]), 0, 0, 0],
            ..Attempt::default()
        };
        assert_eq!(describe(&v4), "process 7: a connection to 192.0.2.1:443, tcp");
        let v6 = Attempt {
            hook: HOOK_SEND,
            family: 10,
            kind: 2,
            protocol: 17,
            port: 53,
            address: [0, 0, 0, u32::from_ne_bytes([0, 0, 0, 1])],
            ..v4
        };
        assert_eq!(describe(&v6), "process 7: a datagram to [::1]:53, udp");
        let raw = Attempt {
            hook: HOOK_SOCKET,
            kind: 3,
            protocol: 1,
            ..v4
        };
        assert_eq!(describe(&raw), "process 7: a new socket, AF_INET, raw");
    }
}
