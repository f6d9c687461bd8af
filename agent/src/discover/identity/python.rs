//! From an installed Python program back to the distribution it came from.

use super::{IdentityKind, Look, ServerIdentity, package, words};

/// Distributions looked at in one `site-packages`; above it only the one named like the program is tried.
const MAX_DISTRIBUTIONS: usize = 2048;
/// Metadata files read for one answer.
const MAX_READS: usize = 256;
const MAX_METADATA: usize = 64 << 10;

/// The canonical spelling of a distribution name: lower case, runs of `-`, `_` and `.` as one `-` (PEP 503).
pub fn normalise(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '-' | '_' | '.') {
            if !out.ends_with('-') {
                out.push('-');
            }
        } else {
            out.extend(c.to_lowercase());
        }
    }
    out.trim_matches('-').to_owned()
}

/// What to find in a `site-packages`.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// The console script of this name.
    Command(&'a str),
    /// The top-level module of this name.
    Module(&'a str),
}

impl Wanted<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Command(name) | Self::Module(name) => name,
        }
    }
}

/// The `site-packages` (and Debian's `dist-packages`) that belong to a directory of programs such as `venv/bin`.
pub(super) fn libraries_beside(bin_dir: &str, look: &dyn Look) -> Vec<String> {
    let prefix = words::parent(bin_dir);
    if words::base_name(bin_dir) != "bin" {
        return Vec::new();
    }
    let lib = format!("{prefix}/lib");
    let mut found: Vec<String> = look
        .list(&lib, 64)
        .into_iter()
        .filter(|name| name.starts_with("python3") || name.starts_with("pypy3"))
        .flat_map(|name| ["site-packages", "dist-packages"].map(|leaf| format!("{lib}/{name}/{leaf}")))
        .collect();
    found.sort();
    found
}

/// The distribution in `library` that provides what is wanted. A distribution installed from a repository is
/// named by it, as `uvx --from git+https://...` names it.
pub(super) fn distribution(library: &str, wanted: Wanted<'_>, look: &dyn Look) -> Option<ServerIdentity> {
    let wanted_name = normalise(wanted.name());
    let mut infos: Vec<String> = look
        .list(library, MAX_DISTRIBUTIONS * 4)
        .into_iter()
        .filter(|name| name.ends_with(".dist-info"))
        .take(MAX_DISTRIBUTIONS)
        .collect();
    // The distribution named like the program first: it is the answer nearly always.
    infos.sort_by_cached_key(|info| (split_info(info).0 != wanted_name, info.clone()));
    for info in infos.iter().take(MAX_READS) {
        let (name, version) = split_info(info);
        let dir = format!("{library}/{info}");
        let provides = match wanted {
            Wanted::Module(_) if name == wanted_name => true,
            _ => provides(&dir, wanted, look),
        };
        if provides {
            return Some(
                origin(&dir, look)
                    .unwrap_or_else(|| ServerIdentity::new(IdentityKind::Pypi, &name, Some(version))),
            );
        }
    }
    None
}

fn split_info(info: &str) -> (String, &str) {
    let stem = info.strip_suffix(".dist-info").unwrap_or(info);
    let (name, version) = stem.rsplit_once('-').unwrap_or((stem, ""));
    (normalise(name), version)
}

fn provides(dir: &str, wanted: Wanted<'_>, look: &dyn Look) -> bool {
    let entry_points = look
        .read(&format!("{dir}/entry_points.txt"), MAX_METADATA)
        .unwrap_or_default();
    let mut in_scripts = false;
    for line in entry_points.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            in_scripts = line == "[console_scripts]" || line == "[gui_scripts]";
            continue;
        }
        let Some((command, target)) = line.split_once('=') else {
            continue;
        };
        let module = target.trim().split(['.', ':', ' ']).next().unwrap_or_default();
        match wanted {
            Wanted::Command(name) if in_scripts && command.trim() == name => return true,
            Wanted::Module(name) if in_scripts && module == name => return true,
            _ => {}
        }
    }
    match wanted {
        Wanted::Command(_) => false,
        Wanted::Module(name) => look
            .read(&format!("{dir}/top_level.txt"), MAX_METADATA)
            .is_some_and(|text| text.lines().any(|line| line.trim() == name)),
    }
}

/// The repository a distribution was installed from (PEP 610), where it was.
fn origin(dir: &str, look: &dyn Look) -> Option<ServerIdentity> {
    let text = look.read(&format!("{dir}/direct_url.json"), MAX_METADATA)?;
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    let vcs = json.get("vcs_info")?;
    let url = json.get("url")?.as_str()?;
    let mut identity = package::remote(&format!("git+{url}"))?;
    identity.version = vcs
        .get("requested_revision")
        .and_then(|v| v.as_str())
        .map(str::to_owned);
    Some(identity)
}
