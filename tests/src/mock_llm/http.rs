//! As much of HTTP/1.1 as the agents use against the mock: keep-alive, bodies by length or in chunks.

use std::io::{self, BufRead};

use serde_json::Value;

/// Bodies above this are refused; the largest seen is about 200 KB.
const MAX_BODY: usize = 256 << 20;

/// A request, read whole.
#[derive(Debug)]
pub struct Request {
    /// `GET`, `POST`, `HEAD`.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Body, empty where there is none.
    pub body: Vec<u8>,
}

impl Request {
    /// Reads one request; none at the end of the connection.
    pub fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_ascii_whitespace();
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default();
        let path = target.split('?').next().unwrap_or_default().to_owned();
        let mut length = 0;
        let mut chunked = false;
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let Some((name, value)) = header.split_once(':') else {
                break;
            };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = value
                    .parse()
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.eq_ignore_ascii_case("chunked");
            }
        }
        let body = if chunked {
            read_chunks(reader)?
        } else {
            read_exactly(reader, length)?
        };
        Ok(Some(Self { method, path, body }))
    }
}

fn read_exactly(reader: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    if length > MAX_BODY {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "body over the mock's limit",
        ));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim().split(';').next().unwrap_or_default(), 16)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        body.extend(read_exactly(reader, size)?);
        line.clear();
        reader.read_line(&mut line)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// An answer; server-sent events are sent as one body of known length, which every agent accepts.
#[derive(Debug)]
pub struct Response {
    status: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Response {
    /// A JSON body.
    pub fn json(value: &Value) -> Self {
        Self {
            status: "200 OK",
            content_type: "application/json",
            body: value.to_string().into_bytes(),
        }
    }

    /// Server-sent events; the event name is the value's `type`, where it has one.
    pub fn events(events: &[Value]) -> Self {
        let mut body = String::new();
        for event in events {
            if let Some(name) = event.get("type").and_then(Value::as_str) {
                body.push_str("event: ");
                body.push_str(name);
                body.push('\n');
            }
            body.push_str("data: ");
            body.push_str(&event.to_string());
            body.push_str("\n\n");
        }
        Self {
            status: "200 OK",
            content_type: "text/event-stream",
            body: body.into_bytes(),
        }
    }

    /// Nothing here.
    pub fn not_found() -> Self {
        Self {
            status: "404 Not Found",
            content_type: "application/json",
            body: b"{}".to_vec(),
        }
    }

    /// On the wire; an answer to HEAD has no body.
    pub fn bytes(&self, head: bool) -> Vec<u8> {
        let mut out = format!(
            "HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )
        .into_bytes();
        if !head {
            out.extend_from_slice(&self.body);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_two_requests_of_one_connection() {
        let wire = b"POST /v1/messages?beta=true HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}\
            POST /v1/responses HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let mut reader = wire.as_slice();
        let first = Request::read(&mut reader).unwrap().unwrap();
        assert_eq!(
            (first.path.as_str(), first.body.as_slice()),
            ("/v1/messages", b"{}".as_slice())
        );
        let second = Request::read(&mut reader).unwrap().unwrap();
        assert_eq!(
            (second.path.as_str(), second.body.as_slice()),
            ("/v1/responses", b"abcde".as_slice())
        );
        assert!(Request::read(&mut reader).unwrap().is_none());
    }
}
