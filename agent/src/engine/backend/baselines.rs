//! Baselines over the admin API.
//!
//! `GET /v1/query/baselines?server=&item=&user=&full=1`: `{schema, baselines: [..]}` of the asker's own servers (of all
//! for root and the group). `server` is a glob over the identity, `item` a tool's name or an item key, `user` a login
//! name or uid. `full` adds the definitions.
//!
//! `POST /v1/command/baseline` with `{"op": "accept" | "pin" | "unpin", "server": "npm:x", "item": "tool:add",
//! "user": "ada"}` (`item` left out: all items of the server; `user` left out: the one user who has the server), or
//! `{"op": "import", "rows": [..], "dry_run": false}`: `{schema, changed: [{uid, server, item, state, changed}]}`.

use std::collections::BTreeMap;
use std::time::Duration;

use kams_detect::redact::json_error;
use kams_export::view::{SCHEMA, Time};
use kams_store::{Baseline, BaselineState};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Command, DaemonBackend, stopped};
use crate::admin::{BackendError, Scope, Viewer, matches};
use crate::engine::judge::decided::{Changed, DecideError, Decided, Items, Verb, checked};

/// Baselines of one answer.
const MOST: usize = 20_000;
/// How long a question waits for what was just decided to reach the disk.
const SETTLE: Duration = Duration::from_secs(2);

/// A baseline on the wire, and in an exported file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct BaselineView {
    /// Whose.
    pub uid: u32,
    /// Login name, or the uid in digits.
    pub user: String,
    /// Server identity.
    pub server: String,
    /// Item key.
    pub item: String,
    /// `provisional` or `pinned`.
    pub state: String,
    /// What was seen last is not the baseline.
    pub changed: bool,
    /// Policy refused the first sighting: there is no baseline yet.
    pub refused: bool,
    /// Version that the server claimed.
    pub version: Option<String>,
    /// First sighting.
    pub first_seen: Time,
    /// Last change of the row.
    pub changed_at: Time,
    /// Who changed it; none: Kams.
    pub changed_by: Option<u32>,
    /// The baseline, as stored.
    pub definition: Option<Value>,
    /// What was seen last, where it is not the baseline.
    pub seen: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    op: String,
    #[serde(default)]
    server: String,
    item: Option<String>,
    user: Option<Value>,
    #[serde(default)]
    rows: Vec<BaselineView>,
    #[serde(default)]
    dry_run: bool,
}

fn invalid(message: impl Into<String>, remedy: &str) -> BackendError {
    BackendError::Invalid {
        message: message.into(),
        remedy: remedy.to_owned(),
    }
}

/// The key of what a person calls an item: a tool unless it says otherwise.
fn key(item: &str) -> String {
    let known = ["tool:", "prompt:", "resource:"]
        .iter()
        .any(|kind| item.starts_with(kind));
    if known || item == "instructions" {
        item.to_owned()
    } else {
        format!("tool:{item}")
    }
}

fn user_name(uid: u32) -> String {
    nix::unistd::User::from_uid(uid.into())
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}

fn user_id(user: &str) -> Result<u32, BackendError> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let found = nix::unistd::User::from_name(user).ok().flatten();
    found
        .map(|user| user.uid.as_raw())
        .ok_or_else(|| BackendError::NotFound {
            what: format!("user {user}"),
        })
}

impl DaemonBackend {
    /// Rows as they are once the queue is written.
    fn rows(&self, scope: Scope) -> Result<Vec<Baseline>, BackendError> {
        if let Err(error) = self.store.flush(SETTLE) {
            tracing::warn!(%error, "baselines are read before the last ones were written");
        }
        let uid = match scope {
            Scope::All => None,
            Scope::User(uid) => Some(uid),
        };
        self.store
            .all_baselines(uid, MOST)
            .map_err(|error| BackendError::Unavailable {
                message: format!("the database cannot be read: {error}"),
                remedy: "see the daemon's log".to_owned(),
            })
    }

    pub(super) fn baselines(
        &self,
        scope: Scope,
        parameters: &[(String, String)],
    ) -> Result<Value, BackendError> {
        let get = |name: &str| {
            parameters
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.as_str())
        };
        if let Some((name, _)) = parameters
            .iter()
            .find(|(name, _)| !matches!(name.as_str(), "server" | "item" | "user" | "full"))
        {
            return Err(invalid(
                format!("unknown parameter `{name}`"),
                "known: server, item, user, full",
            ));
        }
        let item = get("item").map(key);
        let user = get("user").map(user_id).transpose()?;
        let full = get("full").is_some_and(|v| v == "1");
        let mut names: BTreeMap<u32, String> = BTreeMap::new();
        let baselines: Vec<BaselineView> = self
            .rows(scope)?
            .into_iter()
            .filter(|row| scope.admits(row.uid))
            .filter(|row| get("server").is_none_or(|glob| matches(glob, &row.server)))
            .filter(|row| item.as_ref().is_none_or(|item| row.item == *item))
            .filter(|row| user.is_none_or(|user| row.uid == user))
            .map(|row| {
                let name = names.entry(row.uid).or_insert_with(|| user_name(row.uid));
                view(row, name, full)
            })
            .collect();
        Ok(json!({ "schema": SCHEMA, "baselines": baselines }))
    }

    pub(super) fn decide(&self, by: &Viewer, body: Value) -> Result<Value, BackendError> {
        let order: Order = serde_json::from_value(body).map_err(|error| {
            invalid(
                format!("not an order about baselines: {}", json_error(&error)),
                "send {\"op\": \"pin\", \"server\": \"...\"}",
            )
        })?;
        let decisions = match order.op.as_str() {
            "import" => import(order.rows)?,
            "accept" | "pin" | "unpin" => vec![self.one(&order)?],
            other => {
                return Err(invalid(
                    format!("unknown op `{other}`"),
                    "use accept, pin, unpin or import",
                ));
            }
        };
        let mut changed = Vec::new();
        if order.dry_run {
            for decided in &decisions {
                changed.extend(self.rehearse(decided)?);
            }
        } else {
            for decided in decisions {
                changed.extend(self.ask_engine(decided, by)?);
            }
        }
        Ok(json!({ "schema": SCHEMA, "dry_run": order.dry_run, "changed": changed }))
    }

    fn one(&self, order: &Order) -> Result<Decided, BackendError> {
        if order.server.is_empty() {
            return Err(invalid(
                "no server is named",
                "name one: see `kams baseline show`",
            ));
        }
        let wanted = match &order.user {
            Some(Value::String(user)) => Some(user_id(user)?),
            Some(user) => Some(
                user.as_u64()
                    .and_then(|uid| u32::try_from(uid).ok())
                    .ok_or_else(|| invalid("`user` is no name and no uid", "send a login name"))?,
            ),
            None => None,
        };
        let rows = self.rows(Scope::All)?;
        let mut owners: Vec<u32> = rows
            .iter()
            .filter(|row| row.server == order.server && wanted.is_none_or(|uid| row.uid == uid))
            .map(|row| row.uid)
            .collect();
        owners.dedup();
        let uid = match owners.as_slice() {
            [] => {
                return Err(BackendError::NotFound {
                    what: format!("server with baselines: {}", order.server),
                });
            }
            [one] => *one,
            many => {
                let names: Vec<String> = many.iter().map(|uid| user_name(*uid)).collect();
                return Err(invalid(
                    format!("several users have this server: {}", names.join(", ")),
                    "say whose with --user",
                ));
            }
        };
        let items = order
            .item
            .as_deref()
            .map_or(Items::All, |item| Items::One(key(item)));
        let verb = match order.op.as_str() {
            "accept" => Verb::Accept(items),
            "pin" => Verb::Pin(items),
            _ => Verb::Unpin(items),
        };
        Ok(Decided {
            uid,
            server: order.server.clone(),
            verb,
        })
    }

    /// What an import would change.
    fn rehearse(&self, decided: &Decided) -> Result<Vec<Changed>, BackendError> {
        let Verb::Import(rows) = &decided.verb else {
            return Err(invalid("only an import can be rehearsed", "leave `dry_run` out"));
        };
        let known = self.rows(Scope::User(decided.uid))?;
        Ok(rows
            .iter()
            .map(|row| {
                let same = known.iter().any(|old| {
                    old.server == decided.server
                        && old.item == row.item
                        && old.digest == row.digest
                        && old.state == row.state
                });
                Changed {
                    uid: decided.uid,
                    server: decided.server.clone(),
                    item: row.item.clone(),
                    state: row.state.name(),
                    changed: !same,
                }
            })
            .collect())
    }

    fn ask_engine(&self, decided: Decided, by: &Viewer) -> Result<Vec<Changed>, BackendError> {
        let (done, answer) = oneshot::channel();
        let command = Command::Baseline {
            decided,
            by: by.clone(),
            done,
        };
        self.commands
            .blocking_send(command)
            .map_err(|_stopped| stopped())?;
        answer
            .blocking_recv()
            .map_err(|_stopped| stopped())?
            .map_err(|error| match error {
                DecideError::Unknown { server, item } => BackendError::NotFound {
                    what: format!("{item} of {server}"),
                },
                error => BackendError::Refused {
                    message: error.to_string(),
                    remedy: "see `kams baseline diff`".to_owned(),
                },
            })
    }
}

fn view(row: Baseline, user: &str, full: bool) -> BaselineView {
    let parsed = |text: &str| serde_json::from_str(text).ok();
    let refused = row.digest.is_empty();
    BaselineView {
        uid: row.uid,
        user: user.to_owned(),
        state: row.state.name().to_owned(),
        changed: row.seen.is_some(),
        refused,
        version: row.version,
        first_seen: Time::from_unix_nanos(row.first_seen),
        changed_at: Time::from_unix_nanos(row.changed_at),
        changed_by: row.changed_by,
        definition: if full && !refused {
            parsed(&row.definition)
        } else {
            None
        },
        seen: row.seen.filter(|_| full).and_then(|(_, text)| parsed(&text)),
        server: row.server,
        item: row.item,
    }
}

/// All rows checked, before anything is changed, and put together by owner.
fn import(rows: Vec<BaselineView>) -> Result<Vec<Decided>, BackendError> {
    let mut owners: BTreeMap<(u32, String), Vec<Baseline>> = BTreeMap::new();
    for (number, row) in (1_u32..).zip(rows) {
        let bad = |why: &str| {
            invalid(
                format!("row {number}: {why}; nothing was changed"),
                "import a file that `kams baseline export` wrote",
            )
        };
        let state = BaselineState::from_name(&row.state)
            .ok_or_else(|| bad("`state` is neither provisional nor pinned"))?;
        if row.server.is_empty() || row.server.len() > 1_024 || row.item.len() > 4_096 {
            return Err(bad("`server` or `item` is missing or too long"));
        }
        // The number may mean somebody else on another host; the name is what was exported.
        let uid = if row.user.is_empty() {
            row.uid
        } else {
            user_id(&row.user).map_err(|e| bad(&e.to_string()))?
        };
        let definition = row.definition.ok_or_else(|| bad("no `definition`"))?;
        let base = Baseline {
            uid,
            server: row.server.clone(),
            item: row.item,
            state,
            digest: String::new(),
            definition: definition.to_string(),
            version: row.version,
            seen: None,
            first_seen: row.first_seen.unix_nanos(),
            changed_at: 0,
            changed_by: None,
        };
        let base = checked(base).ok_or_else(|| bad("`definition` is no stored definition of `item`"))?;
        let of_owner = owners.entry((uid, row.server)).or_default();
        if of_owner.iter().any(|other| other.item == base.item) {
            return Err(bad("the item stands twice in the file"));
        }
        of_owner.push(base);
    }
    if owners.is_empty() {
        return Err(invalid(
            "no rows",
            "import a file that `kams baseline export` wrote",
        ));
    }
    Ok(owners
        .into_iter()
        .map(|((uid, server), rows)| Decided {
            uid,
            server,
            verb: Verb::Import(rows),
        })
        .collect())
}
