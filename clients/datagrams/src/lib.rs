//! What the client libraries share besides lanes: marks and phases ([`marks`]), and sending values
//! to other statsd servers ([`statsd_output`]).
//!
//! This code runs inside other people's programs. It never blocks the program, never panics, needs
//! no agent, and costs nothing while it is not used. Losses are counted.

pub mod marks;
pub mod statsd_output;
