//! Recorded sessions of real clients and servers, through `kams replay`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use kams_tests::compare::{Rigour, compare};
use kams_tests::event::Event;
use kams_tests::kit;
use kams_tests::wire::Talk;
use libtest_mimic::{Completion, Trial};
use serde_json::Value;

use crate::context::{Context, programs};

pub(crate) fn trials(context: &Context) -> Vec<Trial> {
    let folder = kit::transcripts();
    let mut files: Vec<PathBuf> = folder
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    if files.is_empty() {
        let skip = || {
            Ok(Completion::ignored_with(
                "no recorded sessions beside the repository",
            ))
        };
        return vec![Trial::ignorable_test("transcripts::all", skip)];
    }
    let harness_only = context.harness_only();
    files
        .into_iter()
        .map(|file| {
            let name = file
                .file_stem()
                .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            Trial::test(format!("transcripts::{name}"), move || {
                let talk = recorded(&file).map_err(|error| format!("{error:#}"))?;
                if harness_only {
                    return Ok(());
                }
                replayed(&file, &talk).map_err(|error| format!("{error:#}").into())
            })
        })
        .collect()
}

/// The session as its lines tell it.
fn recorded(file: &Path) -> Result<Talk> {
    let (mut input, mut output) = (String::new(), String::new());
    for line in std::fs::read_to_string(file)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        let Some(raw) = line["raw"].as_str() else { continue };
        let side = if line["dir"] == "c>s" {
            &mut input
        } else {
            &mut output
        };
        side.push_str(raw);
        side.push('\n');
    }
    let talk = Talk::from_streams(
        0,
        vec![file.display().to_string()],
        input.as_bytes(),
        output.as_bytes(),
    );
    ensure!(!talk.exchanges.is_empty(), "a recording without a request");
    Ok(talk)
}

fn replayed(file: &Path, talk: &Talk) -> Result<()> {
    let output = Command::new(programs().join("kams"))
        .args(["replay", "-o", "json"])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .context("kams replay")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // 1 says that there were findings, which is no failure here.
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "kams replay ended with {}: {errors}",
        output.status
    );
    let events: Vec<Event> = String::from_utf8(output.stdout)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    compare(talk, &events, Rigour::Exact)
}
