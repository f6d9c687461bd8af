//! Talking to kamsd.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::CliError;
use crate::admin::ApiError;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a stream may be silent: three times what kamsd lets pass.
const SILENCE: Duration = Duration::from_secs(35);

/// Largest answer, and longest line of a stream, in bytes.
const MAX_ANSWER: usize = 256 << 20;
const MAX_LINE: usize = 16 << 20;

/// Where kamsd is.
#[derive(Clone, Debug)]
pub(super) struct Client {
    socket: PathBuf,
}

impl Client {
    pub(super) fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
        }
    }

    /// Asks, and reads the answer as JSON.
    pub(super) async fn get<T: DeserializeOwned>(&self, route: &str) -> Result<T, CliError> {
        self.whole(Method::GET, route).await
    }

    /// Orders, and reads the answer as JSON.
    pub(super) async fn post<T: DeserializeOwned>(&self, route: &str) -> Result<T, CliError> {
        self.whole(Method::POST, route).await
    }

    async fn whole<T: DeserializeOwned>(&self, method: Method, route: &str) -> Result<T, CliError> {
        let whole = async {
            let (response, _connection) = self.send(method, route).await?;
            collect(response).await
        };
        let bytes = in_time(ANSWER, whole).await?;
        serde_json::from_slice(&bytes).map_err(|error| CliError::Answer {
            why: error.to_string(),
        })
    }

    /// Opens a stream of JSON lines.
    pub(super) async fn lines(&self, route: &str) -> Result<Lines, CliError> {
        let (response, connection) = in_time(ANSWER, self.send(Method::GET, route)).await?;
        Ok(Lines {
            body: response.into_body(),
            buffer: Vec::new(),
            scanned: 0,
            _connection: connection,
        })
    }

    async fn send(&self, method: Method, route: &str) -> Result<(Response<Incoming>, Connection), CliError> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| self.no_connection(source))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(CliError::lost)?;
        let connection = Connection(tokio::spawn(async move {
            // What went wrong shows at the response as well.
            if let Err(error) = connection.await {
                tracing::trace!(%error, "connection to kamsd ended");
            }
        }));
        let request = Request::builder()
            .method(method)
            .uri(route)
            .header("host", "kams");
        let request = request.body(Full::new(Bytes::new())).map_err(CliError::lost)?;
        let response = sender.send_request(request).await.map_err(CliError::lost)?;
        if response.status() == StatusCode::OK {
            return Ok((response, connection));
        }
        let status = response.status();
        let body = collect(response).await?;
        match serde_json::from_slice::<ApiError>(&body) {
            Ok(error) => Err(CliError::Refused(error)),
            Err(_) => Err(CliError::Answer {
                why: format!("status {status} without a reason"),
            }),
        }
    }

    fn no_connection(&self, source: io::Error) -> CliError {
        let socket = self.socket.clone();
        match source.kind() {
            io::ErrorKind::PermissionDenied => CliError::NoAccess { socket, source },
            _ => CliError::NotRunning { socket, source },
        }
    }
}

/// Ends the connection when nobody needs it any more.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(CliError::lost(format!("no answer within {} s", limit.as_secs()))),
    }
}

async fn collect(response: Response<Incoming>) -> Result<Bytes, CliError> {
    let limited = http_body_util::Limited::new(response.into_body(), MAX_ANSWER);
    Ok(limited.collect().await.map_err(CliError::lost)?.to_bytes())
}

/// A stream of lines.
pub(super) struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    scanned: usize,
    _connection: Connection,
}

impl Lines {
    /// The next line without its newline; none at an orderly end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, CliError> {
        loop {
            let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|b| *b == b'\n') {
                let tail = self.buffer.split_off(self.scanned + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, tail);
                line.pop();
                self.scanned = 0;
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.scanned > MAX_LINE {
                return Err(CliError::Answer {
                    why: "a line is too long".to_owned(),
                });
            }
            let frame = async { Ok(self.body.frame().await) };
            match in_time(SILENCE, frame).await? {
                None => return Ok(None),
                Some(Err(error)) => return Err(CliError::lost(error)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }

    /// Whether a whole line is already here.
    pub(super) fn has_more(&self) -> bool {
        self.buffer.contains(&b'\n')
    }
}
