//! Values with a form of their own. Each keeps the text it was written as.

mod address;
mod bytes;
mod host_name;
mod level;
mod log;
mod span;
mod user;

pub use address::Address;
pub use bytes::Bytes;
pub use host_name::HostName;
pub use level::{Level, LogLevel};
pub use log::{Log, LogPlace};
pub use span::{Rate, Span};
pub use user::User;

/// A number and the letters behind it.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    Some((number.trim_end().parse().ok()?, unit))
}
