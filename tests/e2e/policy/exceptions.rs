//! `kams exceptions`: a finding that somebody accepts, while Kams runs and after a restart.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::planted::Planted;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::{daemon, findings, list, one_call};
use crate::context::Context;

const RULES: &str = "
version: 1
rules: [{name: no-keys, match: {kind: EGRESS_SENSITIVE}, action: block_call}]
exceptions: [{match: {tool: vault_put}, owner: platform, reason: The vault may., expires: 2100-01-01}]
";

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![context.with_kams("policy::exceptions", exceptions)]
}

/// A call with a key in it; the finding of it.
fn leak(kams: &Kams, tool: &str) -> Result<Value> {
    let before = findings(kams, "any", |_| true)?.len();
    let key = Planted::default().new_value("github_token", "an argument")?;
    one_call(kams, tool, &json!({"text": key}))?;
    let all = findings(kams, "the key is found", |all| all.len() > before)?;
    all.last().cloned().context("a finding")
}

fn exceptions(context: &Context) -> Result<()> {
    let kams = daemon(context, &[("policy.yaml", RULES)])?;
    let first = leak(&kams, "send")?;
    ensure!(first["would"] == "block_call", "{first:#}");
    ensure!(
        leak(&kams, "vault_put")?["would"].is_null(),
        "the file's exception does not count"
    );

    let fingerprint = first["fingerprint"].as_str().context("a fingerprint")?.to_owned();
    let add =
        |more: &[&str]| kams.kams(&[&["exceptions", "add", "--fingerprint", &fingerprint], more].concat());
    let whole = [
        "--owner",
        "ana",
        "--reason",
        "A test key.",
        "--expires",
        "2100-01-01",
    ];
    for left_out in [0, 2, 4] {
        let mut words = whole.to_vec();
        words.drain(left_out..left_out + 2);
        ensure!(
            add(&words)?.status.code() == Some(2),
            "taken without {}",
            whole[left_out]
        );
    }
    let mut late = whole;
    late[5] = "2020-01-01";
    ensure!(
        add(&late)?.status.code() == Some(2),
        "an exception of the past is taken"
    );
    let all = kams.kams(&[
        "exceptions",
        "add",
        "--match",
        "tool=send",
        "--match",
        "kin=x",
        "--owner",
        "a",
        "--reason",
        "b",
        "--expires",
        "2100-01-01",
    ])?;
    ensure!(
        all.status.code() == Some(2) && String::from_utf8_lossy(&all.stderr).contains("kin"),
        "{all:?}"
    );
    let added = add(&whole)?;
    ensure!(
        added.status.success(),
        "{}",
        String::from_utf8_lossy(&added.stderr)
    );
    let excepted = leak(&kams, "send")?;
    ensure!(
        excepted["fingerprint"] == fingerprint.as_str() && excepted["would"].is_null(),
        "the exception does not count: {excepted:#}"
    );
    ensure!(
        leak(&kams, "post")?["would"] == "block_call",
        "it counts for other findings too"
    );
    // By the policy that the daemon judges by, wherever its file is.
    let explained = kams.ask(&["policy", "explain", &fingerprint])?;
    ensure!(
        explained["rules"][0]["verdict"]
            .as_str()
            .is_some_and(|verdict| verdict.contains("ana: A test key.")),
        "{explained:#}"
    );

    let kams = kams.restart()?;
    let listed = kams.ask(&["exceptions", "list"])?;
    let [file, ours] = list(&listed, "exceptions") else {
        anyhow::bail!("two exceptions: {listed:#}")
    };
    ensure!(file["from"] == "file" && file["owner"] == "platform", "{file}");
    ensure!(
        ours["owner"] == "ana" && ours["added_by"] == "root" && ours["fingerprint"] == fingerprint.as_str(),
        "{ours}"
    );
    ensure!(
        leak(&kams, "send")?["would"].is_null(),
        "the exception is gone after a restart"
    );
    let id = ours["id"].to_string();
    ensure!(
        kams.kams(&["exceptions", "remove", &id])?.status.success(),
        "it cannot be removed"
    );
    ensure!(
        kams.kams(&["exceptions", "remove", &id])?.status.code() == Some(2),
        "removed twice"
    );
    ensure!(
        leak(&kams, "send")?["would"] == "block_call",
        "a removed exception counts"
    );
    Ok(())
}
