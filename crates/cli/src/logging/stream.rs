//! Standard error, which may be a pipe that nobody reads or a terminal that was stopped with Ctrl-S.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Sink;

/// A pipe that can be written to at all takes this much at once (PIPE_BUF).
const PIECE_BYTES: usize = 4096;
/// How long a reader may take that read so far. One that did not is given no time at all until it reads again.
const PATIENCE_MS: i64 = 20;

#[derive(Debug)]
pub struct Stream<W> {
    inner: Mutex<Inner<W>>,
}

#[derive(Debug)]
struct Inner<W> {
    stream: W,
    is_stuck: bool,
}

impl<W> Stream<W> {
    pub fn new(stream: W) -> Stream<W> {
        Stream {
            inner: Mutex::new(Inner {
                stream,
                is_stuck: false,
            }),
        }
    }
}

impl<W: Write + AsFd + Send + std::fmt::Debug> Sink for Stream<W> {
    fn take(&self, message: &[u8]) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in message.chunks(PIECE_BYTES) {
            let patience = if inner.is_stuck { 0 } else { PATIENCE_MS };
            inner.is_stuck = !can_write(&inner.stream, patience)?;
            if inner.is_stuck {
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
        let stream = Stream::new(writer);
        let line = [b'x'; 1000];
        let started = Instant::now();
        let refused = (0..10_000).filter(|_| stream.take(&line).is_err()).count();
        assert!((9_000..10_000).contains(&refused), "{refused}");
        assert!(started.elapsed() < Duration::from_secs(10));
        let mut buffer = [0; 64 << 10];
        let count = reader.read(&mut buffer).expect("read");
        assert!(count >= PIECE_BYTES, "{count}");
        stream.take(&line).expect("there is room again");
    }

    #[test]
    fn a_reader_that_is_gone_is_an_error_and_no_signal() {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let error = Stream::new(writer).take(b"x\n").expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
