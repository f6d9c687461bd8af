//! The end of server instances: at once, or when their agent has read what was left.

use kams_host::FdKind;

use super::{
    Engine, GoneReason, InstanceId, LINGER, LINGER_MOST, Server, StreamKind, Work, gone_word, to_wall,
};

impl Engine {
    pub(super) fn gone(&mut self, id: InstanceId, why: GoneReason, time: u64) {
        if why == GoneReason::Exited
            && let Some(server) = self.servers.get_mut(&id)
            && server.kept.is_none()
        {
            server.ended = Some((why, time));
            return;
        }
        self.finish(id, why, time);
    }

    /// Ends the servers whose agents had time to read what was left.
    pub(in crate::engine) fn end_lingering(&mut self, now: u64) {
        let mut ended = Vec::new();
        for (id, server) in &mut self.servers {
            let Some((why, at)) = server.ended else { continue };
            if now.saturating_sub(at.max(server.waited)) <= LINGER {
                continue;
            }
            let waits = self.running.as_ref().is_some_and(|running| {
                let kind = match server.kind {
                    StreamKind::Pipe => FdKind::Pipe,
                    StreamKind::Unix => FdKind::SocketOther,
                };
                let watched = running.control.stream(server.keys[1]);
                let agent = server.party.agent_pid;
                watched.is_some_and(|stream| {
                    kams_host::procs::unread(agent, kind, stream.watch.ino).is_some_and(|bytes| bytes > 0)
                })
            });
            if waits && now.saturating_sub(at) <= LINGER_MOST {
                server.waited = now;
            } else {
                ended.push((*id, why, at));
            }
        }
        for (id, why, at) in ended {
            self.finish(id, why, at);
        }
    }

    /// Ends the servers that have ended and whose agent is gone too.
    pub(in crate::engine) fn end_lingering_of(&mut self, agent: u32) {
        let of_agent = |s: &Server| s.ended.filter(|_| s.party.agent_pid == agent);
        let ended: Vec<_> = self
            .servers
            .iter()
            .filter_map(|(id, s)| of_agent(s).map(|(why, at)| (*id, why, at)))
            .collect();
        for (id, why, at) in ended {
            self.finish(id, why, at);
        }
    }

    pub(super) fn finish(&mut self, id: InstanceId, why: GoneReason, time: u64) {
        let Some(server) = self.close(id) else { return };
        if server.relayed {
            return;
        }
        if server.kept.is_some() {
            self.live.registry.lock().remove_server(server.id);
            return;
        }
        self.judging.hand(Work::Finish {
            server: server.id,
            why: gone_word(why),
            time,
        });
    }

    /// Stops watching an instance and hands it out.
    pub(super) fn close(&mut self, id: InstanceId) -> Option<Server> {
        let server = self.servers.remove(&id)?;
        self.kept_back -= server.kept.as_ref().map_or(0, |kept| kept.bytes);
        for key in server.keys {
            if self.keys.get(&key).is_some_and(|(owner, _)| *owner == id) {
                self.keys.remove(&key);
                if let Some(running) = &self.running {
                    running.control.unwatch(key, None);
                }
            }
        }
        Some(server)
    }

    pub(in crate::engine) fn end_everything(&mut self) {
        let now = kams_host::clock::boot_ns();
        let all: Vec<InstanceId> = self.servers.keys().copied().collect();
        for id in all {
            self.finish(id, GoneReason::Limit, now);
        }
        self.keys.clear();
        self.network.lineage.clear();
        self.starts.clear();
        self.endpoints.clear();
        self.share_endpoints();
        self.live.registry.lock().end_all(to_wall(now));
    }
}
