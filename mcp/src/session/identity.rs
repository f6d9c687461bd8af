//! Who the two sides are, by what they say of themselves.

use std::borrow::Cow;
use std::sync::Arc;

use crate::json::{Json, JsonKind, cut, pick, string};
use crate::revision::Revision;

/// Capabilities longer than this, in canonical form, are cut.
const MAX_CAPABILITIES: usize = 16 << 10;

/// A client or server as it calls itself; each text cut to 256 bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Implementation {
    /// `name`, empty where it is absent.
    pub name: Arc<str>,
    /// `version`, empty where it is absent.
    pub version: Arc<str>,
    /// `title`
    pub title: Option<Arc<str>>,
}

impl Implementation {
    /// Reads a `clientInfo` or `serverInfo` object.
    pub fn read(info: &Json<'_>) -> Option<Self> {
        if info.kind() != JsonKind::Object {
            return None;
        }
        let [name, version, title] =
            pick(info.get(), ["name", "version", "title"]).map(|v| v.and_then(crate::meta::short));
        let empty = || Arc::from("");
        Some(Self {
            name: name.unwrap_or_else(empty),
            version: version.unwrap_or_else(empty),
            title,
        })
    }
}

/// Both sides of a session. All of it is self-reported.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Identity {
    /// The revision that is spoken: what `initialize` agreed on, or what stateless requests say.
    pub revision: Option<Revision>,
    /// The client.
    pub client: Option<Implementation>,
    /// The client's capabilities: JSON in canonical form (keys sorted, no spaces).
    pub client_capabilities: Option<Arc<str>>,
    /// The server.
    pub server: Option<Implementation>,
    /// The server's capabilities, in the same form.
    pub server_capabilities: Option<Arc<str>>,
    /// The server's instructions, cut to 256 KiB; the handshake's answer has them whole.
    pub instructions: Option<Arc<str>>,
    /// Revisions that `server/discover` offered.
    pub supported: Vec<Revision>,
    /// An `initialize` was answered: the session is not a stateless one.
    pub initialized: bool,
}

impl Identity {
    /// Takes what the `initialize` request says.
    pub(super) fn opening(&mut self, params: &str) {
        let [version, info, capabilities] = pick(params, ["protocolVersion", "clientInfo", "capabilities"]);
        if let Some(version) = version.and_then(string) {
            self.revision = Some(Revision::from_name(&version));
        }
        self.client(info, capabilities);
    }

    /// Takes what the client says of itself.
    pub(super) fn client(&mut self, info: Option<&str>, capabilities: Option<&str>) {
        if let Some(info) = info.and_then(|info| Implementation::read(&Json::checked(info))) {
            self.client = Some(info);
        }
        if let Some(capabilities) = capabilities {
            self.client_capabilities = Some(canonical(capabilities));
        }
    }

    /// Takes what the answer to `initialize` or `server/discover` says, and gives the instructions.
    pub(super) fn answer<'a>(&mut self, result: &'a str) -> Option<Cow<'a, str>> {
        let [version, info, capabilities, instructions, supported] = pick(
            result,
            [
                "protocolVersion",
                "serverInfo",
                "capabilities",
                "instructions",
                "supportedVersions",
            ],
        );
        if let Some(version) = version.and_then(string) {
            self.revision = Some(Revision::from_name(&version));
            self.initialized = true;
        }
        self.server(info);
        if let Some(capabilities) = capabilities {
            self.server_capabilities = Some(canonical(capabilities));
        }
        if let Some(supported) = supported {
            let names = Json::checked(supported);
            self.supported = names
                .elements()
                .filter_map(|v| v.as_str().map(|v| Revision::from_name(&v)))
                .take(16)
                .collect();
        }
        let instructions = instructions.and_then(string);
        if let Some(text) = &instructions {
            self.instructions = Some(Arc::from(cut(text, 256 << 10)));
        }
        instructions
    }

    /// Takes what the server says of itself.
    pub(super) fn server(&mut self, info: Option<&str>) {
        if let Some(info) = info.and_then(|info| Implementation::read(&Json::checked(info))) {
            self.server = Some(info);
        }
    }
}

/// JSON with sorted keys and no spaces, so that equal capabilities compare equal. Cut at 16 KiB.
pub(super) fn canonical(text: &str) -> Arc<str> {
    let mut out = String::new();
    write(text, 0, &mut out);
    Arc::from(cut(&out, MAX_CAPABILITIES))
}

fn write(text: &str, depth: u32, out: &mut String) {
    let value = Json::checked(text);
    if depth > 16 || out.len() > MAX_CAPABILITIES {
        return;
    }
    match value.kind() {
        JsonKind::Object => {
            let mut members: Vec<_> = value.members().collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, value)) in members.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push('"');
                out.push_str(key);
                out.push_str("\":");
                write(value, depth + 1, out);
            }
            out.push('}');
        }
        JsonKind::Array => {
            out.push('[');
            for (i, element) in value.elements().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(element.get(), depth + 1, out);
            }
            out.push(']');
        }
        _ => out.push_str(value.get()),
    }
}
