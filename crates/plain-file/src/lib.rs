//! Opens files named by a configuration, a variable or a simulated machine. Only regular files are
//! accepted: opening a pipe must not block the caller, and reads are bounded, so that an endless
//! file cannot exhaust the memory. Small files of the agent's own are replaced durably.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading. Any other kind of file is an error and never blocks.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok(file)
}

/// Returns the first bytes of a regular file, at most `bytes_max`.
pub fn read_plain(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates a directory and its missing parents with this mode at most, whatever the umask.
/// Directories that exist keep their mode.
pub fn create_dirs(dir: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(dir)
}

/// The extension of a file that is not complete yet.
pub const TEMPORARY_EXTENSION: &str = "tmp";

/// Replaces a file by one with mode 0600: a temporary file is written and synced, renamed, and the
/// directory synced. After a crash the file has its old or its new contents.
pub fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.{TEMPORARY_EXTENSION}"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = options.custom_flags(no_follow).open(&temporary)?;
    let written = file.set_len(0).and_then(|()| file.write_all(bytes));
    if let Err(error) = written.and_then(|()| file.sync_all()) {
        // Frees the space on a full disk; best effort.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    fs::rename(&temporary, dir.join(name))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("pegel-durable-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        // A crash left a longer temporary file.
        fs::write(dir.join("file.tmp"), "0123456789").expect("written");
        write_durably(&dir, "file", b"one").expect("written");
        write_durably(&dir, "file", b"two").expect("replaced");
        assert_eq!(fs::read(dir.join("file")).expect("read"), b"two");
        let mode = fs::metadata(dir.join("file")).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert!(!dir.join("file.tmp").exists());
        write_durably(&dir.join("none"), "file", b"x").expect_err("no directory");
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn new_directories_have_the_mode_and_known_ones_keep_theirs() {
        use std::os::unix::fs::PermissionsExt;
        let dir = std::env::temp_dir().join(format!("pegel-dirs-{}", std::process::id()));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        fs::create_dir_all(&dir).expect("made");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("set");
        for _ in 0..2 {
            create_dirs(&dir.join("a/b"), 0o700).expect("made");
            assert_eq!(mode(&dir), 0o755);
            assert_eq!(
                (mode(&dir.join("a")), mode(&dir.join("a/b"))),
                (0o700, 0o700)
            );
        }
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn only_plain_files_are_read_and_pipes_are_not_waited_for() {
        let dir = std::env::temp_dir().join(format!("pegel-plain-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        fs::write(dir.join("file"), "12345").expect("written");
        std::os::unix::fs::symlink("file", dir.join("link")).expect("made");
        let pipe = dir.join("pipe");
        let rights = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rights,
            0,
        )
        .expect("a pipe");
        assert_eq!(read_plain(&dir.join("file"), 100).expect("read"), b"12345");
        assert_eq!(read_plain(&dir.join("link"), 3).expect("read"), b"123");
        assert!(
            !read_plain(Path::new("/proc/self/stat"), 100)
                .expect("read")
                .is_empty()
        );
        for path in [&pipe, &dir, Path::new("/dev/zero")] {
            let error = read_plain(path, 100).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
        fs::remove_dir_all(&dir).expect("removed");
    }
}
