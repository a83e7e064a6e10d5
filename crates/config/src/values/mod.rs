//! Values with a form of their own. Each keeps the text it was written as.

mod address;
mod bytes;
mod level;
mod span;

pub use address::Address;
pub use bytes::Bytes;
pub use level::{Level, LogLevel};
pub use span::{Rate, Span};
