//! `kams off` and `kams on` while relays stand.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kams_tests::kams::Kams;
use kams_tests::load::under_load;
use kams_tests::stage::Stage;
use libtest_mimic::Trial;
use serde_json::json;

use super::{RELAYED, RULES, open, secret, server_log, start, text};
use crate::context::{Context, programs};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    vec![
        context.with_kams("enforce::off-and-on", off_and_on),
        context.with_kams("enforce::off-and-on-under-load", under_switches),
    ]
}

fn switch(kams: &Kams, word: &str) -> Result<()> {
    let output = kams.kams(&[word])?;
    ensure!(
        output.status.success(),
        "kams {word}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Off, a living relay passes everything at once; on, it is judged again at once. Both are recorded.
fn off_and_on(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let kams = Kams::start_under(&programs(), RELAYED, &[("policy.yaml", RULES)])?;
    let stage = Stage::new()?;
    let mut agent = open(&kams, &stage, "switched")?;
    let call = json!({"text": secret()});
    text(&agent.call("say", &call)?, true)?;
    let held = agent.post("tools/call", &json!({"name": "wire", "arguments": {}}))?;
    kams.ask_until(&["approvals", "list"], "a held call", |answer| {
        answer["approvals"].as_array().is_some_and(|all| !all.is_empty())
    })?;
    let mark = kams.mark();
    switch(&kams, "off")?;
    let answer = agent.answer(held)?;
    ensure!(
        text(&answer["result"], true)?.contains("switched off"),
        "{answer}"
    );
    for _ in 0..3 {
        ensure!(
            text(&agent.call("say", &call)?, false)? == secret(),
            "a call while Kams is off"
        );
    }
    let other = Stage::new()?;
    let mut unseen = start(&other, "unseen")?;
    text(&unseen.call("say", &call)?, false)?;
    switch(&kams, "on")?;
    let refused = agent.call("say", &call)?;
    ensure!(text(&refused, true)?.contains("no-secrets"), "{refused}");
    text(&agent.call("say", &json!({"text": "fine"}))?, false)?;
    text(&unseen.call("say", &call)?, false)?;
    let events = kams.wait(mark, "both switches", |events| {
        let told = |word: &str| {
            let words = format!("{word}, by uid 0");
            events
                .iter()
                .any(|event| event.event == "daemon" && event.detail.as_deref() == Some(&words))
        };
        told("off") && told("on")
    })?;
    let gone = events.iter().any(|event| {
        event.event == "server_gone"
            && event.reason.as_deref() == Some("off")
            && event.agent_pid == Some(agent.agent_pid())
    });
    ensure!(gone, "the end of the judging is not told: {events:#?}");
    let pid = agent.agent_pid();
    let servers = kams.ask_until(&["servers"], "a relayed server", |answer| {
        let all = answer["servers"].as_array();
        all.is_some_and(|all| {
            all.iter()
                .any(|one| one["agent_pid"] == pid && one["state"] == "relayed")
        })
    });
    servers?;
    agent.close()?;
    unseen.close()?;
    let (read, _) = server_log(&stage)?;
    ensure!(
        String::from_utf8(read)?.matches("R7kQ2mZ9").count() == 3,
        "what the server got"
    );
    stop(kams)
}

/// Switched to and fro under load no message is lost, doubled or refused.
fn under_switches(context: &Context) -> Result<()> {
    context.stop_shared()?;
    let kams = Kams::start_under(&programs(), RELAYED, &[("policy.yaml", RULES)])?;
    let stage = Stage::new()?;
    let mut agent = open(&kams, &stage, "switched")?;
    let outcome = under_load(&stage, &mut agent, |progress| {
        for word in ["off", "on", "off", "on"] {
            progress.more(200)?;
            switch(&kams, word)?;
        }
        progress.more(200)
    })?;
    ensure!(
        outcome.made >= 1_000 && outcome.unjudged == 0,
        "{} {}",
        outcome.made,
        outcome.unjudged
    );
    text(&agent.call("say", &json!({"text": secret()}))?, true)?;
    agent.close()?;
    stop(kams)
}

fn stop(kams: Kams) -> Result<()> {
    let (status, log) = kams.stop()?;
    ensure!(status.success(), "kamsd ended with {status}\n{log}");
    Ok(())
}
