//! Private directories of a user below one in which every user can create files. Another user may
//! have created the name first, so there are several candidates, in the same order for programs,
//! agents and the command line: the first that belongs to the user, or does not exist yet, is used.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The number of candidates.
const CANDIDATES_MAX: u32 = 4;

/// Returns `PARENT/pegel-UID`, `PARENT/pegel-UID.1` …, best first.
pub fn candidates(parent: &Path, uid: u32) -> impl Iterator<Item = PathBuf> {
    (0..CANDIDATES_MAX).map(move |number| {
        let mut name = OsString::from(format!("pegel-{uid}"));
        if number > 0 {
            name.push(format!(".{number}"));
        }
        parent.join(name)
    })
}

/// Returns whether this is the path of one of the [`candidates`] of a user.
pub fn is_candidate(path: &Path, uid: u32) -> bool {
    let parent = path.parent().unwrap_or(Path::new(""));
    candidates(parent, uid).any(|candidate| candidate == path)
}

/// Returns why a directory is not private to a user; `None` if only this user can write to it.
pub fn not_private_reason(found: &Metadata, uid: u32) -> Option<String> {
    if !found.is_dir() {
        Some("is not a directory".to_owned())
    } else if found.uid() != uid {
        Some(format!("belongs to user {}", found.uid()))
    } else if found.mode() & 0o002 != 0 {
        Some("can be written by every user; run `chmod go-w` on it".to_owned())
    } else if found.mode() & 0o020 != 0 {
        let group = found.gid();
        Some(format!(
            "can be written by group {group}; run `chmod g-w` on it"
        ))
    } else {
        None
    }
}

/// Returns why a path cannot be the private directory of a user; `None` if it can, or if it does
/// not exist yet.
pub fn unusable_reason(path: &Path, uid: u32) -> Option<String> {
    let found = fs::symlink_metadata(path).ok()?;
    let reason = not_private_reason(&found, uid)?;
    Some(format!("{} {reason}", path.display()))
}

/// Returns the first usable directory, and why those before it are not usable. If none is usable,
/// returns the first: using it fails with the reason.
pub fn choose(directories: impl IntoIterator<Item = PathBuf>, uid: u32) -> (PathBuf, Vec<String>) {
    let mut obstacles = Vec::new();
    let mut first = None;
    for directory in directories {
        match unusable_reason(&directory, uid) {
            None => return (directory, obstacles),
            Some(obstacle) => obstacles.push(obstacle),
        }
        first.get_or_insert(directory);
    }
    (first.unwrap_or_default(), Vec::new())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn a_name_that_another_user_took_is_left_for_the_next() {
        let dir = TempDir::new();
        let uid = rustix::process::geteuid().as_raw();
        let chosen = || choose(candidates(dir.path(), uid), uid);
        let own = dir.join(format!("pegel-{uid}"));
        let next = dir.join(format!("pegel-{uid}.1"));
        assert_eq!(chosen(), (own.clone(), Vec::new()));
        fs::create_dir(&own).expect("made");
        assert_eq!(chosen().0, own);
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&own, open).expect("ours");
        let (path, obstacles) = chosen();
        assert_eq!(path, next);
        assert!(
            obstacles[0].contains("can be written by every user"),
            "{obstacles:?}"
        );
        fs::write(&next, "").expect("written");
        let (path, obstacles) = chosen();
        assert_eq!(
            (path, obstacles.len()),
            (dir.join(format!("pegel-{uid}.2")), 2)
        );
        assert!(is_candidate(&next, uid) && !is_candidate(dir.path(), uid));
        for number in [2, 3] {
            fs::write(dir.join(format!("pegel-{uid}.{number}")), "").expect("written");
        }
        assert_eq!(chosen(), (own, Vec::new()), "binding it reports the reason");
    }
}
