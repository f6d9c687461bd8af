//! Every form of message, played by our own agent and server.

use std::sync::Arc;

use anyhow::{Result, ensure};
use kams_tests::compare::Rigour;
use kams_tests::forms::{Body, Case, Expect, TABLE};
use kams_tests::stage::Stage;
use libtest_mimic::Trial;

use crate::context::{Context, FORM_AGENT, FORM_SERVER, Scene, Verdict, base_name, one_talk};

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    TABLE
        .iter()
        .map(|case| {
            context.trial(Scene {
                name: format!("forms::{}", case.name),
                agent: "form-agent",
                server: format!("bin:{}", base_name(FORM_SERVER)),
                verdict: match case.expect {
                    Expect::Whole => Verdict::Same(Rigour::Exact),
                    Expect::Counted => Verdict::SameOrCounted,
                },
                packages: false,
                play: Box::new(|stage| play(case, stage)),
            })
        })
        .collect()
}

pub(crate) fn play(case: &Case, stage: &Stage) -> Result<()> {
    let mut command = stage.command(FORM_AGENT);
    command
        .args([case.name, FORM_SERVER])
        .env("KAMS_WITNESS", stage.path("witness"));
    stage.run_well(&mut command)?;
    let talk = one_talk(stage)?;
    let calls = if case.body == Body::Batch { 8 } else { 5 };
    let answered = talk.tool_calls().filter(|call| call.answer.is_some()).count();
    ensure!(
        answered == calls && talk.noise == 0,
        "{answered} of {calls} calls were answered: {talk:#?}"
    );
    Ok(())
}
