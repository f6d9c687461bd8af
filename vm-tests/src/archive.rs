//! The archive that the kernel unpacks as its first file system: cpio, "newc" format.
//!
//! Format: kernel documentation `Documentation/driver-api/early-userspace/buffer-format.rst`. Every file belongs to
//! root.

use std::io::{self, Write};

const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;
const TRAILER: &str = "TRAILER!!!";

/// Writes an archive entry by entry. Folders must come before what lies in them.
#[derive(Debug)]
pub struct Archive<W> {
    to: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    /// An empty archive.
    pub const fn new(to: W) -> Self {
        Self { to, entries: 0 }
    }

    /// A folder with mode 755. `path` has no leading slash, here and below.
    pub fn folder(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, FOLDER | 0o755, &[], [0, 0])
    }

    /// A file; `mode` holds the permission bits.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, REGULAR | mode, content, [0, 0])
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, LINK | 0o777, target.as_bytes(), [0, 0])
    }

    /// A character device.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, CHARACTER | 0o600, &[], [major, minor])
    }

    /// Ends the archive and gives back what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[], [0, 0])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8], device: [u32; 2]) -> io::Result<()> {
        let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let size = u32::try_from(content.len()).map_err(too_large)?;
        let name_len = u32::try_from(path.len() + 1).map_err(too_large)?;
        self.entries += 1;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            device[0],
            device[1],
            name_len,
            0,
        ];
        let fields = fields.map(|field| format!("{field:08X}"));
        let mut head = format!("070701{}", fields.concat());
        head.push_str(path);
        head.push('\0');
        self.padded(head.as_bytes())?;
        self.padded(content)
    }

    /// Each part begins at a multiple of four bytes.
    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        let over = bytes.len() % 4;
        let fill = if over == 0 { 0 } else { 4 - over };
        self.to.write_all(&[0; 4][..fill])
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_are_aligned_and_say_their_sizes() {
        let mut archive = Archive::new(Vec::new());
        archive.folder("a").unwrap();
        archive.file("a/bc", 0o755, b"12345").unwrap();
        archive.link("l", "a/bc").unwrap();
        archive.device("console", 5, 1).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let heads: Vec<usize> = (0..bytes.len())
            .filter(|&at| bytes[at..].starts_with(b"070701"))
            .collect();
        assert_eq!(heads.len(), 5, "four entries and the trailer");
        assert!(heads.iter().all(|at| at % 4 == 0));
        let field = |head: usize, index: usize| {
            let at = head + 6 + index * 8;
            u32::from_str_radix(std::str::from_utf8(&bytes[at..at + 8]).unwrap(), 16).unwrap()
        };
        let file = heads[1];
        assert_eq!(
            (field(file, 1), field(file, 6), field(file, 11)),
            (0o100_755, 5, 5)
        );
        // Header and name take 110 + 5 bytes, padded to 116.
        assert_eq!(&bytes[file + 116..file + 121], b"12345");
        let device = heads[3];
        assert_eq!(
            (field(device, 1), field(device, 9), field(device, 10)),
            (0o020_600, 5, 1)
        );
    }
}
