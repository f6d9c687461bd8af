//! Measurements of one relay beside the direct connection.

use std::time::Duration;

use anyhow::Result;

use super::session::Session;

/// Result of one size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Median without a relay, in microseconds.
    pub direct: f64,
    /// Median with it.
    pub p50: f64,
    /// 99th percentile with it.
    pub p99: f64,
    /// Bytes of answers over the time of the calls, in MB/s.
    pub rate: f64,
    /// Peak memory between agent and server, in KiB.
    pub memory: u64,
}

impl Row {
    /// What the relay adds to the median, in microseconds.
    pub fn added(&self) -> f64 {
        self.p50 - self.direct
    }
}

/// Calls of `size` bytes, direct and relayed in turns.
pub fn calls(direct: &[String], relayed: &[String], size: usize, calls: usize) -> Result<Row> {
    let mut sessions = [Session::start(direct)?, Session::start(relayed)?];
    for session in &mut sessions {
        for _ in 0..calls.min(50) {
            session.call(size)?;
        }
    }
    let block = (calls / 20).max(1);
    let mut times = [Vec::new(), Vec::new()];
    let (mut bytes, mut spent) = (0, Duration::ZERO);
    while times[1].len() < calls {
        for (at, session) in sessions.iter_mut().enumerate() {
            for _ in 0..block {
                let (took, length) = session.call(size)?;
                times[at].push(took.as_secs_f64() * 1e6);
                if at == 1 {
                    bytes += length;
                    spent += took;
                }
            }
        }
    }
    let memory = sessions[1].memory("serve")?;
    for session in sessions {
        session.end()?;
    }
    let [mut direct, mut relayed] = times;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = bytes as f64 / spent.as_secs_f64() / 1e6;
    Ok(Row {
        direct: quantile(&mut direct, 50),
        p50: quantile(&mut relayed, 50),
        p99: quantile(&mut relayed, 99),
        rate,
        memory,
    })
}

/// Median time from start to first answer, direct and relayed, in milliseconds.
pub fn starts(direct: &[String], relayed: &[String], count: usize) -> Result<(f64, f64)> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..count {
        for (at, command) in [direct, relayed].into_iter().enumerate() {
            let session = Session::start(command)?;
            times[at].push(session.greeted.as_secs_f64() * 1e3);
            session.end()?;
        }
    }
    let [mut direct, mut relayed] = times;
    Ok((quantile(&mut direct, 50), quantile(&mut relayed, 50)))
}

/// A percentile; 0 of nothing.
pub fn quantile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = values.len().saturating_sub(1) * percent / 100;
    values.get(at).copied().unwrap_or_default()
}
