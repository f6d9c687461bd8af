//! The host's salt: digests of secrets can be compared on one host, and not with those of another (SPEC section 3).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use kams_detect::egress::Salt;

const LENGTH: usize = 32;

/// Reads `salt` in the state folder, or makes it: 32 random bytes that only root reads.
pub fn of_host(state_dir: &Path) -> io::Result<Salt> {
    DirBuilder::new().recursive(true).mode(0o700).create(state_dir)?;
    let path = state_dir.join("salt");
    let mut key = [0_u8; LENGTH];
    match OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path)
    {
        Ok(mut file) => {
            let meta = file.metadata()?;
            if !meta.is_file() || meta.mode() & 0o077 != 0 {
                let text = format!(
                    "{} can be read by others; remove it to have a new one made",
                    path.display()
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            file.read_exact(&mut key)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::open("/dev/urandom")?.read_exact(&mut key)?;
            // Written beside and renamed: a start that is cut short leaves no short salt.
            let new = state_dir.join("salt.new");
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&key)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
        }
        Err(error) => return Err(error),
    }
    Ok(Salt::new(&key))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_salt_stays_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = of_host(dir.path()).unwrap().digest(b"x");
        assert_eq!(of_host(dir.path()).unwrap().digest(b"x"), first);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(of_host(other.path()).unwrap().digest(b"x"), first);
        let path = dir.path().join("salt");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(
            of_host(dir.path())
                .unwrap_err()
                .to_string()
                .contains("can be read by others")
        );
    }
}
