//! Writes log messages to a daemon's datagram socket. Each message is sent by path, so that a
//! restarted daemon receives the next one.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::LogSink;
use super::record::LogRecord;

/// Encodes a record in a daemon's protocol.
pub(super) type RecordEncoder = fn(&LogRecord) -> Vec<u8>;

#[derive(Debug)]
pub(super) struct DatagramSink {
    path: PathBuf,
    /// Created on first use, which may fail if no descriptor is free.
    socket: Mutex<Option<UnixDatagram>>,
}

impl DatagramSink {
    pub(super) fn new(path: &Path) -> DatagramSink {
        DatagramSink {
            path: path.to_owned(),
            socket: Mutex::new(None),
        }
    }

    fn with_socket<T>(&self, work: impl FnOnce(&UnixDatagram) -> io::Result<T>) -> io::Result<T> {
        let mut socket = self.socket.lock();
        match &*socket {
            Some(socket) => work(socket),
            None => {
                let new = UnixDatagram::unbound()?;
                // A slow daemon must not block the agent.
                new.set_nonblocking(true)?;
                work(socket.insert(new))
            }
        }
    }
}

impl LogSink for DatagramSink {
    fn write_message(&self, message: &[u8]) -> io::Result<()> {
        self.with_socket(|socket| socket.send_to(message, &self.path).map(|_| ()))
    }

    fn check(&self) -> io::Result<()> {
        // Uses a separate socket: a connected one would not follow a restart of the daemon.
        UnixDatagram::unbound()?.connect(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use pegel_testkit::{TempDir, eventually};

    use super::*;

    #[test]
    fn a_restarted_daemon_receives_messages_again() {
        let dir = TempDir::new();
        let path = dir.join("log");
        let sink = DatagramSink::new(&path);
        assert!(sink.check().is_err());
        assert!(sink.write_message(b"lost").is_err());
        for text in ["first", "second"] {
            let daemon = UnixDatagram::bind(&path).expect("bound");
            let timeout = Duration::from_secs(20);
            daemon.set_read_timeout(Some(timeout)).expect("set");
            sink.check().expect("a daemon is listening");
            sink.write_message(text.as_bytes()).expect("sent");
            let mut buffer = [0; 64];
            let count = daemon.recv(&mut buffer).expect("received");
            assert_eq!(&buffer[..count], text.as_bytes());
            drop(daemon);
            // A process that another test is starting has the socket until its `exec`.
            eventually("a socket file without a daemon", || {
                let written = sink.write_message(b"lost");
                written.is_err().then_some(()).ok_or("still open")
            });
            fs::remove_file(&path).expect("removed");
        }
    }

    #[test]
    fn a_daemon_that_does_not_read_does_not_block() {
        let dir = TempDir::new();
        let path = dir.join("log");
        let _daemon = UnixDatagram::bind(&path).expect("bound");
        let sink = DatagramSink::new(&path);
        let error = (0..100_000).find_map(|_| sink.write_message(&[b'x'; 1000]).err());
        let kind = error.expect("the queue is bounded").kind();
        assert_eq!(kind, io::ErrorKind::WouldBlock);
    }
}
