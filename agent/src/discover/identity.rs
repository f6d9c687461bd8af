//! What a server is called, behind whatever started it.
//!
//! The identity keys baselines, so it must come out the same at every stage of a launcher chain: `npx -y pkg@1.2`
//! and the `node .../node_modules/pkg/dist/index.js` it ends in are both `npm:pkg`. It is a name, not a proof:
//! whoever may write the user's files can take any name, and no name brings a privilege.
//!
//! Never part of it: arguments (they hold tokens), environment, user information and query of a URL.
//!
//! Forms: `npm:@scope/pkg`, `pypi:name` (normalised as PEP 503 says), `oci:image`, `git:host/owner/repo`,
//! `url:host/path`, `jsr:`, `go:`, `nuget:`, `container:name`, `bin:name` (base name of the executable),
//! `file:path` and `inline:interpreter-hash`. A `file:` path is absolute, resolved through symbolic links
//! where they can be seen, without `.` and `..`, and with the user's home written as `~`: the same for every way to
//! name the script, and the same for two users with the same checkout. An `inline:` program (`python -c`, `node -e`) is
//! known by the first 16 hex digits of the SHA-256 of its text.

mod launch;
mod package;
mod python;
mod script;
mod shell;
mod words;

use std::fmt;

use kams_detect::redact::{betrays, shown};

pub use launch::{Launch, Resolved, identify};
pub use python::normalise as normalise_pypi;

/// Longest name kept, in characters; a longer one is cut.
pub const MAX_NAME: usize = 256;

/// Where a server's program comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum IdentityKind {
    /// A package of the npm registry, or one installed under `node_modules`.
    Npm,
    /// A Python distribution.
    Pypi,
    /// A container image.
    Oci,
    /// A source repository that a launcher builds from.
    Git,
    /// A program loaded from a web address.
    Url,
    /// A package of the JSR registry.
    Jsr,
    /// A Go module path.
    Go,
    /// A NuGet package.
    Nuget,
    /// A running container, entered by name.
    Container,
    /// A script or project on disk.
    File,
    /// An executable.
    Bin,
    /// A program given on the command line itself.
    Inline,
}

impl IdentityKind {
    const ALL: [Self; 12] = [
        Self::Npm,
        Self::Pypi,
        Self::Oci,
        Self::Git,
        Self::Url,
        Self::Jsr,
        Self::Go,
        Self::Nuget,
        Self::Container,
        Self::File,
        Self::Bin,
        Self::Inline,
    ];

    /// The prefix of the rendered form.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
            Self::Oci => "oci",
            Self::Git => "git",
            Self::Url => "url",
            Self::Jsr => "jsr",
            Self::Go => "go",
            Self::Nuget => "nuget",
            Self::Container => "container",
            Self::File => "file",
            Self::Bin => "bin",
            Self::Inline => "inline",
        }
    }

    /// How much the kind says about the program: 3 a package, 2 a file, 1 an executable's name, 0 inline text.
    pub const fn weight(self) -> u8 {
        match self {
            Self::File => 2,
            Self::Bin => 1,
            Self::Inline => 0,
            _ => 3,
        }
    }
}

/// The name of a server. Two are equal when kind and name are; compare versions apart.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    /// Where it comes from.
    pub kind: IdentityKind,
    /// The name within the kind; no control or bidirectional characters, at most [`MAX_NAME`] characters.
    pub name: String,
    /// Exact version, tag or digest, where one is known. A range or `latest` counts as unknown.
    pub version: Option<String>,
}

impl ServerIdentity {
    /// Makes an identity from parts, cleaning both.
    pub fn new(kind: IdentityKind, name: &str, version: Option<&str>) -> Self {
        let version = version.map(clean).filter(|v| !v.is_empty());
        let name = clean(name);
        // An option that the launcher's table does not know leaves its value where a package is looked for.
        let opaque = matches!(kind, IdentityKind::Npm | IdentityKind::Pypi) && betrays(&name);
        Self {
            kind,
            name: if opaque {
                "?".to_owned()
            } else {
                shown(&name).into_owned()
            },
            version: version.map(|version| shown(&version).into_owned()),
        }
    }

    /// Reads the rendered form back; none where it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, name) = text.split_once(':')?;
        let kind = IdentityKind::ALL
            .into_iter()
            .find(|kind| kind.prefix() == prefix)?;
        Some(Self {
            kind,
            name: name.to_owned(),
            version: None,
        })
    }

    /// Whether the name stands for one program. An interpreter or a shell without a script does not: learning it
    /// would make every later shell of the host a known server.
    pub fn is_specific(&self) -> bool {
        self.kind != IdentityKind::Bin || !words::is_generic_program(&self.name)
    }

    /// Whether `later`, read further down the same launcher chain, names the server at least as well.
    #[must_use]
    pub fn refined_by(&self, later: &Self) -> bool {
        later.is_specific() && (later.kind.weight() >= self.kind.weight() || !self.is_specific())
    }
}

impl PartialEq for ServerIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.name == other.name
    }
}

impl Eq for ServerIdentity {}

impl std::hash::Hash for ServerIdentity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        self.name.hash(state);
    }
}

impl fmt::Display for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.prefix(), self.name)
    }
}

/// Names come from processes we do not trust and end in terminals, logs and metric labels.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            let bidi = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
            if c.is_control() || bidi { '?' } else { c }
        })
        .take(MAX_NAME)
        .collect()
}

/// What the resolver may look at. The paths are as the process sees them; every answer may be refused.
pub trait Look {
    /// The path with symbolic links resolved, where the file exists.
    fn real_path(&self, path: &str) -> Option<String>;
    /// The text of a regular file, at most `max` bytes of it.
    fn read(&self, path: &str, max: usize) -> Option<String>;
    /// Names in a directory, at most `max`.
    fn list(&self, dir: &str, max: usize) -> Vec<String>;
}

/// Sees nothing: argv alone decides.
#[derive(Clone, Copy, Debug)]
pub struct Blind;

impl Look for Blind {
    fn real_path(&self, _: &str) -> Option<String> {
        None
    }

    fn read(&self, _: &str, _: usize) -> Option<String> {
        None
    }

    fn list(&self, _: &str, _: usize) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
