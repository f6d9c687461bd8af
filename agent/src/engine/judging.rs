//! The thread that reads conversations and judges them, fed by the engine.
//!
//! Who is an agent and who is a server must be known at once: a session may be over in milliseconds. A message of
//! 16 MiB takes longer than that to judge. So the engine only sorts bytes to their conversations, and all that costs
//! time in proportion to what was said happens here. What waits for this thread still counts against the sensor's
//! queue, which is bounded by bytes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};

use kams_detect::Finding;
use kams_detect::cost::Point;
use kams_export::view::{EventKind, EventView, ServerState, Time};
use kams_host::LossReason;
use kams_mcp::session::Identity;
use kams_mcp::{Direction, Nanos, Session};
use kams_policy::Policy;
use tokio::sync::oneshot;

use super::backend::runs::Ask;
use super::conversation::{Conversation, Party};
use super::describe;
use super::gate;
use super::judge::decided::{Changed, DecideError, Decided, Verb};
use super::judge::usage::Usage;
use super::judge::{Case, Judge};
use super::live::Live;
use super::seccomp;
use super::sink::Sink;
use super::stream::Piece;
use super::to_wall;
use super::verdict::Relays;
use super::waste::Output;
use crate::admin::Viewer;
use crate::fatal::EndsAll;

/// What the engine hands over, in the order in which it happened. Conversations go by the number of their server.
pub(super) enum Work {
    /// A conversation begins to be told.
    Open {
        server: u64,
        conversation: Box<Conversation>,
    },
    /// Bytes.
    Piece {
        server: u64,
        direction: Direction,
        piece: Piece,
    },
    /// Bytes that were lost.
    Gap {
        server: u64,
        direction: Direction,
        lost: u64,
        reasons: Vec<LossReason>,
        time: Nanos,
    },
    /// A better name for the server, or for the agent.
    Rename {
        server: u64,
        identity: Arc<str>,
        agent: Arc<str>,
    },
    /// The server is gone.
    Finish {
        server: u64,
        why: &'static str,
        time: Nanos,
    },
    /// The agent is gone, and with it what was remembered of it.
    AgentGone { pid: u32, event: Box<EventView> },
    /// Something to be told after all that came before it.
    Tell(Box<EventView>),
    /// A decision about baselines.
    Baseline {
        decided: Decided,
        by: Viewer,
        done: oneshot::Sender<Result<Vec<Changed>, DecideError>>,
    },
    /// A true count of tokens.
    Usage {
        usage: Usage,
        done: oneshot::Sender<Vec<(u64, Point)>>,
    },
    /// What was found about wasted tokens.
    Waste(Output),
    /// What the engine itself found about a server.
    Found {
        party: Box<Party>,
        finding: Box<Finding>,
    },
    /// Another policy.
    Policy(Arc<Policy>),
    /// A question to the gate, or an order.
    Gate(Ask),
    /// `kams on` and `kams off`, and whom to tell once relays were told.
    Switch {
        on: bool,
        event: Box<EventView>,
        done: oneshot::Sender<Result<(), String>>,
    },
    /// About a second has passed; what the kernel saw before this time, in nanoseconds since boot, has been handed on.
    Tick(Nanos),
}

/// The way to the thread.
pub struct Judging {
    work: Option<Sender<Work>>,
    waker: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
}

impl std::fmt::Debug for Judging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judging").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    /// The daemon ends: what was read and not judged yet is left.
    ending: AtomicBool,
    /// The thread sleeps until a relay speaks; what is handed over must wake it.
    asleep: AtomicBool,
    /// A tick waits: one that comes late counts once, for a thread that is behind loses no time.
    ticking: AtomicBool,
}

impl Judging {
    /// Starts the thread, with the priority of the caller. `relays` are served by it, too.
    pub fn start(judge: Judge, live: Live, relays: Option<Relays>) -> std::io::Result<Self> {
        let (work, queue) = mpsc::channel();
        let waker = relays.as_ref().map(Relays::waker).transpose()?;
        let state = Arc::new(State::default());
        let seen = Arc::clone(&state);
        let thread = thread::Builder::new().name("judge".to_owned()).spawn(move || {
            let _ends_all = EndsAll("judging");
            Bench {
                judge,
                live,
                open: HashMap::new(),
            }
            .run(&queue, &seen, relays);
        })?;
        Ok(Self {
            work: Some(work),
            waker,
            thread: Some(thread),
            state,
        })
    }

    /// Hands over. Never waits.
    pub(super) fn hand(&self, work: Work) {
        if matches!(work, Work::Tick(_)) && self.state.ticking.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(queue) = &self.work {
            // It ends only after this handle, or with the whole daemon.
            drop(queue.send(work));
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker
            && self.state.asleep.swap(false, Ordering::AcqRel)
            && let Err(error) = rustix::io::write(waker, &1_u64.to_ne_bytes())
        {
            tracing::error!(%error, "the judging thread cannot be woken");
        }
    }

    /// Ends the thread once all but the bytes that wait is done.
    pub(super) fn end(&mut self) {
        self.state.ending.store(true, Ordering::Release);
        self.work = None;
        self.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the judging thread ended badly");
        }
    }
}

/// What the thread owns.
struct Bench {
    judge: Judge,
    live: Live,
    open: HashMap<u64, Open>,
}

struct Open {
    conversation: Conversation,
    /// What the two sides said of themselves, as it was last entered.
    told: Arc<Identity>,
}

impl Bench {
    fn run(mut self, queue: &Receiver<Work>, state: &State, relays: Option<Relays>) {
        let Some(mut relays) = relays else {
            while let Ok(work) = queue.recv() {
                self.work(work, state);
            }
            return;
        };
        let mut served = false;
        loop {
            // Relays first: an agent or a server waits for each answer.
            if !std::mem::take(&mut served) {
                self.serve(&mut relays, false);
            }
            match queue.try_recv() {
                Ok(work) if self.is_relayed(&work, &relays) => {}
                Ok(work) => {
                    self.tell_relays(&work, &mut relays);
                    let tick = matches!(work, Work::Tick(_) | Work::Policy(_) | Work::Gate(_));
                    self.work(work, state);
                    relays.kill(self.judge.take_kills());
                    if tick {
                        relays.settle(&mut self.judge, &mut self.live);
                    }
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    state.asleep.store(true, Ordering::Release);
                    // What came before that was seen does not wake us.
                    let last = queue.try_recv();
                    if last.is_err() {
                        self.serve(&mut relays, true);
                        served = true;
                    }
                    state.asleep.store(false, Ordering::Release);
                    relays.woken();
                    if let Ok(work) = last
                        && !self.is_relayed(&work, &relays)
                    {
                        self.tell_relays(&work, &mut relays);
                        self.work(work, state);
                        relays.kill(self.judge.take_kills());
                    }
                }
            }
        }
    }

    fn serve(&mut self, relays: &mut Relays, wait: bool) {
        relays.serve(wait, &mut self.judge, &mut self.live);
        // What a relay shows is not judged a second time from where it was watched.
        for server in relays.take_new() {
            self.open.remove(&server);
        }
    }

    /// What relays must know.
    fn tell_relays(&mut self, work: &Work, relays: &mut Relays) {
        match work {
            Work::Switch { on, .. } => relays.switch(*on, &mut self.judge, &mut self.live),
            Work::Rename {
                server,
                identity,
                agent,
            } => relays.rename(*server, identity, agent),
            _ => {}
        }
    }

    /// A conversation that a relay shows as well.
    fn is_relayed(&self, work: &Work, relays: &Relays) -> bool {
        let Work::Open { server, conversation } = work else {
            return false;
        };
        let mut tables = self.live.registry.lock();
        if relays.is_relay(conversation.party().agent_pid) {
            tables.remove_server(*server);
            return true;
        }
        let view = tables.server_mut(*server);
        view.is_some_and(|view| view.state == ServerState::Relayed)
    }

    fn work(&mut self, work: Work, state: &State) {
        if matches!(work, Work::Piece { .. }) && state.ending.load(Ordering::Acquire) {
            return;
        }
        if matches!(work, Work::Tick(_)) {
            state.ticking.store(false, Ordering::Release);
        }
        self.take(work);
    }

    fn take(&mut self, work: Work) {
        let Self { judge, live, open } = self;
        match work {
            Work::Open { server, conversation } => {
                judge.enter(conversation.party());
                let told = Arc::clone(conversation.session().identity());
                let conversation = *conversation;
                open.insert(server, Open { conversation, told });
            }
            Work::Piece {
                server,
                direction,
                piece,
            } => {
                if let Some(open) = open.get_mut(&server) {
                    open.conversation.push(direction, piece, judge, live);
                    open.tell_identity(server, live);
                }
            }
            Work::Gap {
                server,
                direction,
                lost,
                reasons,
                time,
            } => {
                if let Some(open) = open.get_mut(&server) {
                    open.gap(direction, (lost, time), &reasons, judge, live);
                }
            }
            Work::Rename {
                server,
                identity,
                agent,
            } => {
                if let Some(open) = open.get_mut(&server) {
                    open.conversation.rename(identity, agent);
                }
            }
            Work::Finish { server, why, time } => {
                if let Some(open) = open.remove(&server) {
                    open.finish(why, time, judge, live);
                }
            }
            Work::AgentGone { pid, event } => {
                judge.agent_gone(event.uid, pid);
                live.event(*event);
            }
            Work::Tell(event) => live.event(*event),
            Work::Baseline { decided, by, done } => drop(done.send(decide(decided, &by, judge, live))),
            Work::Usage { usage, done } => drop(done.send(judge.usage(&usage, live))),
            Work::Waste(output) => judge.wasted(output, live),
            Work::Found { party, finding } => {
                let mono = seccomp::now();
                let case = Case {
                    party: &party,
                    time: to_wall(mono),
                    mono,
                    session: &Session::new(kams_mcp::Config::in_order()),
                    request_id: None,
                    gap: false,
                };
                judge.report(&case, &finding, live);
            }
            Work::Policy(policy) => {
                judge.set_policy(policy);
                tell(live, "policy reloaded");
            }
            Work::Gate(ask) => ask.answer(&mut judge.gate, live),
            Work::Switch { event, done, .. } => {
                live.event(*event);
                drop(done.send(Ok(())));
            }
            Work::Tick(settled) => self.tick(settled),
        }
    }

    fn tick(&mut self, settled: Nanos) {
        let Self { judge, live, open } = self;
        for open in open.values_mut() {
            open.conversation.tick(settled, judge, live);
        }
        judge.gate.sweep(gate::here(), live);
        for (op, sum) in judge.store_errors() {
            live.metrics.store_errors_total(op, sum);
        }
    }
}

impl Open {
    fn gap(
        &mut self,
        direction: Direction,
        (lost, time): (u64, Nanos),
        reasons: &[LossReason],
        judge: &mut Judge,
        live: &mut Live,
    ) {
        for reason in reasons {
            let mut event = self.conversation.event(EventKind::Loss, time);
            event.stage = Some(reason.stage.as_str().to_owned());
            event.reason = Some(reason.reason.to_owned());
            event.gap = true;
            live.event(event);
        }
        self.conversation.gap(direction, lost, time, judge, live);
    }

    /// Enters what the two sides said of themselves, where it is new.
    fn tell_identity(&mut self, server: u64, live: &Live) {
        let identity = self.conversation.session().identity();
        if Arc::ptr_eq(identity, &self.told) {
            return;
        }
        self.told = Arc::clone(identity);
        if let Some(view) = live.registry.lock().server_mut(server) {
            view.revision = identity.revision.as_ref().map(|r| describe::name(r.name()));
            view.name = identity.server.as_ref().map(|s| describe::name(&s.name));
            view.claimed_version = identity.server.as_ref().map(|s| describe::name(&s.version));
        }
    }

    fn finish(mut self, why: &str, time: Nanos, judge: &mut Judge, live: &mut Live) {
        self.conversation.finish(time, judge, live);
        let mut event = self.conversation.event(EventKind::ServerGone, time);
        event.reason = Some(why.to_owned());
        live.event(event);
        let party = self.conversation.party();
        judge.leave(party);
        live.registry.lock().end_server(party.server_id, to_wall(time));
        live.count_servers();
    }
}

fn decide(
    decided: Decided,
    by: &Viewer,
    judge: &mut Judge,
    live: &mut Live,
) -> Result<Vec<Changed>, DecideError> {
    let word = match &decided.verb {
        Verb::Accept(_) => "accepted",
        Verb::Pin(_) => "pinned",
        Verb::Unpin(_) => "unpinned",
        Verb::Import(_) => "imported",
    };
    let changed = judge.decide(decided, by.uid, Time::now(), live)?;
    let names: Vec<&str> = changed
        .iter()
        .filter(|c| c.changed)
        .map(|c| c.item.as_str())
        .collect();
    if let (Some(first), Some(one)) = (names.first(), changed.first()) {
        let what = if names.len() == 1 {
            (*first).to_owned()
        } else {
            format!("{} items", names.len())
        };
        let text = format!(
            "baseline {word}: {what} of {}, user {}, by uid {}",
            one.server, one.uid, by.uid
        );
        tracing::warn!(pid = by.pid, "{text}");
        tell(live, &text);
    }
    Ok(changed)
}

fn tell(live: &mut Live, detail: &str) {
    live.event(EventView {
        detail: Some(detail.to_owned()),
        ..EventView::new(EventKind::Daemon, Time::now(), 0, "root")
    });
}
