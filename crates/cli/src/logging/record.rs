//! Log messages with their fields, for destinations with structured protocols.

use std::fmt::{self, Write};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::Logging;
use super::datagram_sink::RecordEncoder;

/// Longer texts in a message are truncated. Both daemons have limits of their own.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// One log message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogRecord {
    /// Syslog severity: 3 is an error, 7 is debug.
    pub priority: u8,
    pub message: String,
    /// Names and order as in the source.
    pub fields: Vec<(&'static str, String)>,
    pub module: &'static str,
    pub file: &'static str,
    pub line: u32,
}

impl LogRecord {
    fn new(metadata: &'static Metadata<'static>) -> LogRecord {
        let priority = match *metadata.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        LogRecord {
            priority,
            message: String::new(),
            fields: Vec::new(),
            module: metadata.target(),
            file: metadata.file().unwrap_or_default(),
            line: metadata.line().unwrap_or_default(),
        }
    }

    /// Formats message and fields as one text.
    pub(super) fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{name}={value}");
        }
        truncate(&mut text);
        text
    }
}

impl Visit for LogRecord {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_field(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_field(field.name(), format!("{value:?}"));
    }
}

impl LogRecord {
    fn add_field(&mut self, name: &'static str, mut value: String) {
        truncate(&mut value);
        match name {
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }
}

fn truncate(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rfind(|index| text.is_char_boundary(*index));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}

/// A tracing layer that encodes each message and writes it to the destination.
pub(super) struct LogRecordLayer {
    logging: Arc<Logging>,
    encoder: RecordEncoder,
    level: LevelFilter,
}

impl LogRecordLayer {
    pub(super) fn new(
        logging: Arc<Logging>,
        encoder: RecordEncoder,
        level: LevelFilter,
    ) -> LogRecordLayer {
        LogRecordLayer {
            logging,
            encoder,
            level,
        }
    }
}

impl<S: Subscriber> Layer<S> for LogRecordLayer {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut record = LogRecord::new(event.metadata());
        event.record(&mut record);
        self.logging.write_message(&(self.encoder)(&record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_truncated_between_characters() {
        let mut text = format!("a{}", "ü".repeat(TEXT_BYTES_MAX));
        truncate(&mut text);
        assert!(text.ends_with("ü…") && text.len() <= TEXT_BYTES_MAX + 3);
        let mut short = "short".to_owned();
        truncate(&mut short);
        assert_eq!(short, "short");
    }

    #[test]
    fn a_daemon_receives_messages_of_the_level_with_their_fields() {
        use std::os::unix::net::UnixDatagram;
        use std::sync::atomic::AtomicU64;
        use tracing_subscriber::Registry;
        use tracing_subscriber::layer::SubscriberExt;

        let dir = pegel_testkit::TempDir::new();
        let path = dir.join("socket");
        let daemon = UnixDatagram::bind(&path).expect("bound");
        let logging = Arc::new(Logging {
            name: "journal".to_owned(),
            sink: Box::new(crate::logging::datagram_sink::DatagramSink::new(&path)),
            lost: AtomicU64::new(0),
        });
        let encoder = crate::logging::journal::encode;
        let records = LogRecordLayer::new(logging.clone(), encoder, LevelFilter::INFO);
        tracing::subscriber::with_default(Registry::default().with(records), || {
            tracing::debug!("below the level");
            tracing::error!(count = 3, path = %"/a b", "no room");
            let mut buffer = [0; 1024];
            let length = daemon.recv(&mut buffer).expect("received");
            let text = String::from_utf8_lossy(&buffer[..length]);
            assert!(
                text.starts_with("PRIORITY=3\nSYSLOG_IDENTIFIER=pegel\n"),
                "{text}"
            );
            for line in [
                "MESSAGE=no room count=3 path=/a b",
                "PEGEL_COUNT=3",
                "PEGEL_PATH=/a b",
            ] {
                assert!(text.lines().any(|found| found == line), "{line}: {text}");
            }
            tracing::info!("started");
            let length = daemon.recv(&mut buffer).expect("received");
            assert!(buffer[..length].starts_with(b"PRIORITY=6\n"));
            drop(daemon);
            tracing::error!("lost");
            assert_eq!(logging.lost.load(std::sync::atomic::Ordering::Relaxed), 1);
        });
    }
}
