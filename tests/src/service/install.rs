//! The README's commands, as they stand there.

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use super::{CONFIG, POLICY, property, repository, run, running, said, trial, well};

/// The section that says how to install.
const SECTION: &str = "## Install as a service\n";

pub(super) fn trials() -> Vec<Trial> {
    vec![trial("installed-as-the-readme-says", installed)]
}

/// The commands of the section's second block: the first one builds.
fn commands(readme: &str) -> Result<Vec<String>> {
    let (_, section) = readme.split_once(SECTION).context("a section on installing")?;
    let block = section.split("```\n").nth(3).context("a block of commands")?;
    Ok(block
        .lines()
        .map(|line| line.trim_start_matches("sudo ").to_owned())
        .collect())
}

/// Installs with the sample configuration, then has the daemon enforce.
pub(super) fn install() -> Result<()> {
    let folder = repository()?;
    let readme = std::fs::read_to_string(folder.join("README.md"))?;
    for command in commands(&readme)? {
        let line = format!("cd {} && {command}", folder.display());
        let output = run("sh", &["-c", &line])?;
        ensure!(
            output.status.success(),
            "`{command}` ended with {}: {}",
            output.status,
            said(&output)
        );
    }
    running()?;
    ensure!(property("UnitFileState")? == "enabled", "it starts at boot");
    std::fs::create_dir_all("/etc/kams/conf.d")?;
    std::fs::write("/etc/kams/conf.d/tests.yaml", CONFIG)?;
    std::fs::write("/etc/kams/policy.yaml", POLICY)?;
    well("systemctl", &["restart", super::UNIT])?;
    running()
}

/// Nothing failed on the way, and what the sample configuration says is in force.
fn installed() -> Result<()> {
    ensure!(property("NRestarts")? == "0", "it had to be started again");
    let listing = well("kamsd", &["--check-config"])?;
    ensure!(listing.contains("/etc/kams/conf.d/tests.yaml"), "{listing}");
    well("systemd-analyze", &["verify", "kamsd.service", super::SLICE]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::commands;

    #[test]
    fn the_readme_has_commands_that_install() {
        let readme = std::fs::read_to_string(crate::kit::root().join("README.md")).unwrap();
        let commands = commands(&readme).unwrap();
        assert!(commands.iter().any(|line| line.starts_with("install -m 755 ")));
        assert_eq!(commands.last().unwrap(), "systemctl enable --now kamsd");
    }
}
