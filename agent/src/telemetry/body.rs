//! From the bytes of a request to an export: encoding, form, bounds.

use std::io::Read;

use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::MultiGzDecoder;
use kams_detect::waste::telemetry::{self, Malformed, Signal};
use serde_json::Value;

/// A refusal: status, label value of `kams_telemetry_requests_total`, and what to say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) result: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, result: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            result,
            message: message.into(),
        }
    }

    pub(super) fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {limit} bytes; send less at a time");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }
}

/// How a body is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Form {
    pub(super) json: bool,
    pub(super) gzip: bool,
}

impl Form {
    /// What the headers say of it.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let word = |name: header::HeaderName| {
            let value = headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or("");
            let word = value.split(';').next().unwrap_or_default();
            word.trim().to_ascii_lowercase()
        };
        let unsupported =
            |message: &str| Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_type", message);
        let json = match word(header::CONTENT_TYPE).as_str() {
            "application/json" => true,
            "application/x-protobuf" | "application/protobuf" => false,
            "application/grpc" | "application/grpc+proto" => {
                return Err(unsupported(
                    "gRPC is not spoken here: set the protocol to http/protobuf or http/json",
                ));
            }
            _ => {
                return Err(unsupported(
                    "the content type is application/json or application/x-protobuf",
                ));
            }
        };
        let gzip = match word(header::CONTENT_ENCODING).as_str() {
            "" | "identity" => false,
            "gzip" => true,
            _ => return Err(unsupported("the content encoding is gzip or none")),
        };
        Ok(Self { json, gzip })
    }

    /// The export in a body.
    pub(super) fn read(self, signal: Signal, body: &[u8], most: usize) -> Result<Value, Refusal> {
        let unpacked;
        let plain = if self.gzip {
            unpacked = unpack(body, most)?;
            unpacked.as_slice()
        } else {
            body
        };
        let export = if self.json {
            telemetry::from_json(signal, plain)
        } else {
            telemetry::from_protobuf(signal, plain)
        };
        export.map_err(|error| match error {
            Malformed::TooMuch => Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string()),
            error => Refusal::new(StatusCode::BAD_REQUEST, "malformed", error.to_string()),
        })
    }
}

/// Unpacks at most `most` bytes; more are a bomb, and refused as soon as that is known.
fn unpack(body: &[u8], most: usize) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(body)
        .take(limit)
        .read_to_end(&mut out)
        .map_err(|_broken| {
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "malformed",
                "the body is no whole gzip stream",
            )
        })?;
    if out.len() > most {
        return Err(Refusal::too_large(most));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn form(pairs: &[(&str, &str)]) -> Result<Form, Refusal> {
        let headers = pairs.iter().map(|(name, value)| {
            (
                header::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            )
        });
        Form::of(&headers.collect())
    }

    #[test]
    fn types_and_encodings() {
        let (json, gzip) = (true, false);
        assert_eq!(
            form(&[("content-type", "Application/JSON; charset=utf-8")]),
            Ok(Form { json, gzip })
        );
        let packed = [
            ("content-type", "application/x-protobuf"),
            ("content-encoding", "gzip"),
        ];
        assert_eq!(
            form(&packed),
            Ok(Form {
                json: false,
                gzip: true
            })
        );
        for wrong in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", "application/grpc")],
            &[("content-type", "application/json"), ("content-encoding", "br")],
        ] {
            assert_eq!(
                form(wrong).unwrap_err().status,
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            );
        }
    }

    #[test]
    fn gzip_is_unpacked_up_to_the_limit_and_no_further() {
        let form = Form {
            json: true,
            gzip: true,
        };
        let read = |body: &[u8]| {
            form.read(Signal::Logs, body, 1 << 20)
                .map_err(|refusal| refusal.status)
        };
        assert!(read(&packed(b"{\"resourceLogs\": []}")).is_ok());
        // A thousandth of what it unpacks to.
        let bomb = packed(&vec![b' '; 64 << 20]);
        assert!(bomb.len() < 100_000);
        assert_eq!(read(&bomb), Err(StatusCode::PAYLOAD_TOO_LARGE));
        let whole = packed(b"{}");
        assert_eq!(read(&whole[..whole.len() - 4]), Err(StatusCode::BAD_REQUEST));
        assert_eq!(read(b"{}"), Err(StatusCode::BAD_REQUEST));
    }
}
