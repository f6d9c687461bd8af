//! `cargo xtask vm --systemd`: Kams as a service. A guest in which systemd is the first process, where it is installed as
//! the README says, started, stopped, replaced and killed while sessions go on.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use kams_vm_tests::plan::Program;

use super::debian::{self, PROGRAMS, Placed};
use super::{Arguments, Bench, judged, kernel, programs};
use crate::host;
use crate::suite::Outcome;

/// The kernel of Debian 12.
const KERNEL: &str = "6.1";
/// What is installed: programs that a build leaves in the repository's target folder.
const INSTALLED: [&str; 3] = ["kamsd", "kams", "kams-relay"];
/// What the tests are made of; the first one is run.
const TESTS: [&str; 3] = ["kams-as-service", "line-agent", "desk-server"];
/// Where the repository is in the guest.
const REPOSITORY: &str = "root/kams";
/// A system with all of its files in memory.
const MEMORY: u32 = 2048;
const PROGRAM_LIMIT: Duration = Duration::from_mins(40);

pub(super) fn run(arguments: &Arguments) -> Result<Outcome> {
    let names = if arguments.kernel.is_empty() {
        vec![KERNEL.to_owned()]
    } else {
        arguments.kernel.clone()
    };
    let kernels = names
        .iter()
        .map(|name| kernel(name))
        .collect::<Result<Vec<_>>>()?;
    let bench = Bench::set_up()?;
    let images = bench.images(&kernels)?;
    let tree = debian::tree(&bench.folder)?;
    let archive = bench.folder.join("systemd.cpio");
    debian::write(&tree, &bench.init, &files()?, &[program(arguments)], &archive)?;
    let mut all = Outcome::default();
    for (kernel, image) in kernels.iter().zip(&images) {
        let mut guest = bench.guest(kernel, image, archive.clone());
        guest.memory = MEMORY;
        println!("vm: systemd: kernel {}", image.release);
        let run = if arguments.verbose {
            guest.run(&mut std::io::stdout())
        } else {
            guest.run(&mut std::io::sink())
        };
        all.add(judged(kernel, &run, arguments.verbose));
    }
    Ok(all)
}

fn program(arguments: &Arguments) -> Program {
    let mut command = vec![format!("/{PROGRAMS}/{}", TESTS[0])];
    command.extend(arguments.filter.iter().cloned());
    Program {
        name: "systemd".to_owned(),
        command,
        environment: vec![format!("KAMS_REPOSITORY=/{REPOSITORY}")],
        limit: PROGRAM_LIMIT,
    }
}

/// The repository, as far as installing needs it, and the tests.
fn files() -> Result<Vec<Placed>> {
    let packages = ["-p", "kams-agent", "-p", "kams-relay", "-p", "kams-tests"];
    let names = [&INSTALLED[..], &TESTS[..]].concat();
    let built = programs::built_all(&[&["build", "--bins"], &packages[..]].concat(), &names)?;
    let place = |name: &str| {
        if INSTALLED.contains(&name) {
            format!("{REPOSITORY}/target/release/{name}")
        } else {
            format!("{PROGRAMS}/{name}")
        }
    };
    let mut files: Vec<Placed> = built
        .into_iter()
        .zip(&names)
        .map(|(from, name)| Placed {
            from,
            place: place(name),
        })
        .collect();
    let texts = [
        "README.md",
        "dist/kams.yaml",
        "dist/systemd/kamsd.service",
        "dist/systemd/kams-relays.slice",
    ];
    let root: PathBuf = host::root();
    files.extend(texts.iter().map(|text| Placed {
        from: root.join(text),
        place: format!("{REPOSITORY}/{text}"),
    }));
    Ok(files)
}
