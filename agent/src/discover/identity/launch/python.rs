//! uvx and its relatives, and what Python runs.

use super::{Resolved, Resolver};
use crate::discover::identity::words::{
    base_name, family, has_extension, looks_like_path, option_value, skip_options,
};
use crate::discover::identity::{IdentityKind, ServerIdentity, package, python, script};

const UV_VALUES: [&str; 42] = [
    "--from",
    "--with",
    "-w",
    "--with-editable",
    "--with-requirements",
    "-p",
    "--python",
    "-i",
    "--index-url",
    "--index",
    "--default-index",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--directory",
    "--project",
    "--cache-dir",
    "--config-file",
    "-c",
    "--constraints",
    "--overrides",
    "--env-file",
    "--refresh-package",
    "--reinstall-package",
    "-P",
    "--upgrade-package",
    "--resolution",
    "--prerelease",
    "--keyring-provider",
    "--exclude-newer",
    "--link-mode",
    "--color",
    "--python-platform",
    "--index-strategy",
    "--allow-insecure-host",
    "--no-build-package",
    "--no-binary-package",
    "-C",
    "--config-setting",
    "--extra",
    "--group",
    "--package",
];

impl Resolver<'_> {
    pub(super) fn uvx(&self, args: &[String]) -> Resolved {
        if let Some(spec) = option_value(args, &["--from"], &UV_VALUES) {
            return Self::via("uvx", self.pypi_spec(spec));
        }
        match skip_options(args, &UV_VALUES).first() {
            Some(spec) => Self::via("uvx", self.pypi_spec(spec)),
            None => Self::plain(IdentityKind::Bin, "uvx"),
        }
    }

    pub(super) fn pypi_spec(&self, spec: &str) -> ServerIdentity {
        if looks_like_path(spec) {
            self.file(spec)
        } else {
            package::pypi(spec)
        }
    }

    pub(super) fn uv(&self, args: &[String], depth: usize) -> Resolved {
        let rest = skip_options(args, &UV_VALUES);
        let Some((verb, rest)) = rest.split_first() else {
            return Self::plain(IdentityKind::Bin, "uv");
        };
        match verb.as_str() {
            "tool" => match rest.split_first() {
                // `uv tool uvx` is what the uvx program turns itself into.
                Some((verb, rest)) if verb == "run" || verb == "uvx" => self.uvx(rest),
                _ => Self::plain(IdentityKind::Bin, "uv"),
            },
            "run" => {
                let dir = [args, rest]
                    .iter()
                    .find_map(|part| option_value(part, &["--directory", "--project"], &UV_VALUES))
                    .map(|dir| self.path(dir));
                let inner = Resolver {
                    cwd: dir.as_deref().unwrap_or(self.cwd),
                    ..*self
                };
                Self::through("uv run", inner.uv_run(rest, depth))
            }
            _ => Self::plain(IdentityKind::Bin, "uv"),
        }
    }

    pub(super) fn uv_run(&self, args: &[String], depth: usize) -> Resolved {
        if let Some(module) = option_value(args, &["-m", "--module"], &UV_VALUES) {
            let python = format!("{}/.venv/bin/python", self.cwd);
            return Self::via(
                "uv run",
                script::module(module, &python, self.cwd, self.home, self.look),
            );
        }
        let rest = skip_options(args, &UV_VALUES);
        let Some(command) = rest.first() else {
            return Self::plain(IdentityKind::Bin, "uv");
        };
        if has_extension(command, &["py"]) {
            return Self::via("uv run", self.file(command));
        }
        if package::remote(command).is_some() {
            return Self::via("uv run", package::pypi(command));
        }
        if command.contains('/') {
            return self.resolve(command, rest, depth + 1);
        }
        // A command of the project's environment, which may not have been made yet.
        let program = format!("{}/.venv/bin/{command}", self.cwd);
        match family(command) {
            "python" => self.resolve(&program, rest, depth + 1),
            "mcp" | "fastmcp" | "node" | "npx" => self.resolve(command, rest, depth + 1),
            _ if self.look.real_path(&program).is_some() => Resolved {
                identity: script::identify(&program, "python", self.home, self.look),
                launcher: None,
            },
            _ => match option_value(args, &["--with", "--from"], &UV_VALUES) {
                Some(spec) => Self::via("uv run", self.pypi_spec(spec)),
                // A project's own command nearly always carries its distribution's name.
                None => Self::via(
                    "uv run",
                    ServerIdentity::new(IdentityKind::Pypi, &python::normalise(command), None),
                ),
            },
        }
    }

    pub(super) fn pipx(args: &[String]) -> Resolved {
        const VALUES: [&str; 6] = ["--spec", "--python", "--index-url", "-i", "--pip-args", "--with"];
        if let Some(spec) = option_value(args, &["--spec"], &VALUES) {
            return Self::via("pipx", package::pypi(spec));
        }
        match skip_options(args, &VALUES).first() {
            Some(spec) => Self::via("pipx", package::pypi(spec)),
            None => Self::plain(IdentityKind::Bin, "pipx"),
        }
    }

    pub(super) fn python(&self, program: &str, args: &[String], depth: usize) -> Resolved {
        let mut at = 0;
        while let Some(word) = args.get(at) {
            let next = args.get(at + 1).map_or("", String::as_str);
            if word == "-" || !word.starts_with('-') {
                break;
            }
            if word.starts_with("--") {
                at += if word == "--check-hash-based-pycs" { 2 } else { 1 };
                continue;
            }
            at += 1;
            // Flags may stand together, and the last may take the rest of the word: `-um module`.
            for (index, flag) in word.char_indices().skip(1) {
                let rest = word.get(index + 1..).unwrap_or_default();
                let value = if rest.is_empty() { next } else { rest };
                match flag {
                    'm' if matches!(value, "mcp" | "fastmcp") => {
                        let after = args.get(at + usize::from(rest.is_empty())..).unwrap_or_default();
                        if let Some(found) = self.mcp_cli(after) {
                            return found;
                        }
                        return self.module(value, program);
                    }
                    'm' if value == "uv" => {
                        let after = args.get(at + usize::from(rest.is_empty())..).unwrap_or_default();
                        return self.uv(after, depth + 1);
                    }
                    'm' => return self.module(value, program),
                    'c' => return Self::inline("python", value),
                    'W' | 'X' => {
                        at += usize::from(rest.is_empty());
                        break;
                    }
                    _ => {}
                }
            }
        }
        let Some(file) = args.get(at).filter(|word| *word != "-") else {
            return Self::plain(IdentityKind::Bin, "python");
        };
        let rest = args.get(at + 1..).unwrap_or_default();
        // The SDK's own command line runs a file; what it is called in its environment does not matter.
        if matches!(base_name(file), "mcp" | "fastmcp")
            && let Some(found) = self.mcp_cli(rest)
        {
            return found;
        }
        if base_name(file) == "pipx" && rest.first().is_some_and(|verb| verb == "run") {
            return Self::pipx(rest.get(1..).unwrap_or_default());
        }
        let path = self.path(file);
        Resolved {
            identity: script::identify(&path, "python", self.home, self.look),
            launcher: None,
        }
    }

    pub(super) fn module(&self, module: &str, program: &str) -> Resolved {
        Resolved {
            identity: script::module(module, &self.path(program), self.cwd, self.home, self.look),
            launcher: None,
        }
    }

    /// `mcp run FILE[:object]` and `fastmcp run FILE`.
    pub(super) fn mcp_cli(&self, args: &[String]) -> Option<Resolved> {
        let (verb, rest) = args.split_first()?;
        if !matches!(verb.as_str(), "run" | "dev") {
            return None;
        }
        let target = skip_options(rest, &["-t", "--transport", "--with", "--python", "--project"]).first()?;
        let (file, _) = target
            .split_once(".py:")
            .map_or((target.clone(), ""), |(f, o)| (format!("{f}.py"), o));
        Some(Resolved {
            identity: self.file(&file),
            launcher: None,
        })
    }
}
