//! Ends with another process: `--until-pid`.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::oneshot;

/// A process to outlive by nothing. The descriptor means this very process, even if its number is
/// given to another one later.
#[derive(Debug)]
pub struct Until(OwnedFd);

#[derive(Debug, thiserror::Error)]
pub enum UntilError {
    #[error("--until-pid {0}: there is no such process")]
    NoProcess(i32),
    #[error("--until-pid {pid}: cannot watch this process")]
    Io {
        pid: i32,
        #[source]
        source: io::Error,
    },
}

impl Until {
    pub fn pid(pid: i32) -> Result<Until, UntilError> {
        // `Pid::from_raw` takes no negative numbers at all.
        let number = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let number = number.ok_or(UntilError::NoProcess(pid))?;
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Until(descriptor)),
            Err(rustix::io::Errno::SRCH) => Err(UntilError::NoProcess(pid)),
            Err(error) => Err(UntilError::Io {
                pid,
                source: error.into(),
            }),
        }
    }

    /// Returns when the process has ended.
    pub async fn ended(self) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        // A thread of its own, which nobody waits for: it sleeps until the process or this one ends.
        std::thread::Builder::new()
            .name("until-pid".to_owned())
            .spawn(move || {
                let _ = sender.send(self.wait());
            })?;
        receiver.await.map_err(io::Error::other)?
    }

    fn wait(&self) -> io::Result<()> {
        loop {
            let mut descriptors = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut descriptors, None) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_there_is_said_so() {
        for pid in [i32::MAX, 0, -1] {
            let error = Until::pid(pid).expect_err("no such process");
            assert_eq!(
                error.to_string(),
                format!("--until-pid {pid}: there is no such process")
            );
        }
    }

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("started");
        let until = Until::pid(child.id().cast_signed()).expect("it runs");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        child.kill().expect("killed");
        runtime.block_on(until.ended()).expect("seen");
        child.wait().expect("ended");
    }
}
