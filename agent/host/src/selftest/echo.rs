//! A child that copies one byte from its standard input to its standard output and ends, and our ends of both.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::BYTE;
use crate::arch::ONE_BYTE_ECHO;

/// What the child's standard input and output are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// An AF_UNIX socket, a pipe.
    SocketThenPipe,
    /// A pipe, an AF_UNIX socket.
    PipeThenSocket,
    /// Two named pipes.
    NamedPipes,
}

/// The child and our ends.
pub(super) struct Echo {
    pub(super) child: Child,
    /// Our end of its standard input.
    pub(super) to_child: File,
    /// Our end of its standard output.
    pub(super) from_child: File,
    /// The child's end of its standard input too, so that what we send finds a reader when the child has ended.
    _input: File,
}

fn socket_pair() -> std::io::Result<(File, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    Ok((File::from(OwnedFd::from(ours)), theirs.into()))
}

impl Shape {
    /// Our writing end, their reading end, our reading end, their writing end.
    fn open(self) -> std::io::Result<[File; 4]> {
        let pipe = || {
            let (reader, writer) = std::io::pipe()?;
            std::io::Result::Ok([
                File::from(OwnedFd::from(reader)),
                File::from(OwnedFd::from(writer)),
            ])
        };
        Ok(match self {
            Self::SocketThenPipe => {
                let (ours, theirs) = socket_pair()?;
                let [reader, writer] = pipe()?;
                [ours, theirs.into(), reader, writer]
            }
            Self::PipeThenSocket => {
                let (ours, theirs) = socket_pair()?;
                let [reader, writer] = pipe()?;
                [writer, reader, ours, theirs.into()]
            }
            Self::NamedPipes => {
                let [input_reader, input_writer] = named_pipe()?;
                let [output_reader, output_writer] = named_pipe()?;
                [input_writer, input_reader, output_reader, output_writer]
            }
        })
    }
}

/// Reading and writing end of a named pipe, which has no name any more.
fn named_pipe() -> std::io::Result<[File; 2]> {
    // A folder that nobody else may enter, so that nobody else can open the pipe.
    let mut template = std::env::temp_dir()
        .join("kams-XXXXXX")
        .into_os_string()
        .into_encoded_bytes();
    template.push(0);
    // SAFETY: the template ends with NUL and may be written to.
    if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
        return Err(std::io::Error::last_os_error());
    }
    template.pop();
    let folder = std::path::PathBuf::from(std::ffi::OsString::from(
        String::from_utf8(template).map_err(std::io::Error::other)?,
    ));
    let path = folder.join("pipe");
    let opened = open_named_pipe(&path);
    let _not_there = std::fs::remove_file(&path);
    std::fs::remove_dir(&folder)?;
    opened
}

fn open_named_pipe(path: &std::path::Path) -> std::io::Result<[File; 2]> {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(std::io::Error::other)?;
    // SAFETY: the name is a valid C string.
    if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // Without O_NONBLOCK the first of the two would wait for the second.
    let first = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let writer = File::options().write(true).open(path)?;
    let reader = File::options().read(true).open(path)?;
    drop(first);
    Ok([reader, writer])
}

impl Echo {
    /// Starts the child. `nonce` is its only argument.
    pub(super) fn start(nonce: &str, shape: Shape) -> std::io::Result<Self> {
        let [to_child, input, from_child, output] = shape.open()?;
        let image = ONE_BYTE_ECHO.and_then(|image| memory_file(image).ok());
        if let Some(image) = &image {
            let path = format!("/proc/self/fd/{}", image.as_raw_fd());
            let attempt = Command::new(path)
                .arg0("kams-selftest")
                .arg(nonce)
                .stdin(input.try_clone()?)
                .stdout(output.try_clone()?)
                .stderr(Stdio::null())
                .spawn();
            // Where memory files may not be executed, `head` does.
            if let Ok(child) = attempt {
                return Ok(Self {
                    child,
                    to_child,
                    from_child,
                    _input: input,
                });
            }
        }
        let child = Command::new("sh")
            .args(["-c", "exec head -c 1", nonce])
            .stdin(input.try_clone()?)
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            child,
            to_child,
            from_child,
            _input: input,
        })
    }

    /// Sends a byte to the child and takes it back.
    pub(super) fn send_around(&mut self) -> std::io::Result<()> {
        self.to_child.write_all(&[BYTE])?;
        let mut byte = [0];
        self.from_child.read_exact(&mut byte)
    }

    /// Moves a byte into the child's standard input, which must be a pipe, by each call that does not take it from
    /// memory; returns how many did.
    pub(super) fn move_in(&self) -> std::io::Result<u32> {
        let memory = memory_file(&[BYTE])?;
        let (reader, mut writer) = std::io::pipe()?;
        writer.write_all(&[BYTE])?;
        let to = self.to_child.as_raw_fd();
        let null = std::ptr::null_mut();
        let byte = BYTE;
        let vector = libc::iovec {
            iov_base: (&raw const byte).cast_mut().cast(),
            iov_len: 1,
        };
        let mut at: libc::loff_t = 0;
        // SAFETY: `at` is a valid offset to read and write.
        let spliced = unsafe { libc::splice(memory.as_raw_fd(), &raw mut at, to, null, 1, 0) };
        // SAFETY: no offset is passed.
        let sent = unsafe { libc::sendfile(to, memory.as_raw_fd(), std::ptr::null_mut(), 1) };
        // SAFETY: no memory is passed.
        let teed = unsafe { libc::tee(reader.as_raw_fd(), to, 1, 0) };
        // SAFETY: the vector's one byte lives during the call; whether its page still holds it afterwards matters to
        // nobody.
        let mapped = unsafe { libc::vmsplice(to, &raw const vector, 1, 0) };
        Ok([spliced, sent, teed, mapped]
            .into_iter()
            .map(|moved| u32::from(moved == 1))
            .sum())
    }
}

fn memory_file(content: &[u8]) -> std::io::Result<File> {
    const MFD_EXEC: libc::c_uint = 0x10;
    let create = |flags: libc::c_uint| {
        // SAFETY: the name is a valid C string; a non-negative result is a new descriptor that nobody else owns.
        unsafe { libc::memfd_create(c"kams-selftest".as_ptr(), flags) }
    };
    let mut fd = create(libc::MFD_CLOEXEC | MFD_EXEC);
    if fd < 0 {
        // Before 6.3 there is no such flag, and every memory file may be executed.
        fd = create(libc::MFD_CLOEXEC);
    }
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: `fd` was just created and is owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(content)?;
    // A file that is open for writing cannot be executed: open it again.
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
