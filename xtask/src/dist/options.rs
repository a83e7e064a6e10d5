//! The command line of `cargo xtask dist`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
dist [--profile release|dev] [--binary FILE] [--static-binary FILE | --no-static] [--client-wheel FILE]
     [--only deb,rpm,wheel,archive,spack] [--out DIR]";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PackageKind {
    Deb,
    Rpm,
    Wheel,
    Archive,
    Spack,
}

impl PackageKind {
    pub(super) const ALL: [PackageKind; 5] = [
        PackageKind::Deb,
        PackageKind::Rpm,
        PackageKind::Wheel,
        PackageKind::Archive,
        PackageKind::Spack,
    ];

    fn name(self) -> &'static str {
        match self {
            PackageKind::Deb => "deb",
            PackageKind::Rpm => "rpm",
            PackageKind::Wheel => "wheel",
            PackageKind::Archive => "archive",
            PackageKind::Spack => "spack",
        }
    }
}

/// The build profile of the binaries and the compression of the packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DistProfile {
    Release,
    /// The profile of the tests with the fastest compression, to try the packages.
    Dev,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct DistOptions {
    pub profile: DistProfile,
    /// An existing binary to package, instead of building one.
    pub binary: Option<PathBuf>,
    pub static_binary: Option<PathBuf>,
    /// Whether there is a static binary. The profile `dev` builds none.
    pub has_static: bool,
    /// An existing wheel of clients/python, to which the binary is added.
    pub client_wheel: Option<PathBuf>,
    only: Option<Vec<PackageKind>>,
    pub out: PathBuf,
}

impl DistOptions {
    pub(super) fn parse(args: &[&str]) -> Result<DistOptions> {
        let mut options = DistOptions {
            profile: DistProfile::Release,
            binary: None,
            static_binary: None,
            has_static: true,
            client_wheel: None,
            only: None,
            out: PathBuf::from("target/dist"),
        };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            if arg == "--no-static" {
                options.has_static = false;
                continue;
            }
            let value = args.next().with_context(|| {
                format!("{arg} requires a value, or is unknown; usage:\n{USAGE}")
            })?;
            match arg {
                "--profile" => options.profile = profile(value)?,
                "--binary" => options.binary = Some(path(value)?),
                "--static-binary" => options.static_binary = Some(path(value)?),
                "--client-wheel" => options.client_wheel = Some(path(value)?),
                "--only" => options.only = Some(kinds(value)?),
                "--out" => options.out = path(value)?,
                _ => bail!("unknown option {arg}; usage:\n{USAGE}"),
            }
        }
        Ok(options)
    }

    pub(super) fn is_wanted(&self, kind: PackageKind) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(&kind))
    }
}

fn profile(value: &str) -> Result<DistProfile> {
    match value {
        "release" => Ok(DistProfile::Release),
        "dev" => Ok(DistProfile::Dev),
        _ => bail!("unknown profile {value:?}; expected release or dev"),
    }
}

fn path(value: &str) -> Result<PathBuf> {
    std::path::absolute(value).with_context(|| format!("{value:?} is not a valid path"))
}

fn kinds(value: &str) -> Result<Vec<PackageKind>> {
    let kind = |name: &str| {
        let found = PackageKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name);
        let all = PackageKind::ALL.map(PackageKind::name).join(", ");
        found.with_context(|| format!("unknown package {name:?}; expected some of {all}"))
    };
    value.split(',').map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_mistakes_are_named() {
        let options = DistOptions::parse(&["--profile", "dev", "--only", "deb,rpm", "--no-static"]);
        let options = options.expect("valid");
        assert_eq!(options.profile, DistProfile::Dev);
        assert!(options.is_wanted(PackageKind::Deb) && !options.is_wanted(PackageKind::Wheel));
        assert!(!options.has_static);
        for (args, part) in [
            (&["--profile", "fast"][..], "expected release or dev"),
            (&["--only", "deb,msi"], "unknown package \"msi\""),
            (&["--out"], "--out requires a value"),
            (&["--fast", "yes"], "unknown option --fast"),
        ] {
            let error = DistOptions::parse(args).expect_err("invalid").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
