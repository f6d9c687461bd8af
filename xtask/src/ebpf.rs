//! `cargo xtask ebpf`: builds the kernel objects from `sensor-ebpf/`, or checks the committed ones.
//!
//! The object is built by a compiler of its own: Debian's rustc-web with its sources, or a nightly of rustup with
//! rust-src. `cargo build` never needs it, because the object is committed beside a manifest that names the sources it
//! was built from.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Programs of `sensor-ebpf`, each an object `NAME.bpf.o` there: the sensor, and what outlives it.
const OBJECTS: [&str; 2] = ["kams-sensor", "kams-netblock"];
const MANIFEST: &str = "sensor-ebpf/kams-sensor.manifest.json";
const TARGET: &str = "bpfel-unknown-none";
const LINKER_VERSION: &str = "0.13.0";
/// Older linkers write type names that the kernel refuses.
const LINKER_OLDEST: (u32, u32) = (0, 11);
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";
const DEBIAN_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "llvm-22-dev"];
/// Folders and files whose content decides what the object is.
const SOURCES: [&str; 4] = [
    "sensor-abi/Cargo.toml",
    "sensor-abi/src",
    "sensor-ebpf/Cargo.toml",
    "sensor-ebpf/Cargo.lock",
];
const SOURCE_FOLDER: &str = "sensor-ebpf/src";

/// Options of the command.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Rebuild, compare the committed manifest with the sources, and run the sensor tests with the rebuilt object;
    /// changes nothing.
    #[arg(long)]
    pub(crate) check: bool,
    /// Development build with aya-log messages; the object stays under target/ and its path is printed.
    #[arg(long, conflicts_with = "check")]
    pub(crate) log: bool,
}

/// What the committed object was built from.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    /// SHA-256 of the objects, by name.
    objects: BTreeMap<String, String>,
    /// Compiler, linker and LLVM.
    toolchain: BTreeMap<String, String>,
    /// SHA-256 by path.
    sources: BTreeMap<String, String>,
}

/// Runs the command from anywhere in the workspace.
pub(crate) fn run(options: Options) -> Result<()> {
    let root = workspace_root()?;
    let toolchain = Toolchain::find(&root)?;
    let folder = build(&root, &toolchain, options.log)?;
    if options.log {
        say(&format!(
            "built {}; run with KAMS_SENSOR_OBJECT={0}",
            built(&folder, OBJECTS[0]).display()
        ));
        return Ok(());
    }
    let mut objects = BTreeMap::new();
    for name in OBJECTS {
        let path = built(&folder, name);
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        objects.insert(name, bytes);
    }
    let sources = source_hashes(&root)?;
    if options.check {
        return check(&root, &folder, &objects, &sources);
    }
    let manifest = Manifest {
        objects: objects
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), sha256(bytes)))
            .collect(),
        toolchain: toolchain.versions(),
        sources,
    };
    for (name, bytes) in &objects {
        std::fs::write(root.join(committed(name)), bytes).context("writing the object")?;
        say(&format!("built {}, {} bytes", committed(name), bytes.len()));
    }
    let mut text = serde_json::to_string_pretty(&manifest)?;
    text.push('\n');
    std::fs::write(root.join(MANIFEST), text).context("writing the manifest")?;
    Ok(())
}

/// Where an object lies in the repository.
fn committed(name: &str) -> String {
    format!("sensor-ebpf/{name}.bpf.o")
}

/// Where an object was built.
fn built(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.bpf.o"))
}

/// Compares the committed manifest with the sources, then tests the rebuilt objects.
fn check(
    root: &Path,
    folder: &Path,
    objects: &BTreeMap<&str, Vec<u8>>,
    sources: &BTreeMap<String, String>,
) -> Result<()> {
    let text = std::fs::read_to_string(root.join(MANIFEST)).context("reading the manifest")?;
    let manifest: Manifest = serde_json::from_str(&text).context("understanding the manifest")?;
    for name in OBJECTS {
        let file = committed(name);
        let bytes = std::fs::read(root.join(&file)).context("reading the committed object")?;
        ensure!(
            Some(&sha256(&bytes)) == manifest.objects.get(name),
            "{file} is not the object that {MANIFEST} describes; run `cargo xtask ebpf` and commit all"
        );
    }
    let changed: Vec<&str> = sources
        .keys()
        .chain(manifest.sources.keys())
        .filter(|path| sources.get(*path) != manifest.sources.get(*path))
        .map(String::as_str)
        .collect();
    ensure!(
        changed.is_empty(),
        "the committed objects are older than their sources ({}); run `cargo xtask ebpf` and commit all",
        changed.join(", ")
    );
    let same = objects
        .iter()
        .all(|(name, bytes)| manifest.objects.get(*name) == Some(&sha256(bytes)));
    if same {
        say("rebuilt: the same bytes as the committed objects");
    } else {
        say("rebuilt: other bytes than the committed objects (another toolchain); testing the rebuilt ones");
    }
    for (name, test, variable) in [
        (OBJECTS[0], "sensor", "KAMS_SENSOR_OBJECT"),
        (OBJECTS[1], "netblock", "KAMS_NETBLOCK_OBJECT"),
    ] {
        let status = Command::new(env!("CARGO"))
            .args(["test", "--package", "kams-host", "--test", test])
            .current_dir(root)
            .env(variable, built(folder, name))
            .status()
            .with_context(|| format!("starting the {test} tests"))?;
        ensure!(status.success(), "the {test} tests fail with the rebuilt object");
    }
    Ok(())
}

/// Builds all objects; gives the folder where they lie.
fn build(root: &Path, toolchain: &Toolchain, log: bool) -> Result<PathBuf> {
    let target_dir = root.join("target/ebpf");
    let search = std::env::var_os("PATH").unwrap_or_default();
    let folders = toolchain.linker.parent().into_iter().map(Path::to_path_buf);
    let search = std::env::join_paths(folders.chain(std::env::split_paths(&search)))?;
    let mut command = Command::new(&toolchain.cargo);
    command
        .args([
            "build",
            "--release",
            "--locked",
            "-Z",
            "build-std=core",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target_dir)
        .current_dir(root.join("sensor-ebpf"))
        .env("RUSTC", &toolchain.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", toolchain.flags(root)?.join("\u{1f}"))
        .env("PATH", search)
        // Set by the cargo that runs this command, for another toolchain.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTC_WRAPPER");
    if log {
        command.args(["--features", "log"]);
    }
    let status = command
        .status()
        .with_context(|| format!("starting {}", toolchain.cargo.display()))?;
    ensure!(status.success(), "the kernel side does not build");
    for name in OBJECTS {
        let linked = target_dir.join(TARGET).join("release").join(name);
        strip(&linked, &built(&target_dir, name))?;
    }
    Ok(target_dir)
}

/// Leaves out DWARF, which nobody reads; the kernel's own type and line information stays.
fn strip(built: &Path, stripped: &Path) -> Result<()> {
    let objcopy = Path::new(LLVM_PREFIX).join("bin/llvm-objcopy");
    let objcopy = if objcopy.exists() {
        objcopy
    } else {
        PathBuf::from("llvm-objcopy")
    };
    let status = Command::new(&objcopy)
        .arg("--strip-debug")
        .arg(built)
        .arg(stripped)
        .status();
    match status {
        Ok(status) => ensure!(status.success(), "{} failed", objcopy.display()),
        Err(error) => bail!("cannot start {}: {error}; install llvm", objcopy.display()),
    }
    Ok(())
}

/// A compiler for the kernel side and the linker.
struct Toolchain {
    cargo: PathBuf,
    rustc: PathBuf,
    linker: PathBuf,
}

impl Toolchain {
    fn find(root: &Path) -> Result<Self> {
        let (cargo, rustc) = if let Some(found) = debian().or_else(nightly) {
            found
        } else {
            install_debian()?;
            debian().context("the Debian packages are installed, and still no compiler is found")?
        };
        Ok(Self {
            cargo,
            rustc,
            linker: linker(root)?,
        })
    }

    fn versions(&self) -> BTreeMap<String, String> {
        let version = |program: &Path| first_line(program, &["--version"]).unwrap_or_default();
        let llvm = first_line(&self.rustc, &["--version", "--verbose"])
            .and_then(|_| output(&self.rustc, &["--version", "--verbose"]))
            .and_then(|text| {
                text.lines()
                    .find_map(|line| line.strip_prefix("LLVM version: "))
                    .map(String::from)
            })
            .unwrap_or_default();
        BTreeMap::from([
            ("cargo".into(), version(&self.cargo)),
            ("rustc".into(), version(&self.rustc)),
            ("rustc LLVM".into(), llvm),
            ("bpf-linker".into(), version(&self.linker)),
        ])
    }

    /// Flags, with every path of this machine replaced: the object must not depend on where it was built.
    fn flags(&self, root: &Path) -> Result<Vec<String>> {
        let mut flags: Vec<String> = [
            "--cfg=bpf_target_arch=\"x86_64\"",
            "-Cdebuginfo=2",
            "-Clink-arg=--btf",
            "-Clinker=bpf-linker",
        ]
        .map(String::from)
        .into();
        let mut remap = |from: &Path, to: &str| {
            flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        };
        remap(root, "kams");
        let sysroot = output(&self.rustc, &["--print", "sysroot"]).context("asking for the sysroot")?;
        let sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
        remap(&sources, "rust");
        if let Ok(real) = sources.canonicalize() {
            remap(&real, "rust");
        }
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
        let registries = home
            .context("neither CARGO_HOME nor HOME is set")?
            .join("registry/src");
        if let Ok(entries) = std::fs::read_dir(registries) {
            for entry in entries.flatten() {
                remap(&entry.path(), "crates");
            }
        }
        Ok(flags)
    }
}

/// Debian's second toolchain.
fn debian() -> Option<(PathBuf, PathBuf)> {
    let (cargo, rustc) = (PathBuf::from("/usr/bin/cargo"), PathBuf::from("/usr/bin/rustc"));
    usable(&cargo, &rustc).then_some((cargo, rustc))
}

/// A nightly of rustup.
fn nightly() -> Option<(PathBuf, PathBuf)> {
    let which = |program| {
        let path = output(Path::new("rustup"), &["which", "--toolchain", "nightly", program])?;
        Some(PathBuf::from(path.trim()))
    };
    let (cargo, rustc) = (which("cargo")?, which("rustc")?);
    usable(&cargo, &rustc).then_some((cargo, rustc))
}

/// Both run, core's sources are there, and the edition and flags of the kernel side are known (1.85).
fn usable(cargo: &Path, rustc: &Path) -> bool {
    let Some(sysroot) = output(rustc, &["--print", "sysroot"]) else {
        return false;
    };
    let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core");
    let minor = first_line(rustc, &["--version"])
        .and_then(|line| version_of(&line))
        .map(|(_, minor)| minor);
    core.exists() && cargo.exists() && minor.is_some_and(|minor| minor >= 85)
}

fn install_debian() -> Result<()> {
    let command = format!(
        "apt-get install --yes --no-install-recommends {}",
        DEBIAN_PACKAGES.join(" ")
    );
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "no compiler for the kernel side; as root run: {command}\n(or: rustup toolchain install nightly --component rust-src)"
        );
    }
    say(&format!("installing: {command}"));
    apt(&["update", "--quiet"])?;
    let mut args = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    args.extend(DEBIAN_PACKAGES);
    apt(&args)
}

fn apt(args: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()?;
    ensure!(status.success(), "apt-get {} failed", args.join(" "));
    Ok(())
}

/// bpf-linker: from PATH, from our cache, or built into the cache.
fn linker(root: &Path) -> Result<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let cached = root
        .join("target/tools")
        .join(format!("bpf-linker-{LINKER_VERSION}/bin/bpf-linker"));
    let candidates = std::env::split_paths(&search)
        .map(|folder| folder.join("bpf-linker"))
        .chain([cached.clone()]);
    for candidate in candidates {
        let version = first_line(&candidate, &["--version"]).and_then(|line| version_of(&line));
        if version.is_some_and(|version| version >= LINKER_OLDEST) {
            return Ok(candidate);
        }
    }
    if !Path::new(LLVM_PREFIX).join("lib").exists() {
        install_debian()?;
    }
    let install_root = cached.ancestors().nth(2).context("the cache has a folder")?;
    say(&format!("building bpf-linker {LINKER_VERSION}, about a minute"));
    let status = Command::new(env!("CARGO"))
        .args([
            "install",
            "bpf-linker",
            "--version",
            LINKER_VERSION,
            "--locked",
            "--no-default-features",
        ])
        .args(["--features", "llvm-22", "--root"])
        .arg(install_root)
        .env("LLVM_PREFIX", LLVM_PREFIX)
        .env("RUSTFLAGS", format!("-L native={LLVM_PREFIX}/lib"))
        .status()
        .context("starting cargo install")?;
    ensure!(
        status.success(),
        "bpf-linker does not build; install LLVM 22's development files"
    );
    Ok(cached)
}

fn source_hashes(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    for source in SOURCES.iter().chain([&SOURCE_FOLDER]) {
        hash_into(root, Path::new(source), &mut hashes)?;
    }
    Ok(hashes)
}

fn hash_into(root: &Path, path: &Path, hashes: &mut BTreeMap<String, String>) -> Result<()> {
    let full = root.join(path);
    if full.is_dir() {
        for entry in std::fs::read_dir(&full).with_context(|| format!("listing {}", path.display()))? {
            hash_into(root, &path.join(entry?.file_name()), hashes)?;
        }
    } else if path.extension() == Some(OsStr::new("rs")) || !path.starts_with("sensor-ebpf/src") {
        let bytes = std::fs::read(&full).with_context(|| format!("reading {}", path.display()))?;
        hashes.insert(path.display().to_string(), sha256(&bytes));
    }
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn workspace_root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask lies in the workspace")?;
    Ok(root.to_path_buf())
}

fn output(program: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .env_remove("RUSTUP_TOOLCHAIN")
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn first_line(program: &Path, args: &[&str]) -> Option<String> {
    output(program, args)?.lines().next().map(str::to_owned)
}

/// Major and minor of the first version number in a line.
fn version_of(line: &str) -> Option<(u32, u32)> {
    line.split_whitespace().find_map(|word| {
        let mut parts = word.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

fn is_root() -> bool {
    first_line(Path::new("id"), &["-u"]).as_deref() == Some("0")
}

#[expect(clippy::print_stderr, reason = "progress of a developer command")]
fn say(text: &str) {
    eprintln!("xtask ebpf: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_lines() {
        assert_eq!(version_of("bpf-linker 0.13.0"), Some((0, 13)));
        assert_eq!(version_of("rustc 1.96.0 (ac68faa20 2026-05-25)"), Some((1, 96)));
        assert_eq!(version_of("no number"), None);
    }

    #[test]
    fn the_committed_manifest_fits_sources_and_object() -> Result<()> {
        let root = workspace_root()?;
        let manifest: Manifest = serde_json::from_str(&std::fs::read_to_string(root.join(MANIFEST))?)?;
        assert_eq!(
            manifest.sources,
            source_hashes(&root)?,
            "run `cargo xtask ebpf` and commit the result"
        );
        for name in OBJECTS {
            let bytes = std::fs::read(root.join(committed(name)))?;
            assert_eq!(manifest.objects.get(name), Some(&sha256(&bytes)), "{name}");
        }
        Ok(())
    }
}
