//! Where things are: the repository, what `cargo xtask setup` installed, and the programs under test.

use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .map_or_else(|| manifest.to_owned(), Path::to_owned)
}

/// Where `cargo xtask setup` puts packages: `target/e2e`, or what `KAMS_E2E` names.
pub fn installed() -> PathBuf {
    std::env::var_os("KAMS_E2E").map_or_else(|| root().join("target/e2e"), PathBuf::from)
}

/// A program of an npm package.
pub fn node_bin(name: &str) -> PathBuf {
    installed().join("node/node_modules/.bin").join(name)
}

/// A program of a Python package.
pub fn python_bin(name: &str) -> PathBuf {
    installed().join("python/bin").join(name)
}

/// The preload that makes a Node server write down its wire.
pub fn node_witness() -> PathBuf {
    root().join("tests/node/witness.cjs")
}

/// The folder for PYTHONPATH that does the same for a Python server.
pub fn python_witness() -> PathBuf {
    root().join("tests/python/witness")
}

/// Recorded sessions; they lie beside the repository, where they are handed out.
pub fn transcripts() -> PathBuf {
    root().join("../shared/transcripts")
}

/// What is missing for tests with real packages, in words; none when all is there.
pub fn missing_packages() -> Option<String> {
    [node_bin("mcp-server-everything"), python_bin("mcp-server-time")]
        .iter()
        .find(|path| !path.exists())
        .map(|path| format!("{} is missing: run `cargo xtask setup`", path.display()))
}
