//! What the manifests and the documents must keep to, seen together.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

pub(super) fn problems(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| name.to_owned());
    let workspace: Table = toml::from_str(&read("Cargo.toml")?)?;
    let list = |key: &str| -> Vec<String> {
        let members = workspace
            .get("workspace")
            .and_then(|w| w.get(key))
            .and_then(Value::as_array);
        members
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let map = read("ARCHITECTURE.md")?;
    for member in list("members") {
        if !map.contains(&format!("`{member}/`")) {
            found.push(format!("ARCHITECTURE.md: the code map does not name `{member}/`"));
        }
        let manifest: Table = toml::from_str(&read(&format!("{member}/Cargo.toml"))?)?;
        let inherits =
            |key: &str| manifest.get(key).and_then(|v| v.get("workspace")) == Some(&Value::Boolean(true));
        if !inherits("lints") {
            found.push(format!(
                "{member}/Cargo.toml: does not take the workspace's lints"
            ));
        }
        for dependencies in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, value) in manifest
                .get(dependencies)
                .and_then(Value::as_table)
                .into_iter()
                .flatten()
            {
                if value.get("workspace").is_none() {
                    found.push(format!(
                        "{member}/Cargo.toml: `{name}` is not taken from the workspace"
                    ));
                }
            }
        }
    }
    for path in files
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
    {
        let name = path.to_string_lossy();
        for link in links(&read(&name)?) {
            if !root.join(path).with_file_name(&link).exists() {
                found.push(format!("{name}: links to `{link}`, which is not there"));
            }
        }
    }
    Ok(found)
}

/// Targets of links inside the repository.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with(['#', '<']) && !target.contains(' '))
        .filter_map(|target| target.split('#').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_links_inside_the_repository_only() {
        let text = "[a](docs/a.md#part) [b](https://example.org/x) [c](#here) ![d](d.png)";
        assert_eq!(super::links(text), ["docs/a.md", "d.png"]);
    }
}
