//! The policy in force, and the one way to replace it: SIGHUP, a changed file and `kams policy reload` all come here.

use std::sync::{Arc, Mutex, PoisonError};

use kams_export::metrics::Metrics;
use kams_policy::Policy;
use tokio::sync::mpsc;

use super::{PolicyError, PolicySource};
use crate::engine::Command;

/// The policy in force.
pub struct PolicyInForce {
    source: PolicySource,
    commands: mpsc::Sender<Command>,
    metrics: Arc<Metrics>,
    /// Held while one reload is under way, so that what was read last is also what is sent last.
    turn: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    policy: Arc<Policy>,
    refused: Option<Arc<Refused>>,
}

/// The file as it stands now, where it was refused.
#[derive(Debug)]
pub struct Refused {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub error: PolicyError,
}

impl Refused {
    /// One line for `kams status`.
    pub fn note(&self) -> String {
        let what = match &self.error {
            PolicyError::Problems(problems) => format!("{} problems", problems.len()),
            error => error.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        format!(
            "The policy file {} is refused ({what}); the one loaded before stays in force. See `kams policy check {0}`.",
            self.file
        )
    }
}

/// What became of a reload that was not refused.
#[derive(Debug)]
pub struct Reloaded {
    /// In force now.
    pub policy: Arc<Policy>,
    /// Whether its text differs from what was in force.
    pub changed: bool,
}

impl PolicyInForce {
    /// `policy` was loaded from `source`; replacements go to the engine through `commands`.
    pub fn new(
        source: PolicySource,
        policy: Arc<Policy>,
        commands: mpsc::Sender<Command>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            source,
            commands,
            metrics,
            turn: Mutex::new(()),
            state: Mutex::new(State {
                policy,
                refused: None,
            }),
        }
    }

    /// Where it comes from.
    pub const fn source(&self) -> &PolicySource {
        &self.source
    }

    /// The policy itself.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner).policy)
    }

    /// Why the file as it stands now is not in force; none where it is.
    pub fn refused(&self) -> Option<Arc<Refused>> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .refused
            .clone()
    }

    /// Reads the file again, because a person said so. Reads the disk and may wait for the engine: not for an
    /// asynchronous task.
    ///
    /// # Errors
    /// Why the file is refused; the policy in force stays.
    pub fn reload(&self) -> Result<Reloaded, Arc<Refused>> {
        self.again(true)
    }

    /// The same, because something changed in the folder: counts and logs only what is new.
    ///
    /// # Errors
    /// As [`PolicyInForce::reload`].
    pub fn look_again(&self) -> Result<Reloaded, Arc<Refused>> {
        self.again(false)
    }

    fn again(&self, ordered: bool) -> Result<Reloaded, Arc<Refused>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.policy();
        let known = self.refused();
        let loaded = self.source.load().and_then(|policy| {
            // Taking the file away would else switch enforcement off without a word.
            let default = Policy::default_policy();
            if policy.hash() == default.hash()
                && policy.name() == default.name()
                && before.name() != default.name()
            {
                return Err(PolicyError::Missing(self.source.path().to_owned()));
            }
            Ok(policy)
        });
        match loaded {
            Ok(policy) => {
                let changed = policy.hash() != before.hash();
                if !changed && !ordered && known.is_none() {
                    return Ok(Reloaded {
                        policy: before,
                        changed,
                    });
                }
                let policy = Arc::new(policy);
                self.set(|state| {
                    state.policy = Arc::clone(&policy);
                    state.refused = None;
                });
                self.metrics.policy_reload(Some(policy.hash()));
                // A stopped engine has no use for it.
                drop(self.commands.blocking_send(Command::Policy(Arc::clone(&policy))));
                tracing::info!(hash = policy.hash(), changed, "policy reloaded");
                Ok(Reloaded { policy, changed })
            }
            Err(error) => {
                if let Some(known) = known
                    && !ordered
                    && known.error.to_string() == error.to_string()
                {
                    return Err(known);
                }
                let file = self.source.path().display().to_string();
                tracing::error!("the policy is refused, the running one stays:\n{error}");
                let refused = Arc::new(Refused { file, error });
                self.set(|state| state.refused = Some(Arc::clone(&refused)));
                self.metrics.policy_reload(None);
                Err(refused)
            }
        }
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
