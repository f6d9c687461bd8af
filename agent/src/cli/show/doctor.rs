//! `kams doctor`.

use std::io;

use kams_export::text::visible;
use kams_export::view::{CheckResult, DoctorView};

use crate::cli::out::{Ink, Out};

pub(in crate::cli) fn doctor(view: &DoctorView, out: &mut Out) -> io::Result<()> {
    let mut area = None;
    for check in &view.checks {
        if area != Some(&check.area) {
            if area.is_some() {
                out.line("")?;
            }
            let title = out.ink(Ink::Strong, &visible(&check.area));
            out.line(&title)?;
            area = Some(&check.area);
        }
        let mark = match check.result {
            CheckResult::Ok => out.ink(Ink::Good, "ok  "),
            CheckResult::Info => "info".to_owned(),
            CheckResult::Warn => out.ink(Ink::Odd, "WARN"),
            CheckResult::Fail => out.ink(Ink::Bad, "FAIL"),
            CheckResult::Unknown => "?   ".to_owned(),
        };
        out.line(&format!(
            "  {mark}  {}: {}",
            visible(&check.name),
            visible(&check.detail)
        ))?;
        if let Some(remedy) = &check.remedy {
            out.line(&format!("        -> {}", visible(remedy)))?;
        }
    }
    let count = |result| view.checks.iter().filter(|c| c.result == result).count();
    out.line("")?;
    out.line(&format!(
        "{} checks: {} failed, {} with limits",
        view.checks.len(),
        count(CheckResult::Fail),
        count(CheckResult::Warn)
    ))
}
