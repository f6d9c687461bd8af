//! One level of launcher after another, until the program that serves.

mod container;
mod node;
mod python;
mod wrap;

use sha2::{Digest, Sha256};

use super::words::{
    absolute, base_name, family, has_extension, is_shell, looks_like_path, option_value, skip_options,
};
use super::{IdentityKind, Look, ServerIdentity, package, script};

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
    let python = family(exe) == "python" && family(argv0) == "python";
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
            "docker" | "podman" | "nerdctl" => container::docker(name, args),
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
                    Some(word) if name != "dotnet" || has_extension(word, &["dll"]) => Resolved {
                        identity: self.file(word),
                        launcher: None,
                    },
                    _ => Self::plain(IdentityKind::Bin, name),
                }
            }
            "tsx" | "ts-node" | "ts-node-esm" | "nodemon" | "esno" => self.runner(args),
            "mcp" | "fastmcp" => self
                .mcp_cli(args)
                .unwrap_or_else(|| self.executable(program, depth)),
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
                self.executable(program, depth)
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
    fn executable(&self, program: &str, depth: usize) -> Resolved {
        if !program.contains('/') {
            return Self::plain(IdentityKind::Bin, program);
        }
        let path = self.path(program);
        // What a launcher names may be a script with a `#!` line; what the kernel runs never is.
        if depth > 0
            && let Some(line) = self.look.read(&path, 256).filter(|text| text.starts_with("#!"))
        {
            let interpreter = if line.contains("python") || line.contains("exec'") {
                "python"
            } else {
                "sh"
            };
            return Resolved {
                identity: script::identify(&path, interpreter, self.home, self.look),
                launcher: None,
            };
        }
        let real = self.look.real_path(&path);
        Resolved {
            identity: script::executable(real.as_deref().unwrap_or(&path), self.look),
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
            Some(target) if looks_like_path(target) || has_extension(target, &["go"]) => {
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

    fn inline(interpreter: &str, text: &str) -> Resolved {
        let digest = Sha256::digest(text.as_bytes());
        let start: [u8; 8] = std::array::from_fn(|at| digest[at]);
        let hash = format!("{:016x}", u64::from_be_bytes(start));
        Self::plain(IdentityKind::Inline, &format!("{interpreter}-{hash}"))
    }
}
