//! Writes results to standard output or a file, and messages to standard error. No other module
//! prints.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::Context;

/// Opens the destination of a command's result: `path`, or standard output.
pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        Some(path) => {
            let file =
                File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
            Box::new(io::BufWriter::new(file))
        }
        None => Box::new(io::BufWriter::new(io::stdout().lock())),
    })
}

/// Writes a complete result to `path`, or to standard output.
pub(crate) fn write(path: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let mut out = open(path)?;
    let destination = path.map_or("standard output".into(), |path| path.display().to_string());
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .with_context(|| format!("cannot write {destination}"))
}

/// Prints a message to standard error. Errors are ignored: stderr may be closed.
pub(crate) fn print_message(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints several lines to standard error with one write, so that other processes do not write in
/// between. Errors are ignored, as above.
pub(crate) fn print_text(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints a progress line, which the next one overwrites.
pub(crate) fn progress(text: &str) {
    let mut err = io::stderr();
    let _ = write!(err, "\r{text}\u{1b}[K").and_then(|()| err.flush());
}

pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Returns the terminal width of standard output; `None` if it is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(&stdout).ok()?.ws_col;
    (columns > 0).then_some(usize::from(columns))
}
