//! Standard error, which may be a pipe that nobody reads or a terminal that was stopped with Ctrl-S.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::LogSink;

/// A pipe that can be written to at all takes this much at once (PIPE_BUF).
const CHUNK_BYTES: usize = 4096;
/// How long a reader may take that read so far. One that did not is given no time at all until it reads again.
const WRITE_TIMEOUT_MS: i64 = 20;

#[derive(Debug)]
pub struct StreamSink<W> {
    state: Mutex<StreamSinkState<W>>,
}

#[derive(Debug)]
struct StreamSinkState<W> {
    stream: W,
    is_blocked: bool,
}

impl<W> StreamSink<W> {
    pub fn new(stream: W) -> StreamSink<W> {
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
        let mut inner = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in message.chunks(CHUNK_BYTES) {
            let patience = if inner.is_blocked {
                0
            } else {
                WRITE_TIMEOUT_MS
            };
            inner.is_blocked = !can_write(&inner.stream, patience)?;
            if inner.is_blocked {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            inner.stream.write_all(piece)?;
        }
        Ok(())
    }
}

fn can_write(stream: &impl AsFd, patience_ms: i64) -> io::Result<bool> {
    let mut descriptors = [PollFd::new(stream, PollFlags::OUT)];
    let patience = Timespec {
        tv_sec: 0,
        tv_nsec: patience_ms * 1_000_000,
    };
    match poll(&mut descriptors, Some(&patience)) {
        Ok(count) => Ok(count > 0),
        // By a signal: for this message that is as if nobody read.
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
    fn a_pipe_that_nobody_reads_does_not_stop_us() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let stream = StreamSink::new(writer);
        let line = [b'x'; 1000];
        let started = Instant::now();
        let refused = (0..10_000)
            .filter(|_| stream.write_message(&line).is_err())
            .count();
        assert!((9_000..10_000).contains(&refused), "{refused}");
        assert!(started.elapsed() < Duration::from_secs(10));
        let mut buffer = [0; 64 << 10];
        let count = reader.read(&mut buffer).expect("read");
        assert!(count >= CHUNK_BYTES, "{count}");
        stream.write_message(&line).expect("there is room again");
    }

    #[test]
    fn a_reader_that_is_gone_is_an_error_and_no_signal() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let error = StreamSink::new(writer)
            .write_message(b"x\n")
            .expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
