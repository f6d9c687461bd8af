//! The history of one run with one server, and the four conditions on it.

use std::collections::VecDeque;

use super::{Call, MAX_CALLS, MAX_TOOLS, WINDOW, digest};
use crate::finding::{Evidence, Finding, Kind, Severity};

/// Equal calls that make a thrash.
const THRASH: usize = 4;
/// Failures in a row that make a storm.
const STORM: u32 = 4;
/// Calls that an error rate needs.
const RATE_CALLS: usize = 6;
/// Calls of the window that are remembered.
const RATE_MEMORY: usize = 256;
/// Earlier successes that a median needs.
const MIN_SAMPLES: usize = 5;
/// Latest successes that a median is taken over.
const MAX_SAMPLES: usize = 16;
/// How much slower than its median a call must be.
const SLOW_FACTOR: f64 = 4.0;
/// And how slow at least: 1 s, in microseconds.
const SLOW_FLOOR: u32 = 1_000_000;

/// Whether two times lie within one window. A clock that jumped either way ends the window.
const fn together(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= WINDOW
}

/// When a condition was last reported.
#[derive(Clone, Copy, Default)]
struct Reported(Option<u64>);

impl Reported {
    /// Whether the condition may be reported now; notes that it is.
    fn may_report(&mut self, now: u64) -> bool {
        let quiet = self.0.is_some_and(|last| last.abs_diff(now) < WINDOW);
        if !quiet {
            self.0 = Some(now);
        }
        !quiet
    }
}

/// One tool.
struct Tool {
    name: u64,
    used: u64,
    failures: u32,
    first_failure: u64,
    storm: Reported,
    slow: Reported,
    /// Durations of the latest successes, in microseconds.
    samples: Vec<u32>,
    oldest: usize,
}

/// One call that may repeat.
struct Repeat {
    tool: u64,
    arguments: u64,
    result: u64,
    used: u64,
    times: [u64; THRASH],
    count: usize,
    thrash: Reported,
}

#[derive(Default)]
pub(super) struct History {
    /// Counts calls: the clock of "least recently used".
    calls: u64,
    tools: Vec<Tool>,
    repeats: Vec<Repeat>,
    outcomes: VecDeque<(u64, bool)>,
    rate: Reported,
}

impl History {
    /// Takes in a call; returns what it makes true, and how many entries had to go for it.
    pub(super) fn observe(&mut self, call: &Call<'_>) -> (Vec<Finding>, u64) {
        self.calls += 1;
        let name = digest(call.tool.as_bytes());
        let mut findings = Vec::new();
        let mut evicted = 0;
        findings.extend(self.thrash(call, name, &mut evicted));
        findings.extend(self.tool(call, name, &mut evicted));
        findings.extend(self.error_rate(call));
        (findings, evicted)
    }

    fn thrash(&mut self, call: &Call<'_>, name: u64, evicted: &mut u64) -> Option<Finding> {
        let used = self.calls;
        let known = self
            .repeats
            .iter()
            .position(|r| r.tool == name && r.arguments == call.arguments);
        let at = if let Some(at) = known {
            at
        } else {
            let new = Repeat {
                tool: name,
                arguments: call.arguments,
                result: call.result,
                used,
                times: [0; THRASH],
                count: 0,
                thrash: Reported::default(),
            };
            place(&mut self.repeats, new, MAX_CALLS, |r| r.used, evicted)
        };
        let repeat = self.repeats.get_mut(at)?;
        repeat.used = used;
        if repeat.result != call.result {
            repeat.result = call.result;
            repeat.count = 0;
        }
        if repeat.count == THRASH {
            repeat.times.rotate_left(1);
            repeat.count -= 1;
        }
        if let Some(slot) = repeat.times.get_mut(repeat.count) {
            *slot = call.at;
            repeat.count += 1;
        }
        let recent = repeat
            .times
            .iter()
            .take(repeat.count)
            .filter(|t| together(**t, call.at));
        if recent.clone().count() < THRASH {
            return None;
        }
        let span = recent.map(|t| t.abs_diff(call.at)).max().unwrap_or(0);
        repeat.thrash.may_report(call.at).then(|| Finding {
            code: "KAMS-BEH-001",
            detector: "behavioural.thrash",
            kind: Kind::Behaviour,
            severity: Severity::Medium,
            confidence: 0.9,
            tool: Some(call.tool.to_owned()),
            cause: format!("thrash {} {:016x}", call.tool, call.arguments),
            evidence: Evidence::Behaviour {
                count: 4,
                seconds: seconds(span),
                ratio: None,
            },
        })
    }

    /// Retry storm and latency.
    fn tool(&mut self, call: &Call<'_>, name: u64, evicted: &mut u64) -> Vec<Finding> {
        let used = self.calls;
        let at = if let Some(at) = self.tools.iter().position(|t| t.name == name) {
            at
        } else {
            let new = Tool {
                name,
                used,
                failures: 0,
                first_failure: 0,
                storm: Reported::default(),
                slow: Reported::default(),
                samples: Vec::new(),
                oldest: 0,
            };
            place(&mut self.tools, new, MAX_TOOLS, |t| t.used, evicted)
        };
        let mut findings = Vec::new();
        let Some(tool) = self.tools.get_mut(at) else {
            return findings;
        };
        tool.used = used;
        if call.failed {
            if tool.failures == 0 {
                tool.first_failure = call.at;
            }
            tool.failures = tool.failures.saturating_add(1);
            if tool.failures >= STORM && tool.storm.may_report(call.at) {
                findings.push(Finding {
                    code: "KAMS-BEH-002",
                    detector: "behavioural.retry_storm",
                    kind: Kind::Behaviour,
                    severity: Severity::Medium,
                    confidence: 0.9,
                    tool: Some(call.tool.to_owned()),
                    cause: format!("retry_storm {}", call.tool),
                    evidence: Evidence::Behaviour {
                        count: tool.failures,
                        seconds: seconds(call.at.abs_diff(tool.first_failure)),
                        ratio: None,
                    },
                });
            }
        } else {
            tool.failures = 0;
        }
        let micros = u32::try_from(call.duration / 1_000).unwrap_or(u32::MAX);
        if let Some(median) = tool.median()
            && micros >= SLOW_FLOOR
            && f64::from(micros) >= SLOW_FACTOR * median
            && tool.slow.may_report(call.at)
        {
            findings.push(Finding {
                code: "KAMS-BEH-004",
                detector: "behavioural.latency_degradation",
                kind: Kind::Behaviour,
                severity: Severity::Low,
                confidence: 0.8,
                tool: Some(call.tool.to_owned()),
                cause: format!("latency {}", call.tool),
                evidence: Evidence::Behaviour {
                    count: 1,
                    seconds: seconds(call.duration),
                    // A median of zero is compared as one microsecond.
                    ratio: Some(f64::from(micros) / median.max(1.0)),
                },
            });
        }
        if !call.failed {
            tool.sample(micros);
        }
        findings
    }

    fn error_rate(&mut self, call: &Call<'_>) -> Option<Finding> {
        self.outcomes.retain(|(at, _)| together(*at, call.at));
        if self.outcomes.len() >= RATE_MEMORY {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back((call.at, call.failed));
        let failed = self.outcomes.iter().filter(|(_, failed)| *failed).count();
        let total = self.outcomes.len();
        if total < RATE_CALLS || failed * 2 < total || !self.rate.may_report(call.at) {
            return None;
        }
        let span = self
            .outcomes
            .iter()
            .map(|(at, _)| at.abs_diff(call.at))
            .max()
            .unwrap_or(0);
        let (failed, total) = (u32::try_from(failed).ok()?, u32::try_from(total).ok()?);
        Some(Finding {
            code: "KAMS-BEH-003",
            detector: "behavioural.error_rate",
            kind: Kind::Behaviour,
            severity: Severity::Medium,
            confidence: 0.9,
            tool: None,
            cause: "error_rate".to_owned(),
            evidence: Evidence::Behaviour {
                count: total,
                seconds: seconds(span),
                ratio: Some(f64::from(failed) / f64::from(total)),
            },
        })
    }

    /// Bytes on the heap, by capacity.
    pub(super) fn heap_size(&self) -> usize {
        self.tools.capacity() * size_of::<Tool>()
            + self
                .tools
                .iter()
                .map(|t| t.samples.capacity() * size_of::<u32>())
                .sum::<usize>()
            + self.repeats.capacity() * size_of::<Repeat>()
            + self.outcomes.capacity() * size_of::<(u64, bool)>()
    }
}

impl Tool {
    /// Median of the samples, in microseconds; none while there are too few.
    fn median(&self) -> Option<f64> {
        if self.samples.len() < MIN_SAMPLES {
            return None;
        }
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        let middle = sorted.len() / 2;
        let upper = f64::from(*sorted.get(middle)?);
        if sorted.len() % 2 == 1 {
            return Some(upper);
        }
        Some(f64::midpoint(f64::from(*sorted.get(middle - 1)?), upper))
    }

    fn sample(&mut self, micros: u32) {
        if self.samples.len() < MAX_SAMPLES {
            self.samples.push(micros);
        } else if let Some(slot) = self.samples.get_mut(self.oldest) {
            *slot = micros;
            self.oldest = (self.oldest + 1) % MAX_SAMPLES;
        }
    }
}

/// Puts `new` into `list`, in the place of the least recently used entry once `max` are there; returns where.
fn place<T>(list: &mut Vec<T>, new: T, max: usize, used: impl Fn(&T) -> u64, evicted: &mut u64) -> usize {
    if list.len() < max {
        list.push(new);
        return list.len() - 1;
    }
    let oldest = list
        .iter()
        .enumerate()
        .min_by_key(|(_, entry)| used(entry))
        .map_or(0, |(at, _)| at);
    if let Some(slot) = list.get_mut(oldest) {
        *slot = new;
        *evicted += 1;
    }
    oldest
}

/// Nanoseconds as seconds.
fn seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}
