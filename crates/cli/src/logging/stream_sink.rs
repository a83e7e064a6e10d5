//! Writes log messages to standard error without blocking on it: it may be a pipe without an active
//! reader, or a terminal stopped with Ctrl-S.

use std::io::{self, Write};
use std::os::fd::AsFd;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::LogSink;

/// A writable pipe accepts this much at once (PIPE_BUF).
const CHUNK_BYTES: usize = 4096;
/// Time limit for a write. After a timeout, writes do not wait at all until the reader reads again.
const WRITE_TIMEOUT_MS: i64 = 20;

#[derive(Debug)]
pub(super) struct StreamSink<W> {
    state: Mutex<StreamSinkState<W>>,
}

#[derive(Debug)]
struct StreamSinkState<W> {
    stream: W,
    is_blocked: bool,
}

impl<W> StreamSink<W> {
    pub(super) fn new(stream: W) -> StreamSink<W> {
        StreamSink {
            state: Mutex::new(StreamSinkState {
                stream,
                is_blocked: false,
            }),
        }
    }
}

impl<W: Write + AsFd + Send + std::fmt::Debug> LogSink for StreamSink<W> {
    fn write_message(&self, message: &[u8]) -> io::Result<()> {
        let mut inner = self.state.lock();
        for piece in message.chunks(CHUNK_BYTES) {
            let timeout_ms = if inner.is_blocked {
                0
            } else {
                WRITE_TIMEOUT_MS
            };
            inner.is_blocked = !can_write(&inner.stream, timeout_ms)?;
            if inner.is_blocked {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            inner.stream.write_all(piece)?;
        }
        Ok(())
    }
}

fn can_write(stream: &impl AsFd, timeout_ms: i64) -> io::Result<bool> {
    let mut descriptors = [PollFd::new(stream, PollFlags::OUT)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: timeout_ms * 1_000_000,
    };
    match poll(&mut descriptors, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        // EINTR is treated as a timeout.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_pipe_without_an_active_reader_does_not_block() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let stream = StreamSink::new(writer);
        let line = [b'x'; 1000];
        let started = Instant::now();
        let lost = (0..10_000)
            .filter(|_| stream.write_message(&line).is_err())
            .count();
        assert!((9_000..10_000).contains(&lost), "{lost}");
        assert!(started.elapsed() < Duration::from_secs(10));
        let mut buffer = [0; 64 << 10];
        let count = reader.read(&mut buffer).expect("read");
        assert!(count >= CHUNK_BYTES, "{count}");
        stream
            .write_message(&line)
            .expect("the pipe has room again");
    }

    #[test]
    fn a_closed_reader_is_an_error_and_raises_no_signal() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let error = StreamSink::new(writer)
            .write_message(b"x\n")
            .expect_err("the reader is closed");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
