//! Input of programs to a real agent: lanes, statsd, pushes, points over HTTP and telnet, remote
//! write; and the sources that the agent reads by itself.

mod client_libraries;
mod http_in;
mod lanes;
mod marks;
mod otlp;
mod pull;
mod push;
mod push_formats;
mod python;
mod remote_write;
mod statsd;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
