//! Installs packages on a copy of this system: an overlay over its root directory, in namespaces of
//! its own, which is discarded when the script ends.

use std::path::Path;
use std::process::Command;

use pegel_testkit::{TempDir, need, need_hardware};

use crate::built_packages::succeed;

const IN_OVERLAY: &str = include_str!("in_overlay.sh");

/// Runs a shell script as root of a copy of this system, with the packages in `/mnt`; returns its
/// output. `None`, with the skip recorded, where this is not permitted.
#[track_caller]
pub(crate) fn run_on_a_copy(packages: &Path, script: &str) -> Option<String> {
    need("unshare")?;
    need("ip")?;
    need_hardware(can_mount(), "permission to mount an overlay")?;
    Some(succeed(&mut on_a_copy(packages, script)))
}

fn on_a_copy(packages: &Path, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--net", "--fork", "--kill-child"])
        .args(["sh", "-c", IN_OVERLAY, "in_overlay"])
        .arg(packages)
        .arg(script)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn can_mount() -> bool {
    let empty = TempDir::new();
    let output = on_a_copy(empty.path(), "exit 0").output();
    output.is_ok_and(|output| output.status.success())
}
