//! Who stands at the other end of the socket.

/// A peer of the admin socket, as the kernel knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Viewer {
    /// Effective uid at connect, in the daemon's user namespace.
    pub uid: u32,
    /// Effective gid at connect.
    pub gid: u32,
    /// Supplementary groups at connect.
    pub groups: Vec<u32>,
    /// Process id at connect, in the daemon's pid namespace; 0 where the peer has none there.
    pub pid: u32,
    /// Root, or a member of the admin group: sees every user's data.
    pub sees_all: bool,
}
