//! Package specifications as launchers take them, and what is kept of each.

use super::{IdentityKind, ServerIdentity, python};

/// A version is kept when it is one, not a range or a moving tag.
fn exact(version: &str) -> Option<&str> {
    let version = version.trim();
    let digits = version.strip_prefix('v').unwrap_or(version);
    let fits = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_' | '!'))
        && !digits.split('.').any(|part| part == "x" || part == "X");
    fits.then_some(version)
}

/// An npm specification: `pkg`, `@scope/pkg@1.2.3`, `alias@npm:pkg@1`, `github:owner/repo`, `git+https://...`.
pub(super) fn npm(spec: &str) -> ServerIdentity {
    if let Some(remote) = remote(spec) {
        return remote;
    }
    let body_at = usize::from(spec.starts_with('@'));
    let (name, version) = match spec.get(body_at..).and_then(|body| body.find('@')) {
        Some(at) => (
            spec.get(..at + body_at).unwrap_or(spec),
            spec.get(at + body_at + 1..),
        ),
        None => (spec, None),
    };
    if let Some(real) = version.and_then(|v| v.strip_prefix("npm:")) {
        return npm(real);
    }
    if let Some(remote) = version.and_then(remote) {
        return remote;
    }
    // The shorthand `owner/repo` means a repository at the default forge.
    if !name.starts_with('@') && name.matches('/').count() == 1 {
        let (name, reference) = name.split_once('#').unwrap_or((name, ""));
        return ServerIdentity::new(IdentityKind::Git, &format!("github.com/{name}"), exact(reference));
    }
    ServerIdentity::new(IdentityKind::Npm, name, version.and_then(exact))
}

/// A Python requirement: `pkg`, `pkg@1.2`, `pkg==1.2`, `pkg[extra]>=1`, `pkg @ git+https://...`.
pub(super) fn pypi(spec: &str) -> ServerIdentity {
    let spec = spec.split(';').next().unwrap_or(spec).trim();
    if let Some(remote) = remote(spec) {
        return remote;
    }
    let name_end = spec
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
        .unwrap_or(spec.len());
    let (name, rest) = spec.split_at_checked(name_end).unwrap_or((spec, ""));
    let rest = match rest.strip_prefix('[') {
        Some(extras) => extras.split_once(']').map_or("", |(_, rest)| rest),
        None => rest,
    };
    let rest = rest.trim();
    if let Some(target) = rest.strip_prefix('@') {
        if let Some(remote) = remote(target.trim()) {
            return remote;
        }
        return ServerIdentity::new(IdentityKind::Pypi, &python::normalise(name), exact(target));
    }
    let version = rest
        .strip_prefix("===")
        .or_else(|| rest.strip_prefix("=="))
        .and_then(exact);
    ServerIdentity::new(IdentityKind::Pypi, &python::normalise(name), version)
}

/// A container image: registry of the default hub left out, tag or digest as version.
pub(super) fn oci(image: &str) -> ServerIdentity {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last_slash = name.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match name.get(last_slash..).and_then(|last| last.find(':')) {
        Some(at) => (
            name.get(..last_slash + at).unwrap_or(name),
            name.get(last_slash + at + 1..),
        ),
        None => (name, None),
    };
    let name = ["docker.io/", "index.docker.io/"]
        .iter()
        .find_map(|hub| name.strip_prefix(hub))
        .unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    ServerIdentity::new(
        IdentityKind::Oci,
        name,
        digest.or(tag).filter(|tag| *tag != "latest"),
    )
}

/// A Go package argument `path@version`.
pub(super) fn go(spec: &str) -> ServerIdentity {
    let (path, version) = spec.split_once('@').unwrap_or((spec, ""));
    ServerIdentity::new(IdentityKind::Go, path, exact(version))
}

/// A registry package named `name@version` (JSR, NuGet); a leading `@scope` is kept.
pub(super) fn at_version(kind: IdentityKind, spec: &str) -> ServerIdentity {
    let body_at = usize::from(spec.starts_with('@'));
    match spec.get(body_at..).and_then(|body| body.find('@')) {
        Some(at) => ServerIdentity::new(
            kind,
            spec.get(..body_at + at).unwrap_or(spec),
            spec.get(body_at + at + 1..).and_then(exact),
        ),
        None => ServerIdentity::new(kind, spec, None),
    }
}

/// A repository or web address, or none when the specification names a registry package.
pub(super) fn remote(spec: &str) -> Option<ServerIdentity> {
    for (prefix, host) in [
        ("github:", "github.com"),
        ("gitlab:", "gitlab.com"),
        ("bitbucket:", "bitbucket.org"),
    ] {
        if let Some(path) = spec.strip_prefix(prefix) {
            let (path, reference) = path.split_once('#').unwrap_or((path, ""));
            return Some(git(host, path, reference));
        }
    }
    let (scheme, rest) = spec.split_once("://")?;
    let is_git = scheme.starts_with("git+") || matches!(scheme, "git" | "ssh");
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let rest = rest.split('?').next().unwrap_or(rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Everything before the last `@` of the authority is user information, a token as often as not.
    let host = authority.rsplit('@').next().unwrap_or(authority);
    if is_git || path.contains(".git") {
        let (path, at) = match path.rsplit_once('@') {
            Some((path, at)) => (path, at),
            None => (path, ""),
        };
        let reference = if at.is_empty() { fragment } else { at };
        return Some(git(host, path, reference));
    }
    if !matches!(scheme, "http" | "https") {
        return None;
    }
    Some(ServerIdentity::new(
        IdentityKind::Url,
        format!("{host}/{path}").trim_end_matches('/'),
        None,
    ))
}

fn git(host: &str, path: &str, reference: &str) -> ServerIdentity {
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    // A fragment may carry key=value pairs (subdirectory=..., egg=...); only a plain reference is a version.
    let reference = (!reference.contains('=')).then_some(reference);
    ServerIdentity::new(IdentityKind::Git, &format!("{host}/{path}"), reference)
}
