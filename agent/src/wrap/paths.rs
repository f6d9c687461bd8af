//! Names: of the agent that started us, of the server that we start; and where a user's state is kept.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::discover::agents::AgentTable;
use crate::discover::identity::{Launch, Look, identify};

/// Looks with the rights of whoever runs this.
struct Here;

impl Look for Here {
    fn real_path(&self, path: &str) -> Option<String> {
        std::fs::canonicalize(path)
            .ok()?
            .into_os_string()
            .into_string()
            .ok()
    }

    fn read(&self, path: &str, max: usize) -> Option<String> {
        use std::io::Read as _;
        let file = std::fs::File::open(path).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(max as u64).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn list(&self, dir: &str, max: usize) -> Vec<String> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .take(max)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }
}

fn text(words: &[OsString]) -> Vec<String> {
    words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// The name of the agent that a process is: a known one's, else that of its executable.
pub(super) fn agent(pid: u32) -> String {
    let exe = kams_host::procs::exe(pid).unwrap_or_default();
    let exe = exe.to_string_lossy();
    let argv: Vec<String> = kams_host::procs::argv(pid)
        .unwrap_or_default()
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let cwd = kams_host::procs::cwd(pid).unwrap_or_default();
    let known = AgentTable::new(&[]).ok().and_then(|table| {
        let name = table.recognise(&exe, &argv, &cwd.to_string_lossy(), &Here)?;
        Some(name.name.clone())
    });
    known.unwrap_or_else(|| exe.rsplit('/').next().unwrap_or_default().to_owned())
}

/// The identity of the server that a command starts.
pub(super) fn server(command: &[OsString]) -> String {
    let argv = text(command);
    let cwd = std::env::current_dir().unwrap_or_default();
    let home = std::env::var("HOME").unwrap_or_default();
    let exe = argv
        .first()
        .and_then(|program| found(program))
        .unwrap_or_default();
    let launch = Launch {
        exe: &exe,
        argv: &argv,
        cwd: &cwd.to_string_lossy(),
        home: &home,
    };
    identify(&launch, &Here).identity.to_string()
}

/// The file that a program's name stands for.
fn found(program: &str) -> Option<String> {
    if program.contains('/') {
        return Here.real_path(program);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .and_then(|file| Here.real_path(&file.to_string_lossy()))
}

/// Where a user's state is kept (XDG base directories); none where there is no home.
pub(super) fn state() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(base.join("kams"))
}

/// The folder of one server's state.
pub(super) fn of_server(state: &Path, server: &str) -> PathBuf {
    use sha2::{Digest, Sha256};
    let name = hex::encode(Sha256::digest(server.as_bytes()));
    state.join("wrap").join(name.get(..16).unwrap_or(&name))
}
