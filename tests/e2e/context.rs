//! What all tests share: whether and where Kams runs, and the comparison after each scene.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use kams_tests::compare::Rigour;
use kams_tests::kit;
use kams_tests::stage::Stage;
use kams_tests::wire::Talk;
use libtest_mimic::{Completion, Failed, Trial};

/// The driver programs of this crate.
pub(crate) const BOX: &str = env!("CARGO_BIN_EXE_kams-box");
pub(crate) const FORM_AGENT: &str = env!("CARGO_BIN_EXE_form-agent");
pub(crate) const FORM_SERVER: &str = env!("CARGO_BIN_EXE_form-server");

/// Shared by all trials.
pub(crate) struct Context {
    harness_only: bool,
}

/// Plays a scene on its stage.
pub(crate) type Play = Box<dyn Fn(&Stage) -> Result<()> + Send>;

/// One agent with one server, and what Kams must say of it.
pub(crate) struct Scene {
    /// Name of the trial.
    pub(crate) name: String,
    /// Name of the agent.
    pub(crate) agent: &'static str,
    /// Identity of the server.
    pub(crate) server: String,
    /// Exactness.
    pub(crate) rigour: Rigour,
    /// Plays it and checks that agent and server did what they should.
    pub(crate) play: Play,
    /// Needs npm and Python packages.
    pub(crate) packages: bool,
}

impl Context {
    pub(crate) fn new(harness_only: bool) -> Self {
        Self { harness_only }
    }

    /// The trial of a scene: plays it on a stage of its own, then compares.
    pub(crate) fn trial(self: &Arc<Self>, scene: Scene) -> Trial {
        let context = Arc::clone(self);
        Trial::ignorable_test(scene.name.clone(), move || context.run(&scene))
    }

    fn run(&self, scene: &Scene) -> Result<Completion, Failed> {
        if let Some(missing) = kit::missing_packages().filter(|_| scene.packages) {
            return Ok(Completion::ignored_with(missing));
        }
        let stage = Stage::new()?;
        (scene.play)(&stage).map_err(|error| format!("{error:#}"))?;
        one_talk(&stage).map_err(|error| format!("{error:#}"))?;
        if self.harness_only {
            return Ok(Completion::Completed);
        }
        Err("no daemon".into())
    }
}

/// The record of the one server of a stage.
pub(crate) fn one_talk(stage: &Stage) -> Result<Talk> {
    let mut talks = stage.talks()?;
    ensure!(
        talks.len() == 1,
        "{} servers left a record, one was started",
        talks.len()
    );
    let talk = talks.remove(0);
    ensure!(!talk.exchanges.is_empty(), "the server recorded nothing");
    Ok(talk)
}

/// The base name of a path, as Kams names an executable.
pub(crate) fn base_name(path: &str) -> String {
    Path::new(path)
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
