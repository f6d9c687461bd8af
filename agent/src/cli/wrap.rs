//! `kams wrap`.

use std::sync::Arc;

use kams_policy::{NoFiles, Policy};

use super::args::Wrap;
use super::{CliError, Ended, policy};

pub(super) fn run(options: &Wrap) -> Result<Ended, CliError> {
    let rules = match &options.policy {
        Some(file) => Some(Arc::new(policy::text::strict(file)?)),
        None if options.enforce => Some(Arc::new(enforced()?)),
        None => None,
    };
    let wrap = crate::wrap::Wrap {
        command: options.command.clone(),
        policy: rules,
        socket: options.relays.clone(),
        record: options.record.clone(),
    };
    wrap.run()
        .map(Ended::Like)
        .map_err(|error| CliError::Wrap(error.to_string()))
}

/// The default policy in enforce mode.
fn enforced() -> Result<Policy, CliError> {
    let text = Policy::default_text().replace("\nmode: observe", "\nmode: enforce");
    Policy::load("default.yaml", &text, &NoFiles).map_err(|problems| policy::text::refused(&problems))
}
