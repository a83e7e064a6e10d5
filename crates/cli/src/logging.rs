//! Log messages go to standard error, one line each.

use std::io;

use pegel_config::LogLevel;
use tracing_subscriber::filter::LevelFilter;

pub fn start(level: LogLevel) {
    let filter = match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(io::stderr)
        .finish();
    // It fails only when there is a subscriber already, which is as good.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
