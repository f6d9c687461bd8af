//! Kams's own programs: `kams scan --start` speaks MCP to servers as an agent does, and is none. Learned as one it would
//! be refused every order from then on, by whomever it was given.

use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::discover::tracker::ExeKey;

/// Programs that talk to servers, or to children of their own.
const NAMES: [&str; 3] = ["kams", "kamsd", "kams-relay"];

/// Whether an executable is one of ours, by the file itself: a name can be anybody's.
pub(super) fn is_own(exe: &ExeKey) -> bool {
    exe.inode != 0 && places().any(|path| is_same(&path, exe))
}

/// Where they are installed: beside kamsd, or in the `bin` beside its `sbin`.
fn places() -> impl Iterator<Item = PathBuf> {
    let folder = std::env::current_exe()
        .ok()
        .and_then(|own| own.parent().map(Path::to_owned))
        .unwrap_or_default();
    let bin = folder.with_file_name("bin");
    [folder, bin]
        .into_iter()
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
}

fn is_same(path: &Path, exe: &ExeKey) -> bool {
    std::fs::metadata(path).is_ok_and(|file| (file.st_dev(), file.st_ino()) == (exe.device, exe.inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_file_and_not_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, copy) = (folder.path().join("kams"), folder.path().join("other"));
        std::fs::write(&ours, "x").unwrap();
        std::fs::copy(&ours, &copy).unwrap();
        let key = |path: &Path| {
            let file = std::fs::metadata(path).unwrap();
            ExeKey {
                path: "/usr/bin/kams".to_owned(),
                device: file.st_dev(),
                inode: file.st_ino(),
                mtime: 0,
            }
        };
        assert!(is_same(&ours, &key(&ours)));
        assert!(!is_same(&ours, &key(&copy)));
        assert!(!is_same(&folder.path().join("gone"), &key(&ours)));
        assert!(!is_own(&key(&copy)));
    }
}
