//! A private directory for the short-lived files of `pegel run`, on this node.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pegel_lane::private_directory;

/// Returns a directory that only this user can write to: below `$XDG_RUNTIME_DIR`, else below
/// `/tmp`. All ranks of a job find the same one, because they have the same environment.
pub fn run_directory() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute());
    runtime
        .map(|path| path.join("pegel"))
        .into_iter()
        .chain(private_directory::candidates(Path::new("/tmp"), uid))
        .find(|path| is_usable(path, uid))
}

fn is_usable(path: &Path, uid: u32) -> bool {
    // It may exist already; whether it is private is checked next.
    let _ = fs::DirBuilder::new().mode(0o700).create(path);
    let is_private = fs::symlink_metadata(path)
        .is_ok_and(|found| private_directory::not_private_reason(&found, uid).is_none());
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    is_private && rustix::fs::access(path, access).is_ok()
}
