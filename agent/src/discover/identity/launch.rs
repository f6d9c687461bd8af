//! One level of launcher after another, until the program that serves.

use sha2::{Digest, Sha256};

use super::words::{absolute, base_name, family, is_shell, looks_like_path, option_value, skip_options};
use super::{IdentityKind, Look, ServerIdentity, package, python, script, shell};

/// Launchers within launchers that are followed; `sh -c "env npx ..."` is three.
const MAX_DEPTH: usize = 12;

/// What is known of a process image at exec.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Real path of the executable; empty when unknown.
    pub exe: &'a str,
    /// Arguments, the program's own name first.
    pub argv: &'a [String],
    /// Working directory, absolute.
    pub cwd: &'a str,
    /// The user's home directory, absolute.
    pub home: &'a str,
}

/// An identity, and how it was come by.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resolved {
    /// The server's name.
    pub identity: ServerIdentity,
    /// The outermost launcher, when the process read is one: another process, or a later exec, will do the serving.
    pub launcher: Option<&'static str>,
}

/// Names the server that a process is, or will start.
pub fn identify(launch: &Launch<'_>, look: &dyn Look) -> Resolved {
    let argv0 = launch.argv.first().map_or("", String::as_str);
    // npm overwrites its command line with one string for `ps`.
    if launch.argv.len() == 1 && (argv0.starts_with("npm exec ") || argv0.starts_with("npm run ")) {
        let words: Vec<String> = argv0.split_whitespace().map(str::to_owned).collect();
        return Resolver {
            cwd: launch.cwd,
            home: launch.home,
            look,
        }
        .resolve("npm", &words, 0);
    }
    let exe = launch.exe.strip_suffix(" (deleted)").unwrap_or(launch.exe);
    // One executable under many names acts by the name it is called.
    let many_names = matches!(base_name(exe), "" | "busybox" | "toybox" | "coreutils" | "bun");
    let python = family(exe) == "python";
    // A virtual environment's python is a link: argv[0] says which environment, the executable does not.
    let program = if many_names || (python && argv0.starts_with('/')) {
        argv0
    } else {
        exe
    };
    Resolver {
        cwd: launch.cwd,
        home: launch.home,
        look,
    }
    .resolve(program, launch.argv, 0)
}

struct Resolver<'a> {
    cwd: &'a str,
    home: &'a str,
    look: &'a dyn Look,
}

/// Programs that run their argument: name, options with a value, positional words of their own.
const WRAPPERS: [(&str, &[&str], usize); 22] = [
    (
        "sudo",
        &[
            "-u", "--user", "-g", "--group", "-C", "-D", "-h", "-p", "-r", "-t", "-T", "-U", "-R",
        ],
        0,
    ),
    ("doas", &["-u", "-C"], 0),
    ("nice", &["-n", "--adjustment"], 0),
    ("ionice", &["-c", "-n", "-p", "--class", "--classdata"], 0),
    ("chrt", &["-p"], 1),
    ("taskset", &["-p"], 1),
    ("timeout", &["-s", "--signal", "-k", "--kill-after"], 1),
    ("stdbuf", &["-i", "-o", "-e"], 0),
    ("unbuffer", &[], 0),
    ("nohup", &[], 0),
    ("setsid", &[], 0),
    ("time", &["-f", "-o"], 0),
    ("exec", &["-a"], 0),
    ("command", &[], 0),
    (
        "xvfb-run",
        &[
            "-n",
            "-s",
            "-e",
            "-f",
            "-p",
            "-w",
            "--server-args",
            "--server-num",
        ],
        0,
    ),
    ("dotenv", &["-f", "-e", "-p", "--file"], 0),
    ("direnv-exec", &[], 1),
    ("prlimit", &[], 0),
    ("catchsegv", &[], 0),
    ("dbus-run-session", &[], 0),
    ("firejail", &[], 0),
    ("tini", &["-p", "-e"], 0),
];

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
/// Options of `docker run` and `podman run` without a value; every other long option takes the next word.
const DOCKER_FLAGS: [&str; 22] = [
    "--interactive",
    "--tty",
    "--detach",
    "--rm",
    "--init",
    "--privileged",
    "--read-only",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--publish-all",
    "--sig-proxy",
    "--disable-content-trust",
    "--quiet",
    "--help",
    "--replace",
    "--no-hosts",
    "--no-hostname",
    "--rmi",
    "--tls-verify",
    "--env-host",
    "--http-proxy",
    "--use-api-socket",
];

impl Resolver<'_> {
    fn plain(kind: IdentityKind, name: &str) -> Resolved {
        Resolved {
            identity: ServerIdentity::new(kind, name, None),
            launcher: None,
        }
    }

    fn via(launcher: &'static str, identity: ServerIdentity) -> Resolved {
        Resolved {
            identity,
            launcher: Some(launcher),
        }
    }

    fn path(&self, word: &str) -> String {
        absolute(word, self.cwd, self.home)
    }

    fn file(&self, word: &str) -> ServerIdentity {
        let path = self.path(word);
        script::file(self.look.real_path(&path).as_deref().unwrap_or(&path), self.home)
    }

    /// `words[0]` is the program as called; `program` may say better which one it is.
    fn resolve(&self, program: &str, words: &[String], depth: usize) -> Resolved {
        let args = words.get(1..).unwrap_or_default();
        let name = family(program);
        if depth >= MAX_DEPTH {
            return Self::plain(IdentityKind::Bin, name);
        }
        if let Some(shimmed) = self.shim(program, args, depth) {
            return shimmed;
        }
        match name {
            "npx" | "pnpx" | "bunx" => self.npx(args, depth, name),
            "npm" | "pnpm" | "yarn" | "bun" => self.node_manager(name, args, depth),
            "uvx" => self.uvx(args),
            "uv" => self.uv(args, depth),
            "pipx" => match args.split_first() {
                Some((verb, rest)) if verb == "run" => Self::pipx(rest),
                _ => Self::plain(IdentityKind::Bin, "pipx"),
            },
            "python" => self.python(program, args, depth),
            "node" => self.node(args, depth),
            "deno" => self.deno(args),
            "docker" | "podman" | "nerdctl" => docker(name, args),
            "go" if args.first().is_some_and(|verb| verb == "run") => {
                self.go_run(args.get(1..).unwrap_or_default())
            }
            "dnx" => match skip_options(args, &["--source", "--version"]).first() {
                Some(spec) => Self::via("dnx", package::at_version(IdentityKind::Nuget, spec)),
                None => Self::plain(IdentityKind::Bin, name),
            },
            "java" => self.java(args),
            "dotnet" | "ruby" | "php" | "perl" | "lua" => {
                match skip_options(args, &["-r", "-I", "-c", "-d"]).first() {
                    Some(word) if name != "dotnet" || word.ends_with(".dll") => Resolved {
                        identity: self.file(word),
                        launcher: None,
                    },
                    _ => Self::plain(IdentityKind::Bin, name),
                }
            }
            "tsx" | "ts-node" | "ts-node-esm" | "nodemon" | "esno" => self.runner(args),
            "mcp" | "fastmcp" => self.mcp_cli(args).unwrap_or_else(|| self.executable(program)),
            "env" => self.env(args, depth),
            "pyenv" | "nodenv" | "rbenv" | "asdf" | "mise" | "rtx" | "volta" | "direnv" | "dotenvx"
            | "doppler" | "op" | "fnm" | "nvm-exec" | "infisical" => self.exec_tool(name, args, depth),
            _ if is_shell(name) => self.shell(name, args, depth),
            _ => {
                if let Some((_, values, own)) = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) {
                    let rest = skip_options(args, values).get(*own..).unwrap_or_default();
                    if let Some(inner) = rest.first() {
                        return Self::through("wrapper", self.resolve(inner, rest, depth + 1));
                    }
                }
                self.executable(program)
            }
        }
    }

    fn through(launcher: &'static str, inner: Resolved) -> Resolved {
        Resolved {
            launcher: Some(launcher),
            ..inner
        }
    }

    /// An executable by path, or a bare name out of another launcher's line.
    fn executable(&self, program: &str) -> Resolved {
        if !program.contains('/') {
            return Self::plain(IdentityKind::Bin, program);
        }
        let path = self.path(program);
        let real = self.look.real_path(&path);
        Resolved {
            identity: script::executable(real.as_deref().unwrap_or(&path), self.look),
            launcher: None,
        }
    }

    /// A version manager's stand-in for a program: `.pyenv/shims/python`.
    fn shim(&self, program: &str, args: &[String], depth: usize) -> Option<Resolved> {
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

    fn npx(&self, args: &[String], depth: usize, name: &str) -> Resolved {
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

    fn npm_spec(&self, spec: &str) -> ServerIdentity {
        if looks_like_path(spec) {
            self.file(spec)
        } else {
            package::npm(spec)
        }
    }

    fn node_manager(&self, name: &str, args: &[String], depth: usize) -> Resolved {
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

    fn uvx(&self, args: &[String]) -> Resolved {
        if let Some(spec) = option_value(args, &["--from"], &UV_VALUES) {
            return Self::via("uvx", self.pypi_spec(spec));
        }
        match skip_options(args, &UV_VALUES).first() {
            Some(spec) => Self::via("uvx", self.pypi_spec(spec)),
            None => Self::plain(IdentityKind::Bin, "uvx"),
        }
    }

    fn pypi_spec(&self, spec: &str) -> ServerIdentity {
        if looks_like_path(spec) {
            self.file(spec)
        } else {
            package::pypi(spec)
        }
    }

    fn uv(&self, args: &[String], depth: usize) -> Resolved {
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

    fn uv_run(&self, args: &[String], depth: usize) -> Resolved {
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
        if command.ends_with(".py") {
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

    fn pipx(args: &[String]) -> Resolved {
        const VALUES: [&str; 6] = ["--spec", "--python", "--index-url", "-i", "--pip-args", "--with"];
        if let Some(spec) = option_value(args, &["--spec"], &VALUES) {
            return Self::via("pipx", package::pypi(spec));
        }
        match skip_options(args, &VALUES).first() {
            Some(spec) => Self::via("pipx", package::pypi(spec)),
            None => Self::plain(IdentityKind::Bin, "pipx"),
        }
    }

    fn python(&self, program: &str, args: &[String], depth: usize) -> Resolved {
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

    fn module(&self, module: &str, program: &str) -> Resolved {
        Resolved {
            identity: script::module(module, &self.path(program), self.cwd, self.home, self.look),
            launcher: None,
        }
    }

    /// `mcp run FILE[:object]` and `fastmcp run FILE`.
    fn mcp_cli(&self, args: &[String]) -> Option<Resolved> {
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

    fn node(&self, args: &[String], depth: usize) -> Resolved {
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
    fn js_file(&self, file: &str, rest: &[String], depth: usize) -> Resolved {
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
    fn runner(&self, args: &[String]) -> Resolved {
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

    fn deno(&self, args: &[String]) -> Resolved {
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

    fn go_run(&self, args: &[String]) -> Resolved {
        match skip_options(
            args,
            &["-C", "-exec", "-tags", "-ldflags", "-gcflags", "-mod", "-modfile"],
        )
        .first()
        {
            Some(target) if looks_like_path(target) || target.ends_with(".go") => {
                Self::via("go run", self.file(target))
            }
            Some(target) => Self::via("go run", package::go(target)),
            None => Self::plain(IdentityKind::Bin, "go"),
        }
    }

    fn java(&self, args: &[String]) -> Resolved {
        const VALUES: [&str; 8] = [
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--add-modules",
            "--add-opens",
            "-agentpath",
        ];
        if let Some(jar) = option_value(args, &["-jar"], &VALUES) {
            return Resolved {
                identity: self.file(jar),
                launcher: None,
            };
        }
        if let Some(module) = option_value(args, &["-m", "--module"], &VALUES) {
            return Self::plain(IdentityKind::Bin, module);
        }
        match skip_options(args, &VALUES).first() {
            Some(main) => Self::plain(IdentityKind::Bin, main),
            None => Self::plain(IdentityKind::Bin, "java"),
        }
    }

    fn env(&self, args: &[String], depth: usize) -> Resolved {
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
    fn exec_tool(&self, name: &str, args: &[String], depth: usize) -> Resolved {
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

    fn shell(&self, name: &str, args: &[String], depth: usize) -> Resolved {
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

    fn text(&self, name: &str, text: &str, positional: &[String], depth: usize) -> Resolved {
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

    fn inline(interpreter: &str, text: &str) -> Resolved {
        let digest = Sha256::digest(text.as_bytes());
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self::plain(IdentityKind::Inline, &format!("{interpreter}-{hash}"))
    }
}

fn has_script_suffix(word: &str) -> bool {
    [".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx"]
        .iter()
        .any(|suffix| word.ends_with(suffix))
}

/// `docker run IMAGE`: the server runs behind a daemon, and its stdio ends at this client process.
fn docker(name: &str, args: &[String]) -> Resolved {
    let plain = || Resolver::plain(IdentityKind::Bin, name);
    let globals = [
        "-H",
        "--host",
        "-c",
        "--context",
        "--config",
        "-l",
        "--log-level",
        "--connection",
        "--url",
        "--root",
    ];
    let mut rest = skip_options(args, &globals);
    if rest.first().is_some_and(|word| word == "container") {
        rest = rest.get(1..).unwrap_or_default();
    }
    let Some((verb, rest)) = rest.split_first() else {
        return plain();
    };
    let Some(target) = docker_target(rest) else {
        return plain();
    };
    match verb.as_str() {
        "run" | "create" => Resolved {
            identity: package::oci(target),
            launcher: None,
        },
        "exec" | "start" | "attach" => Resolved {
            identity: ServerIdentity::new(IdentityKind::Container, target, None),
            launcher: None,
        },
        _ => plain(),
    }
}

fn docker_target(args: &[String]) -> Option<&str> {
    let mut at = 0;
    while let Some(word) = args.get(at) {
        if word == "--" {
            at += 1;
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            at += if long.contains('=') || DOCKER_FLAGS.contains(&word.as_str()) {
                1
            } else {
                2
            };
        } else if let Some(short) = word.strip_prefix('-') {
            // Flags without a value may stand together, and the last of a group may take one: `-itv a:b`.
            let value_at = short.find(|c: char| !matches!(c, 'i' | 't' | 'd' | 'P' | 'q'));
            let takes_next = value_at.is_some_and(|index| index + 1 == short.len());
            at += if takes_next { 2 } else { 1 };
        } else {
            break;
        }
    }
    args.get(at).map(String::as_str)
}
