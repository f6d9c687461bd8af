//! Which files make up the configuration, and whether they may be trusted.
//!
//! Whoever can write the configuration can switch the watching off. So files must belong to root and be
//! writable by nobody else, and so must the directories they are found in. Checks are made on the opened
//! file, not on its name.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::problem::Problem;
use super::tree::Fault;

/// Largest configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Where the configuration comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sources {
    file: PathBuf,
    drop_ins: Option<PathBuf>,
    explicit: bool,
}

impl Sources {
    /// The installed configuration: `/etc/kams/kams.yaml` where it exists, then `/etc/kams/conf.d/*.yaml`.
    pub fn installed() -> Self {
        Self::below(Path::new("/etc/kams"))
    }

    /// The same layout below another directory.
    pub fn below(directory: &Path) -> Self {
        Self {
            file: directory.join("kams.yaml"),
            drop_ins: Some(directory.join("conf.d")),
            explicit: false,
        }
    }

    /// One file (`--config`), which must exist, and which may belong to the caller instead of root.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            file: path.into(),
            drop_ins: None,
            explicit: true,
        }
    }
}

/// One file of the configuration.
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl SourceFile {
    pub(super) fn problem(&self, fault: Fault) -> Problem {
        let Fault { at, message, help } = fault;
        match at {
            Some(at) => Problem::at(&self.path, &self.text, at.line, at.column, message, help),
            None => Problem::of_file(&self.path, message, help),
        }
    }
}

/// The text of one file that is as trustworthy as the configuration; none where there is no such file. `explicit`: it
/// was named on the command line, and may belong to the caller. One of more than `most` bytes is refused.
pub fn trusted_text(path: &Path, explicit: bool, most: u64) -> Result<Option<String>, Problem> {
    match read_one(path, explicit, most) {
        Ok(text) => Ok(Some(text)),
        Err(Refusal::Missing) => Ok(None),
        Err(refusal) => Err(refusal.problem(path)),
    }
}

/// All files that exist and may be trusted, in the order in which they count.
pub(super) fn read(sources: &Sources, problems: &mut Vec<Problem>) -> Vec<SourceFile> {
    let mut files = Vec::new();
    let mut add = |path: &Path, required: bool, problems: &mut Vec<Problem>| match read_one(
        path,
        sources.explicit,
        MAX_BYTES,
    ) {
        Ok(text) => files.push(SourceFile {
            path: path.to_owned(),
            text,
        }),
        Err(Refusal::Missing) if !required => {}
        Err(refusal) => problems.push(refusal.problem(path)),
    };
    add(&sources.file, sources.explicit, problems);
    for path in sources
        .drop_ins
        .as_deref()
        .map_or_else(Vec::new, |dir| drop_ins(dir, problems))
    {
        add(&path, true, problems);
    }
    files
}

/// The drop-in files, by name.
fn drop_ins(directory: &Path, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let entries = match directory.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            problems.push(Refusal::Io(error).problem(directory));
            return Vec::new();
        }
    };
    let mut paths = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => paths.push(entry.path()),
            Err(error) => problems.push(Refusal::Io(error).problem(directory)),
        }
    }
    paths.sort();
    let extension = |path: &Path, wanted| path.extension().is_some_and(|e| e == wanted);
    for path in paths.iter().filter(|p| extension(p, "yml")) {
        let message = "not read: drop-in files end in `.yaml`".to_owned();
        problems.push(Problem::of_file(
            path,
            message,
            Some("rename it or move it away".to_owned()),
        ));
    }
    paths.retain(|path| extension(path, "yaml"));
    paths
}

enum Refusal {
    Missing,
    Io(io::Error),
    NoFile,
    TooLarge {
        most: u64,
    },
    /// Where its first bytes are that are no text.
    NotText {
        line: usize,
        column: usize,
    },
    Owner {
        what: String,
        owner: u32,
        caller: Option<u32>,
    },
    Writable {
        what: String,
        mode: u32,
    },
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            Self::Missing
        } else {
            Self::Io(error)
        }
    }
}

impl Refusal {
    fn problem(self, path: &Path) -> Problem {
        let help = |text: String| Some(text);
        let (message, help) = match self {
            Self::Missing => ("no such file".to_owned(), None),
            Self::Io(error) => (format!("cannot be read: {error}"), None),
            Self::NoFile => ("is not a regular file".to_owned(), None),
            Self::TooLarge { most } => (format!("is larger than {most} bytes"), None),
            Self::NotText { line, column } => (
                format!("is not UTF-8 text: see line {line}, column {column}"),
                help("save it as UTF-8".to_owned()),
            ),
            Self::Owner { what, owner, caller } => {
                let who = match caller {
                    Some(uid) if uid != 0 => format!("root or to you (uid {uid})"),
                    _ => "root".to_owned(),
                };
                (
                    format!("refused: `{what}` belongs to uid {owner}, and must belong to {who}"),
                    help(format!("chown root:root '{what}'")),
                )
            }
            Self::Writable { what, mode } => (
                format!("refused: `{what}` has mode {mode:04o}, so that others than its owner can write it"),
                help(format!("chmod go-w '{what}'")),
            ),
        };
        Problem::of_file(path, message, help)
    }
}

/// Line and column, from 1, of the first bytes that are no text.
pub(crate) fn place_of(error: &std::string::FromUtf8Error) -> (usize, usize) {
    let good = error.as_bytes().get(..error.utf8_error().valid_up_to());
    let good = String::from_utf8_lossy(good.unwrap_or_default());
    let last = good.rsplit('\n').next().unwrap_or_default();
    (good.matches('\n').count() + 1, last.chars().count() + 1)
}

fn read_one(path: &Path, explicit: bool, most: u64) -> Result<String, Refusal> {
    let caller = explicit.then(|| nix::unistd::getuid().as_raw());
    // Non-blocking: opening a FIFO put in the place of a file must not hang the daemon.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(Refusal::NoFile);
    }
    trust(&path.to_string_lossy(), &meta, caller)?;
    if let Some(parent) = path.parent().filter(|_| !explicit) {
        trust(
            &parent.to_string_lossy(),
            &File::open(parent)?.metadata()?,
            caller,
        )?;
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Refusal::TooLarge { most });
    }
    String::from_utf8(bytes).map_err(|error| {
        let (line, column) = place_of(&error);
        Refusal::NotText { line, column }
    })
}

fn trust(what: &str, meta: &Metadata, caller: Option<u32>) -> Result<(), Refusal> {
    let owner = meta.uid();
    if owner != 0 && Some(owner) != caller {
        return Err(Refusal::Owner {
            what: what.to_owned(),
            owner,
            caller,
        });
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(Refusal::Writable {
            what: what.to_owned(),
            mode,
        });
    }
    Ok(())
}
