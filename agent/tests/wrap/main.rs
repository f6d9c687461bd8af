//! `kams wrap` as an agent meets it: a real process, a real server behind it (this program in another role), no
//! daemon.
#![expect(clippy::unwrap_used, reason = "a test")]

mod cases;
mod server;
mod session;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("serve") {
        return server::serve(words.next().as_deref());
    }
    let trials = cases::ALL
        .iter()
        .map(|(name, case)| {
            Trial::test(*name, || {
                case();
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
