//! Files as the user sees them, for everything here that asks for files.

use std::path::Path;

use kams_host::userfile::{Owner, UserFileError, UserFiles};

use super::{ReadFiles, Scope, Unread};
use crate::discover::identity::Look;

/// A session of [`UserFiles`] behind the traits of this crate.
#[derive(Debug)]
pub struct UserReader<'a>(pub &'a UserFiles);

impl ReadFiles for UserReader<'_> {
    fn read(&self, path: &str, scope: Scope) -> Result<String, Unread> {
        let owner = match scope {
            Scope::User => Owner::User,
            Scope::System => Owner::UserOrRoot,
            // Projects are shared: a colleague's checkout is what the agent reads too.
            Scope::Project => Owner::Anyone,
        };
        self.0
            .read_text(Path::new(path), owner)
            .map_err(|error| unread(&error))
    }

    fn list(&self, dir: &str, max: usize) -> Vec<String> {
        self.0.list(Path::new(dir), max).unwrap_or_default()
    }
}

impl Look for UserReader<'_> {
    fn real_path(&self, path: &str) -> Option<String> {
        self.0
            .real_path(Path::new(path))
            .ok()?
            .into_os_string()
            .into_string()
            .ok()
    }

    fn read(&self, path: &str, max: usize) -> Option<String> {
        // Installed packages belong to root, to the user, or to whoever set up the environment.
        let text = self.0.read_text(Path::new(path), Owner::Anyone).ok()?;
        text.get(..text.floor_char_boundary(max)).map(str::to_owned)
    }

    fn list(&self, dir: &str, max: usize) -> Vec<String> {
        self.0.list(Path::new(dir), max).unwrap_or_default()
    }
}

fn unread(error: &UserFileError) -> Unread {
    let remedy = match error {
        UserFileError::Absent => return Unread::Absent,
        UserFileError::Denied => "make it readable for its user",
        UserFileError::NotRegular => "put a regular file there",
        UserFileError::Link => "put the file itself there, not a link",
        UserFileError::Foreign(_) => "give the file to the user whose client reads it",
        UserFileError::TooLarge(_) => "make it smaller",
        UserFileError::NotText(_) => "save it as UTF-8",
        UserFileError::Time | UserFileError::Stuck => "see why the file system does not answer",
        _ => "see the daemon's log",
    };
    Unread::Refused {
        what: error.to_string(),
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{Places, read};
    use kams_host::userfile::{HostUser, Limits};
    use std::fs;

    #[test]
    fn a_home_on_disk() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for dir in [".codex", ".cursor", ".gemini", "repo"] {
            fs::create_dir(at(dir)).unwrap();
        }
        // A dotfile kept in a repository.
        fs::write(
            at("repo/claude.json"),
            r#"{"mcpServers": {"a": {"command": "npx", "args": ["pkg"]}}}"#,
        )
        .unwrap();
        std::os::unix::fs::symlink(at("repo/claude.json"), at(".claude.json")).unwrap();
        fs::write(at(".codex/config.toml"), b"x = \"\xff\"").unwrap();
        std::os::unix::fs::symlink("/dev/zero", at(".cursor/mcp.json")).unwrap();
        fs::write(at(".gemini/settings.json"), "[".repeat(100_000)).unwrap();
        let user = HostUser::by_uid(nix::unistd::geteuid().as_raw()).unwrap();
        let files = UserFiles::open(&user, Limits::default()).unwrap();
        let home = home.path().to_str().unwrap().to_owned();
        let out = read(
            &Places {
                home,
                ..Places::default()
            },
            &UserReader(&files),
        );
        let names: Vec<_> = out.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a"]);
        let problems: Vec<_> = out.problems.iter().map(|p| (p.client, p.line)).collect();
        assert_eq!(problems, [("codex", 0), ("gemini-cli", 1), ("cursor", 0)]);
    }
}
