//! qemu and busybox: the system's own where they are installed, else unpacked into a folder of ours.
//!
//! They are not installed into the system: qemu's package can have conflicts with what is there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::apt::{self, Apt, Part};
use crate::host::has;

const QEMU: &str = "qemu-system-x86_64";

/// Where they are.
pub(crate) struct Tools {
    pub(crate) qemu: PathBuf,
    pub(crate) qemu_arguments: Vec<String>,
    pub(crate) libraries: Option<String>,
    /// A static one.
    pub(crate) busybox: PathBuf,
}

/// Finds them, or fetches them.
pub(crate) fn tools(folder: &Path) -> Result<Tools> {
    let unpacked = folder.join("tools");
    let busybox = unpacked.join("bin/busybox");
    let stamp = unpacked.join("complete");
    if !stamp.exists() {
        fetch(folder, &unpacked).context("qemu and busybox cannot be fetched")?;
        std::fs::write(&stamp, "")?;
    }
    if has(QEMU) {
        return Ok(Tools {
            qemu: QEMU.into(),
            qemu_arguments: Vec::new(),
            libraries: None,
            busybox,
        });
    }
    let at = |path: &str| unpacked.join(path).display().to_string();
    let firmware = ["usr/share/qemu", "usr/share/seabios"];
    Ok(Tools {
        qemu: unpacked.join("usr/bin").join(QEMU),
        qemu_arguments: firmware
            .into_iter()
            .flat_map(|path| ["-L".to_owned(), at(path)])
            .collect(),
        libraries: Some(format!(
            "{}:{}",
            at("usr/lib/x86_64-linux-gnu"),
            at("lib/x86_64-linux-gnu")
        )),
        busybox,
    })
}

fn fetch(folder: &Path, into: &Path) -> Result<()> {
    let apt = of_this_release(folder)?;
    let mut packages = if has(QEMU) {
        Vec::new()
    } else {
        apt.additions(&["qemu-system-x86"])?
    };
    packages.retain(|name| name != "busybox-static");
    packages.push("busybox-static".to_owned());
    println!("vm: fetching {}", packages.join(" "));
    let downloads = folder.join("downloads");
    for package in apt.download(&packages, &downloads)? {
        apt::unpack(&package, into)?;
    }
    Ok(std::fs::remove_dir_all(&downloads)?)
}

/// Packages of this system's own release: newer ones would bring another C library.
pub(super) fn of_this_release(folder: &Path) -> Result<Apt> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("packages come from Debian's archive, and this system is not Debian")?;
    let (security, updates) = (format!("{codename}-security"), format!("{codename}-updates"));
    let suites = [
        (Part::Main, codename),
        (Part::Main, updates.as_str()),
        (Part::Security, security.as_str()),
    ];
    Apt::open(&folder.join("apt-tools"), &suites)
}
