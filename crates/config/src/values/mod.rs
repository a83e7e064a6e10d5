//! Types of single values. Those that are shown again keep their source text.

mod byte_size;
mod host_name;
mod level;
mod listen_address;
mod log_config;
mod time_span;
mod user_ref;

pub use byte_size::ByteSize;
pub use host_name::HostName;
pub use level::{DetailLevel, LogLevel};
pub use listen_address::ListenAddress;
pub use log_config::{LogConfig, LogDestination};
pub use time_span::{OptionalTimeSpan, SampleInterval, TimeSpan};
pub use user_ref::UserRef;

/// Splits a text into a number and the unit that follows it.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    Some((number.trim_end().parse().ok()?, unit))
}
