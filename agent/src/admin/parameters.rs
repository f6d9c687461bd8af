//! Query parameters: read strictly, so that a mistyped filter is an error and not "no filter".

use axum::extract::Query;
use axum::http::Uri;

use super::ApiError;

/// Decoded pairs of a query.
#[derive(Debug)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Decodes the query of `uri`.
    pub(super) fn any(uri: &Uri) -> Result<Self, ApiError> {
        match Query::<Vec<(String, String)>>::try_from_uri(uri) {
            Ok(Query(pairs)) => Ok(Self(pairs)),
            Err(error) => Err(ApiError::invalid(
                format!("the query cannot be read: {error}"),
                "write it as name=value&name=value, percent-encoded",
            )),
        }
    }

    /// The same, with only these names, each at most once.
    pub(super) fn only(uri: &Uri, names: &[&str]) -> Result<Self, ApiError> {
        let parameters = Self::any(uri)?;
        for (index, (name, _)) in parameters.0.iter().enumerate() {
            if !names.contains(&name.as_str()) {
                let remedy = match names {
                    [] => "this route takes no parameters".to_owned(),
                    names => format!("known parameters: {}", names.join(", ")),
                };
                let shown: String = kams_export::text::visible(name).chars().take(64).collect();
                return Err(ApiError::invalid(format!("unknown parameter `{shown}`"), &remedy));
            }
            if parameters
                .0
                .iter()
                .take(index)
                .any(|(earlier, _)| earlier == name)
            {
                return Err(ApiError::invalid(
                    format!("`{name}` is given twice"),
                    "give it once",
                ));
            }
        }
        Ok(parameters)
    }

    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.text(name) {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true") => Ok(true),
            Some(_) => Err(ApiError::invalid(
                format!("`{name}` is 1 or 0"),
                "leave it out or say 1",
            )),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(ApiError::invalid(
                format!("`{name}` is a whole number"),
                "write it in digits",
            )),
        }
    }
}
