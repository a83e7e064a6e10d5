//! Writes log messages to a file. SIGHUP, which log rotation sends after renaming the file, reopens
//! it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::LogSink;

#[derive(Debug)]
pub(super) struct LogFileSink {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl LogFileSink {
    pub(super) fn new(path: &Path) -> LogFileSink {
        LogFileSink {
            path: path.to_owned(),
            file: Mutex::new(None),
        }
    }

    fn open(&self) -> io::Result<File> {
        // Opening a FIFO without a reader would block; regular files ignore the flag.
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&self.path)
    }

    fn with_file<T>(&self, work: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
        let mut file = self.file.lock();
        match &mut *file {
            Some(file) => work(file),
            None => work(file.insert(self.open()?)),
        }
    }
}

impl LogSink for LogFileSink {
    fn write_message(&self, message: &[u8]) -> io::Result<()> {
        self.with_file(|file| file.write_all(message))
    }

    fn reopen(&self) {
        // Keep the old file if the new one cannot be opened.
        let opened = self.open();
        let mut file = self.file.lock();
        match opened {
            Ok(opened) => *file = Some(opened),
            Err(error) => {
                drop(file);
                tracing::warn!(path = %self.path.display(), %error, "cannot reopen the log file");
            }
        }
    }

    fn check(&self) -> io::Result<()> {
        self.with_file(|_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn after_a_rotation_messages_go_to_the_new_file() {
        let dir = TempDir::new();
        let (path, old) = (dir.join("pegel.log"), dir.join("pegel.log.1"));
        let log = LogFileSink::new(&path);
        log.write_message(b"one\n").expect("written");
        fs::rename(&path, &old).expect("rotated");
        log.write_message(b"two\n").expect("still the old one");
        log.reopen();
        log.write_message(b"three\n").expect("written");
        assert_eq!(fs::read(&old).expect("there"), b"one\ntwo\n");
        assert_eq!(fs::read(&path).expect("there"), b"three\n");
    }

    #[test]
    fn a_directory_created_later_is_used() {
        let dir = TempDir::new();
        let log = LogFileSink::new(&dir.join("later/pegel.log"));
        assert!(log.check().is_err() && log.write_message(b"lost\n").is_err());
        fs::create_dir(dir.join("later")).expect("made");
        log.write_message(b"kept\n").expect("written");
        assert_eq!(
            fs::read(dir.join("later/pegel.log")).expect("there"),
            b"kept\n"
        );
    }

    #[test]
    fn a_fifo_without_a_reader_does_not_block() {
        let dir = TempDir::new();
        let path = dir.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        assert!(LogFileSink::new(&path).write_message(b"lost\n").is_err());
    }
}
