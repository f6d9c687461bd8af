//! Which kernels there are, and the image of each.
//!
//! Names move with every security update: a series is resolved to the newest package of it. Cloud kernels: smaller
//! than the generic ones, with the same options where Kams is concerned.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::apt::{self, Apt, Part};

/// A guest of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// As on the command line.
    pub(crate) name: &'static str,
    /// First two numbers of the version; `None` for the newest there is.
    series: Option<(u32, u32)>,
    /// Whether the command line names the security modules, with bpf among them. Without, 5.10 has no BPF LSM, and
    /// only what depends on that is tested.
    pub(crate) names_modules: bool,
    /// Whether the way of reading payload that this kernel would not choose is tested too.
    pub(crate) both_ways: bool,
}

const fn kernel(name: &'static str, series: Option<(u32, u32)>) -> Kernel {
    Kernel {
        name,
        series,
        names_modules: true,
        both_ways: false,
    }
}

/// 6.12 and 6.18 lie on either side of the renaming of the pipe functions.
pub(crate) const MATRIX: [Kernel; 6] = [
    Kernel {
        both_ways: true,
        ..kernel("5.10", Some((5, 10)))
    },
    Kernel {
        names_modules: false,
        ..kernel("5.10-nolsm", Some((5, 10)))
    },
    kernel("6.1", Some((6, 1))),
    kernel("6.12", Some((6, 12))),
    kernel("6.18", Some((6, 18))),
    kernel("newest", None),
];

/// Where the packages are.
const SUITES: [(Part, &str); 4] = [
    (Part::Security, "bullseye-security"),
    (Part::Security, "bookworm-security"),
    (Part::Main, "trixie"),
    (Part::Main, "trixie-backports"),
];

const IMAGE: &str = "linux-image-";
/// From 6.19 on the image package is empty and this one has the image.
const BINARY: &str = "linux-binary-";
const FLAVOUR: &str = "-cloud-amd64";

/// A kernel image on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Its release, as the kernel says it.
    pub(crate) release: String,
    pub(crate) path: PathBuf,
}

/// Images of these kernels, fetched where they are not kept, in the same order.
///
/// With `strict` a kernel that cannot be fetched is an error; else the newest kept one of its series serves.
pub(crate) fn images(folder: &Path, kernels: &[Kernel], strict: bool) -> Result<Vec<Image>> {
    let kept_folder = folder.join("kernels");
    std::fs::create_dir_all(&kept_folder)?;
    if let Err(error) = fetch(folder, &kept_folder, kernels) {
        if strict {
            return Err(error.context("kernels cannot be fetched"));
        }
        println!("vm: kernels cannot be fetched ({error:#}): kept ones serve");
    }
    let kept = kept(&kept_folder)?;
    kernels
        .iter()
        .map(|kernel| {
            newest(kernel.series, kept.iter().map(|image| image.release.as_str()))
                .and_then(|release| kept.iter().find(|image| image.release == release).cloned())
                .with_context(|| format!("there is no kernel {}", kernel.name))
        })
        .collect()
}

fn fetch(folder: &Path, kept_folder: &Path, kernels: &[Kernel]) -> Result<()> {
    let apt = Apt::open(&folder.join("apt-kernels"), &SUITES)?;
    let mut packages = apt.names(IMAGE)?;
    packages.extend(apt.names(BINARY)?);
    let releases = || {
        let packages = packages.iter();
        packages.filter_map(|name| name.strip_prefix(IMAGE).or_else(|| name.strip_prefix(BINARY)))
    };
    let mut wanted = Vec::new();
    for kernel in kernels {
        let release = newest(kernel.series, releases())
            .with_context(|| format!("no package of kernel {} was found", kernel.name))?;
        let binary = format!("{BINARY}{release}");
        let package = if packages.contains(&binary) {
            binary
        } else {
            format!("{IMAGE}{release}")
        };
        if !kept_folder.join(release).exists() && !wanted.contains(&package) {
            wanted.push(package);
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let downloads = folder.join("downloads");
    for file in apt.download(&wanted, &downloads)? {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let package = name.split('_').next().unwrap_or_default();
        let (release, pattern) = match (package.strip_prefix(BINARY), package.strip_prefix(IMAGE)) {
            (Some(release), _) => (release, "./usr/lib/modules/*/vmlinuz"),
            (None, Some(release)) => (release, "./boot/vmlinuz-*"),
            (None, None) => bail!("{name} is no kernel"),
        };
        let image = apt::one_file(&file, pattern)?;
        // Complete or not there at all.
        let partial = downloads.join("vmlinuz");
        std::fs::write(&partial, image)?;
        std::fs::rename(&partial, kept_folder.join(release))?;
        println!("vm: fetched kernel {release}");
    }
    Ok(std::fs::remove_dir_all(&downloads)?)
}

fn kept(folder: &Path) -> Result<Vec<Image>> {
    let entries = folder.read_dir()?.flatten();
    Ok(entries
        .map(|entry| Image {
            release: entry.file_name().to_string_lossy().into_owned(),
            path: entry.path(),
        })
        .collect())
}

/// The newest of these releases that is of the series and the flavour.
fn newest<'a>(series: Option<(u32, u32)>, releases: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    releases
        .filter_map(|release| {
            let version = release.strip_suffix(FLAVOUR)?;
            // Packages that only name the newest one of a series have two numbers or none.
            let numbers = numbers(version);
            let is_release = version.starts_with(|c: char| c.is_ascii_digit()) && numbers.len() >= 3;
            let of_series = series.is_none_or(|(major, minor)| numbers.starts_with(&[major, minor]));
            (is_release && of_series).then_some((numbers, release))
        })
        .max()
        .map(|(_, release)| release)
}

fn numbers(version: &str) -> Vec<u32> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn the_newest_release_of_a_series_is_found() {
        let releases = [
            "5.10.0-9-cloud-amd64",
            "5.10.0-46-cloud-amd64",
            "5.10.0-47-amd64",
            "6.1-cloud-amd64",
            "6.1.0-0.deb11.52-cloud-amd64",
            "6.1.0-57-cloud-amd64",
            "6.12.117+deb12-cloud-amd64",
            "6.12.117+deb13-cloud-amd64",
            "7.2.12+deb13-cloud-amd64",
            "unsigned-7.3.4+deb13-cloud-amd64",
            "cloud-amd64",
        ];
        let of = |series| newest(series, releases.into_iter());
        assert_eq!(of(Some((5, 10))), Some("5.10.0-46-cloud-amd64"));
        assert_eq!(of(Some((6, 1))), Some("6.1.0-57-cloud-amd64"));
        assert_eq!(of(Some((6, 12))), Some("6.12.117+deb13-cloud-amd64"));
        assert_eq!(of(Some((6, 18))), None);
        assert_eq!(of(None), Some("7.2.12+deb13-cloud-amd64"));
    }
}
