//! Bad input and trouble: capture must go on, every loss must show, nothing may grow or hang.

mod daemon;
mod odd;
mod secrets;
mod users;

use std::sync::Arc;

use libtest_mimic::Trial;

use crate::context::Context;

pub(crate) fn trials(context: &Arc<Context>) -> Vec<Trial> {
    [
        odd::trials(context),
        users::trials(context),
        daemon::trials(context),
        secrets::trials(context),
    ]
    .into_iter()
    .flatten()
    .collect()
}
