//! `cargo xtask tidy`: habits that no compiler checks. Also a unit test, so that `cargo test` finds what it finds.

mod manifest;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::host::{self, output};

pub(crate) fn run() -> Result<()> {
    let problems = problems()?;
    if problems.is_empty() {
        println!("tidy: nothing to complain of");
        return Ok(());
    }
    for problem in &problems {
        println!("{problem}");
    }
    bail!("tidy: {} problems", problems.len());
}

/// Everything wrong, as `path:line: what`.
fn problems() -> Result<Vec<String>> {
    let root = host::root();
    let files = files(&root)?;
    let mut problems = Vec::new();
    for path in &files {
        let name = path.to_string_lossy();
        // What is not UTF-8 is data, such as the built kernel object.
        let Ok(content) = std::fs::read_to_string(root.join(path)) else {
            continue;
        };
        for (line, what) in text::problems(&name, &content) {
            problems.push(format!("{name}:{line}: {what}"));
        }
    }
    problems.extend(manifest::problems(&root, &files)?);
    Ok(problems)
}

/// Files that are tracked, or would be.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut git = std::process::Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root);
    let list = output(&mut git)?;
    let mut files: Vec<PathBuf> = list
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .collect();
    files.retain(|path| root.join(path).is_file());
    files.sort();
    files.dedup();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        let problems = super::problems().unwrap();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
