//! Errors of commands and their exit codes.

use std::fmt;

/// Exit codes, the same for every command.
pub(crate) const OK: u8 = 0;
pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const NO_AGENT: u8 = 3;
pub(crate) const NOTHING_MATCHED: u8 = 4;
/// Some of the given names matched series, and some did not.
pub(crate) const PARTLY_MATCHED: u8 = 5;

/// An error with an exit code of its own. Every other error exits with [`FAILED`].
#[derive(Debug)]
pub(crate) struct CommandError {
    pub code: u8,
    pub message: String,
}

impl CommandError {
    pub(crate) fn with_code(code: u8, message: impl Into<String>) -> anyhow::Error {
        CommandError {
            code,
            message: message.into(),
        }
        .into()
    }

    /// An exit code without a message: a command that was run printed its own.
    pub(crate) fn silent(code: u8) -> anyhow::Error {
        CommandError::with_code(code, "")
    }

    pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
        CommandError::with_code(USAGE, message)
    }

    pub(crate) fn nothing_matched(message: impl Into<String>) -> anyhow::Error {
        CommandError::with_code(NOTHING_MATCHED, message)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

/// Returns the exit code of an error, and whether to print the error.
pub(crate) fn exit_code(error: &anyhow::Error) -> (u8, bool) {
    if let Some(failure) = error.downcast_ref::<CommandError>() {
        return (failure.code, !failure.message.is_empty());
    }
    // The reader of our output closed the pipe: `pegel list | head` succeeds.
    let is_closed_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe);
    if is_closed_pipe {
        (OK, false)
    } else {
        (FAILED, true)
    }
}

/// Returns the message of a command-line error, without usage and hints.
pub(crate) fn clap_message(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_exits_with_0_and_prints_nothing() {
        let pipe = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(
            exit_code(&anyhow::Error::from(pipe).context("cannot write")),
            (OK, false)
        );
        assert_eq!(
            exit_code(&CommandError::nothing_matched("none")),
            (NOTHING_MATCHED, true)
        );
        assert_eq!(exit_code(&anyhow::anyhow!("other")), (FAILED, true));
    }
}
