//! The routes, and the loop that accepts.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path as Segment, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::{get, post};
use http_body_util::{BodyExt, Limited};
use kams_export::metrics::Metrics;
use kams_export::view::{Record, SCHEMA};
use serde_json::{Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::authority::may_write;
use super::connection::{Limits, Slots, serve};
use super::error::json as answer;
use super::parameters::Parameters;
use super::refusals::Refusals;
use super::socket::Socket;
use super::viewer::Peer;
use super::{
    ApiError, Backend, BindError, CommandRight, FindingQuery, Scope, Selection, ServerQuery, ToolQuery, lines,
};

/// Stands for "no admin group" in the atomic; (gid_t)-1 is no group.
const NO_GROUP: u32 = u32::MAX;

/// Questions that may be with the engine at once.
const QUESTIONS: usize = 16;

/// Largest report of usage, in bytes.
const MAX_REPORT: usize = 16 * 1024;

/// Largest report of model calls, in bytes: a request may hold images.
const MAX_CALLS: usize = 8 << 20;

/// Most records of one answer.
const MAX_RECORDS: u64 = 10_000;

/// The server on the Unix socket.
pub struct AdminServer {
    socket: Socket,
    group: Arc<AtomicU32>,
    limits: Limits,
}

/// Changes the admin group of a running server (a reload).
#[derive(Clone, Debug)]
pub struct AdminGroup(Arc<AtomicU32>);

impl AdminGroup {
    /// From the next connection on; none: root alone.
    pub fn set(&self, gid: Option<u32>) {
        self.0.store(gid.unwrap_or(NO_GROUP), Ordering::Relaxed);
    }
}

struct Shared {
    backend: Arc<dyn Backend>,
    metrics: Arc<Metrics>,
    limits: Limits,
    questions: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
}

type Shown = Result<Response, ApiError>;
type Asker = Extension<Arc<Peer>>;
type Daemon = State<Arc<Shared>>;

impl AdminServer {
    /// Makes the socket. `group`: members see all and may write.
    pub fn bind(path: &Path, group: Option<u32>, limits: Limits) -> Result<Self, BindError> {
        let socket = Socket::bind(path)?;
        let group = Arc::new(AtomicU32::new(group.unwrap_or(NO_GROUP)));
        Ok(Self {
            socket,
            group,
            limits,
        })
    }

    /// A handle that outlives [`AdminServer::serve`].
    pub fn group(&self) -> AdminGroup {
        AdminGroup(Arc::clone(&self.group))
    }

    /// Serves until `stop` becomes true, then ends all streams and takes the socket away.
    pub async fn serve(
        self,
        backend: Arc<dyn Backend>,
        metrics: Arc<Metrics>,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let Self {
            socket,
            group,
            limits,
        } = self;
        let listener = UnixListener::from_std(socket.listener.try_clone()?)?;
        let questions = Arc::new(Semaphore::new(QUESTIONS));
        let shared = Shared {
            backend,
            metrics,
            limits,
            questions,
            stop: stop.clone(),
        };
        let router = router().with_state(Arc::new(shared));
        let slots = Arc::new(Slots::default());
        let refusals = Refusals::default();
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let gid = Some(group.load(Ordering::Relaxed)).filter(|gid| *gid != NO_GROUP);
                    let admitted = admit(stream, gid, &router, &slots, limits, &mut connections);
                    if let Err(uid) = admitted
                        && let Some(count) = refusals.note(Instant::now())
                    {
                        tracing::warn!(uid, count, "admin socket: too many connections, refused");
                    }
                }
                Err(error) => {
                    // Mostly out of descriptors: wait for connections to end rather than spin.
                    tracing::warn!(%error, "admin socket: cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        drop(socket);
        // Streams end by themselves; what has not ended by then is cut.
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(Duration::from_secs(1), ended).await.is_err() {
            tracing::debug!("admin connections were cut at shutdown");
        }
        Ok(())
    }
}

/// Serves the peer, or returns whose connection is one too many.
fn admit(
    stream: UnixStream,
    group: Option<u32>,
    router: &Router,
    slots: &Arc<Slots>,
    limits: Limits,
    connections: &mut JoinSet<()>,
) -> Result<(), u32> {
    let peer = match Peer::of(&stream, group) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "admin socket: no credentials, connection refused");
            return Ok(());
        }
    };
    let Some(slot) = slots.take(peer.viewer.uid, peer.viewer.sees_all, &limits) else {
        refuse(&stream);
        return Err(peer.viewer.uid);
    };
    let router = router.clone().layer(Extension(Arc::new(peer)));
    connections.spawn(async move {
        serve(stream, router, limits).await;
        drop(slot);
    });
    Ok(())
}

/// An answer without reading the request, as far as it fits into the socket's buffer.
fn refuse(stream: &UnixStream) {
    const BODY: &str = concat!(
        r#"{"code":"busy","message":"too many connections to kamsd","#,
        r#""remedy":"close other `kams --follow` sessions and try again"}"#,
        "\n"
    );
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let whole = format!("{head}content-length: {}\r\n\r\n{BODY}", BODY.len());
    if let Err(error) = stream.try_write(whole.as_bytes()) {
        tracing::debug!(%error, "admin socket: the refused peer was not told");
    }
}

fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/whoami", get(whoami))
        .route("/v1/status", get(status))
        .route("/v1/doctor", get(doctor))
        .route("/v1/agents", get(agents))
        .route("/v1/servers", get(servers))
        .route("/v1/tools", get(tools))
        .route("/v1/events", get(events))
        .route("/v1/findings", get(findings))
        .route("/v1/on", post(on))
        .route("/v1/off", post(off))
        .route("/v1/usage", post(usage))
        .route("/v1/llm-calls", post(llm_calls))
        .route("/v1/query/{name}", get(query))
        .route("/v1/command/{name}", post(command))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
}

async fn no_route(uri: Uri) -> ApiError {
    let path: String = kams_export::text::visible(uri.path()).chars().take(80).collect();
    let remedy = "a newer `kams` may talk to an older kamsd: compare `kams --version` with `kams status`";
    ApiError::new(
        StatusCode::NOT_FOUND,
        "no_route",
        format!("no route {path}"),
        remedy,
    )
}

async fn no_method() -> ApiError {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    ApiError::new(
        status,
        "no_method",
        "this route has another method",
        "reading is GET, writing is POST",
    )
}

/// Puts a question to the engine: on a blocking thread, a few at a time, and not for ever.
async fn ask<T: Send + 'static>(
    shared: &Arc<Shared>,
    question: impl FnOnce(&dyn Backend) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let asked = async {
        // The turn goes along to the thread: a question given up on still counts until it is done.
        let turn = Arc::clone(&shared.questions).acquire_owned().await;
        let backend = Arc::clone(&shared.backend);
        let thread = move || {
            let answer = question(&*backend);
            drop(turn);
            answer
        };
        tokio::task::spawn_blocking(thread).await
    };
    match tokio::time::timeout(shared.limits.answer, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            tracing::error!(%error, "a question to the engine failed");
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            Err(ApiError::new(
                status,
                "internal",
                "kamsd failed to answer",
                "see its log: journalctl -u kamsd",
            ))
        }
        Err(_) => Err(ApiError::busy("the engine did not answer in time")),
    }
}

fn scope(peer: &Peer) -> Result<Scope, ApiError> {
    if peer.viewer.sees_all {
        return Ok(Scope::All);
    }
    if peer.is_somebody() {
        return Ok(Scope::User(peer.viewer.uid));
    }
    Err(ApiError::forbidden(
        "refused: the caller's user has no counterpart outside its container",
        "run `kams` on the host itself",
    ))
}

async fn whoami(State(shared): Daemon, Extension(peer): Asker, uri: Uri) -> Shown {
    Parameters::only(&uri, &[])?;
    let asker = Arc::clone(&peer);
    let refusal = ask(&shared, move |b| {
        Ok(may_write(&asker, CommandRight::Admin, b).err())
    })
    .await?;
    let viewer = &peer.viewer;
    let scope = if viewer.sees_all { "host" } else { "own" };
    let body = json!({
        "schema": SCHEMA, "uid": viewer.uid, "gid": viewer.gid, "pid": viewer.pid,
        "scope": scope, "may_write": refusal.is_none(), "why_not": refusal.map(|r| r.message),
    });
    Ok(answer(StatusCode::OK, &body))
}

async fn status(State(shared): Daemon, Extension(peer): Asker, uri: Uri) -> Shown {
    Parameters::only(&uri, &[])?;
    let scope = scope(&peer)?;
    let view = ask(&shared, move |b| Ok(b.status(scope)?)).await?;
    Ok(answer(StatusCode::OK, &view))
}

async fn doctor(State(shared): Daemon, Extension(peer): Asker, uri: Uri) -> Shown {
    Parameters::only(&uri, &[])?;
    scope(&peer)?;
    let view = ask(&shared, |b| Ok(b.doctor()?)).await?;
    Ok(answer(StatusCode::OK, &view))
}

async fn agents(State(shared): Daemon, Extension(peer): Asker, uri: Uri) -> Shown {
    Parameters::only(&uri, &[])?;
    let scope = scope(&peer)?;
    let mut agents = ask(&shared, move |b| Ok(b.agents(scope)?)).await?;
    agents.retain(|a| scope.admits(a.uid));
    Ok(answer(
        StatusCode::OK,
        &json!({"schema": SCHEMA, "agents": agents}),
    ))
}

async fn servers(State(shared): Daemon, Extension(peer): Asker, uri: Uri) -> Shown {
    let parameters = Parameters::only(&uri, &["gone"])?;
    let scope = scope(&peer)?;
    let query = ServerQuery {
        gone: parameters.flag("gone")?,
    };
    let mut servers = ask(&shared, move |b| Ok(b.servers(scope, &query)?)).await?;
    servers.retain(|s| scope.admits(s.uid));
    Ok(answer(
        StatusCode::OK,
        &json!({"schema": SCHEMA, "servers": servers}),
    ))
}

async fn tools(State(shared): Daemon, Extension(peer): Asker, uri: Uri) -> Shown {
    let parameters = Parameters::only(&uri, &["server"])?;
    let scope = scope(&peer)?;
    let query = ToolQuery {
        server: parameters.text("server").map(str::to_owned),
    };
    let mut tools = ask(&shared, move |b| Ok(b.tools(scope, &query)?)).await?;
    tools.retain(|t| scope.admits(t.uid));
    Ok(answer(StatusCode::OK, &json!({"schema": SCHEMA, "tools": tools})))
}

/// What both record routes take.
struct Wanted {
    selection: Selection,
    since: u64,
    limit: usize,
    follow: bool,
}

impl Wanted {
    fn read(uri: &Uri, instance: &str) -> Result<Self, ApiError> {
        let own = ["since", "limit", "follow", "instance"];
        let names = [own.as_slice(), Selection::NAMES.as_slice()].concat();
        let parameters = Parameters::only(uri, &names)?;
        // Numbers of another start of the daemon mean nothing here: begin at the beginning.
        let same = parameters
            .text("instance")
            .is_none_or(|theirs| theirs == instance);
        let since = parameters.number("since")?.filter(|_| same).unwrap_or(0);
        let limit = parameters.number("limit")?.unwrap_or(1_000).min(MAX_RECORDS);
        Ok(Self {
            selection: Selection::read(&parameters)?,
            since,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            follow: parameters.flag("follow")?,
        })
    }
}

async fn events(State(shared): Daemon, Extension(peer): Asker, uri: Uri) -> Shown {
    let feed = Arc::clone(shared.backend.feed());
    let wanted = Wanted::read(&uri, feed.instance())?;
    let scope = scope(&peer)?;
    let before = feed.next_seq() - 1;
    let selection = wanted.selection.clone();
    let past = feed.since(scope, wanted.since, wanted.limit, &|r| selection.admits(r));
    stream(&shared, scope, wanted, before, past)
}

async fn findings(State(shared): Daemon, Extension(peer): Asker, uri: Uri) -> Shown {
    let feed = Arc::clone(shared.backend.feed());
    let mut wanted = Wanted::read(&uri, feed.instance())?;
    wanted.selection.kinds.clear();
    wanted.selection.findings = true;
    let scope = scope(&peer)?;
    let before = feed.next_seq() - 1;
    let query = FindingQuery {
        since: wanted.since,
        limit: wanted.limit,
        selection: wanted.selection.clone(),
    };
    let mut past = ask(&shared, move |b| Ok(b.findings(scope, &query)?)).await?;
    past.retain(|f| scope.admits(f.uid) && wanted.selection.admits_finding(f));
    let past = past.into_iter().map(|f| Arc::new(Record::Finding(f))).collect();
    stream(&shared, scope, wanted, before, past)
}

/// Sends what is in hand up to record `before`, and then, for a follower, all that came after it.
fn stream(shared: &Arc<Shared>, scope: Scope, wanted: Wanted, before: u64, past: Vec<Arc<Record>>) -> Shown {
    let feed = shared.backend.feed();
    let hello = Record::Hello {
        instance: feed.instance().to_owned(),
        next_seq: before + 1,
    };
    let mut records = vec![Arc::new(hello)];
    let mut follower = None;
    if wanted.follow {
        records.extend(
            past.into_iter()
                .filter(|r| r.seq().is_none_or(|seq| seq <= before)),
        );
        let selection = wanted.selection;
        let from = Some(before.max(wanted.since));
        let joined = feed.follow(scope, from, Box::new(move |r| selection.admits(r)));
        follower = Some(joined.map_err(|error| ApiError::busy(error.to_string()))?);
    } else {
        records.extend(past);
    }
    let (sender, response) = lines::response();
    let (metrics, alive, stop) = (
        Arc::clone(&shared.metrics),
        shared.limits.alive,
        shared.stop.clone(),
    );
    tokio::spawn(async move {
        if lines::send_all(&sender, &records).await
            && let Some(follower) = follower
        {
            drop(records);
            lines::follow(sender, follower, metrics, alive, stop).await;
        }
    });
    Ok(response)
}

async fn on(state: Daemon, peer: Asker, uri: Uri) -> Shown {
    switch(state, peer, &uri, true).await
}

async fn off(state: Daemon, peer: Asker, uri: Uri) -> Shown {
    switch(state, peer, &uri, false).await
}

async fn switch(State(shared): Daemon, Extension(peer): Asker, uri: &Uri, enabled: bool) -> Shown {
    Parameters::only(uri, &[])?;
    ask(&shared, move |b| {
        may_write(&peer, CommandRight::Admin, b)?;
        Ok(b.set_enabled(enabled, &peer.viewer)?)
    })
    .await?;
    Ok(answer(
        StatusCode::OK,
        &json!({"schema": SCHEMA, "enabled": enabled}),
    ))
}

async fn query(
    State(shared): Daemon,
    Extension(peer): Asker,
    Segment(name): Segment<String>,
    uri: Uri,
) -> Shown {
    let parameters = Parameters::any(&uri)?;
    let scope = scope(&peer)?;
    let value = ask(&shared, move |b| {
        Ok(b.query(&name, scope, &peer.viewer, parameters.pairs())?)
    })
    .await?;
    Ok(answer(StatusCode::OK, &value))
}

async fn command(
    State(shared): Daemon,
    Extension(peer): Asker,
    Segment(name): Segment<String>,
    body: Body,
) -> Shown {
    // First the right, then the body: who may not write need not be read.
    let (asker, asked) = (Arc::clone(&peer), name.clone());
    ask(&shared, move |b| may_write(&asker, b.command_right(&asked), b)).await?;
    let body = read_json(&shared, body, shared.limits.body).await?;
    let value = ask(&shared, move |b| Ok(b.command(&name, &peer.viewer, body)?)).await?;
    Ok(answer(StatusCode::OK, &value))
}

/// Own agents only, and from inside their trees too: it is they who know.
async fn usage(State(shared): Daemon, Extension(peer): Asker, body: Body) -> Shown {
    let scope = scope(&peer)?;
    let limit = shared.limits.body.min(MAX_REPORT);
    let body = read_json(&shared, body, limit).await?;
    let value = ask(&shared, move |b| Ok(b.usage(scope, body)?)).await?;
    Ok(answer(StatusCode::OK, &value))
}

/// The caller's own model calls, from inside agents' trees too: it is they who make them.
async fn llm_calls(State(shared): Daemon, Extension(peer): Asker, headers: HeaderMap, body: Body) -> Shown {
    scope(&peer)?;
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let json = kind.is_some_and(|kind| {
        let word = kind.split(';').next().unwrap_or_default().trim();
        word.eq_ignore_ascii_case("application/json")
    });
    if !json {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(ApiError::new(
            status,
            "wrong_type",
            "the content type must be application/json",
            "send the header content-type: application/json",
        ));
    }
    // What goes beyond the caller's share need not be read.
    let asker = Arc::clone(&peer);
    ask(&shared, move |b| Ok(b.admit_report(&asker.viewer)?)).await?;
    let limit = shared.limits.body.min(MAX_CALLS);
    let body = read_body(&shared, body, limit).await?;
    let value = ask(&shared, move |b| {
        b.spend_report(&peer.viewer, body.len());
        let value = kams_detect::waste::telemetry::read_json(&body)
            .map_err(|error| ApiError::invalid(error.to_string(), "send one JSON object"))?;
        Ok(b.llm_calls(&peer.viewer, value)?)
    })
    .await?;
    Ok(answer(StatusCode::OK, &value))
}

async fn read_json(shared: &Shared, body: Body, limit: usize) -> Result<Value, ApiError> {
    match read_body(shared, body, limit).await?.as_ref() {
        [] => Ok(Value::Null),
        bytes => serde_json::from_slice(bytes).map_err(|error| {
            ApiError::invalid(format!("the body is no JSON: {error}"), "send one JSON value")
        }),
    }
}

async fn read_body(shared: &Shared, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let whole = Limited::new(body, limit).collect();
    match tokio::time::timeout(shared.limits.answer, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body is larger than {limit} bytes"),
            "send less at a time",
        )),
        Ok(Err(error)) => Err(ApiError::invalid(
            format!("the body cannot be read: {error}"),
            "send it again",
        )),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            "the body did not arrive in time",
            "send it at once",
        )),
    }
}
