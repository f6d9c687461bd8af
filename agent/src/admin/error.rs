//! Errors as the API gives them.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::BackendError;

/// What a refused or failed request gets.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ApiError {
    #[serde(skip)]
    status: u16,
    /// Stable word for programs.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(default)]
    pub remedy: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>, remedy: &str) -> Self {
        Self {
            status: status.as_u16(),
            code: code.to_owned(),
            message: message.into(),
            remedy: remedy.to_owned(),
        }
    }

    pub(super) fn forbidden(message: impl Into<String>, remedy: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message, remedy)
    }

    pub(super) fn invalid(message: impl Into<String>, remedy: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message, remedy)
    }

    pub(super) fn busy(message: impl Into<String>) -> Self {
        let remedy = "try again in a moment; `kams doctor` shows what the daemon is busy with";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message, remedy)
    }
}

/// Where that is listed which was not found.
fn list_of(what: &str) -> &'static str {
    let lists = [
        ("run on record", "`kams runs list` shows the runs"),
        (
            "living run",
            "`kams runs list` shows the runs and which of them are live",
        ),
        ("restriction", "`kams restrictions list` shows those in force"),
        ("request for approval", "`kams approvals list` shows the requests"),
        ("exception", "`kams exceptions list` shows them"),
    ];
    lists.into_iter().find(|(name, _)| what.starts_with(name)).map_or(
        "`kams servers` and `kams tools` list what there is",
        |(_, list)| list,
    )
}

impl From<BackendError> for ApiError {
    fn from(error: BackendError) -> Self {
        let message = error.to_string();
        match error {
            BackendError::NotFound { what } => {
                Self::new(StatusCode::NOT_FOUND, "not_found", message, list_of(&what))
            }
            BackendError::Invalid { remedy, .. } => Self::invalid(message, &remedy),
            BackendError::Refused { remedy, .. } => {
                Self::new(StatusCode::CONFLICT, "refused", message, &remedy)
            }
            BackendError::TooMany { remedy, .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message, &remedy)
            }
            BackendError::Unavailable { remedy, .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message, &remedy)
            }
            BackendError::Unsupported { .. } => Self::new(
                StatusCode::NOT_IMPLEMENTED,
                "unsupported",
                message,
                "`kams status` shows the version of the daemon; upgrade it",
            ),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        json(status, &self)
    }
}

/// A JSON answer whose strings cannot act on a terminal.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let (status, body) = match kams_export::jsonl::line(value) {
        Ok(body) => (status, body),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            b"{\"code\":\"internal\"}\n".to_vec(),
        ),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
