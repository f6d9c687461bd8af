//! Making the Unix socket.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket or the endpoint could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another daemon answers there.
    #[error("{}: another kamsd is running; stop it first (`systemctl stop kamsd`)", .path.display())]
    InUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// Something else stands there.
    #[error("{}: there is something that is no socket; move it away or set `admin.socket`", .path.display())]
    Occupied {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The address is not a loopback address.
    #[error(
        "{address}: refused, it can be reached from other hosts; set `metrics.allow_remote: true` to allow it"
    )]
    Remote {
        /// The address.
        address: std::net::SocketAddr,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    Io {
        /// Path or address.
        what: String,
        /// Why.
        source: io::Error,
    },
}

/// How often, and how long between: what was killed may take a second to go.
const ATTEMPTS: u32 = 15;
const BETWEEN: Duration = Duration::from_millis(100);

/// Binds, and waits where a daemon that was just killed still has the address: the kernel takes its memory away
/// before its sockets. Blocks up to 1.5 seconds.
pub fn patiently<T>(mut bind: impl FnMut() -> Result<T, BindError>) -> Result<T, BindError> {
    for _ in 1..ATTEMPTS {
        match bind() {
            Err(error) if error.is_taken() => std::thread::sleep(BETWEEN),
            done => return done,
        }
    }
    bind()
}

impl BindError {
    fn is_taken(&self) -> bool {
        match self {
            Self::InUse { .. } => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            Self::Occupied { .. } | Self::Remote { .. } => false,
        }
    }
}

/// A listening socket that takes its own file away when it is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    path: PathBuf,
    file: (u64, u64),
}

impl Socket {
    /// Binds `path`, makes its folder where it is missing, and clears what a dead daemon left there.
    pub(super) fn bind(path: &Path) -> Result<Self, BindError> {
        let io = |source| BindError::Io {
            what: path.display().to_string(),
            source,
        };
        if let Some(parent) = path.parent().filter(|p| !p.exists()) {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(io)?;
        }
        match path.symlink_metadata() {
            Ok(meta) if !meta.file_type().is_socket() => {
                return Err(BindError::Occupied {
                    path: path.to_owned(),
                });
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(BindError::InUse {
                    path: path.to_owned(),
                });
            }
            Ok(_) => std::fs::remove_file(path).map_err(io)?,
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(io)?;
        listener.set_nonblocking(true).map_err(io)?;
        // Everyone may connect: what they see is decided by who they are.
        std::fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(io)?;
        let meta = path.symlink_metadata().map_err(io)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (meta.dev(), meta.ino()),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let same = |meta: std::fs::Metadata| (meta.dev(), meta.ino()) == self.file;
        if self.path.symlink_metadata().is_ok_and(same)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "the admin socket was left behind");
        }
    }
}

/// The gid of a group by name; none where there is no such group. May ask the network (NSS): call it at start
/// and at a reload, not per request.
pub fn group_id(name: &str) -> Option<u32> {
    nix::unistd::Group::from_name(name)
        .ok()
        .flatten()
        .map(|group| group.gid.as_raw())
}
