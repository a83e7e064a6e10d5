//! Input of programs to a real agent: lanes, statsd, pushes, points over HTTP and telnet.

mod http_in;
mod lanes;
mod push;
mod statsd;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
