//! The command of the job, in the foreground: it has the terminal, and its exit code is that of
//! `pegel job`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGQUIT};

use super::events::{JobEvent, JobEvents};
use crate::command_error::CommandError;

/// The exit codes of shells for programs that do not start.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

#[derive(Debug)]
pub(super) struct CommandProcess {
    pid: Pid,
}

impl CommandProcess {
    pub(super) fn start(
        words: &[OsString],
        variables: &[(String, OsString)],
        events: &JobEvents,
    ) -> anyhow::Result<CommandProcess> {
        let (program, arguments) = words
            .split_first()
            .ok_or_else(|| CommandError::usage("no command is given"))?;
        let mut command = Command::new(program);
        command.args(arguments);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.spawn().map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            };
            CommandError::with_code(code, format!("{}: {error}", program.to_string_lossy()))
        })?;
        let pid = Pid::from_child(&child);
        let sender = events.sender();
        let waiter = std::thread::Builder::new().name("command".to_owned());
        waiter.spawn(move || {
            // Fails only if the process is not ours.
            if let Ok(status) = child.wait() {
                let _ = sender.send(JobEvent::CommandEnded(status));
            }
        })?;
        Ok(CommandProcess { pid })
    }

    /// Passes a signal on. Those of the terminal's keys reach the command by themselves. The
    /// process may have ended a moment ago, and its number is not used again that soon.
    pub(super) fn forward(&self, signal: i32) {
        if matches!(signal, SIGINT | SIGQUIT) && is_in_foreground() {
            return;
        }
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process(self.pid, signal);
        }
    }
}

/// Whether the keys of the terminal send signals to this process and its command.
fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    let group = terminal.and_then(|terminal| Ok(rustix::termios::tcgetpgrp(terminal)?));
    group.is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Returns the exit code that a shell would report.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => super::exit_code_of(signal),
        (None, None) => 1,
    }
}
