//! Opens files named by a configuration, a variable or a simulated machine. Only regular files are
//! accepted: opening a pipe must not block the caller, and reads are bounded, so that an endless
//! file cannot exhaust the memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
