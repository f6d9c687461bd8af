//! The guest's file system: `vm-init`, busybox, the programs to run with the libraries they need, and the plan.

use std::collections::BTreeSet;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use kams_vm_tests::archive::Archive;
use kams_vm_tests::plan::{self, Program};

use crate::host::output;

/// Names under which busybox serves in the guest.
const BUSYBOX: [&str; 21] = [
    "sh", "cp", "chmod", "date", "echo", "false", "head", "ip", "kill", "ls", "mkdir", "mount", "nc", "ps",
    "rm", "seq", "sleep", "tail", "timeout", "true", "uname",
];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\nkams:x:990:\n";

/// What goes into an image.
pub(crate) struct Contents<'a> {
    pub(crate) busybox: &'a Path,
    pub(crate) init: &'a Path,
    /// Files on this machine, and where they go in the guest (no leading slash).
    pub(crate) files: &'a [(PathBuf, String)],
    pub(crate) plan: &'a [Program],
}

/// Writes the archive.
pub(crate) fn write(contents: &Contents<'_>, to: &Path) -> Result<()> {
    let file = std::fs::File::create(to).with_context(|| to.display().to_string())?;
    let mut archive = Archive::new(BufWriter::new(file));
    let mut folders = BTreeSet::new();
    for folder in ["bin", "dev", "etc", "proc", "root", "sys", "tmp"] {
        folders_of(&mut archive, &mut folders, &format!("{folder}/x"))?;
    }
    archive.device("dev/console", 5, 1)?;
    archive.file("bin/busybox", 0o755, &std::fs::read(contents.busybox)?)?;
    for name in BUSYBOX {
        archive.link(&format!("bin/{name}"), "busybox")?;
    }
    archive.file("etc/passwd", 0o644, PASSWD.as_bytes())?;
    archive.file("etc/group", 0o644, GROUP.as_bytes())?;
    let init = (contents.init.to_owned(), "init".to_owned());
    let programs: Vec<&(PathBuf, String)> = std::iter::once(&init).chain(contents.files).collect();
    let mut libraries = BTreeSet::new();
    for (path, place) in &programs {
        libraries.extend(libraries_of(path)?);
        folders_of(&mut archive, &mut folders, place)?;
        archive.file(place, 0o755, &stripped(path, to)?)?;
    }
    for library in libraries {
        let place = library.trim_start_matches('/');
        folders_of(&mut archive, &mut folders, place)?;
        archive.file(place, 0o755, &std::fs::read(&library)?)?;
    }
    archive.file(plan::PATH, 0o644, plan::write(contents.plan)?.as_bytes())?;
    archive.finish()?;
    Ok(())
}

pub(super) fn folders_of<W: std::io::Write>(
    archive: &mut Archive<W>,
    made: &mut BTreeSet<String>,
    place: &str,
) -> Result<()> {
    let parts: Vec<&str> = place.split('/').collect();
    for len in 1..parts.len() {
        let folder = parts.get(..len).unwrap_or_default().join("/");
        if made.insert(folder.clone()) {
            archive.folder(&folder)?;
        }
    }
    Ok(())
}

/// The shared libraries of a program, and the loader, by their paths on this machine. A static program has none.
pub(super) fn libraries_of(program: &Path) -> Result<Vec<String>> {
    let listed = Command::new("ldd")
        .arg(program)
        .output()
        .context("ldd (Debian package libc-bin)")?;
    let text = String::from_utf8_lossy(&listed.stdout);
    let paths = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words
            .into_iter()
            .find(|word| word.starts_with('/'))
            .map(str::to_owned)
    });
    Ok(paths.filter(|path| !path.ends_with(':')).collect())
}

/// A program without its debugging information, which would fill the guest's memory. Other files as they are.
pub(super) fn stripped(path: &Path, archive: &Path) -> Result<Vec<u8>> {
    let content = std::fs::read(path).with_context(|| path.display().to_string())?;
    if !content.starts_with(b"\x7fELF") {
        return Ok(content);
    }
    // Beside the archive, and named after it: two guests may be prepared at a time.
    let result = archive.with_extension("stripped");
    output(Command::new("strip").arg("-o").arg(&result).arg(path))
        .context("strip (Debian package binutils)")?;
    let content = std::fs::read(&result)?;
    std::fs::remove_file(&result)?;
    Ok(content)
}
