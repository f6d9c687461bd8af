//! The Prometheus endpoint.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kams_export::metrics::{CONTENT_TYPE, Metrics};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::connection::{Limits, serve};
use super::{ApiError, Backend, BindError};

/// Connections at once.
const CONNECTIONS: usize = 32;

/// Answers that are made at once.
const RENDERING: usize = 2;

/// Serves `/metrics`.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
}

#[derive(Clone)]
struct Source {
    backend: Arc<dyn Backend>,
    metrics: Arc<Metrics>,
    rendering: Arc<Semaphore>,
}

impl MetricsServer {
    /// Binds the address; other than loopback only where `allow_remote` says so.
    pub fn bind(address: SocketAddr, allow_remote: bool) -> Result<Self, BindError> {
        if !address.ip().is_loopback() && !allow_remote {
            return Err(BindError::Remote { address });
        }
        let io = |source| BindError::Io {
            what: format!("metrics endpoint {address}"),
            source,
        };
        let listener = TcpListener::bind(address).map_err(io)?;
        listener.set_nonblocking(true).map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        Ok(Self { listener, address })
    }

    /// The address, with the port that the kernel chose where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` becomes true.
    pub async fn serve(
        self,
        backend: Arc<dyn Backend>,
        metrics: Arc<Metrics>,
        mut stop: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let limits = Limits {
            stall: Duration::from_secs(30),
            ..Limits::default()
        };
        let rendering = Arc::new(Semaphore::new(RENDERING));
        let router = Router::new()
            .route("/metrics", get(scrape))
            .fallback(nothing_here)
            .method_not_allowed_fallback(nothing_here)
            .with_state(Source {
                backend,
                metrics,
                rendering,
            });
        let mut connections = JoinSet::new();
        let mut open: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            };
            match accepted {
                // Beyond the limit the oldest gives way: whoever opens connections and says nothing would
                // keep a scraper out otherwise, and nobody knows whose they are.
                Ok((stream, _)) => {
                    open.retain(|connection| !connection.is_finished());
                    while open.len() >= CONNECTIONS {
                        if let Some(oldest) = open.pop_front() {
                            oldest.abort();
                        }
                    }
                    open.push_back(connections.spawn(serve(stream, router.clone(), limits)));
                }
                Err(error) => {
                    tracing::warn!(%error, "metrics endpoint: cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn scrape(State(source): State<Source>) -> Response {
    // Held by the work and not by the connection, which may be gone before it is done.
    let Ok(turn) = Arc::clone(&source.rendering).acquire_owned().await else {
        return failed("kamsd ends");
    };
    let text = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        source.backend.refresh_metrics();
        source.metrics.render()
    });
    match text.await {
        Ok(Ok(text)) => {
            let mut response = Response::new(Body::from(text));
            let kind = HeaderValue::from_static(CONTENT_TYPE);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Ok(Err(error)) => failed(&error.to_string()),
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(why: &str) -> Response {
    tracing::error!(error = why, "metrics cannot be rendered");
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    ApiError::new(
        status,
        "internal",
        "metrics cannot be rendered",
        "see the log of kamsd",
    )
    .into_response()
}

async fn nothing_here() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "only GET /metrics is here",
        "ask for /metrics",
    )
}
