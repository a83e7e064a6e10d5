//! Typical statsd lines: seven of ten are counters, the others gauges and timers, under a thousand
//! names.

use std::io;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

pub(crate) const NAMES: usize = 1000;

/// Returns datagrams with this many lines each, to be sent repeatedly.
pub(crate) fn datagrams(lines: usize) -> Vec<Vec<u8>> {
    let line = |number: usize| match number % 10 {
        7 => format!(
            "solver.rank{}.queue_depth:{}|g",
            number % NAMES,
            number % 97
        ),
        8 | 9 => format!(
            "solver.rank{}.step_time:{}.{}|ms",
            number % NAMES,
            number % 31 + 1,
            number % 9
        ),
        _ => format!("solver.rank{}.iterations:1|c", number % NAMES),
    };
    let count = NAMES.max(lines);
    let all: Vec<String> = (0..count).map(line).collect();
    all.chunks(lines)
        .map(|chunk| chunk.join("\n").into_bytes())
        .collect()
}

pub(crate) trait DatagramSender {
    fn send(&self, datagram: &[u8]) -> io::Result<usize>;
}

impl DatagramSender for UdpSocket {
    fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        UdpSocket::send(self, datagram)
    }
}

impl DatagramSender for UnixDatagram {
    fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        UnixDatagram::send(self, datagram)
    }
}

/// Sends datagrams at a constant rate per second, in steps of a millisecond; 0 means unlimited.
/// Returns the number sent.
pub(crate) fn send(
    to: &dyn DatagramSender,
    datagrams: &[Vec<u8>],
    rate: u64,
    time: Duration,
) -> u64 {
    let started = Instant::now();
    let mut sent: u64 = 0;
    while started.elapsed() < time {
        let due = match rate {
            0 => sent + 1000,
            rate => (started.elapsed().as_secs_f64() * rate as f64) as u64,
        };
        while sent < due {
            to.send(&datagrams[sent as usize % datagrams.len()])
                .expect("sent");
            sent += 1;
        }
        if rate > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    sent
}
