//! The wrapper's side of remote counting: asks an agent to count a process and polls its counts.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::watch_protocol::{CountFrom, CountsReading, WatchRequest};
use super::{CallTiming, EbpfError, task};

/// Agents that may count for others: their sockets, and the function that connects to one.
/// `connect` must verify the peer.
#[derive(Debug, Clone)]
pub struct CountingAgents {
    pub sockets: Vec<PathBuf>,
    pub connect: fn(&Path) -> io::Result<UnixStream>,
}

/// The timeout of the first request, because the program waits for it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of later requests; after it the agent counts as lost.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of an answer.
const ANSWER_BYTES_MAX: u64 = 256 << 10;

impl CountingAgents {
    /// Returns the first agent that accepts the request, or the error of the last one.
    pub(super) fn request_counting(
        &self,
        pid: i32,
        from: CountFrom,
        time: CallTiming,
    ) -> Result<RemoteCounter, EbpfError> {
        let mut reason = "none is running".to_owned();
        for socket in &self.sockets {
            let asked = (self.connect)(socket);
            match asked.and_then(|stream| RemoteCounter::connect(stream, pid, from, time)) {
                Ok(remote) => return Ok(remote),
                Err(error) => match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        wait_until_untraced(pid);
                        reason = "it does not respond".to_owned();
                    }
                    _ => reason = error.to_string(),
                },
            }
        }
        Err(EbpfError::NoAgent(reason))
    }
}

/// Waits until the process is no longer traced: an agent that accepted too late holds it until it
/// notices the closed connection.
fn wait_until_untraced(pid: i32) {
    for _ in 0..200 {
        if crate::ptrace::check_untraced(pid).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A connection to an agent that counts one program.
#[derive(Debug)]
pub(super) struct RemoteCounter {
    agent: BufReader<UnixStream>,
}

impl RemoteCounter {
    /// Sends the request to count a process.
    fn connect(
        stream: UnixStream,
        pid: i32,
        from: CountFrom,
        time: CallTiming,
    ) -> io::Result<RemoteCounter> {
        let start = task::start_time(pid).ok_or(io::Error::from_raw_os_error(libc::ESRCH))?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
        let mut remote = RemoteCounter {
            agent: BufReader::new(stream),
        };
        let request = WatchRequest {
            from,
            pid,
            start,
            time,
        };
        match remote.request_line(&request.to_string())?.as_str() {
            "ok" => {
                // From here on the program does not wait for answers.
                remote
                    .agent
                    .get_ref()
                    .set_read_timeout(Some(READ_TIMEOUT))?;
                Ok(remote)
            }
            answer => {
                let reason = answer
                    .strip_prefix("error ")
                    .unwrap_or("it does not support counting");
                Err(io::Error::other(reason.to_owned()))
            }
        }
    }

    fn request_line(&mut self, line: &str) -> io::Result<String> {
        self.agent
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        self.agent
            .by_ref()
            .take(ANSWER_BYTES_MAX)
            .read_line(&mut answer)?;
        match answer.strip_suffix('\n') {
            Some(answer) => Ok(answer.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(super) fn read(&mut self) -> io::Result<CountsReading> {
        let answer = self.request_line("counts")?;
        let broken = || io::Error::from(io::ErrorKind::InvalidData);
        CountsReading::parse(&answer).ok_or_else(broken)
    }

    /// Lets the parent of the process be notified of its exit.
    pub(super) fn release(&mut self) {
        // Errors are ignored: an agent that is gone holds no process.
        let _ = self.request_line("release");
    }
}
