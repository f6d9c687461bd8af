//! Kams as a service: installed as the README says, on a host whose first process is systemd, which runs these tests as
//! root. Not for a host that is used: it installs, stops and kills. `cargo xtask vm --systemd` makes one.
//!
//! `KAMS_REPOSITORY` names the folder with README.md, `dist` and the built programs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use kams_tests::service;
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments {
        test_threads: Some(1),
        color: Some(libtest_mimic::ColorSetting::Never),
        ..Arguments::from_args()
    };
    libtest_mimic::run(&arguments, service::trials()).exit_code()
}
