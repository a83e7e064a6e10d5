//! Destinations of log messages: standard error, a file, the journal or syslog.
//!
//! Logging never stops the agent. A message that a pipe, a terminal or a daemon does not accept
//! within 20 ms is dropped and counted; only a log file on a disk that hangs blocks its writers.

mod datagram_sink;
mod journal;
mod log_file;
mod record;
mod stream_sink;
mod syslog;

use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pegel_agent::LogOutput;
use pegel_config::{LogConfig, LogDestination, LogLevel};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing_subscriber::Registry;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

use crate::output;
use datagram_sink::{DatagramSink, RecordEncoder};
use log_file::LogFileSink;
use stream_sink::StreamSink;

const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";
const SYSLOG_SOCKET: &str = "/dev/log";

/// A destination of whole messages.
trait LogSink: Send + Sync + fmt::Debug {
    /// Writes the message without waiting, or fails.
    fn write_message(&self, message: &[u8]) -> io::Result<()>;

    /// Reopens the destination after it was moved.
    fn reopen(&self) {}

    /// Fails if the destination is not available.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The destination of this process's messages, and the number of lost ones.
#[derive(Debug)]
pub(crate) struct Logging {
    name: String,
    sink: Box<dyn LogSink>,
    lost: AtomicU64,
}

/// Starts logging to the configured destination. A destination that is not available yet causes a
/// message only.
pub(crate) fn start(log: &LogConfig) -> Arc<Logging> {
    let place = match &log.destination {
        LogDestination::Auto
            if is_journal_stream(std::env::var("JOURNAL_STREAM").ok().as_deref()) =>
        {
            LogDestination::Journal
        }
        LogDestination::Auto => LogDestination::Stderr,
        LogDestination::File(path) => {
            LogDestination::File(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        place => place.clone(),
    };
    let (sink, encoder): (Box<dyn LogSink>, Option<RecordEncoder>) = match &place {
        LogDestination::Journal => new_datagram_sink(JOURNAL_SOCKET, journal::encode),
        LogDestination::Syslog => new_datagram_sink(SYSLOG_SOCKET, syslog::encode),
        LogDestination::File(path) => (Box::new(LogFileSink::new(path)), None),
        LogDestination::Auto | LogDestination::Stderr => {
            (Box::new(StreamSink::new(io::stderr())), None)
        }
    };
    let logging = Arc::new(Logging {
        name: place.to_string(),
        sink,
        lost: AtomicU64::new(0),
    });
    if log.level != LogLevel::Off
        && let Err(error) = logging.sink.check()
    {
        output::print_message(&format!(
            "pegel: cannot log to {place}: {error}; retrying with each message"
        ));
    }
    subscribe(filter(log.level), &logging, encoder);
    logging
}

fn new_datagram_sink(
    path: &str,
    encoder: RecordEncoder,
) -> (Box<dyn LogSink>, Option<RecordEncoder>) {
    (Box::new(DatagramSink::new(Path::new(path))), Some(encoder))
}

fn subscribe(level: LevelFilter, logging: &Arc<Logging>, encoder: Option<RecordEncoder>) {
    // Fails only if a subscriber is set already, which is then kept.
    let _ = match encoder {
        Some(encoder) => {
            let layer = record::LogRecordLayer::new(logging.clone(), encoder, level);
            set_global_default(Registry::default().with(layer))
        }
        None => set_global_default(
            tracing_subscriber::fmt()
                .with_max_level(level)
                .with_ansi(false)
                .with_target(false)
                .with_writer(MakeLogLineWriter(logging.clone()))
                .finish(),
        ),
    };
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Returns whether standard error is the journal's stream. `JOURNAL_STREAM` holds device and inode
/// of the file that systemd passed as standard error, which may have been redirected since.
fn is_journal_stream(variable: Option<&str>) -> bool {
    let expected = variable.and_then(|text| {
        let (device, inode) = text.split_once(':')?;
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    });
    let actual = std::fs::metadata("/proc/self/fd/2").map(|stderr| (stderr.dev(), stderr.ino()));
    expected.is_some() && expected == actual.ok()
}

impl Logging {
    fn write_message(&self, message: &[u8]) {
        if self.sink.write_message(message).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl LogOutput for Logging {
    fn destination(&self) -> &str {
        &self.name
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn reopen(&self) {
        self.sink.reopen();
    }
}

/// Creates writers for the formatter of text lines.
#[derive(Debug)]
struct MakeLogLineWriter(Arc<Logging>);

impl<'a> MakeWriter<'a> for MakeLogLineWriter {
    type Writer = LogLineWriter<'a>;

    fn make_writer(&'a self) -> LogLineWriter<'a> {
        LogLineWriter(&self.0)
    }
}

/// Writes lines of text. The formatter passes each message with a single `write`.
struct LogLineWriter<'a>(&'a Logging);

impl Write for LogLineWriter<'_> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        self.0.write_message(message);
        // Report no error: the formatter would print it to standard error, which may be the
        // destination itself.
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_error_is_the_journal_only_if_it_is_the_same_file() {
        let found = std::fs::metadata("/proc/self/fd/2").expect("there is one");
        let same = format!("{}:{}", found.dev(), found.ino());
        assert!(is_journal_stream(Some(&same)));
        let other = format!("{}:{}", found.dev(), found.ino() + 1);
        for text in [
            Some(other.as_str()),
            Some("8:"),
            Some("x:y"),
            Some(""),
            None,
        ] {
            assert!(!is_journal_stream(text), "{text:?}");
        }
    }

    #[derive(Debug)]
    struct FullSink;

    impl LogSink for FullSink {
        fn write_message(&self, _: &[u8]) -> io::Result<()> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    #[test]
    fn lost_messages_are_counted_and_cause_no_error() {
        let logging = Arc::new(Logging {
            name: "nowhere".to_owned(),
            sink: Box::new(FullSink),
            lost: AtomicU64::new(0),
        });
        let lines = MakeLogLineWriter(logging.clone());
        lines.make_writer().write_all(b"one\n").expect("no failure");
        lines.make_writer().write_all(b"two\n").expect("no failure");
        assert_eq!((logging.destination(), logging.lost()), ("nowhere", 2));
    }
}
