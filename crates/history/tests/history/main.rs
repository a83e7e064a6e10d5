//! The history against real engines, and against servers that fail in every way.

mod agreement;
mod data;
mod engines;
mod faults;
