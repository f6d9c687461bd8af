//! Measurements of one relay beside the direct connection.

use std::time::Duration;

use anyhow::Result;

use super::remote::Remote;
use super::session::{Session, Start};

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

/// Calls in a row.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// What each took, in microseconds.
    pub micros: Vec<f64>,
    /// Of answers.
    pub bytes: usize,
    /// In all.
    pub spent: Duration,
}

/// A session behind a relay.
pub trait Relayed {
    /// That many calls.
    fn calls(&mut self, size: usize, count: usize) -> Result<Block>;

    /// Peak memory between agent and server, in KiB; 0 where it is not known.
    fn memory(&self) -> Result<u64>;
}

impl Relayed for Session {
    fn calls(&mut self, size: usize, count: usize) -> Result<Block> {
        Self::calls(self, size, count)
    }

    fn memory(&self) -> Result<u64> {
        Self::memory(self, "serve")
    }
}

impl Relayed for Remote {
    fn calls(&mut self, size: usize, count: usize) -> Result<Block> {
        Self::calls(self, size, count)
    }

    fn memory(&self) -> Result<u64> {
        Ok(0)
    }
}

/// Calls of `size` bytes, direct and relayed in turns.
pub fn calls(direct: &[String], relayed: &mut impl Relayed, size: usize, calls: usize) -> Result<Row> {
    let mut direct = Session::start(direct)?;
    direct.calls(size, calls.min(50))?;
    relayed.calls(size, calls.min(50))?;
    let block = (calls / 20).max(1);
    let (mut alone, mut through) = (Block::default(), Block::default());
    while through.micros.len() < calls {
        for (sum, more) in [
            (&mut alone, direct.calls(size, block)?),
            (&mut through, relayed.calls(size, block)?),
        ] {
            sum.micros.extend(more.micros);
            sum.bytes += more.bytes;
            sum.spent += more.spent;
        }
    }
    let memory = relayed.memory()?;
    direct.end()?;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = through.bytes as f64 / through.spent.as_secs_f64() / 1e6;
    Ok(Row {
        direct: quantile(&mut alone.micros, 50),
        p50: quantile(&mut through.micros, 50),
        p99: quantile(&mut through.micros, 99),
        rate,
        memory,
    })
}

/// Median times of starts, direct and relayed in turns, in milliseconds.
pub fn starts(
    direct: &[String],
    mut relayed: impl FnMut() -> Result<Start>,
    count: usize,
) -> Result<(Start, Start)> {
    let (mut alone, mut through) = (Vec::new(), Vec::new());
    for _ in 0..count {
        alone.push(start(direct)?);
        through.push(relayed()?);
    }
    let median = |all: &[Start]| Start {
        begun: quantile(&mut all.iter().map(|one| one.begun).collect::<Vec<_>>(), 50),
        greeted: quantile(&mut all.iter().map(|one| one.greeted).collect::<Vec<_>>(), 50),
    };
    Ok((median(&alone), median(&through)))
}

/// One session from its start to its end.
pub fn start(command: &[String]) -> Result<Start> {
    let session = Session::start(command)?;
    let start = session.start;
    session.end()?;
    Ok(start)
}

/// A percentile; 0 of nothing.
pub fn quantile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = values.len().saturating_sub(1) * percent / 100;
    values.get(at).copied().unwrap_or_default()
}
