//! Program names and option lists: the small facts about command lines that every launcher needs.

/// The last path component.
pub(super) fn base_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// A program's family: `python3.11` is `python`, `nodejs` is `node`, `npx-cli.js` is `npx`.
pub(super) fn family(program: &str) -> &str {
    let name = base_name(program);
    let name = name.strip_prefix('-').unwrap_or(name); // a login shell's argv[0]
    for prefix in ["python", "pypy", "pip", "ruby", "perl", "php", "lua"] {
        if let Some(rest) = name.strip_prefix(prefix)
            && rest
                .bytes()
                .all(|b| b.is_ascii_digit() || b == b'.' || b == b't' || b == b'-')
        {
            return if prefix == "pypy" { "python" } else { prefix };
        }
    }
    match name {
        "nodejs" | "node.exe" => "node",
        "npx-cli.js" | "npx.js" => "npx",
        "npm-cli.js" | "npm.js" => "npm",
        "pnpm.cjs" | "pnpm.js" | "pnpm.mjs" => "pnpm",
        "pnpx" | "pnpx.cjs" => "pnpx",
        "yarn.js" | "yarn.cjs" | "yarnpkg" => "yarn",
        "bun.exe" => "bun",
        other => other,
    }
}

/// Shells that take `-c TEXT` or a script file.
pub(super) fn is_shell(family: &str) -> bool {
    matches!(
        family,
        "sh" | "bash" | "dash" | "zsh" | "ash" | "ksh" | "mksh" | "fish" | "busybox"
    )
}

/// Names that stand for no program of their own.
pub(super) fn is_generic_program(name: &str) -> bool {
    let family = family(name);
    is_shell(family)
        || matches!(
            family,
            "python"
                | "node"
                | "bun"
                | "deno"
                | "ruby"
                | "perl"
                | "php"
                | "lua"
                | "java"
                | "dotnet"
                | "electron"
                | "env"
                | "sudo"
                | "npm"
                | "npx"
                | "pnpm"
                | "yarn"
                | "bunx"
                | "uv"
                | "uvx"
                | "pipx"
                | "docker"
                | "podman"
                | "nerdctl"
                | "go"
                | "cargo"
                | "git"
                | "unknown"
        )
}

/// Skips leading options and returns the rest, starting at the first positional word. `with_value` names the
/// options whose value is the next word; `--name=value` is one word. Stops after `--`.
pub(super) fn skip_options<'a>(words: &'a [String], with_value: &[&str]) -> &'a [String] {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if word == "--" {
            at += 1;
            break;
        }
        if !word.starts_with('-') || word == "-" {
            break;
        }
        at += if with_value.contains(&word.as_str()) { 2 } else { 1 };
    }
    words.get(at..).unwrap_or_default()
}

/// The first value of any of these options among the leading options (before the first positional word).
pub(super) fn option_value<'a>(words: &'a [String], names: &[&str], with_value: &[&str]) -> Option<&'a str> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if word == "--" || !word.starts_with('-') {
            return None;
        }
        if names.contains(&word.as_str()) {
            return words.get(at + 1).map(String::as_str);
        }
        if let Some((name, value)) = word.split_once('=')
            && names.contains(&name)
        {
            return Some(value);
        }
        at += if with_value.contains(&word.as_str()) { 2 } else { 1 };
    }
    None
}

/// A path made absolute against `cwd`, `~` and `$HOME` against `home`, without `.`, `..` and doubled slashes.
/// Lexical: a symbolic link before `..` is not followed.
pub(super) fn absolute(path: &str, cwd: &str, home: &str) -> String {
    let full = match path.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None if path.starts_with('/') => path.to_owned(),
        None => format!("{cwd}/{path}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in full.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Whether a word ends in one of these extensions. Interpreters tell case apart, and so does this.
pub(super) fn has_extension(word: &str, extensions: &[&str]) -> bool {
    word.rsplit_once('.')
        .is_some_and(|(_, extension)| extensions.contains(&extension))
}

/// The directory part of an absolute path.
pub(super) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((dir, _)) => dir,
    }
}

/// Whether a word names something on disk and not in a registry.
pub(super) fn looks_like_path(word: &str) -> bool {
    word == "."
        || word == ".."
        || word.starts_with('/')
        || word.starts_with("./")
        || word.starts_with("../")
        || word.starts_with("~/")
}
