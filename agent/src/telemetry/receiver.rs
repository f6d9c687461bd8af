//! The listener and its three routes.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt, Limited};
use kams_detect::waste::telemetry::{Signal, calls};
use kams_export::metrics::Metrics;
use kams_host::inet::{SocketOwner, peer_owner};
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::body::{Form, Refusal};
use super::quota::Quota;
use super::sender::Senders;
use crate::admin::{self, BindError};
use crate::engine::waste::Input;
use crate::engine::waste::worker::Handle;

/// Bounds of the receiver.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body as it comes, in bytes.
    pub body: usize,
    /// Largest body unpacked, in bytes.
    pub unpacked: usize,
    /// Time for a request to arrive.
    pub arrive: Duration,
    /// Connections at once, and of one user.
    pub connections: usize,
    /// Connections of one user at once.
    pub per_user: usize,
    /// Bodies read at once; the others wait their turn.
    pub reading: usize,
}

impl Limits {
    /// The bounds with these sizes.
    pub fn of(body: usize, unpacked: usize) -> Self {
        Self {
            body,
            unpacked,
            arrive: Duration::from_secs(10),
            connections: 128,
            per_user: 32,
            reading: 2,
        }
    }
}

/// The receiver, bound and not yet serving.
#[derive(Debug)]
pub struct Receiver {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

struct Shared {
    limits: Limits,
    quota: Arc<Quota>,
    senders: Arc<Senders>,
    desk: Handle,
    metrics: Arc<Metrics>,
    reading: Arc<Semaphore>,
}

type Answer = Result<Response, Refusal>;

impl Receiver {
    /// Binds a loopback address.
    pub fn bind(address: SocketAddr, limits: Limits) -> Result<Self, BindError> {
        if !address.ip().is_loopback() {
            return Err(BindError::Remote { address });
        }
        let io = |source| BindError::Io {
            what: format!("telemetry receiver {address}"),
            source,
        };
        let listener = TcpListener::bind(address).map_err(io)?;
        listener.set_nonblocking(true).map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        Ok(Self {
            listener,
            address,
            limits,
        })
    }

    /// The address, with the port that the kernel chose where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` becomes true.
    pub async fn serve(
        self,
        quota: Arc<Quota>,
        senders: Arc<Senders>,
        desk: Handle,
        metrics: Arc<Metrics>,
        mut stop: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let limits = self.limits;
        let connection = admin::Limits {
            connections: limits.connections,
            per_user: limits.per_user,
            reserved: 0,
            head: limits.arrive,
            stall: Duration::from_secs(10),
            ..admin::Limits::default()
        };
        let slots = Arc::new(admin::Slots::default());
        let shared = Arc::new(Shared {
            limits,
            quota,
            senders,
            desk,
            metrics,
            reading: Arc::new(Semaphore::new(limits.reading)),
        });
        let router = Router::new()
            .route("/v1/{signal}", post(export))
            .fallback(nothing_here)
            .method_not_allowed_fallback(no_method)
            .with_state(Arc::clone(&shared));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            };
            let (stream, theirs) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "telemetry receiver: cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let owner = stream.local_addr().and_then(|ours| peer_owner(ours, theirs));
            let Ok(owner) = owner else {
                // It is closed already, or not of this host.
                shared.metrics.telemetry_request("none", "unknown_sender");
                continue;
            };
            if let Some(slot) = slots.take(owner.uid, false, &connection) {
                let router = router.clone().layer(Extension(owner));
                connections.spawn(async move {
                    admin::serve(stream, router, connection).await;
                    drop(slot);
                });
            } else {
                shared.metrics.telemetry_request("none", "flood");
                // As far as it fits into the socket's buffer.
                let told = stream.try_write(FULL.as_bytes());
                tracing::debug!(
                    uid = owner.uid,
                    told = told.is_ok(),
                    "telemetry: too many connections"
                );
            }
        }
    }
}

/// The answer to a connection that finds no place.
const FULL: &str =
    "HTTP/1.1 429 Too Many Requests\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

async fn export(
    State(shared): State<Arc<Shared>>,
    Extension(owner): Extension<SocketOwner>,
    Path(signal): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let signals = [Signal::Logs, Signal::Traces, Signal::Metrics];
    let Some(signal) = signals.into_iter().find(|known| known.name() == signal) else {
        return nothing_here().await;
    };
    let answer = take(&shared, owner, signal, &headers, body).await;
    let result = answer.as_ref().map_or_else(|refusal| refusal.result, |_| "ok");
    shared.metrics.telemetry_request(signal.name(), result);
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn take(
    shared: &Arc<Shared>,
    owner: SocketOwner,
    signal: Signal,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    if !shared.quota.admits(owner.uid, Instant::now()) {
        let message = format!("user {} reports more than its share; try again later", owner.uid);
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "flood", message));
    }
    let form = Form::of(headers)?;
    let body = arrive(shared, headers, body).await?;
    shared.quota.spend(owner.uid, body.len(), Instant::now());
    let Ok(turn) = Arc::clone(&shared.reading).acquire_owned().await else {
        return Err(busy());
    };
    let (work, unpacked) = (Arc::clone(shared), shared.limits.unpacked);
    let read = tokio::task::spawn_blocking(move || {
        let result = enter(&work, owner, signal, form, &body, unpacked);
        drop(turn);
        result
    });
    read.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a report could not be read");
        Err(busy())
    })?;
    let (kind, answer) = if form.json {
        ("application/json", Body::from("{}"))
    } else {
        // An empty message.
        ("application/x-protobuf", Body::empty())
    };
    let mut response = Response::new(answer);
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

async fn arrive(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let limit = shared.limits.body;
    let said = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if said.is_some_and(|length| length > limit) {
        return Err(Refusal::too_large(limit));
    }
    match tokio::time::timeout(shared.limits.arrive, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal::too_large(limit)),
        Ok(Err(_)) => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "malformed",
            "the body ended early",
        )),
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "malformed",
            "the body did not arrive in time",
        )),
    }
}

/// Reads a body and hands its calls over.
fn enter(
    shared: &Shared,
    owner: SocketOwner,
    signal: Signal,
    form: Form,
    body: &[u8],
    unpacked: usize,
) -> Result<(), Refusal> {
    let export = form.read(signal, body, unpacked)?;
    let calls = calls(&export, &shared.desk.config());
    drop(export);
    if calls.is_empty() {
        return Ok(());
    }
    shared.metrics.llm_calls("otlp", calls.len() as u64);
    let claimed = calls.iter().find_map(|call| call.pid);
    let sender = shared.senders.of_socket(owner, claimed);
    if shared.desk.put(Input::Calls { sender, calls }, "otlp") {
        Ok(())
    } else {
        Err(busy())
    }
}

fn busy() -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "busy",
        "kamsd has no room for more reports just now",
    )
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"code": u16::from(self.status), "message": self.message});
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(
            self.status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

async fn nothing_here() -> Response {
    let message = "reports go to /v1/logs, /v1/traces and /v1/metrics";
    Refusal::new(StatusCode::NOT_FOUND, "nowhere", message).into_response()
}

async fn no_method() -> Response {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "nowhere",
        "reports are sent with POST",
    )
    .into_response()
}
