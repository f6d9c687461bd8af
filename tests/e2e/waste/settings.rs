//! The agents' managed settings: switched on, shown, and put back exactly.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::{Completion, Trial};
use serde_json::Value;

use super::{boxed, well};
use crate::context::{Context, programs};

const NOBODY: u32 = 65_534;
const GEMINI: &str = "{\n    \"theme\" : \"dark\",\n    \"tools\": [ 1,2 ]\n}\n";
const CODEX: &str = "# ours\nmodel = \"m\"  # keep\n";

pub(super) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    let context = Arc::clone(context);
    vec![Trial::ignorable_test("waste::settings", move || {
        match context.hindrance() {
            Some(hindrance) => Ok(Completion::ignored_with(hindrance)),
            None => boxed("", round_trip)
                .map(|()| Completion::Completed)
                .map_err(|error| format!("{error:#}").into()),
        }
    })]
}

fn round_trip(kams: &Kams) -> Result<()> {
    let stage = Stage::new()?;
    let gemini = stage.write("host/etc/gemini-cli/settings.json", GEMINI)?;
    let codex = stage.write("host/etc/codex/managed_config.toml", CODEX)?;
    let root = stage.path("host");
    let claude = root.join("etc/claude-code/managed-settings.d/50-kams.json");
    let root_text = root.display().to_string();
    let telemetry = |words: &[&str]| {
        let words = [&["telemetry"], words, &["--root", root_text.as_str()]].concat();
        kams.kams(&words)
    };
    let refused = |words: &[&str], reason: &str| -> Result<()> {
        let output = telemetry(words)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(2) && text.contains(reason), "{text}");
        Ok(())
    };

    let planned = well(telemetry(&["enable", "--dry-run"])?)?;
    ensure!(
        planned.contains("+    \"OTEL_EXPORTER_OTLP_ENDPOINT\": \"http://127.0.0.1:4318\""),
        "{planned}"
    );
    ensure!(!claude.exists() && text(&gemini)? == GEMINI, "a dry run writes");

    // As a team may have it that lets one group read the file.
    let group = 4;
    std::os::unix::fs::chown(&codex, None, Some(group))?;
    std::fs::set_permissions(&codex, std::fs::Permissions::from_mode(0o640))?;
    let rights = || -> Result<(u32, u32)> {
        let meta = std::fs::metadata(&codex)?;
        Ok((meta.gid(), meta.mode() & 0o777))
    };

    well(telemetry(&["enable"])?)?;
    ensure!(rights()? == (group, 0o640), "{:?}", rights());
    let settings: Value = serde_json::from_str(&text(&gemini)?)?;
    ensure!(
        settings["theme"] == "dark" && settings["telemetry"]["otlpEndpoint"] == "http://127.0.0.1:4318",
        "{settings}"
    );
    ensure!(
        text(&gemini)?.contains("[ 1,2 ]"),
        "others' members stay as they are written"
    );
    let config = text(&codex)?;
    ensure!(
        config.starts_with(CODEX) && config.contains("http://127.0.0.1:4318/v1/logs"),
        "{config}"
    );
    let shown = well(telemetry(&["show"])?)?;
    ensure!(
        shown.matches("reports to http://127.0.0.1:4318").count() == 3,
        "{shown}"
    );
    well(telemetry(&["enable"])?)?;

    well(telemetry(&["disable"])?)?;
    ensure!(
        text(&gemini)? == GEMINI && text(&codex)? == CODEX,
        "not put back exactly"
    );
    ensure!(rights()? == (group, 0o640), "{:?}", rights());
    ensure!(
        !root.join("etc/claude-code").exists(),
        "what was made for it goes with it"
    );

    // All or nothing: a file that cannot be read stops the others from being written.
    std::fs::write(&gemini, "{ // a comment\n}")?;
    refused(&["enable"], "cannot be changed safely")?;
    ensure!(
        text(&codex)? == CODEX && !claude.exists(),
        "half of it is written"
    );
    std::fs::write(
        &gemini,
        "{\"telemetry\": {\"otlpEndpoint\": \"http://collector\"}}",
    )?;
    refused(&["enable"], "--replace")?;
    refused(&["enable", "--endpoint", "http://10.0.0.1:4318"], "loopback")?;
    hostile(&gemini, &codex, &claude, &refused)?;
    well(telemetry(&["enable"])?)?;
    let beside = gemini.with_file_name("victim");
    ensure!(text(&beside)? == GEMINI, "written through a link");
    well(telemetry(&["disable"])?)?;
    let meta = std::fs::symlink_metadata(&gemini)?;
    ensure!(
        meta.is_file() && meta.mode() & 0o777 == 0o444 && text(&gemini)? == GEMINI,
        "a file that nobody may write is put back as it was"
    );
    by_others(kams, &root)
}

/// Files that somebody else has a hand in are left alone, and with them all others.
fn hostile(
    gemini: &Path,
    codex: &Path,
    claude: &Path,
    refused: &dyn Fn(&[&str], &str) -> Result<()>,
) -> Result<()> {
    use std::os::unix::fs::{chown, symlink};

    let folder = gemini.parent().context("a folder")?;
    let beside = folder.join("victim");
    let untouched = |wanted: &str| -> Result<()> {
        ensure!(text(codex)? == CODEX && !claude.exists(), "half of it is written");
        ensure!(text(&beside)? == wanted, "what stood beside was written to");
        Ok(())
    };
    std::fs::write(&beside, GEMINI)?;
    std::fs::remove_file(gemini)?;
    symlink(&beside, gemini)?;
    refused(&["enable"], "no regular file")?;
    untouched(GEMINI)?;
    std::fs::remove_file(gemini)?;
    std::fs::write(gemini, GEMINI)?;
    std::fs::set_permissions(gemini, PermissionsExt::from_mode(0o646))?;
    refused(&["enable"], "others than root may write")?;
    std::fs::set_permissions(gemini, PermissionsExt::from_mode(0o444))?;
    chown(gemini, Some(NOBODY), None)?;
    refused(&["enable"], "others than root may write")?;
    chown(gemini, Some(0), None)?;
    chown(folder, Some(NOBODY), None)?;
    refused(&["enable"], "others than root may write")?;
    chown(folder, Some(0), None)?;
    untouched(GEMINI)?;
    // A name that the command writes under, planted while the folder was somebody else's.
    symlink(&beside, folder.join("settings.kams-new"))?;
    Ok(())
}

/// Neither another user nor an agent may do it.
fn by_others(kams: &Kams, root: &Path) -> Result<()> {
    let stage = Stage::new()?;
    let copy = stage.path("bin/claude");
    std::fs::create_dir(stage.path("bin"))?;
    std::fs::copy(programs().join("kams"), stage.path("kams"))?;
    std::fs::copy("/bin/sh", &copy).context("a shell under an agent's name")?;
    let mut command = Command::new(programs().join("kams"));
    kams.aim(&mut command);
    command.args(["telemetry", "disable", "--root"]).arg(root);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let below = Command::new(&copy)
        .arg("-c")
        .arg(format!("{}; exit $?", words.join(" ")))
        .output()?;
    let text = String::from_utf8_lossy(&below.stderr).into_owned();
    ensure!(below.status.code() == Some(2) && text.contains("agent"), "{text}");
    for folder in ["", "kams"] {
        std::fs::set_permissions(stage.path(folder), PermissionsExt::from_mode(0o755))?;
    }
    let mut other = Command::new(stage.path("kams"));
    kams.aim(&mut other);
    let output = other
        .args(["telemetry", "enable", "--root"])
        .arg(root)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(2) && text.contains("only root"),
        "{text}"
    );
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    Ok(std::fs::read_to_string(path)?)
}
