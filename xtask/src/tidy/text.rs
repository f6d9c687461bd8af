//! What the text of one file must keep to.

/// Lines that a source file may have, its unit tests not counted.
const MAX_LINES: usize = 600;

/// Crates and folders that may hold unsafe code.
const UNSAFE: &[&str] = &["agent/host/", "sensor-abi/", "sensor-ebpf/", "tests/raw/"];

/// Host names of package registries, in pieces, so that this file does not hold them either.
const REGISTRIES: &[[&str; 3]] = &[
    ["registry", "npmjs", "org"],
    ["files", "pythonhosted", "org"],
    ["static", "crates", "io"],
    ["index", "crates", "io"],
    ["deb", "debian", "org"],
    ["static", "rust-lang", "org"],
];

/// Problems of the file with this path from the root: line and text.
pub(super) fn problems(name: &str, content: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // Seeds of the fuzzers are data: what ends them is part of what they try.
    let seed = name.contains("/fuzz/corpus/");
    let generated =
        seed || has_extension(name, "lock") || name.ends_with("-lock.json") || has_extension(name, "jsonl");
    for (number, line) in content.lines().enumerate() {
        let mut say = |what: &str| found.push((number + 1, what.to_owned()));
        if line.trim_end() != line && !generated {
            say("trailing blank");
        }
        if REGISTRIES.iter().any(|parts| line.contains(&parts.join("."))) && name != "Cargo.lock" {
            say("host name of a package registry");
        }
        if machine_path(line) {
            say("path of one machine");
        }
    }
    if !content.is_empty() && !content.ends_with('\n') && !seed {
        found.push((content.lines().count(), "no newline at the end".to_owned()));
    }
    if has_extension(name, "rs") {
        found.extend(rust(name, content));
    }
    found
}

fn has_extension(name: &str, wanted: &str) -> bool {
    std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension == wanted)
}

/// Paths that exist only where this was written.
fn machine_path(line: &str) -> bool {
    let own = crate::host::root().to_string_lossy().into_owned();
    let toolchain = ["/.", "cargo/registry"].concat();
    let work = ["/wo", "rk/"].concat();
    line.contains(&toolchain)
        || starts_path(line, &work)
        || (own.matches('/').count() > 1 && line.contains(&own))
}

/// Whether `path` stands in the line as the start of an absolute path.
fn starts_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        line.get(..at)
            .and_then(|before| before.chars().next_back())
            .is_none_or(|c| !c.is_alphanumeric() && !"}._-)".contains(c))
    })
}

fn rust(name: &str, content: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let lines: Vec<&str> = content.lines().collect();
    if name.ends_with("/mod.rs") {
        found.push((1, "mod.rs: name the file after the module".to_owned()));
    }
    let exempt = name.starts_with("tests/")
        || name.contains("/tests/")
        || name.ends_with("/tests.rs")
        || name.contains("/table");
    let code = lines
        .iter()
        .position(|line| *line == "#[cfg(test)]")
        .unwrap_or(lines.len());
    if code > MAX_LINES && !exempt {
        found.push((code, format!("{code} lines, at most {MAX_LINES} are kept")));
    }
    let may_be_unsafe = UNSAFE.iter().any(|folder| name.starts_with(folder));
    let is_root = ["src/lib.rs", "src/main.rs"]
        .iter()
        .any(|end| name.ends_with(end))
        || name.contains("/src/bin/");
    if is_root && !may_be_unsafe && !content.contains(&["#![forbid(", "unsafe_code"].concat()) {
        found.push((1, "no `forbid(unsafe_code)`".to_owned()));
    }
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        if line.starts_with("//") {
            continue;
        }
        if opens_unsafe(line) && !explained(&lines, at) {
            found.push((at + 1, "unsafe without a SAFETY reason above it".to_owned()));
        }
        if line == "#[ignore]" {
            found.push((at + 1, "an ignored test without a reason".to_owned()));
        } else if line.starts_with("#[ignore") && !line.contains("needs root") {
            found.push((
                at + 1,
                "only what needs root is ignored; `needs root: why`".to_owned(),
            ));
        }
        for word in [["TO", "DO"], ["FIX", "ME"], ["XX", "X:"]].map(|parts| parts.concat()) {
            if line.contains(&word) {
                found.push((at + 1, format!("{word}: finish it, or file an issue")));
            }
        }
    }
    found
}

fn opens_unsafe(line: &str) -> bool {
    let word = ["un", "safe"].concat();
    [" {", " impl "].iter().any(|after| {
        let wanted = format!("{word}{after}");
        line.match_indices(&wanted).any(|(at, _)| {
            let quoted = line
                .get(..at)
                .is_some_and(|before| before.matches('"').count() % 2 == 1);
            !quoted && line.get(..at).is_some_and(|before| !before.contains("//"))
        })
    })
}

/// Whether the comment or doc lines over line `at`, attributes between, or the line's own end, give a reason. A run
/// of one-line blocks may share one.
fn explained(lines: &[&str], at: usize) -> bool {
    let reason = |line: &&str| line.contains("SAFETY:") || line.contains("# Safety");
    let from = at.saturating_sub(12);
    lines.get(from..=at).is_some_and(|near| near.iter().any(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, content: &str) -> Vec<String> {
        problems(name, content)
            .into_iter()
            .map(|(line, what)| format!("{line}: {what}"))
            .collect()
    }

    #[test]
    fn clean_text_passes() {
        let clean = "//! Crate.\n#![forbid(unsafe_code)]\nfn f() {}\n";
        assert!(
            said("mcp/src/lib.rs", clean).is_empty(),
            "{:?}",
            said("mcp/src/lib.rs", clean)
        );
        assert!(said("a/src/x.rs", "let p = \"{home}/work/x\"; // a homework/x\n").is_empty());
    }

    #[test]
    fn each_rule_finds_its_offence() {
        assert_eq!(
            said("a.md", "x \ny"),
            ["1: trailing blank", "2: no newline at the end"]
        );
        assert_eq!(
            said("a.md", &format!("see {}{}\n", "/wo", "rk/x")),
            ["1: path of one machine"]
        );
        let host = ["registry", "npmjs", "org"].join(".");
        assert_eq!(
            said("package-lock.json", &format!("{host}\n")),
            ["1: host name of a package registry"]
        );
        assert_eq!(
            said("mcp/src/mod.rs", ""),
            ["1: mod.rs: name the file after the module"]
        );
        assert_eq!(said("mcp/src/lib.rs", "//! x\n"), ["1: no `forbid(unsafe_code)`"]);
        assert_eq!(
            said("mcp/src/x.rs", "#[ignore]\n"),
            ["1: an ignored test without a reason"]
        );
        assert_eq!(
            said("mcp/src/x.rs", &"\n".repeat(601)),
            ["601: 601 lines, at most 600 are kept"]
        );
        assert!(said("tests/src/x.rs", &"\n".repeat(601)).is_empty());
        let bare = ["let x = un", "safe { f() };\n"].concat();
        assert_eq!(
            said("agent/host/src/x.rs", &bare),
            ["1: unsafe without a SAFETY reason above it"]
        );
        assert!(
            said(
                "agent/host/src/x.rs",
                &format!("// SAFETY: f has no rules.\n{bare}")
            )
            .is_empty()
        );
    }
}
