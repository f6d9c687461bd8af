//! Living runs by tenant: admission, completion, roll-back, idle split.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::accumulator::Accumulator;
use super::fact::Contribution;
use super::window::Window;
use crate::time::Now;

/// Most operation identities remembered in one run; the oldest go first, so a re-sent call older than that
/// counts again (it errs towards firing).
pub(crate) const MAX_OPERATIONS: usize = 4_096;
/// Most calls in flight in one run; a call beyond it is refused.
pub(crate) const MAX_IN_FLIGHT: usize = 1_024;
/// Most living runs of one user; beyond it the one idle for longest ends. Its facts stay in the user's window.
const MAX_RUNS: usize = 256;

/// Why the table refuses.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RunError {
    /// No such run of this user: another user's, or ended.
    #[error("no such run of this user")]
    UnknownRun,
    /// Too many calls wait for their answers.
    #[error("too many calls in flight")]
    TooManyInFlight,
}

/// What became of an admitted call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Completion {
    /// A result that is no error.
    Succeeded,
    /// A JSON-RPC error or a result with `isError`: nothing is recorded.
    Failed,
    /// No answer will be seen: cancelled after it was sent, connection gone. It may have happened, so it counts;
    /// else an agent could cancel each payment right after sending it.
    Unknown,
    /// A result that its own gate holds for approval. It counts ahead and stays only once approved.
    Gated,
}

/// Whether an operation is new to a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Its order number in the run.
    New(u64),
    /// Seen before under the same identity: it adds nothing.
    Repeated,
}

#[derive(Clone, Debug)]
struct InFlight {
    contributions: Vec<Contribution>,
    seq: u64,
    user_seq: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its identifier.
    pub id: String,
    /// The agent program.
    pub agent: String,
    /// Start, wall clock in milliseconds.
    pub started_ms: u64,
    /// Last traffic on the monotonic clock.
    last_mono: u64,
    completed: Accumulator,
    in_flight: BTreeMap<String, InFlight>,
    known: HashSet<String>,
    order: VecDeque<String>,
    last_seq: u64,
}

impl Run {
    /// Facts of completed calls.
    pub const fn completed(&self) -> &Accumulator {
        &self.completed
    }

    /// Calls that wait for their answers.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn remember(&mut self, operation: &str) {
        if self.known.insert(operation.to_owned()) {
            self.order.push_back(operation.to_owned());
            // Identities of calls in flight stay, whatever their age.
            while self.known.len() > MAX_OPERATIONS + self.in_flight.len() {
                let Some(oldest) = self.order.pop_front() else {
                    break;
                };
                if self.in_flight.contains_key(&oldest) {
                    self.order.push_back(oldest);
                } else {
                    self.known.remove(&oldest);
                }
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Tenant {
    /// By agent process instance: the number of the run within it, and the run.
    runs: BTreeMap<String, (u64, Run)>,
    window: Window,
    last_seq: u64,
}

/// Three views of the facts under the keys that rules read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views {
    pub(crate) run: Accumulator,
    pub(crate) completed: Accumulator,
    pub(crate) user: Accumulator,
}

/// All living runs. Facts never cross users: everything is looked up under a user first.
#[derive(Clone, Debug, Default)]
pub struct RunTable {
    tenants: BTreeMap<String, Tenant>,
}

impl RunTable {
    /// The run of an agent process at `now`, a new one when there is none or it was idle for too long.
    /// `instance` names the process for good: boot id, pid and start time. Returns the run's identifier, and the
    /// run that ended by this, if one did.
    pub fn enter(
        &mut self,
        user: &str,
        instance: &str,
        agent: &str,
        idle_ms: u64,
        now: Now,
    ) -> (String, Option<Run>) {
        let tenant = self.tenants.entry(user.to_owned()).or_default();
        let mut ended = None;
        let mut number = 1;
        if let Some((n, run)) = tenant.runs.get_mut(instance) {
            if now.since(run.last_mono) < idle_ms {
                run.last_mono = run.last_mono.max(now.mono_ms);
                return (run.id.clone(), None);
            }
            number = *n + 1;
            ended = tenant.runs.remove(instance).map(|(_, run)| run);
        } else if tenant.runs.len() >= MAX_RUNS {
            let idlest = tenant
                .runs
                .iter()
                .min_by_key(|(_, (_, run))| run.last_mono)
                .map(|(k, _)| k.clone());
            ended = idlest
                .and_then(|instance| tenant.runs.remove(&instance))
                .map(|(_, run)| run);
        }
        let id = format!("{instance}.{number}");
        let run = Run {
            id: id.clone(),
            agent: agent.to_owned(),
            started_ms: now.wall_ms,
            last_mono: now.mono_ms,
            completed: Accumulator::default(),
            in_flight: BTreeMap::new(),
            known: HashSet::new(),
            order: VecDeque::new(),
            last_seq: 0,
        };
        tenant.runs.insert(instance.to_owned(), (number, run));
        (id, ended)
    }

    /// Ends the runs of a process that is gone.
    pub fn leave(&mut self, user: &str, instance: &str) -> Option<Run> {
        self.tenants
            .get_mut(user)?
            .runs
            .remove(instance)
            .map(|(_, run)| run)
    }

    /// Ends idle runs and forgets users without any, and returns the runs that ended.
    pub fn sweep(&mut self, idle_ms: u64, window_ms: u64, now: Now) -> Vec<(String, Run)> {
        let mut ended = Vec::new();
        self.tenants.retain(|user, tenant| {
            tenant.window.trim(now, window_ms);
            let idle: Vec<String> = tenant
                .runs
                .iter()
                .filter(|(_, (_, run))| now.since(run.last_mono) >= idle_ms)
                .map(|(instance, _)| instance.clone())
                .collect();
            for instance in idle {
                ended.extend(tenant.runs.remove(&instance).map(|(_, run)| (user.clone(), run)));
            }
            !tenant.runs.is_empty() || !tenant.window.is_empty()
        });
        ended
    }

    /// Living runs with their users.
    pub fn list(&self) -> impl Iterator<Item = (&str, &Run)> {
        self.tenants
            .iter()
            .flat_map(|(user, tenant)| tenant.runs.values().map(move |(_, run)| (user.as_str(), run)))
    }

    /// A run of this user.
    pub fn get(&self, user: &str, run: &str) -> Option<&Run> {
        self.tenants
            .get(user)?
            .runs
            .values()
            .map(|(_, r)| r)
            .find(|r| r.id == run)
    }

    fn find(&mut self, user: &str, run: &str) -> Result<(&mut Run, &mut Window, &mut u64), RunError> {
        let tenant = self.tenants.get_mut(user).ok_or(RunError::UnknownRun)?;
        let (_, found) = tenant
            .runs
            .values_mut()
            .find(|(_, r)| r.id == run)
            .ok_or(RunError::UnknownRun)?;
        Ok((found, &mut tenant.window, &mut tenant.last_seq))
    }

    /// Whether an operation was seen before in a run.
    pub fn knows(&self, user: &str, run: &str, operation: &str) -> bool {
        self.get(user, run).is_some_and(|r| r.known.contains(operation))
    }

    /// Admits a call: from now on it counts ahead.
    ///
    /// # Errors
    /// The run is not this user's, or has too many calls in flight.
    pub fn admit(
        &mut self,
        user: &str,
        run: &str,
        operation: &str,
        contributions: Vec<Contribution>,
        now: Now,
    ) -> Result<Admission, RunError> {
        let (run, _, user_seq) = self.find(user, run)?;
        run.last_mono = run.last_mono.max(now.mono_ms);
        if run.known.contains(operation) {
            return Ok(Admission::Repeated);
        }
        if run.in_flight.len() >= MAX_IN_FLIGHT {
            return Err(RunError::TooManyInFlight);
        }
        run.last_seq = run.last_seq.saturating_add(1);
        *user_seq = user_seq.saturating_add(1);
        let entry = InFlight {
            contributions,
            seq: run.last_seq,
            user_seq: *user_seq,
        };
        run.in_flight.insert(operation.to_owned(), entry);
        run.remember(operation);
        Ok(Admission::New(run.last_seq))
    }

    /// Ends a call in flight. One that is not in flight (a second answer, an unknown operation) changes nothing.
    ///
    /// # Errors
    /// The run is not this user's.
    pub fn complete(
        &mut self,
        user: &str,
        run: &str,
        operation: &str,
        how: Completion,
        window_ms: u64,
        now: Now,
    ) -> Result<(), RunError> {
        let (run, window, _) = self.find(user, run)?;
        run.last_mono = run.last_mono.max(now.mono_ms);
        if how == Completion::Gated {
            return Ok(());
        }
        let Some(done) = run.in_flight.remove(operation) else {
            return Ok(());
        };
        if how == Completion::Failed {
            // A retry of what failed is a new attempt.
            run.known.remove(operation);
            run.order.retain(|known| known != operation);
            return Ok(());
        }
        for contribution in &done.contributions {
            run.completed.add(contribution, done.seq);
        }
        window.add(&done.contributions, done.user_seq, now, window_ms);
        Ok(())
    }

    /// The facts under `keys` as they would be if a call with `proposed` were let through. With no proposal
    /// (a checkpoint on demand) completed calls alone are seen in all three views.
    pub(crate) fn views(
        &self,
        user: &str,
        run: &str,
        keys: &[&str],
        proposed: Option<&[Contribution]>,
        window_ms: u64,
        now: Now,
    ) -> Result<Views, RunError> {
        let tenant = self.tenants.get(user).ok_or(RunError::UnknownRun)?;
        let (_, found) = tenant
            .runs
            .values()
            .find(|(_, r)| r.id == run)
            .ok_or(RunError::UnknownRun)?;
        let completed = found.completed.only(keys.iter().copied());
        let mut views = Views {
            run: completed.clone(),
            user: tenant.window.facts(keys, now, window_ms),
            completed,
        };
        let Some(proposed) = proposed else {
            return Ok(views);
        };
        let read = |c: &&Contribution| keys.contains(&c.key.as_str());
        for flying in found.in_flight.values() {
            flying
                .contributions
                .iter()
                .filter(read)
                .for_each(|c| views.run.add(c, flying.seq));
        }
        for (_, other) in tenant.runs.values() {
            for flying in other.in_flight.values() {
                flying
                    .contributions
                    .iter()
                    .filter(read)
                    .for_each(|c| views.user.add(c, flying.user_seq));
            }
        }
        for contribution in proposed.iter().filter(read) {
            views.run.add(contribution, found.last_seq.saturating_add(1));
            views.user.add(contribution, tenant.last_seq.saturating_add(1));
        }
        Ok(views)
    }
}
