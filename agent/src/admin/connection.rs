//! Connections: how many, for how long, and what a stuck one may cost.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Bounds of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Connections of one user at once; root and the admin group have no such limit.
    pub per_user: usize,
    /// Connections that only root and the admin group may take, out of `connections`.
    pub reserved: usize,
    /// Time to send the head of a request.
    pub head: Duration,
    /// Time to send the rest of it and for the engine to answer.
    pub answer: Duration,
    /// How long a connection may take no byte of its answer. A follower's connection too: its terminal can be
    /// paused, but not forever.
    pub stall: Duration,
    /// Largest body of a request, in bytes.
    pub body: usize,
    /// How often a quiet stream says that it is alive.
    pub alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            per_user: 16,
            reserved: 16,
            head: Duration::from_secs(10),
            answer: Duration::from_secs(15),
            stall: Duration::from_mins(30),
            body: 16 << 20,
            alive: Duration::from_secs(10),
        }
    }
}

/// Counts open connections.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<HashMap<u32, usize>>);

impl Slots {
    /// A place for one more connection of `uid`, or none.
    pub(crate) fn take(self: &Arc<Self>, uid: u32, privileged: bool, limits: &Limits) -> Option<Slot> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = open.values().sum();
        let own = open.get(&uid).copied().unwrap_or(0);
        let free = if privileged {
            total < limits.connections
        } else {
            total < limits.connections.saturating_sub(limits.reserved) && own < limits.per_user
        };
        free.then(|| {
            *open.entry(uid).or_default() += 1;
            Slot {
                slots: Arc::clone(self),
                uid,
            }
        })
    }
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    uid: u32,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut open = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.uid);
            }
        }
    }
}

/// Serves one request on one connection.
pub(crate) async fn serve<S>(stream: S, router: Router, limits: Limits)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(Stall::new(stream, limits.stall));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(false)
        .max_headers(64)
        .max_buf_size(64 * 1024)
        .serve_connection(io, TowerToHyperService::new(router));
    if let Err(error) = connection.await {
        tracing::debug!(%error, "admin connection ended early");
    }
}

/// A stream whose writes fail after they have made no progress for a time.
struct Stall<S> {
    inner: S,
    limit: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> Stall<S> {
    fn new(inner: S, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            stuck: None,
        }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stuck = None;
            return progress;
        }
        let limit = self.limit;
        let stuck = self
            .stuck
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, progress)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
