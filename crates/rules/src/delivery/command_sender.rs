//! Starts a program for changes of alerts.
//!
//! The program and its arguments come from the configuration and never from an alert; no shell is
//! involved. Its standard input is a file in memory with the webhook's JSON, so that a program that
//! does not read it blocks nothing. It runs in a process group of its own, with a small
//! environment that contains none of the agent's secrets, and the group is killed at the timeout.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::SendError;

/// The variables that a program gets from the agent's environment.
const VARIABLES: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"];

pub(super) fn run(argv: &[String], body: &[u8], timeout: Duration) -> Result<(), SendError> {
    let retry = |error: io::Error| SendError::Retry(error.to_string());
    let mut child = start(argv, body).map_err(retry)?;
    let status = wait(&mut child, timeout).map_err(retry)?;
    match status {
        None => Err(SendError::Retry(format!(
            "killed after {} s",
            timeout.as_secs_f64()
        ))),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(SendError::Retry(match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        })),
    }
}

fn start(argv: &[String], body: &[u8]) -> io::Result<Child> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| io::Error::other("no program is configured"))?;
    let mut input = File::from(rustix::fs::memfd_create("alert", MemfdFlags::CLOEXEC)?);
    input.write_all(body)?;
    input.seek(SeekFrom::Start(0))?;
    let variables = VARIABLES
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(variables)
        .current_dir("/")
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

/// Waits for the end of a program; kills its process group at the timeout and returns `None`.
fn wait(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // Fails if the group is gone by now.
            let _ = kill_process_group(pid, Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut descriptors = [PollFd::new(&pidfd, PollFlags::IN)];
        // EINTR is treated as a timeout.
        let _ = poll(&mut descriptors, Some(&left));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    fn shell(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn message(result: Result<(), SendError>) -> String {
        match result {
            Ok(()) => String::new(),
            Err(SendError::Retry(message) | SendError::Refused(message)) => message,
        }
    }

    #[test]
    fn the_alert_is_on_standard_input_and_secrets_are_not_in_the_environment() {
        let dir = TempDir::new();
        let (input, environment) = (dir.join("input"), dir.join("environment"));
        let script = format!("cat > {}; env > {}", input.display(), environment.display());
        let body = vec![b'x'; 1 << 20];
        let result = run(&shell(&script), &body, Duration::from_secs(60));
        assert_eq!(message(result), "");
        assert_eq!(fs::read(input).expect("written"), body);
        let environment = fs::read_to_string(environment).expect("written");
        let known = |line: &&str| {
            let name = line.split('=').next().unwrap_or_default();
            VARIABLES.contains(&name) || ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name)
        };
        let unknown: Vec<&str> = environment.lines().filter(|line| !known(line)).collect();
        assert_eq!(unknown, [""; 0]);
    }

    #[test]
    fn failures_are_described() {
        let long = Duration::from_secs(60);
        assert_eq!(
            message(run(&shell("exit 3"), b"", long)),
            "exited with status 3"
        );
        assert_eq!(
            message(run(&shell("kill -9 $$"), b"", long)),
            "killed by signal 9"
        );
        let missing = ["/no/such/program".to_owned()];
        assert!(message(run(&missing, b"", long)).contains("No such file"));
        let short = Duration::from_millis(50);
        let hanging = run(&shell("sleep 1000 & sleep 1000"), b"", short);
        assert_eq!(message(hanging), "killed after 0.05 s");
    }
}
