//! From a script or executable file to the package it belongs to.

use super::{IdentityKind, Look, ServerIdentity, python, words};

const MAX_MANIFEST: usize = 256 << 10;

/// The file that an interpreter runs. `path` is absolute; `home` is the user's.
pub(super) fn identify(path: &str, interpreter: &str, home: &str, look: &dyn Look) -> ServerIdentity {
    let real = look.real_path(path);
    let real = real.as_deref();
    // Before links are followed: `npm link` makes node_modules/PKG a link to a checkout elsewhere.
    if let Some(found) = npm(path, look).or_else(|| npm(real?, look)) {
        return found;
    }
    if words::parent(path).ends_with("/node_modules/.bin") && real.is_none_or(|real| real == path) {
        return ServerIdentity::new(IdentityKind::Bin, words::base_name(path), None);
    }
    if matches!(interpreter, "python" | "sh" | "bash" | "dash")
        && let Some(found) = python_program(path, look)
    {
        return found;
    }
    file(real.unwrap_or(path), home)
}

/// A native executable at its real path.
pub(super) fn executable(path: &str, look: &dyn Look) -> ServerIdentity {
    if let Some(mut found) = npm(path, look) {
        found.name = without_platform(&found.name).to_owned();
        return found;
    }
    ServerIdentity::new(IdentityKind::Bin, words::base_name(path), None)
}

/// A script or project directory.
pub(super) fn file(path: &str, home: &str) -> ServerIdentity {
    let home = home.trim_end_matches('/');
    let name = match path.strip_prefix(home) {
        Some(rest) if !home.is_empty() && rest.starts_with('/') => format!("~{rest}"),
        _ => path.to_owned(),
    };
    ServerIdentity::new(IdentityKind::File, &name, None)
}

/// The package whose `node_modules` folder holds the path: the innermost one, so that the store layouts of pnpm and
/// yarn come out right.
fn npm(path: &str, look: &dyn Look) -> Option<ServerIdentity> {
    let (before, inside) = path.rsplit_once("/node_modules/")?;
    let mut parts = inside.split('/');
    let first = parts
        .next()
        .filter(|part| !part.is_empty() && !part.starts_with('.'))?;
    let name = if first.starts_with('@') {
        format!("{first}/{}", parts.next()?)
    } else {
        first.to_owned()
    };
    parts.next()?; // a file inside, not the folder itself
    let version = look
        .read(
            &format!("{before}/node_modules/{name}/package.json"),
            MAX_MANIFEST,
        )
        .and_then(|text| serde_json::from_str::<Manifest>(&text).ok())
        .and_then(|manifest| manifest.version);
    Some(ServerIdentity::new(IdentityKind::Npm, &name, version.as_deref()))
}

#[derive(serde::Deserialize)]
struct Manifest {
    version: Option<String>,
}

/// Packages that ship a native program name it per platform (`pkg-linux-x64`); the user asked for `pkg`.
fn without_platform(name: &str) -> &str {
    for system in ["-linux-", "-linux_"] {
        if let Some((stem, _)) = name.rsplit_once(system)
            && !stem.is_empty()
            && !stem.ends_with('/')
        {
            return stem;
        }
    }
    name
}

fn python_program(path: &str, look: &dyn Look) -> Option<ServerIdentity> {
    // A module inside an installation: .../site-packages/PKG/server.py
    for leaf in ["/site-packages/", "/dist-packages/"] {
        if let Some((before, inside)) = path.rsplit_once(leaf) {
            let module = inside.split('/').next().unwrap_or(inside);
            let module = module.strip_suffix(".py").unwrap_or(module);
            let library = format!("{before}{}", leaf.trim_end_matches('/'));
            return Some(installed(
                &[library],
                python::Wanted::Module(module),
                module,
                look,
            ));
        }
    }
    // A console script: .../bin/NAME beside .../lib/python3.N/site-packages
    let bin = words::parent(path);
    let command = words::base_name(path);
    if words::base_name(bin) != "bin" {
        return None;
    }
    let libraries = python::libraries_beside(bin, look);
    for library in &libraries {
        if let Some(found) = python::distribution(library, python::Wanted::Command(command), look) {
            return Some(found);
        }
    }
    // Nothing visible: the tool managers name their environments after the package.
    for root in ["/uv/tools/", "/pipx/venvs/"] {
        if let Some((_, rest)) = bin.split_once(root)
            && let Some(package) = rest.split('/').next()
        {
            return Some(ServerIdentity::new(
                IdentityKind::Pypi,
                &python::normalise(package),
                None,
            ));
        }
    }
    [
        "/uv/archive-v",
        "/uv/builds-v",
        "/uv/environments-v",
        "/pipx/.cache/",
    ]
    .iter()
    .any(|cache| bin.contains(cache))
    .then(|| ServerIdentity::new(IdentityKind::Pypi, &python::normalise(command), None))
}

/// `python -m MODULE`.
pub(super) fn module(module: &str, python: &str, cwd: &str, home: &str, look: &dyn Look) -> ServerIdentity {
    let top = module.split('.').next().unwrap_or(module);
    // `-m` searches the working directory first.
    for local in [
        format!("{cwd}/{top}.py"),
        format!("{cwd}/{top}/__init__.py"),
        format!("{cwd}/{top}/__main__.py"),
    ] {
        if let Some(real) = look.real_path(&local) {
            let real = if real.ends_with("/__init__.py") || real.ends_with("/__main__.py") {
                words::parent(&real).to_owned()
            } else {
                real
            };
            return file(&real, home);
        }
    }
    let mut libraries = python::libraries_beside(words::parent(python), look);
    if libraries.is_empty()
        && let Some(real) = look.real_path(python)
    {
        libraries = python::libraries_beside(words::parent(&real), look);
    }
    installed(&libraries, python::Wanted::Module(top), top, look)
}

fn installed(
    libraries: &[String],
    wanted: python::Wanted<'_>,
    name: &str,
    look: &dyn Look,
) -> ServerIdentity {
    libraries
        .iter()
        .find_map(|library| python::distribution(library, wanted, look))
        .unwrap_or_else(|| ServerIdentity::new(IdentityKind::Pypi, &python::normalise(name), None))
}
