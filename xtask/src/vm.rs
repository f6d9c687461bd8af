//! `cargo xtask vm`: the tests that depend on the kernel, on other kernels, under qemu's software emulation.
//!
//! The guests run the very programs that were built for this machine, with the libraries they need beside them.

mod apt;
mod debian;
mod emulator;
mod image;
mod kernels;
pub(crate) mod overhead;
mod programs;
mod services;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kams_vm_tests::guest::{Guest, Run};
use kams_vm_tests::plan::Program;

use crate::host;
use crate::suite::Outcome;
use kernels::{Image, Kernel, MATRIX};
use programs::Tests;

/// Which guests, which tests.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Only this kernel: 5.10, 5.10-nolsm, 6.1, 6.12, 6.18 or newest. May be given several times.
    #[arg(long)]
    kernel: Vec<String>,
    /// Only tests whose name contains this word. May be given several times.
    #[arg(long)]
    filter: Vec<String>,
    /// Show what the guests write as it comes.
    #[arg(long)]
    verbose: bool,
    /// Short-lived servers in the test of what they leave behind, instead of 1,500.
    #[arg(long)]
    churn: Option<u32>,
    /// Run the tests of Kams as a service instead, in a guest in which systemd is the first process (kernel 6.1, unless
    /// others are named). Takes some minutes; not part of `cargo xtask test`.
    #[arg(long)]
    systemd: bool,
    /// Guests at a time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

impl Arguments {
    /// What is to pass at every change: the forms of messages on one kernel. Emulated, all tests of one kernel take minutes;
    /// those and the other kernels are for `cargo xtask vm`.
    pub(crate) fn usual() -> Self {
        Self {
            kernel: vec!["6.1".to_owned()],
            filter: vec!["forms".to_owned()],
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            ..Self::default()
        }
    }
}

/// Memory of a guest, MiB: a ring of 64 MiB, messages of 16 MiB several times over, and the programs themselves.
const MEMORY: u32 = 1024;
/// A guest that takes longer than this is stuck. All tests of one kernel take ten minutes on a quiet machine.
const LIMIT: Duration = Duration::from_mins(45);

/// Everything that every guest of a run shares.
pub(crate) struct Bench {
    folder: PathBuf,
    tools: emulator::Tools,
    init: PathBuf,
}

impl Bench {
    /// Fetches and builds what is needed.
    pub(crate) fn set_up() -> Result<Self> {
        let folder = host::target().join("vm");
        std::fs::create_dir_all(&folder)?;
        Ok(Self {
            tools: emulator::tools(&folder)?,
            init: programs::init()?,
            folder,
        })
    }

    /// Kernel images; see [`kernels::images`].
    pub(crate) fn images(&self, kernels: &[Kernel]) -> Result<Vec<Image>> {
        let strict = std::env::var("CI").is_ok_and(|value| value == "true");
        kernels::images(&self.folder, kernels, strict)
    }

    /// Writes an archive with these files and this plan.
    pub(crate) fn archive(
        &self,
        name: &str,
        files: &[(PathBuf, String)],
        plan: &[Program],
    ) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.cpio"));
        let contents = image::Contents {
            busybox: &self.tools.busybox,
            init: &self.init,
            files,
            plan,
        };
        image::write(&contents, &path)?;
        Ok(path)
    }

    /// A guest with this kernel.
    pub(crate) fn guest(&self, kernel: &Kernel, image: &Image, archive: PathBuf) -> Guest {
        Guest {
            qemu: self.tools.qemu.clone(),
            qemu_arguments: self.tools.qemu_arguments.clone(),
            libraries: self.tools.libraries.clone(),
            kernel: image.path.clone(),
            archive,
            kernel_arguments: if kernel.names_modules {
                "lsm=lockdown,yama,bpf".to_owned()
            } else {
                String::new()
            },
            cpus: 1,
            memory: MEMORY,
            count_instructions: false,
            limit: LIMIT,
        }
    }
}

/// A kernel of the matrix by its name.
pub(crate) fn kernel(name: &str) -> Result<Kernel> {
    MATRIX
        .into_iter()
        .find(|kernel| kernel.name == name)
        .with_context(|| {
            let names: Vec<&str> = MATRIX.iter().map(|kernel| kernel.name).collect();
            format!("no kernel is called `{name}`: {}", names.join(", "))
        })
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let outcome = if arguments.systemd {
        services::run(arguments)?
    } else {
        matrix(arguments)?
    };
    for name in &outcome.failures {
        println!("failed: {name}");
    }
    println!("{} passed, {} failed", outcome.passed, outcome.failed);
    if outcome.failed > 0 {
        bail!("{} tests failed", outcome.failed);
    }
    Ok(())
}

/// Runs the tests on the kernels; the outcome counts single tests.
pub(crate) fn matrix(arguments: &Arguments) -> Result<Outcome> {
    let kernels = if arguments.kernel.is_empty() {
        MATRIX.to_vec()
    } else {
        arguments
            .kernel
            .iter()
            .map(|name| kernel(name))
            .collect::<Result<_>>()?
    };
    let bench = Bench::set_up()?;
    let images = bench.images(&kernels)?;
    let tests = Tests::build()?;
    let waiting: Mutex<VecDeque<(Kernel, Image)>> = Mutex::new(kernels.into_iter().zip(images).collect());
    let all = Mutex::new(Outcome::default());
    let next = || lock(&waiting).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while let Some((kernel, image)) = next() {
                    let outcome = one(&bench, &tests, &kernel, &image, arguments)
                        .unwrap_or_else(|error| Outcome::single(Err(format!("{}: {error:#}", kernel.name))));
                    lock(&all).add(outcome);
                }
            });
        }
    });
    Ok(all.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Boots one kernel and runs its tests.
fn one(
    bench: &Bench,
    tests: &Tests,
    kernel: &Kernel,
    image: &Image,
    arguments: &Arguments,
) -> Result<Outcome> {
    let mut plan = tests.plan(kernel, &arguments.filter);
    let churn = arguments.churn.map(|count| format!("KAMS_CHURN={count}"));
    for program in &mut plan {
        program.environment.extend(churn.clone());
    }
    let archive = bench.archive(kernel.name, &tests.files(), &plan)?;
    let guest = bench.guest(kernel, image, archive);
    println!("vm: {}: kernel {}", kernel.name, image.release);
    let run = if arguments.verbose {
        guest.run(&mut std::io::stdout())
    } else {
        guest.run(&mut std::io::sink())
    };
    Ok(judged(kernel, &run, arguments.verbose))
}

/// Counts a guest's tests, and shows its console where something is wrong.
fn judged(kernel: &Kernel, run: &Run, shown: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for line in run.log.lines() {
        outcome.line(line.trim_end());
    }
    // Not run here, and run elsewhere: no gap.
    outcome.skipped.clear();
    for failure in &mut outcome.failures {
        *failure = format!("{} on kernel {}", failure, kernel.name);
    }
    match &run.verdict {
        Ok(_) if outcome.failed == 0 && outcome.passed > 0 => {}
        Ok(_) => outcome.add(Outcome::single(Err(format!(
            "no test was run on kernel {}",
            kernel.name
        )))),
        Err(failure) => {
            if !shown {
                println!("{}", run.log);
            }
            if outcome.failed == 0 {
                outcome.add(Outcome::single(Err(format!("kernel {}: {failure}", kernel.name))));
            }
        }
    }
    println!(
        "vm: {}: {} passed, {} failed in {:.1} s",
        kernel.name,
        outcome.passed,
        outcome.failed,
        run.time.as_secs_f64()
    );
    outcome
}
