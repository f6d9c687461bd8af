//! Pinned programs and tables: blocks that outlive the process that made them.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use aya::maps::{Map, MapData};

use super::attached::{Attached, TABLES, not_pinned};
use crate::options::SensorError;

/// Name of the folder within that of the daemon.
pub(super) const FOLDER: &str = "net";
/// Where new pins are made, to be put in the place of the old ones.
const NEXT: &str = "next";

/// Whether anything is pinned here.
pub(super) fn exist(folder: &Path) -> bool {
    folder.join("members").exists()
}

/// Attaches anew, pinned.
pub(super) fn fresh(folder: &Path) -> Result<Attached, SensorError> {
    remove(folder);
    let next = make_next(folder)?;
    let mut attached = Attached::fresh(Some(&next)).inspect_err(|_| undo(&next))?;
    settle(&mut attached, folder, &next).inspect_err(|_| {
        remove(folder);
    })?;
    Ok(attached)
}

/// Attaches anew, with what is pinned, and takes its place. At every moment one of the two is whole and attached.
pub(super) fn take_over(folder: &Path) -> Result<Attached, SensorError> {
    let old = open(folder)?;
    let next = make_next(folder)?;
    let mut attached = Attached::fresh(Some(&next)).inspect_err(|_| undo(&next))?;
    attached.copy_from(&old)?;
    settle(&mut attached, folder, &next)?;
    // The old programs may have seen a fork until their pins were replaced.
    attached.copy_from(&old)?;
    Ok(attached)
}

fn failed(source: io::Error) -> SensorError {
    SensorError::Io {
        what: "cannot pin the programs of the network backstop",
        source,
    }
}

fn make_next(folder: &Path) -> Result<PathBuf, SensorError> {
    let next = folder.join(NEXT);
    undo(&next);
    for path in [folder.parent().unwrap_or(folder), folder, &next] {
        make(path).map_err(failed)?;
    }
    Ok(next)
}

fn undo(next: &Path) {
    // Nothing there is the common case; what stays is in the way of the next attempt, which says so.
    let _absent = std::fs::remove_dir_all(next);
}

/// The pinned tables of an earlier daemon.
fn open(folder: &Path) -> Result<Attached, SensorError> {
    Attached::of_tables(|name| {
        let pin = TABLES
            .iter()
            .find_map(|(table, pin)| (*table == name).then_some(*pin))
            .unwrap_or_default();
        let data = MapData::from_pin(folder.join(pin))?;
        Ok(if name == "NB_LOST" {
            Map::Array(data)
        } else {
            Map::HashMap(data)
        })
    })
}

/// Pins the links beside the tables in `next` and puts all in its place, over what may be there; nothing else holds the
/// links from then on.
fn settle(attached: &mut Attached, folder: &Path, next: &Path) -> Result<(), SensorError> {
    let mut names: Vec<&str> = Vec::new();
    for (name, link) in attached.links.drain(..) {
        let path = next.join(name);
        link.pin(&path).map_err(|error| not_pinned(&path, &error))?;
        names.push(name);
    }
    // Tables last: what is there with tables is whole.
    names.extend(TABLES.iter().map(|(_, pin)| *pin));
    for name in names {
        std::fs::rename(next.join(name), folder.join(name)).map_err(failed)?;
    }
    std::fs::remove_dir(next).map_err(failed)
}

fn make(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Removes every pin, and with it the programs; whether there was anything.
pub(super) fn remove(folder: &Path) -> bool {
    let there = exist(folder);
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::error!(%error, "{} cannot be removed: its blocks stay in force", folder.display());
            false
        }
        _ => there,
    }
}
