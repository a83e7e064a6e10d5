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
