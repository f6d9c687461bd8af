//! Another policy while Kams runs: by signal, by the file itself, by command; and a bad one.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kams_tests::kams::Kams;
use libtest_mimic::Trial;
use serde_json::Value;

use super::{daemon, list};
use crate::context::Context;

const FIRST: &str = "version: 1\nrules: [{name: first, match: {}, action: alert}]\n";
const SECOND: &str = "version: 1\nrules: [{name: second, match: {}, action: alert}]\n";
const THIRD: &str = "version: 1\nrules: [{name: third, match: {}, action: alert}]\n";
const BAD: &str = "version: 1\nrules:\n- {name: bad, match: {}, action: alert}\n- {name: worse, match: {kin: WASTE}, action: alarm}\n";

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("policy::reload", reload),
        context.with_kams("policy::folder-that-is-not-there", no_folder),
    ]
}

/// As editors save: beside it, then over it.
fn save(kams: &Kams, text: &str) -> Result<()> {
    let beside = kams.policy(".policy.yaml.new");
    std::fs::write(&beside, text)?;
    Ok(std::fs::rename(beside, kams.policy("policy.yaml"))?)
}

fn rule(answer: &Value) -> Option<&str> {
    answer["policy"]["rules"][0]["name"].as_str()
}

fn counted(kams: &Kams, result: &str) -> Result<f64> {
    let name = format!("kams_policy_reload_total{{result=\"{result}\"}}");
    Ok(kams.metrics()?.get(&name).copied().unwrap_or_default())
}

fn reload(context: &Context) -> Result<()> {
    let mut kams = daemon(context, &[("policy.yaml", FIRST)])?;
    let show = ["policy", "show"];
    let first = kams.ask(&show)?;
    ensure!(rule(&first) == Some("first"), "{first}");
    let good = counted(&kams, "ok")?;

    save(&kams, SECOND)?;
    kams.ask_until(&show, "the saved file is in force", |answer| {
        rule(answer) == Some("second")
    })?;
    ensure!(counted(&kams, "ok")? > good, "the reload is not counted");

    save(&kams, BAD)?;
    let refused = kams.ask_until(&show, "the bad file is refused", |answer| {
        !answer["refused"].is_null()
    })?;
    ensure!(
        rule(&refused) == Some("second"),
        "a bad policy replaced a good one: {refused}"
    );
    let problems = list(&refused["refused"], "problems");
    ensure!(problems.len() == 2, "every problem at once: {problems:#?}");
    for (problem, (column, word)) in problems.iter().zip([(25, "kind"), (46, "alert")]) {
        let text = problem["text"].as_str().unwrap_or_default();
        ensure!(
            problem["line"] == 4 && problem["column"] == column && text.contains(word),
            "line, column and suggestion: {problem:#}"
        );
    }
    kams.metric_until("kams_policy_reload_total{result=\"error\"}", 1.0)?;
    let status = kams.ask(&["status"])?;
    ensure!(
        list(&status, "notes")
            .iter()
            .any(|note| note.to_string().contains("policy.yaml is refused (2 problems)")),
        "status is silent: {status:#}"
    );
    ensure!(
        kams.log()
            .contains("the policy is refused, the running one stays"),
        "the log is silent"
    );
    let order = kams.kams(&["policy", "reload"])?;
    ensure!(
        order.status.code() == Some(2) && String::from_utf8_lossy(&order.stderr).contains("policy.yaml:4:25"),
        "`kams policy reload` does not fail: {order:?}"
    );

    let before = counted(&kams, "ok")?;
    save(&kams, THIRD)?;
    let config = std::fs::read_to_string(kams.config())?;
    kams.reload(&config)?;
    let third = kams.ask(&show)?;
    ensure!(
        rule(&third) == Some("third") && third["refused"].is_null(),
        "SIGHUP does not read the policy: {third}"
    );
    ensure!(
        counted(&kams, "ok")? > before,
        "the reload by signal is not counted"
    );
    let status = kams.ask(&["status"])?;
    ensure!(
        list(&status, "notes").is_empty(),
        "status still complains: {status:#}"
    );

    std::fs::remove_file(kams.policy("policy.yaml"))?;
    let gone = kams.ask_until(&show, "the loss of the file is noticed", |answer| {
        !answer["refused"].is_null()
    })?;
    ensure!(
        rule(&gone) == Some("third"),
        "without its file the policy is gone: {gone}"
    );
    Ok(())
}

/// The folder of the policy may be made after Kams has started.
fn no_folder(context: &Context) -> Result<()> {
    let kams = daemon(context, &[("policy.yaml", FIRST)])?;
    let folder = kams.policy("");
    let elsewhere = folder.with_file_name("elsewhere");
    std::fs::rename(&folder, &elsewhere)?;
    let show = ["policy", "show"];
    kams.ask_until(&show, "the loss of the folder is noticed", |answer| {
        !answer["refused"].is_null()
    })?;
    std::fs::write(elsewhere.join("policy.yaml"), SECOND)?;
    std::fs::rename(&elsewhere, &folder)?;
    kams.ask_until(&show, "the folder is found again", |answer| {
        rule(answer) == Some("second")
    })?;
    save(&kams, THIRD)?;
    kams.ask_until(&show, "the folder is watched again", |answer| {
        rule(answer) == Some("third")
    })?;
    Ok(())
}
