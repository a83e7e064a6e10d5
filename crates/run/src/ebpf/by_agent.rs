//! The wrapper's side: an agent counts, and is asked.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::Time;
use super::reading::{From, Reading, Request};
use super::task;

/// An agent that takes longer than this has other troubles: the program is not to wait for it.
const PATIENCE: Duration = Duration::from_millis(700);
/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 256 << 10;

/// An agent that counts one program for us.
#[derive(Debug)]
pub(super) struct Remote {
    agent: BufReader<UnixStream>,
}

impl Remote {
    /// Asks an agent to count a process.
    pub(super) fn ask(socket: &Path, pid: i32, from: From, time: Time) -> io::Result<Remote> {
        let start = task::start_of(pid).ok_or(io::Error::from_raw_os_error(libc::ESRCH))?;
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut remote = Remote {
            agent: BufReader::new(stream),
        };
        let request = Request {
            from,
            pid,
            start,
            time,
        };
        match remote.exchange(&request.to_string())?.as_str() {
            "ok" => Ok(remote),
            answer => {
                let why = answer
                    .strip_prefix("error ")
                    .unwrap_or("it does not know how");
                Err(io::Error::other(why.to_owned()))
            }
        }
    }

    fn exchange(&mut self, line: &str) -> io::Result<String> {
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

    pub(super) fn read(&mut self) -> io::Result<Reading> {
        let answer = self.exchange("counts")?;
        let broken = || io::Error::from(io::ErrorKind::InvalidData);
        Reading::parse(&answer).ok_or_else(broken)
    }

    /// The end of the process may be known now.
    pub(super) fn release(&mut self) {
        // An agent that is gone holds nobody.
        let _ = self.exchange("release");
    }
}
