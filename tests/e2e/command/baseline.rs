//! `kams baseline`: a definition that changes, and what people decide about it.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::Value;

use super::{HARMLESS, POISON, SERVER, daemon, list, listed, tools};
use crate::context::Context;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![context.with_kams("command::baseline", baseline)]
}

/// The one baseline of the server.
fn row(kams: &Kams) -> Result<Value> {
    let answer = kams.ask(&["baseline", "show", SERVER])?;
    let rows = list(&answer, "baselines");
    ensure!(rows.len() == 1, "one tool, these rows: {answer:#}");
    Ok(rows[0].clone())
}

fn well(kams: &Kams, words: &[&str]) -> Result<String> {
    let output = kams.kams(words)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success(), "kams {words:?}: {said}");
    Ok(said)
}

fn baseline(context: &Context) -> Result<()> {
    let kams = daemon(context)?;
    let stage = Stage::new()?;
    listed(&kams, &stage, &tools(&stage, HARMLESS)?)?;
    let first = row(&kams)?;
    ensure!(
        first["state"] == "provisional" && first["item"] == "tool:add" && first["changed"] == false,
        "{first:#}"
    );
    well(&kams, &["baseline", "pin", SERVER, "add"])?;
    let pinned = row(&kams)?;
    ensure!(
        pinned["state"] == "pinned" && pinned["changed_by"] == 0,
        "{pinned:#}"
    );
    let export = stage.write("baselines.jsonl", well(&kams, &["baseline", "export"])?)?;
    let export = export.to_string_lossy().into_owned();

    listed(&kams, &stage, &tools(&stage, POISON)?)?;
    let findings = kams.kams(&["findings", "-o", "json", "--fail-on", "critical"])?;
    ensure!(
        findings.status.code() == Some(1),
        "critical drift does not fail the command: {findings:?}"
    );
    let drift = String::from_utf8(findings.stdout)?;
    let drift: Value = drift
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find(|finding: &Value| finding["detector"] == "integrity.definition_drift")
        .context("no drift")?;
    ensure!(
        drift["severity"] == "CRITICAL"
            && drift["would"] == "block_server"
            && drift["tool"] == "add"
            && drift["evidence"]["description_before"] == HARMLESS,
        "{drift:#}"
    );
    let changed = row(&kams)?;
    ensure!(
        changed["changed"] == true && changed["state"] == "pinned",
        "{changed:#}"
    );
    let diff = well(&kams, &["baseline", "diff", SERVER])?;
    ensure!(diff.contains("IMPORTANT") && diff.contains("tool:add"), "{diff}");
    let seen = kams.ask(&["baseline", "diff", SERVER])?;
    ensure!(
        list(&seen, "baselines")[0]["seen"]["about"]["description"] == POISON,
        "{seen:#}"
    );

    well(&kams, &["baseline", "accept", SERVER, "add"])?;
    ensure!(
        list(&kams.ask(&["baseline", "diff", SERVER])?, "baselines").is_empty(),
        "an accepted change stays open"
    );
    well(&kams, &["baseline", "unpin", SERVER])?;
    let accepted = row(&kams)?;
    ensure!(
        accepted["state"] == "provisional" && accepted["changed"] == false,
        "{accepted:#}"
    );

    // The exported file brings the pinned, harmless one back, here and after a restart.
    let dry = well(&kams, &["baseline", "import", "--dry-run", &export])?;
    ensure!(
        dry.contains("1 would change") && row(&kams)?["state"] == "provisional",
        "{dry}"
    );
    well(&kams, &["baseline", "import", &export])?;
    ensure!(row(&kams)?["state"] == "pinned", "the import does not hold");
    let kams = kams.restart()?;
    let again = row(&kams)?;
    ensure!(
        again["state"] == "pinned" && again["changed"] == true,
        "after a restart: {again:#}"
    );
    listed(&kams, &stage, &tools(&stage, HARMLESS)?)?;
    ensure!(
        row(&kams)?["changed"] == false,
        "back to the baseline is no change"
    );

    let text = std::fs::read_to_string(&export)?;
    for (name, bad) in [
        (
            "cut",
            text.get(..text.len() - 20).context("a short export")?.to_owned(),
        ),
        ("headless", text.lines().skip(1).collect::<Vec<_>>().join("\n")),
        ("foreign", text.replace("\"tool:add\"", "\"tool:other\"")),
        ("newer", text.replacen("\"schema\":1", "\"schema\":99", 1)),
    ] {
        let file = stage.write(name, bad)?;
        let output = kams.kams(&["baseline", "import", &file.to_string_lossy()])?;
        ensure!(
            output.status.code() == Some(2),
            "an import of a {name} file: {output:?}"
        );
    }
    ensure!(
        row(&kams)?["state"] == "pinned",
        "a refused import changed something"
    );
    for words in [
        ["pin", "npm:nobody"],
        ["accept", "npm:nobody"],
        ["unpin", "npm:nobody"],
    ] {
        let output = kams.kams(&[&["baseline"][..], &words].concat())?;
        ensure!(output.status.code() == Some(2), "{words:?}: {output:?}");
    }
    Ok(())
}
