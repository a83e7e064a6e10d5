//! The list of lanes that the processes of one `pegel run` created.
//!
//! `pegel run` creates an empty file and names it in [`LANE_LIST_VARIABLE`]. Each process under it
//! appends the 16 bytes of a new lane's id, with one write to a file opened with O_APPEND, so that
//! entries of many processes never mix. The wrapper finds the lanes this way although it may not
//! be permitted to list their directory. Nothing here allocates: a child of `fork` calls
//! [`append`] from within an update.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::writer_directory::is_privileged;

/// The environment variable with the path of the list.
pub const LANE_LIST_VARIABLE: &str = "PEGEL_LANE_LIST";

/// The length of an entry.
const ENTRY_BYTES: usize = 16;

/// Returns the path in the environment, unless the program runs with elevated privileges
/// (AT_SECURE): its user must not choose where it writes.
pub(crate) fn configured_list() -> Option<CString> {
    if is_privileged() {
        return None;
    }
    let path: OsString = std::env::var_os(LANE_LIST_VARIABLE).filter(|value| !value.is_empty())?;
    CString::new(path.into_vec()).ok()
}

/// Appends the id of a lane that can be opened from now on. Best effort: the list is gone when the
/// command that `pegel run` started has ended.
pub(crate) fn append(list: &CStr, id: [u8; ENTRY_BYTES]) {
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(CWD, list, flags, Mode::empty()) else {
        return;
    };
    let is_file = rustix::fs::fstat(&file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
    if is_file {
        let _ = rustix::io::write(&file, &id);
    }
}

/// Returns the ids in the contents of a list; an incomplete last entry is left out.
pub fn lane_list_entries(contents: &[u8]) -> impl Iterator<Item = [u8; ENTRY_BYTES]> + '_ {
    contents.as_chunks::<ENTRY_BYTES>().0.iter().copied()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::symlink;

    use pegel_testkit::TempDir;

    use super::*;

    fn c_path(path: impl AsRef<OsStr>) -> CString {
        CString::new(path.as_ref().to_owned().into_vec()).expect("no zero byte")
    }

    #[test]
    fn entries_are_appended_to_an_existing_file_only() {
        let dir = TempDir::new();
        let path = dir.join("list");
        append(&c_path(&path), [1; 16]);
        assert!(!path.exists());
        fs::write(&path, "").expect("written");
        append(&c_path(&path), [1; 16]);
        append(&c_path(&path), [2; 16]);
        let mut contents = fs::read(&path).expect("there");
        contents.push(9);
        let entries: Vec<_> = lane_list_entries(&contents).collect();
        assert_eq!(entries, [[1; 16], [2; 16]]);
        // A path that another user could have replaced by a link is not followed.
        symlink(&path, dir.join("link")).expect("a link");
        append(&c_path(dir.join("link")), [3; 16]);
        assert_eq!(fs::read(&path).expect("there").len(), 32);
    }
}
