//! A daemon's datagram socket. Each message is addressed anew, so that a daemon that was restarted gets the next one.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::LogSink;
use super::record::LogRecord;

/// How a daemon wants a message to look.
pub type RecordEncoder = fn(&LogRecord) -> Vec<u8>;

#[derive(Debug)]
pub struct DatagramSink {
    path: PathBuf,
    /// Made when it is first needed; there may be no descriptor left just then.
    socket: Mutex<Option<UnixDatagram>>,
}

impl DatagramSink {
    pub fn new(path: &Path) -> DatagramSink {
        DatagramSink {
            path: path.to_owned(),
            socket: Mutex::new(None),
        }
    }

    fn with_socket<T>(&self, work: impl FnOnce(&UnixDatagram) -> io::Result<T>) -> io::Result<T> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        match &*socket {
            Some(socket) => work(socket),
            None => {
                let made = UnixDatagram::unbound()?;
                // A daemon that does not keep up must not stop us.
                made.set_nonblocking(true)?;
                work(socket.insert(made))
            }
        }
    }
}

impl LogSink for DatagramSink {
    fn write_message(&self, message: &[u8]) -> io::Result<()> {
        self.with_socket(|socket| socket.send_to(message, &self.path).map(|_| ()))
    }

    fn check(&self) -> io::Result<()> {
        // On a socket of its own: a connected one would not notice that the daemon was restarted.
        UnixDatagram::unbound()?.connect(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn a_daemon_that_goes_and_comes_back_gets_what_is_sent_while_it_is_there() {
        let dir = TempDir::new();
        let path = dir.join("log");
        let place = DatagramSink::new(&path);
        assert!(place.check().is_err());
        assert!(place.write_message(b"nobody").is_err());
        for text in ["first", "second"] {
            let daemon = UnixDatagram::bind(&path).expect("bound");
            let patience = Duration::from_secs(20);
            daemon.set_read_timeout(Some(patience)).expect("set");
            place.check().expect("it is there");
            place.write_message(text.as_bytes()).expect("taken");
            let mut buffer = [0; 64];
            let count = daemon.recv(&mut buffer).expect("received");
            assert_eq!(&buffer[..count], text.as_bytes());
            drop(daemon);
            assert!(
                place.write_message(b"nobody").is_err(),
                "a socket file without a daemon"
            );
            fs::remove_file(&path).expect("removed");
        }
    }

    #[test]
    fn a_daemon_that_does_not_read_does_not_stop_us() {
        let dir = TempDir::new();
        let path = dir.join("log");
        let _daemon = UnixDatagram::bind(&path).expect("bound");
        let place = DatagramSink::new(&path);
        let refused = (0..100_000).find_map(|_| place.write_message(&[b'x'; 1000]).err());
        let kind = refused.expect("its queue is not endless").kind();
        assert_eq!(kind, io::ErrorKind::WouldBlock);
    }
}
