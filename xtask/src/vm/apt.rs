//! A private apt: packages of chosen suites are looked up, downloaded and unpacked, and the system's own state is
//! left alone.
//!
//! The mirror is the one that the system's own sources name.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::host::{must, output};

/// Lists that are older than this are fetched again.
const FRESH: Duration = Duration::from_hours(24);
/// Debian's keys.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt of our own.
pub(super) struct Apt {
    folder: PathBuf,
}

/// The part of the archive that a suite is in.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Main,
    Security,
}

impl Apt {
    /// Sets up `folder` for these suites and fetches the lists, unless they are there and not old.
    pub(super) fn open(folder: &Path, suites: &[(Part, &str)]) -> Result<Self> {
        let apt = Self {
            folder: folder.to_owned(),
        };
        let lists = folder.join("state/lists");
        std::fs::create_dir_all(lists.join("partial"))?;
        std::fs::create_dir_all(folder.join("cache/archives/partial"))?;
        let mirrors = Mirrors::of_system()?;
        let lines: Vec<String> = suites
            .iter()
            .map(|(part, suite)| {
                let uri = match part {
                    Part::Main => &mirrors.main,
                    Part::Security => &mirrors.security,
                };
                format!("deb [signed-by={KEYRING}] {uri} {suite} main\n")
            })
            .collect();
        let sources = folder.join("sources.list");
        let wanted = lines.concat();
        let same = std::fs::read_to_string(&sources).is_ok_and(|found| found == wanted);
        std::fs::write(&sources, &wanted)?;
        let stamp = folder.join("fetched");
        let age = std::fs::metadata(&stamp).and_then(|meta| meta.modified());
        let fresh = age.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < FRESH));
        if !(same && fresh) {
            must(apt.command("apt-get").args(["-q", "update", "--error-on=any"]))?;
            std::fs::write(&stamp, "")?;
        }
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let at = |path: &str| self.folder.join(path).display().to_string();
        let options = [
            format!("Dir::State={}", at("state")),
            format!("Dir::Cache={}", at("cache")),
            format!("Dir::Etc::SourceList={}", at("sources.list")),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "Dir::State::status=/var/lib/dpkg/status".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::Retries=3".to_owned(),
            // Only the lists of packages are of use here.
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            // The folder may be one that apt's own user cannot enter.
            "APT::Sandbox::User=".to_owned(),
        ];
        for option in options {
            command.arg("-o").arg(option);
        }
        command
    }

    /// Every package name that begins so.
    pub(super) fn names(&self, begin: &str) -> Result<Vec<String>> {
        let names = output(self.command("apt-cache").args(["pkgnames", begin]))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// The packages that installing these would add to the system.
    pub(super) fn additions(&self, packages: &[&str]) -> Result<Vec<String>> {
        let plan = output(
            self.command("apt-get")
                .args(["-q", "install", "--simulate", "--no-install-recommends"])
                .args(packages),
        )?;
        // `Inst NAME (VERSION ...)`; what is there already has its old version in brackets before the parenthesis.
        let added = plan.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
            rest.starts_with('(').then(|| name.to_owned())
        });
        Ok(added.collect())
    }

    /// These packages and everything that they need, as for a system on which nothing is installed.
    pub(super) fn closure(&self, packages: &[&str]) -> Result<Vec<String>> {
        let mut command = self.command("apt-get");
        command.args(["-o", "Dir::State::status=/dev/null"]);
        let plan = output(
            command
                .args(["-q", "install", "--simulate", "--no-install-recommends"])
                .args(packages),
        )?;
        let names = plan
            .lines()
            .filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads packages into a folder that holds nothing else, and returns the files.
    pub(super) fn download(&self, packages: &[String], into: &Path) -> Result<Vec<PathBuf>> {
        if into.exists() {
            std::fs::remove_dir_all(into)?;
        }
        std::fs::create_dir_all(into)?;
        must(
            self.command("apt-get")
                .args(["-q", "download"])
                .args(packages)
                .current_dir(into),
        )?;
        let files = into.read_dir()?.flatten().map(|entry| entry.path());
        let files: Vec<PathBuf> = files
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .collect();
        if files.len() != packages.len() {
            bail!("{} of {} packages came", files.len(), packages.len());
        }
        Ok(files)
    }
}

/// Unpacks a package.
pub(super) fn unpack(package: &Path, into: &Path) -> Result<()> {
    must(Command::new("dpkg-deb").arg("--extract").arg(package).arg(into))
}

/// The one file of a package that matches `pattern`.
pub(super) fn one_file(package: &Path, pattern: &str) -> Result<Vec<u8>> {
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .context("dpkg-deb")?;
    let tar = archive.stdout.take().context("piped output")?;
    let content = Command::new("tar")
        .args(["--extract", "--to-stdout", "--wildcards", pattern])
        .stdin(tar)
        .stderr(Stdio::inherit())
        .output()
        .context("tar")?;
    archive.wait()?;
    if !content.status.success() || content.stdout.is_empty() {
        bail!("{} holds no {pattern}", package.display());
    }
    Ok(content.stdout)
}

struct Mirrors {
    main: String,
    security: String,
}

impl Mirrors {
    fn of_system() -> Result<Self> {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let codename = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .context("the kernels and qemu come from Debian's archive, and this system is not Debian")?;
        let targets = output(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(RELEASE) $(REPO_URI)",
            "Created-By: Packages",
        ]))?;
        let of = |suite: &str| {
            targets
                .lines()
                .find_map(|line| line.strip_prefix(suite)?.strip_prefix(' '))
                .map(str::to_owned)
                .with_context(|| format!("apt's own sources do not name {suite}"))
        };
        Ok(Self {
            main: of(codename)?,
            security: of(&format!("{codename}-security"))?,
        })
    }
}
