//! The properties that all packages of a release share: version, time, directories.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::options::{DistOptions, DistProfile};
use super::{checksums, tool};
use crate::step;

pub(super) const SUMMARY: &str = "Telemetry agent for compute nodes";
pub(super) const DESCRIPTION: [&str; 3] = [
    "Pegel records metrics of a node and of the programs on it, and shows them",
    "live and in retrospect: a web page, a terminal view, Prometheus, Grafana,",
    "plain HTTP and a command line. It needs no database and no other service.",
];
pub(super) const LICENCE: &str = "Apache-2.0 OR MIT";

/// The folder for staging directories. It also marks a directory that an interrupted run left.
const WORK: &str = ".pegel-dist";

#[derive(Debug)]
pub(super) struct Release {
    pub version: &'static str,
    /// The time of the commit, in seconds since 1970: the time of every file in every package.
    pub epoch: u64,
    /// The architecture, as Rust and rpm name it.
    pub arch: &'static str,
    pub out: PathBuf,
    /// Staging directories, removed at the end.
    pub work: PathBuf,
    /// The level of xz.
    pub compression: u8,
}

impl Release {
    pub(super) fn new(options: &DistOptions) -> Result<Release> {
        let out = step::root().join(&options.out);
        Ok(Release {
            version: env!("CARGO_PKG_VERSION"),
            epoch: epoch()?,
            arch: std::env::consts::ARCH,
            work: out.join(WORK),
            out,
            compression: match options.profile {
                DistProfile::Release => 6,
                DistProfile::Dev => 0,
            },
        })
    }

    /// Empties the output directory, so that `SHA256SUMS` lists no package of an earlier run. Only
    /// a directory that an earlier run wrote is removed.
    pub(super) fn remove_earlier_packages(&self) -> Result<()> {
        let Ok(mut entries) = fs::read_dir(&self.out) else {
            return Ok(()); // It does not exist.
        };
        let is_ours = [WORK, checksums::NAME]
            .iter()
            .any(|name| self.out.join(name).exists());
        ensure!(
            is_ours || entries.next().is_none(),
            "{} has files that are not packages of an earlier run; choose an empty directory",
            self.out.display()
        );
        fs::remove_dir_all(&self.out)
            .with_context(|| format!("cannot remove {}", self.out.display()))
    }

    pub(super) fn deb_arch(&self) -> Result<&'static str> {
        match self.arch {
            "x86_64" => Ok("amd64"),
            "aarch64" => Ok("arm64"),
            other => bail!(
                "no Debian name is known for the architecture {other}; expected x86_64 or aarch64"
            ),
        }
    }

    /// Returns the commit's time as in `2026-01-02T03:04:05Z`.
    pub(super) fn timestamp(&self) -> Result<String> {
        let time = format!("--date=@{}", self.epoch);
        let text =
            tool::output(Command::new("date").args(["--utc", &time, "+%Y-%m-%dT%H:%M:%SZ"]))?;
        Ok(text.trim().to_owned())
    }
}

/// Returns `$SOURCE_DATE_EPOCH`, else the time of the commit.
fn epoch() -> Result<u64> {
    if let Ok(value) = std::env::var("SOURCE_DATE_EPOCH") {
        return value
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH is {value:?}, expected whole seconds"));
    }
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"])
        .current_dir(step::root());
    let text = tool::output(&mut git).context(
        "cannot read the time of the commit; set SOURCE_DATE_EPOCH outside a git checkout",
    )?;
    text.trim().parse().context("git printed no time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_with_packages_are_emptied() {
        let out = std::env::temp_dir().join(format!("pegel-dist-{}", std::process::id()));
        let release = Release {
            version: "0.1.0",
            epoch: 0,
            arch: "x86_64",
            work: out.join(WORK),
            out: out.clone(),
            compression: 0,
        };
        release.remove_earlier_packages().expect("nothing is there");
        fs::create_dir_all(&out).expect("created");
        fs::write(out.join("thesis.tex"), "").expect("written");
        let error = release.remove_earlier_packages().expect_err("refused");
        assert!(
            error.to_string().contains("choose an empty directory"),
            "{error}"
        );
        fs::write(out.join("SHA256SUMS"), "").expect("written");
        release.remove_earlier_packages().expect("packages");
        assert!(!out.exists());
    }
}
