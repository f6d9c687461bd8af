//! The file system of a guest in which systemd runs: packages of this system's Debian release, unpacked and not
//! configured, and what a new host has beside them.
//!
//! Their own scripts do not run. What those would have made and the guest needs is written here.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kams_vm_tests::archive::Archive;
use kams_vm_tests::plan::{self, Program};

use super::image::{folders_of, libraries_of, stripped};
use super::{apt, emulator};

/// What a small host has. No procps and no sudo: units must not need them.
const PACKAGES: [&str; 8] = [
    "base-files",
    "coreutils",
    "dash",
    "dbus",
    "grep",
    "passwd",
    "systemd-sysv",
    "util-linux",
];
/// What they need for their own installation only.
const LEFT_OUT: [&str; 7] = ["adduser", "debconf", "dpkg", "mawk", "perl", "tar", "usrmerge"];
/// Files that nobody in the guest reads, by a part of their path.
const UNREAD: [&str; 8] = [
    "usr/share/doc/",
    "usr/share/man/",
    "usr/share/locale/",
    "usr/share/bash-completion/",
    "usr/share/lintian/",
    "usr/share/common-licenses/",
    "x86_64-linux-gnu/gconv/",
    "usr/lib/udev/",
];
/// Folders of the root that are links into `usr` on a Debian system.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
/// Folders that exist on every host.
const FOLDERS: [&str; 11] = [
    "dev",
    "home/user",
    "mnt",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/local/bin",
    "var/lib",
    "var/log",
];
/// Where a guest's own programs lie.
pub(super) const PROGRAMS: &str = "opt/guest";

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nmessagebus:x:101:101::/nonexistent:/usr/sbin/nologin\n\
    user:x:1000:1000::/home/user:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nmessagebus:x:101:\nuser:x:1000:\nnogroup:x:65534:\n";

/// Runs the plan once the system is up, on the console.
const UNIT: &str = "[Unit]
Description=The tests of this guest
After=dbus.socket

[Service]
ExecStart=/opt/guest/vm-init
StandardInput=null
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
OOMScoreAdjust=-900
";

/// Text files of a host that has just been set up.
const FILES: [(&str, &str); 9] = [
    ("etc/passwd", PASSWD),
    ("etc/group", GROUP),
    ("etc/hostname", "guest\n"),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("etc/machine-id", "00112233445566778899aabbccddeeff\n"),
    ("etc/fstab", ""),
    ("etc/ld.so.conf", "/usr/lib/x86_64-linux-gnu\n"),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    ),
    ("etc/systemd/system/guest.service", UNIT),
];
/// Links: place, target. Nobody logs in on the console.
const LINKS: [(&str, &str); 6] = [
    ("init", "usr/lib/systemd/systemd"),
    (
        "etc/systemd/system/multi-user.target.wants/guest.service",
        "/etc/systemd/system/guest.service",
    ),
    (
        "etc/systemd/system/default.target",
        "/usr/lib/systemd/system/multi-user.target",
    ),
    ("etc/systemd/system/getty.target", "/dev/null"),
    ("etc/systemd/system/systemd-firstboot.service", "/dev/null"),
    ("var/run", "/run"),
];

/// A file of this machine for the guest: where it goes (no leading slash), and whether it is a program.
pub(super) struct Placed {
    pub(super) from: PathBuf,
    pub(super) place: String,
}

/// Fetches and unpacks the packages, unless that was done.
pub(super) fn tree(folder: &Path) -> Result<PathBuf> {
    let tree = folder.join("debian");
    let wanted = [&PACKAGES[..], &LEFT_OUT[..]].concat().join(" ");
    let stamp = folder.join("debian-packages");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) && tree.exists() {
        return Ok(tree);
    }
    if tree.exists() {
        std::fs::remove_dir_all(&tree)?;
    }
    let apt = emulator::of_this_release(folder)?;
    let mut packages = apt.closure(&PACKAGES)?;
    packages.retain(|name| !LEFT_OUT.contains(&name.as_str()) && !name.contains("perl"));
    println!("vm: fetching {} packages of Debian", packages.len());
    let downloads = folder.join("downloads");
    for package in apt.download(&packages, &downloads)? {
        apt::unpack(&package, &tree)?;
    }
    std::fs::remove_dir_all(&downloads)?;
    std::fs::write(&stamp, wanted)?;
    Ok(tree)
}

/// Writes the archive: the packages of `tree`, these files, and the plan.
pub(super) fn write(tree: &Path, init: &Path, files: &[Placed], plan: &[Program], to: &Path) -> Result<()> {
    let file = std::fs::File::create(to).with_context(|| to.display().to_string())?;
    let mut writer = Writer {
        archive: Archive::new(BufWriter::new(file)),
        folders: BTreeSet::new(),
        places: BTreeSet::new(),
    };
    for link in MERGED {
        writer.archive.link(link, &format!("usr/{link}"))?;
    }
    for folder in FOLDERS {
        writer.folder(folder)?;
    }
    writer.archive.device("dev/console", 5, 1)?;
    for (place, target) in LINKS {
        writer.link(place, target)?;
    }
    for (place, text) in FILES {
        writer.file(place, 0o644, text.as_bytes())?;
    }
    let init = Placed {
        from: init.to_owned(),
        place: format!("{PROGRAMS}/vm-init"),
    };
    let mut libraries = BTreeSet::new();
    for placed in std::iter::once(&init).chain(files) {
        let content = stripped(&placed.from, to)?;
        let program = content.starts_with(b"\x7fELF");
        if program {
            libraries.extend(libraries_of(&placed.from)?);
        }
        writer.file(&placed.place, if program { 0o755 } else { 0o644 }, &content)?;
    }
    writer.file(plan::PATH, 0o644, plan::write(plan)?.as_bytes())?;
    writer.below(tree, tree)?;
    // What the packages do not bring.
    for library in libraries {
        let place = library.trim_start_matches('/').to_owned();
        writer.file(&place, 0o755, &std::fs::read(&library)?)?;
    }
    writer.archive.finish()?;
    Ok(())
}

struct Writer<W> {
    archive: Archive<W>,
    folders: BTreeSet<String>,
    /// What is there already: the first one counts.
    places: BTreeSet<String>,
}

impl<W: Write> Writer<W> {
    fn folder(&mut self, place: &str) -> Result<()> {
        folders_of(&mut self.archive, &mut self.folders, &format!("{place}/x"))
    }

    /// Whether there is nothing at this place yet; its folders are made.
    fn is_new(&mut self, place: &str) -> Result<Option<String>> {
        let place = merged(place);
        let new = self.places.insert(place.clone());
        folders_of(&mut self.archive, &mut self.folders, &place)?;
        Ok(new.then_some(place))
    }

    fn file(&mut self, place: &str, mode: u32, content: &[u8]) -> Result<()> {
        if let Some(place) = self.is_new(place)? {
            self.archive.file(&place, mode, content)?;
        }
        Ok(())
    }

    fn link(&mut self, place: &str, target: &str) -> Result<()> {
        if let Some(place) = self.is_new(place)? {
            self.archive.link(&place, target)?;
        }
        Ok(())
    }

    /// Everything below a folder of the tree.
    fn below(&mut self, tree: &Path, folder: &Path) -> Result<()> {
        let mut entries: Vec<PathBuf> = folder.read_dir()?.flatten().map(|entry| entry.path()).collect();
        entries.sort();
        for path in entries {
            let place = path.strip_prefix(tree)?.display().to_string();
            if UNREAD.iter().any(|part| format!("{place}/").contains(part)) {
                continue;
            }
            let meta: Metadata = path.symlink_metadata()?;
            if meta.is_dir() {
                self.folder(&merged(&place))?;
                self.below(tree, &path)?;
            } else if meta.is_symlink() {
                let target = std::fs::read_link(&path)?;
                self.link(&place, &target.display().to_string())?;
            } else {
                self.file(&place, meta.permissions().mode() & 0o7777, &std::fs::read(&path)?)?;
            }
        }
        Ok(())
    }
}

/// Where a path of a package lies on a system whose `/bin` and `/lib` are links.
fn merged(place: &str) -> String {
    let first = place.split('/').next().unwrap_or_default();
    if MERGED.contains(&first) {
        format!("usr/{place}")
    } else {
        place.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn old_places_are_found_below_usr() {
        assert_eq!(merged("lib/systemd/systemd"), "usr/lib/systemd/systemd");
        assert_eq!(
            merged("lib64/ld-linux-x86-64.so.2"),
            "usr/lib64/ld-linux-x86-64.so.2"
        );
        assert_eq!(merged("usr/lib/x"), "usr/lib/x");
        assert_eq!(merged("library/x"), "library/x");
    }
}
