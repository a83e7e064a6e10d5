//! Runs the programs that write packages.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// Programs and the Debian packages that contain them, for the message if one is missing.
const PACKAGES: [(&str, &str); 9] = [
    ("dpkg-deb", "dpkg"),
    ("git", "git"),
    ("gzip", "gzip"),
    ("python3", "python3"),
    ("readelf", "binutils"),
    ("rpmbuild", "rpm"),
    ("strip", "binutils"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
];

/// Runs a command and returns its standard output. Its standard error is part of the error.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let output = bytes(command)?;
    String::from_utf8(output).with_context(|| format!("output of {command:?} is not UTF-8"))
}

pub(super) fn bytes(command: &mut Command) -> Result<Vec<u8>> {
    let Output {
        status,
        stdout,
        stderr,
    } = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(not_found(command)),
        Err(error) => return Err(error).with_context(|| format!("cannot start {command:?}")),
    };
    let errors = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{command:?} failed ({status}): {errors}");
    Ok(stdout)
}

fn not_found(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    let package = PACKAGES.iter().find(|(name, _)| *name == program);
    let advice = package.map_or(String::new(), |(_, package)| {
        format!("; it is in Debian's package {package}. --only selects other packages")
    });
    format!("{program} is not installed{advice}")
}

/// Writes a file and its directory. The file is readable by everyone, regardless of the umask.
pub(super) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    fs::write(path, contents)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o644)))
        .with_context(|| format!("cannot write {}", path.display()))
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = not_found(&Command::new("rpmbuild"));
        assert!(error.starts_with("rpmbuild is not installed; it is in Debian's package rpm"));
        let error = bytes(&mut Command::new("no-such-program-as-this")).expect_err("missing");
        assert_eq!(
            error.to_string(),
            "no-such-program-as-this is not installed"
        );
    }

    #[test]
    fn a_failure_shows_what_the_program_wrote() {
        let error = output(Command::new("sh").args(["-c", "echo broken >&2; exit 3"]));
        let error = error.expect_err("failed").to_string();
        assert!(
            error.contains("exit status: 3") && error.contains("broken"),
            "{error}"
        );
    }
}
