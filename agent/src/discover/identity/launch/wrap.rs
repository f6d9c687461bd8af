//! Shells, version managers, and programs that run their arguments.

use super::{MAX_DEPTH, Resolved, Resolver};
use crate::discover::identity::words::{family, skip_options};
use crate::discover::identity::{IdentityKind, script, shell};

impl Resolver<'_> {
    /// A version manager's stand-in for a program: `.pyenv/shims/python`.
    pub(super) fn shim(&self, program: &str, args: &[String], depth: usize) -> Option<Resolved> {
        let path = if program.contains('/') {
            self.path(program)
        } else {
            return None;
        };
        let (dir, name) = path.rsplit_once('/')?;
        let managed = dir.ends_with("/shims") || dir.ends_with("/.volta/bin");
        if !managed || name.is_empty() {
            return None;
        }
        let words: Vec<String> = std::iter::once(name.to_owned())
            .chain(args.iter().cloned())
            .collect();
        Some(Self::through("shim", self.resolve(name, &words, depth + 1)))
    }

    pub(super) fn env(&self, args: &[String], depth: usize) -> Resolved {
        let mut at = 0;
        while let Some(word) = args.get(at) {
            match word.as_str() {
                "-u" | "--unset" | "-C" | "--chdir" => at += 2,
                "-S" | "--split-string" => {
                    let mut words: Vec<String> = args
                        .get(at + 1)
                        .map_or("", String::as_str)
                        .split_whitespace()
                        .map(str::to_owned)
                        .collect();
                    words.extend(args.get(at + 2..).unwrap_or_default().iter().cloned());
                    return Self::through("env", self.env(&words, depth + 1));
                }
                word if word.starts_with('-') || word.contains('=') => at += 1,
                _ => break,
            }
            if at > args.len() || depth >= MAX_DEPTH {
                break;
            }
        }
        let rest = args.get(at..).unwrap_or_default();
        match rest.first() {
            Some(inner) => Self::through("env", self.resolve(inner, rest, depth + 1)),
            None => Self::plain(IdentityKind::Bin, "env"),
        }
    }

    /// Tools whose `exec` or `run` starts another program, with or without `--` before it.
    pub(super) fn exec_tool(&self, name: &str, args: &[String], depth: usize) -> Resolved {
        const VALUES: [&str; 9] = [
            "-f",
            "--env-file",
            "-p",
            "--project",
            "-c",
            "--config",
            "--using",
            "-e",
            "--env",
        ];
        let after_dashes = args
            .iter()
            .position(|word| word == "--")
            .and_then(|at| args.get(at + 1..));
        let rest = match (after_dashes, args.split_first()) {
            (Some(rest), _) => rest,
            (None, Some((verb, rest))) if matches!(verb.as_str(), "exec" | "x" | "run") => {
                let rest = skip_options(rest, &VALUES);
                // direnv takes the directory first; mise takes tool@version words.
                let own = if name == "direnv" {
                    1
                } else {
                    rest.iter()
                        .take_while(|word| name == "mise" && word.contains('@'))
                        .count()
                };
                rest.get(own..).unwrap_or_default()
            }
            _ => &[],
        };
        match rest.first() {
            Some(inner) => Self::through("wrapper", self.resolve(inner, rest, depth + 1)),
            None => Self::plain(IdentityKind::Bin, name),
        }
    }

    pub(super) fn shell(&self, name: &str, args: &[String], depth: usize) -> Resolved {
        let args = if name == "busybox" {
            args.get(1..).unwrap_or_default()
        } else {
            args
        };
        let mut at = 0;
        while let Some(word) = args.get(at) {
            if word == "--" || word == "-" {
                at += 1;
                break;
            }
            if !word.starts_with('-') && !word.starts_with('+') {
                break;
            }
            at += 1;
            if !word.starts_with("--") && word.contains('c') {
                let rest = skip_options(args.get(at..).unwrap_or_default(), &["-o", "-O"]);
                let Some((text, positional)) = rest.split_first() else {
                    break;
                };
                return self.text(name, text, positional, depth);
            }
            if matches!(
                word.as_str(),
                "-o" | "-O" | "+o" | "+O" | "--rcfile" | "--init-file"
            ) {
                at += 1;
            }
        }
        let rest = args.get(at..).unwrap_or_default();
        let Some(file) = rest.first() else {
            return Self::plain(IdentityKind::Bin, name);
        };
        if let Some(shimmed) = self.shim(file, rest.get(1..).unwrap_or_default(), depth) {
            return shimmed;
        }
        // Version managers are shell scripts themselves: `bash .../libexec/pyenv exec python ...`.
        let tool = family(file);
        if matches!(tool, "pyenv" | "nodenv" | "rbenv" | "asdf" | "nvm-exec")
            || tool.starts_with("pyenv-exec")
        {
            let words = rest.get(1..).unwrap_or_default();
            if tool.starts_with("pyenv-exec") {
                if let Some(inner) = words.first() {
                    return Self::through("shim", self.resolve(inner, words, depth + 1));
                }
            } else {
                return Self::through("shim", self.exec_tool(tool, words, depth + 1));
            }
        }
        Self::via(
            "sh",
            script::identify(&self.path(file), "sh", self.home, self.look),
        )
    }

    pub(super) fn text(&self, name: &str, text: &str, positional: &[String], depth: usize) -> Resolved {
        let unknown = || Self::through("sh", Self::inline(name, text));
        let Some(command) = shell::main_command(text, positional, self.home) else {
            return unknown();
        };
        let cwd = match &command.cwd {
            Some(dir) if dir.contains(shell::UNKNOWN) => return unknown(),
            Some(dir) => self.path(dir),
            None => self.cwd.to_owned(),
        };
        let Some(program) = command.words.first() else {
            return unknown();
        };
        let inner = Resolver { cwd: &cwd, ..*self };
        let found = inner.resolve(program, &command.words, depth + 1);
        // An unknown part was cleaned to `?`; a name that depends on it is no name.
        if found.identity.name.contains('?') && command.words.iter().any(|word| word.contains(shell::UNKNOWN))
        {
            return unknown();
        }
        Self::through("sh", found)
    }
}
