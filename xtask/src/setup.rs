//! `cargo xtask setup`: installs what the tests need, and nothing twice.
//!
//! Packages from npm and PyPI are pinned, with hashes, by the lock files under `tests/`, and go to `target/e2e`. A
//! stamp there remembers what was installed, so that a second run needs no network.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::host::{self, has, must, output};

/// A Debian package, the program or file that shows it is there, and what needs it.
struct Debian {
    package: &'static str,
    shown_by: Shown,
    needed_for: &'static str,
}

/// What a build needs beside Rust; `cargo xtask run` installs no more than this.
const BUILDING: &[Debian] = &[
    Debian {
        package: "gcc",
        shown_by: Shown::Program("cc"),
        needed_for: "building the bundled SQLite",
    },
    Debian {
        package: "libc6-dev",
        shown_by: Shown::Library("libm"),
        needed_for: "linking",
    },
    Debian {
        package: "libseccomp-dev",
        shown_by: Shown::Library("libseccomp"),
        needed_for: "building the relay",
    },
];

enum Shown {
    Program(&'static str),
    Library(&'static str),
    Installed,
}

const TESTING: &[Debian] = &[
    Debian {
        package: "bpftool",
        shown_by: Shown::Program("bpftool"),
        needed_for: "the test that nothing stays loaded",
    },
    Debian {
        package: "git",
        shown_by: Shown::Program("git"),
        needed_for: "tests with mcp-server-git; tidy",
    },
    Debian {
        package: "iproute2",
        shown_by: Shown::Program("ip"),
        needed_for: "agents without a network",
    },
    Debian {
        package: "python3",
        shown_by: Shown::Program("python3"),
        needed_for: "Python agents and servers",
    },
    Debian {
        package: "python3-venv",
        shown_by: Shown::Installed,
        needed_for: "Python agents and servers",
    },
    Debian {
        package: "nodejs",
        shown_by: Shown::Program("node"),
        needed_for: "Node agents and servers",
    },
    Debian {
        package: "npm",
        shown_by: Shown::Program("npm"),
        needed_for: "Node agents and servers",
    },
    Debian {
        package: "prometheus",
        shown_by: Shown::Program("promtool"),
        needed_for: "tests of the alert rules",
    },
];

/// Oldest Node.js that the packages run on.
const NODE: u32 = 20;

pub(crate) fn run() -> Result<()> {
    debian(BUILDING.iter().chain(TESTING))?;
    node()?;
    python()
}

/// What `cargo xtask run` needs before it can build.
pub(crate) fn for_building() -> Result<()> {
    debian(BUILDING.iter())
}

fn debian(wanted: impl Iterator<Item = &'static Debian>) -> Result<()> {
    let missing: Vec<_> = wanted.filter(|wanted| !wanted.present()).collect();
    if missing.is_empty() {
        println!("Debian packages: all there");
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|wanted| wanted.package).collect();
    if !host::is_root() {
        for wanted in &missing {
            println!("missing: {} ({})", wanted.package, wanted.needed_for);
        }
        bail!(
            "as root, type: apt-get install --no-install-recommends {}",
            names.join(" ")
        );
    }
    println!("Debian packages: installing {}", names.join(" "));
    must(Command::new("apt-get").args(["update", "-q"]))?;
    must(
        Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-q", "--no-install-recommends"])
            .args(names),
    )
}

impl Debian {
    fn present(&self) -> bool {
        match self.shown_by {
            Shown::Program(program) => has(program),
            // Where the compiler's linker looks for it.
            Shown::Library(name) => Command::new("cc")
                .arg(format!("-print-file-name={name}.so"))
                .output()
                .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).trim().starts_with('/')),
            // A Python that is not Debian's brings venv along.
            Shown::Installed => Command::new("python3")
                .args(["-c", "import venv, ensurepip"])
                .output()
                .is_ok_and(|o| o.status.success()),
        }
    }
}

/// The version of a Node.js that is new enough.
fn node_version() -> Result<Option<String>> {
    if !has("node") && !host::node_runtime().is_dir() {
        return Ok(None);
    }
    let version = output(host::with_node(Command::new("node").arg("--version")))?;
    let major = version
        .trim_start_matches('v')
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    Ok(major.is_some_and(|major| major >= NODE).then_some(version))
}

/// Debian 12 has Node.js 18: there, npm's own package of a newer one goes to `target/e2e`.
fn node_runtime() -> Result<String> {
    if let Some(version) = node_version()? {
        return Ok(version);
    }
    let source = host::root().join("tests/node-runtime");
    let files = ["package.json", "package-lock.json", ".npmrc"];
    let folder = host::target().join("e2e/node-runtime");
    once("Node.js", &folder, &source, &files, "npm", |folder| {
        npm_ci(&source, &files, folder)
    })?;
    node_version()?.with_context(|| format!("Node.js {NODE} or newer is needed"))
}

fn npm_ci(source: &Path, files: &[&str], folder: &Path) -> Result<()> {
    for file in files {
        std::fs::copy(source.join(file), folder.join(file)).with_context(|| (*file).to_owned())?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-progress"]);
    must(host::with_node(npm.current_dir(folder)))
}

fn node() -> Result<()> {
    let version = node_runtime()?;
    let source = host::root().join("tests/node");
    let files = ["package.json", "package-lock.json", ".npmrc"];
    once(
        "npm packages",
        &host::target().join("e2e/node"),
        &source,
        &files,
        &version,
        |folder| {
            npm_ci(&source, &files, folder)?;
            // The one install step that is needed: it puts the native program, which came as a package, in its place.
            let place = folder.join("node_modules/@anthropic-ai/claude-code/install.cjs");
            must(host::with_node(Command::new("node").arg(place)))
        },
    )
}

fn python() -> Result<()> {
    let version = output(Command::new("python3").arg("--version"))?;
    let source = host::root().join("tests/python");
    let e2e = host::target().join("e2e");
    once(
        "Python packages",
        &e2e.join("python"),
        &source,
        &["requirements.txt"],
        &version,
        |folder| {
            must(
                Command::new("python3")
                    .args(["-m", "venv", "--clear"])
                    .arg(folder),
            )?;
            let pip = folder.join("bin/pip");
            let wheels = e2e.join("wheels");
            let requirements = source.join("requirements.txt");
            let pinned = |verb: &str| {
                let mut command = Command::new(&pip);
                command.args([
                    verb,
                    "-q",
                    "--require-hashes",
                    "--no-deps",
                    "--disable-pip-version-check",
                ]);
                command.arg("-r").arg(&requirements);
                command
            };
            must(
                pinned("download")
                    .args(["--only-binary", ":all:"])
                    .arg("-d")
                    .arg(&wheels),
            )?;
            must(
                pinned("install")
                    .arg("--no-index")
                    .arg("--find-links")
                    .arg(&wheels),
            )?;
            // Start-up of the servers should not include compiling their packages.
            must(
                Command::new(folder.join("bin/python"))
                    .args(["-m", "compileall", "-q"])
                    .arg(folder.join("lib")),
            )
        },
    )
}

/// Runs `install` unless the folder's stamp says that the same files were installed by the same interpreter.
fn once(
    what: &str,
    folder: &Path,
    source: &Path,
    files: &[&str],
    version: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let mut hash = Sha256::new();
    hash.update(version);
    for file in files {
        hash.update(std::fs::read(source.join(file)).with_context(|| format!("{file} of {what}"))?);
    }
    let wanted = hex::encode(hash.finalize());
    let stamp = folder.join("kams-stamp");
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        println!("{what}: all there");
        return Ok(());
    }
    println!("{what}: installing into {}", folder.display());
    std::fs::create_dir_all(folder)?;
    install(folder).with_context(|| format!("cannot install the {what}"))?;
    Ok(std::fs::write(stamp, wanted)?)
}
