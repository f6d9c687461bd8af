//! A body of JSON lines that a task writes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Frame;
use kams_export::jsonl;
use kams_export::metrics::Metrics;
use kams_export::view::Record;
use tokio::sync::{mpsc, watch};

use super::feed::{Follower, Next};

/// Bytes after which a chunk is handed over even when more records wait.
const CHUNK: usize = 64 * 1024;

/// A response of JSON lines with the sender for its chunks. The sender waits while the reader is slow.
pub(super) fn response() -> (mpsc::Sender<Bytes>, Response) {
    // One chunk in flight, one waiting: what a slow reader leaves standing stays in the follower's queue,
    // where it is counted.
    let (sender, receiver) = mpsc::channel(1);
    let mut response = Response::new(Body::new(Lines(receiver)));
    let kind = HeaderValue::from_static("application/jsonl");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    (sender, response)
}

struct Lines(mpsc::Receiver<Bytes>);

impl axum::body::HttpBody for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(cx)
            .map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Appends one record. A record that cannot be serialised is left out: none can be.
pub(super) fn push(chunk: &mut Vec<u8>, record: &Record) {
    if let Ok(line) = jsonl::line(record) {
        chunk.extend_from_slice(&line);
    }
}

/// Sends records in chunks; false once the reader is gone.
pub(super) async fn send_all(sender: &mpsc::Sender<Bytes>, records: &[Arc<Record>]) -> bool {
    let mut chunk = Vec::new();
    for record in records {
        push(&mut chunk, record);
        if chunk.len() >= CHUNK && sender.send(std::mem::take(&mut chunk).into()).await.is_err() {
            return false;
        }
    }
    chunk.is_empty() || sender.send(chunk.into()).await.is_ok()
}

/// Passes a follower's records on until the reader goes or the daemon stops.
pub(super) async fn follow(
    sender: mpsc::Sender<Bytes>,
    mut follower: Follower,
    metrics: Arc<Metrics>,
    alive: Duration,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let mut chunk = Vec::new();
        tokio::select! {
            next = follower.next() => take(&mut chunk, &next, &metrics),
            () = tokio::time::sleep(alive) => push(&mut chunk, &Record::Alive),
            () = sender.closed() => return,
            _ = stop.wait_for(|stop| *stop) => return,
        }
        while chunk.len() < CHUNK
            && let Some(next) = follower.try_next()
        {
            take(&mut chunk, &next, &metrics);
        }
        let sent = tokio::select! {
            sent = sender.send(chunk.into()) => sent.is_ok(),
            _ = stop.wait_for(|stop| *stop) => false,
        };
        if !sent {
            return;
        }
    }
}

fn take(chunk: &mut Vec<u8>, next: &Next, metrics: &Metrics) {
    match next {
        Next::Record(record) => push(chunk, record),
        Next::Missed(count) => {
            metrics.follower_missed(*count);
            push(chunk, &Record::Missed { count: *count });
        }
    }
}
