//! `kams wrap`.

use std::sync::Arc;

use kams_policy::{Mode, Policy};

use super::args::Wrap;
use super::{CliError, Ended, policy};

pub(super) fn run(options: &Wrap) -> Result<Ended, CliError> {
    let rules = match &options.policy {
        Some(file) => Some(Arc::new(policy::text::strict(file)?)),
        None if options.enforce => Some(Arc::new(
            Policy::default_policy().with_default_mode(Mode::Enforce),
        )),
        None => None,
    };
    let wrap = crate::wrap::Wrap {
        command: options.command.clone(),
        policy: rules,
        socket: options.relays.clone(),
        record: options.record.clone(),
        lift: options.lift,
    };
    wrap.run()
        .map(Ended::Like)
        .map_err(|error| CliError::Wrap(error.to_string()))
}
