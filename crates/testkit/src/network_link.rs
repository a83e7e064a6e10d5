//! Links between network namespaces that tests cut, slow down and half-close.
//!
//! A link is a veth pair. Both ends are in namespaces of the test, and each namespace ends with the
//! process that holds it: nothing outside them changes, and nothing stays after a panic or a kill
//! of the test.

use std::net::Ipv4Addr;
use std::process::Command;

use crate::{NetworkNamespace, need, need_hardware};

/// The impairment of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    None,
    /// The interfaces are down: the kernel reports errors at once.
    Cut,
    /// Packets from the first end to the second are lost without a sign; the others arrive.
    FirstEndMuted,
    /// Packets from the second end to the first are lost without a sign; the others arrive.
    SecondEndMuted,
    /// Packets are lost without a sign in both directions.
    Silent,
    /// Packets wait: each for 150 ms, or, where the kernel has no netem, in the queue of a link
    /// with 40 kB/s.
    Slow,
}

/// A link between two namespaces; its ends have the addresses `10.NUMBER.0.1` and `10.NUMBER.0.2`.
#[derive(Debug)]
pub struct NetworkLink {
    interface: String,
    number: u8,
    has_netem: bool,
    /// Processes in the namespaces of the two ends.
    ends: [u32; 2],
}

impl NetworkLink {
    /// Connects two namespaces. `number` must be unique in both of them. None, with the skip
    /// recorded, if the kernel has no such links.
    #[track_caller]
    pub fn new(
        first: &NetworkNamespace,
        second: &NetworkNamespace,
        number: u8,
    ) -> Option<NetworkLink> {
        need("nsenter")?;
        need("tc")?;
        let interface = format!("link{number}");
        let mut link = NetworkLink {
            interface: interface.clone(),
            number,
            has_netem: false,
            ends: [first.pid(), second.pid()],
        };
        let peer = second.pid().to_string();
        let pair = ["ip", "link", "add", &interface, "type", "veth"];
        let made = link.try_run(
            0,
            &[&pair[..], &["peer", "name", &interface, "netns", &peer]].concat(),
        );
        need_hardware(made, "kernel with veth links")?;
        for end in [0, 1] {
            let address = format!("{}/24", link.address(end));
            link.run(end, &["ip", "address", "add", &address, "dev", &interface]);
            link.run(end, &["ip", "link", "set", &interface, "up"]);
        }
        link.has_netem = link.set_queue(0, &["netem", "delay", "1ms"]);
        link.set(LinkFault::None);
        Some(link)
    }

    /// Returns the address of the first (0) or the second (1) end.
    pub fn address(&self, end: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number, 0, end as u8 + 1)
    }

    /// Replaces the impairment of the link.
    pub fn set(&self, fault: LinkFault) {
        let state = if fault == LinkFault::Cut {
            "down"
        } else {
            "up"
        };
        for end in [0, 1] {
            self.run(end, &["ip", "link", "set", &self.interface, state]);
            let is_muted = match fault {
                LinkFault::FirstEndMuted => end == 0,
                LinkFault::SecondEndMuted => end == 1,
                LinkFault::Silent => true,
                _ => false,
            };
            let queue: &[&str] = match fault {
                _ if is_muted => &["blackhole"],
                LinkFault::Slow if self.has_netem => &["netem", "delay", "150ms"],
                LinkFault::Slow => &["tbf", "rate", "320kbit", "burst", "4kb", "latency", "2s"],
                _ => &["pfifo"],
            };
            assert!(
                self.set_queue(end, queue),
                "{queue:?} at end {end} of {self:?}"
            );
        }
    }

    fn set_queue(&self, end: usize, queue: &[&str]) -> bool {
        let replace = ["tc", "qdisc", "replace", "dev", &self.interface, "root"];
        self.try_run(end, &[&replace[..], queue].concat())
    }

    fn run(&self, end: usize, command: &[&str]) {
        assert!(
            self.try_run(end, command),
            "{command:?} at end {end} of {self:?}"
        );
    }

    fn try_run(&self, end: usize, command: &[&str]) -> bool {
        let target = self.ends[end].to_string();
        let run = Command::new("nsenter")
            .args(["--net", "--target", &target])
            .args(command)
            .output();
        run.expect("nsenter starts").status.success()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    /// Sends one byte from the second end to the first and waits for its echo.
    fn echo(stream: &mut TcpStream, byte: u8, patience: Duration) -> bool {
        stream.set_read_timeout(Some(patience)).expect("set");
        let mut answer = [0];
        stream.write_all(&[byte]).is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && answer[0] == byte
    }

    #[test]
    fn links_carry_packets_unless_a_fault_is_set() {
        let (Some(first), Some(second)) = (NetworkNamespace::new(), NetworkNamespace::new()) else {
            return;
        };
        let Some(link) = NetworkLink::new(&first, &second, 7) else {
            return;
        };
        let server = (link.address(0), 9);
        let listener = first.run_inside(|| TcpListener::bind(server).expect("its own address"));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().take(1).flatten() {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            }
        });
        let mut stream = second.run_inside(|| TcpStream::connect(server).expect("connected"));
        let (soon, long) = (Duration::from_millis(300), Duration::from_secs(20));
        assert!(echo(&mut stream, 1, long));
        link.set(LinkFault::Slow);
        let started = Instant::now();
        assert!(echo(&mut stream, 2, long));
        assert!(!link.has_netem || started.elapsed() > Duration::from_millis(250));
        for (byte, fault) in [
            (3, LinkFault::Cut),
            (4, LinkFault::FirstEndMuted),
            (5, LinkFault::SecondEndMuted),
            (6, LinkFault::Silent),
        ] {
            link.set(fault);
            assert!(!echo(&mut stream, byte, soon), "{fault:?}");
            link.set(LinkFault::None);
            stream.set_read_timeout(Some(long)).expect("set");
            let mut late = [0];
            stream
                .read_exact(&mut late)
                .expect("the echo comes after the fault");
            assert_eq!(late[0], byte, "{fault:?}");
        }
    }
}
