//! What the engine provides to the admin API.

use std::sync::Arc;

use kams_export::view::{AgentView, DoctorView, FindingRecord, ServerView, StatusView, ToolView};
use serde_json::Value;

use super::{Feed, Selection, Viewer};

/// Whose data an answer may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Everyone's.
    All,
    /// One user's.
    User(u32),
}

impl Scope {
    /// Whether data of `uid` may be shown.
    pub const fn admits(self, uid: u32) -> bool {
        match self {
            Self::All => true,
            Self::User(own) => own == uid,
        }
    }
}

/// Which servers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ServerQuery {
    /// Also those that have ended and are still remembered.
    pub gone: bool,
}

/// Which tools.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ToolQuery {
    /// Only of servers whose identity or self-given name is this, or whose instance number is it.
    pub server: Option<String>,
}

/// Which findings, newest last.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FindingQuery {
    /// Only those numbered above this one.
    pub since: u64,
    /// At most so many, the newest ones; 0 to 10,000.
    pub limit: usize,
    /// Only these. The limit counts what is left.
    pub selection: Selection,
}

/// Why the engine could not do it. The admin API turns it into a status, a code and a text with a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// No such thing (404).
    #[error("no such {what}")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The request makes no sense (400).
    #[error("{message}")]
    Invalid {
        /// What is wrong with it.
        message: String,
        /// How to say it rightly.
        remedy: String,
    },
    /// It makes sense, and is refused in the present state (409).
    #[error("{message}")]
    Refused {
        /// Why.
        message: String,
        /// What to do first.
        remedy: String,
    },
    /// More than the caller's share (429).
    #[error("{message}")]
    TooMany {
        /// Of what.
        message: String,
        /// What to do.
        remedy: String,
    },
    /// Cannot be answered now (503).
    #[error("{message}")]
    Unavailable {
        /// Why.
        message: String,
        /// What to do.
        remedy: String,
    },
    /// This daemon has no such verb (501).
    #[error("this kamsd has no `{name}`")]
    Unsupported {
        /// The verb.
        name: String,
    },
}

/// Who may use a generic command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommandRight {
    /// Root or the admin group, outside every agent's tree.
    Admin,
    /// Anyone outside every agent's tree: the backend decides by the viewer (approvals).
    Person,
}

/// The engine, as the admin API sees it.
///
/// Methods are called from blocking threads, several at once, and are given up on (not cancelled) after the
/// admin time limit; they may lock briefly and must not wait for the admin API. Whatever they return beyond
/// `scope` is dropped by the caller as a second line of defence, but counts inside [`StatusView`] are the
/// backend's to restrict.
pub trait Backend: Send + Sync + 'static {
    /// The state of the daemon; counts restricted to `scope`.
    fn status(&self, scope: Scope) -> Result<StatusView, BackendError>;

    /// Agents that live or are still remembered.
    fn agents(&self, scope: Scope) -> Result<Vec<AgentView>, BackendError>;

    /// Servers.
    fn servers(&self, scope: Scope, query: &ServerQuery) -> Result<Vec<ServerView>, BackendError>;

    /// Tools of live and remembered servers.
    fn tools(&self, scope: Scope, query: &ToolQuery) -> Result<Vec<ToolView>, BackendError>;

    /// Findings, oldest first. Those published by an earlier start of the daemon, or so long ago that the feed has
    /// forgotten their number, carry the number 0; they are left out where `since` is above 0.
    fn findings(&self, scope: Scope, query: &FindingQuery) -> Result<Vec<FindingRecord>, BackendError>;

    /// What the kernel offers and what is used.
    fn doctor(&self) -> Result<DoctorView, BackendError>;

    /// `kams on` and `kams off`. `by` goes on record.
    fn set_enabled(&self, enabled: bool, by: &Viewer) -> Result<(), BackendError>;

    /// Where the engine publishes its records; the admin API reads and follows it.
    fn feed(&self) -> &Arc<Feed>;

    /// Whether this process is an agent or stands below one, by the engine's own process table. The admin API
    /// also walks the parents in /proc and asks for each.
    fn is_in_agent_tree(&self, pid: u32) -> bool;

    /// Called before each scrape: the place to set gauges that are cheaper to read than to keep.
    fn refresh_metrics(&self) {}

    /// A true count of tokens for an agent within `scope`, `POST /v1/usage`.
    fn usage(&self, _scope: Scope, _body: Value) -> Result<Value, BackendError> {
        Err(BackendError::Unsupported {
            name: "usage".to_owned(),
        })
    }

    /// Whether this caller may report model calls now; asked before the body is read.
    fn admit_report(&self, _viewer: &Viewer) -> Result<(), BackendError> {
        Ok(())
    }

    /// How large the report was.
    fn spend_report(&self, _viewer: &Viewer, _bytes: usize) {}

    /// Model calls of the caller, `POST /v1/llm-calls`.
    fn llm_calls(&self, _viewer: &Viewer, _body: Value) -> Result<Value, BackendError> {
        Err(BackendError::Unsupported {
            name: "llm-calls".to_owned(),
        })
    }

    /// Generic read, `GET /v1/query/{name}?...`: places for verbs to come. `parameters` are the decoded pairs.
    fn query(
        &self,
        name: &str,
        _scope: Scope,
        _viewer: &Viewer,
        _parameters: &[(String, String)],
    ) -> Result<Value, BackendError> {
        Err(BackendError::Unsupported {
            name: name.to_owned(),
        })
    }

    /// Who may call [`Backend::command`] with this name.
    fn command_right(&self, _name: &str) -> CommandRight {
        CommandRight::Admin
    }

    /// Generic write, `POST /v1/command/{name}` with a JSON body.
    fn command(&self, name: &str, _viewer: &Viewer, _body: Value) -> Result<Value, BackendError> {
        Err(BackendError::Unsupported {
            name: name.to_owned(),
        })
    }
}
