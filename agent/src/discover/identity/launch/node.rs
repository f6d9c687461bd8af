//! npx and its relatives, and what JavaScript runtimes run.

use super::{Resolved, Resolver};
use crate::discover::identity::words::{family, has_extension, looks_like_path, option_value, skip_options};
use crate::discover::identity::{IdentityKind, ServerIdentity, package, script};

const NPX_VALUES: [&str; 11] = [
    "-p",
    "--package",
    "-w",
    "--workspace",
    "--registry",
    "--cache",
    "--prefix",
    "-c",
    "--call",
    "--userconfig",
    "--loglevel",
];

const NODE_VALUES: [&str; 12] = [
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
    "-C",
    "--conditions",
    "--env-file",
    "--title",
    "--inspect-port",
    "--input-type",
    "--icu-data-dir",
];

const DENO_VALUES: [&str; 9] = [
    "-c",
    "--config",
    "--import-map",
    "--lock",
    "--cert",
    "--location",
    "--seed",
    "-L",
    "--log-level",
];

impl Resolver<'_> {
    pub(super) fn npx(&self, args: &[String], depth: usize, name: &str) -> Resolved {
        let launcher = if name == "bunx" { "bunx" } else { "npx" };
        if let Some(text) = option_value(args, &["-c", "--call"], &NPX_VALUES)
            && option_value(args, &["-p", "--package"], &NPX_VALUES).is_none()
        {
            return Self::through(launcher, self.text("sh", text, &[], depth));
        }
        if let Some(spec) = option_value(args, &["-p", "--package"], &NPX_VALUES) {
            return Self::via(launcher, self.npm_spec(spec));
        }
        match skip_options(args, &NPX_VALUES).first() {
            Some(spec) => Self::via(launcher, self.npm_spec(spec)),
            None => Self::plain(IdentityKind::Bin, name),
        }
    }

    pub(super) fn npm_spec(&self, spec: &str) -> ServerIdentity {
        if looks_like_path(spec) {
            self.file(spec)
        } else {
            package::npm(spec)
        }
    }

    pub(super) fn node_manager(&self, name: &str, args: &[String], depth: usize) -> Resolved {
        let values = [&NPX_VALUES[..], &["-C", "--dir", "--cwd", "--filter", "-F"]].concat();
        let rest = skip_options(args, &values);
        let Some((verb, rest)) = rest.split_first() else {
            return Self::plain(IdentityKind::Bin, name);
        };
        match (name, verb.as_str()) {
            ("npm", "exec" | "x") | ("pnpm" | "yarn", "dlx") | ("bun", "x") => {
                // The package may be named before the verb.
                match option_value(args, &["-p", "--package"], &values) {
                    Some(spec) => Self::via("npx", self.npm_spec(spec)),
                    None => self.npx(rest, depth, "npx"),
                }
            }
            ("pnpm" | "yarn", "exec") => match skip_options(rest, &values).first() {
                Some(command) => Self::via("npx", ServerIdentity::new(IdentityKind::Bin, command, None)),
                None => Self::plain(IdentityKind::Bin, name),
            },
            ("bun", "run") => match skip_options(rest, &NODE_VALUES).first() {
                Some(file) => self.js_file(file, &[], depth),
                None => Self::plain(IdentityKind::Bin, name),
            },
            ("bun", file) if has_script_suffix(file) || looks_like_path(file) => {
                self.js_file(file, rest, depth)
            }
            ("npm" | "pnpm" | "yarn", "run" | "run-script" | "start" | "node") => {
                let dir = option_value(args, &["--prefix", "-C", "--dir", "--cwd"], &values).unwrap_or(".");
                Self::via("script", self.file(dir))
            }
            _ => Self::plain(IdentityKind::Bin, name),
        }
    }

    pub(super) fn node(&self, args: &[String], depth: usize) -> Resolved {
        if let Some(code) = option_value(args, &["-e", "--eval", "-p", "--print", "-pe"], &NODE_VALUES) {
            return Self::inline("node", code);
        }
        let rest = skip_options(args, &NODE_VALUES);
        match rest.split_first() {
            Some((file, rest)) if file != "-" => self.js_file(file, rest, depth),
            _ => Self::plain(IdentityKind::Bin, "node"),
        }
    }

    /// A JavaScript file that may itself be a launcher (npx is one).
    pub(super) fn js_file(&self, file: &str, rest: &[String], depth: usize) -> Resolved {
        let path = self.path(file);
        let real = self.look.real_path(&path);
        let launcher = [Some(path.as_str()), real.as_deref()]
            .into_iter()
            .flatten()
            .find_map(|path| {
                let name = family(path);
                let stem = name
                    .strip_suffix(".js")
                    .or_else(|| name.strip_suffix(".mjs"))
                    .unwrap_or(name);
                matches!(
                    stem,
                    "npx" | "npm" | "pnpm" | "pnpx" | "yarn" | "bunx" | "tsx" | "ts-node" | "nodemon"
                )
                .then(|| stem.to_owned())
            });
        if let Some(launcher) = launcher {
            let words: Vec<String> = std::iter::once(launcher.clone())
                .chain(rest.iter().cloned())
                .collect();
            return self.resolve(&launcher, &words, depth + 1);
        }
        // tsx names its entry `cli.mjs`; the package tells.
        let identity = script::identify(&path, "node", self.home, self.look);
        if identity.kind == IdentityKind::Npm
            && matches!(identity.name.as_str(), "tsx" | "ts-node" | "nodemon")
        {
            return self.runner(rest);
        }
        Resolved {
            identity,
            launcher: None,
        }
    }

    /// Programs that run the first file they are given.
    pub(super) fn runner(&self, args: &[String]) -> Resolved {
        let mut rest = skip_options(
            args,
            &["--tsconfig", "-r", "--import", "-P", "--project", "--exec", "-w"],
        );
        if rest.first().is_some_and(|word| word == "watch") {
            rest = skip_options(rest.get(1..).unwrap_or_default(), &[]);
        }
        match rest.first() {
            Some(file) => Self::via("runner", self.file(file)),
            None => Self::plain(IdentityKind::Bin, "node"),
        }
    }

    pub(super) fn deno(&self, args: &[String]) -> Resolved {
        let rest = skip_options(args, &DENO_VALUES);
        let (verb, rest) = rest
            .split_first()
            .map_or(("", rest), |(verb, rest)| (verb.as_str(), rest));
        let target = match verb {
            "run" | "serve" | "x" => skip_options(rest, &DENO_VALUES).first().map(String::as_str),
            "eval" => {
                return Self::inline(
                    "deno",
                    skip_options(rest, &DENO_VALUES)
                        .first()
                        .map_or("", String::as_str),
                );
            }
            "" => None,
            file if has_script_suffix(file) => Some(file),
            _ => None,
        };
        let Some(target) = target else {
            return Self::plain(IdentityKind::Bin, "deno");
        };
        let identity = if let Some(spec) = target.strip_prefix("npm:") {
            package::npm(spec.trim_start_matches('/'))
        } else if let Some(spec) = target.strip_prefix("jsr:") {
            package::at_version(IdentityKind::Jsr, spec.trim_start_matches('/'))
        } else if let Some(remote) = package::remote(target) {
            remote
        } else {
            script::identify(&self.path(target), "deno", self.home, self.look)
        };
        Resolved {
            identity,
            launcher: None,
        }
    }
}

fn has_script_suffix(word: &str) -> bool {
    has_extension(word, &["js", "mjs", "cjs", "ts", "mts", "cts", "tsx", "jsx"])
}
