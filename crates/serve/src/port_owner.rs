//! Finds the process that occupies a port. Every user can read the socket's inode and owner from
//! `/proc/net`; the process is visible only to its own user and to root.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pegel_config::UserInfo;

/// The owner of a port, as far as this user may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortOwner {
    pub user: UserInfo,
    pub process: Option<OwningProcess>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwningProcess {
    pub pid: u32,
    pub command: String,
}

impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some(process) => write!(f, "pid {} ({})", process.pid, process.command),
            None => write!(f, "a process of {}", self.user),
        }
    }
}

/// The socket states that occupy a port, in the kernel's notation.
const TCP_LISTEN: &str = "0A";
const UDP_BOUND: &str = "07";

/// Finds the TCP socket that occupies `wanted`.
pub fn tcp_port_owner(wanted: SocketAddr) -> Option<PortOwner> {
    find_port_owner(["/proc/net/tcp", "/proc/net/tcp6"], TCP_LISTEN, wanted)
}

/// Finds the UDP socket that occupies `wanted`.
pub fn udp_port_owner(wanted: SocketAddr) -> Option<PortOwner> {
    find_port_owner(["/proc/net/udp", "/proc/net/udp6"], UDP_BOUND, wanted)
}

fn find_port_owner(tables: [&str; 2], state: &str, wanted: SocketAddr) -> Option<PortOwner> {
    let socket = tables.into_iter().find_map(|path| {
        let table = fs::read_to_string(path).ok()?;
        table
            .lines()
            .filter_map(|line| parse_socket_line(line, state))
            .find(|entry| addresses_overlap(entry.address, wanted))
    })?;
    let process = process_with_descriptor(&format!("socket:[{}]", socket.inode));
    Some(PortOwner {
        user: UserInfo::lookup(socket.uid),
        process,
    })
}

#[derive(Debug, PartialEq, Eq)]
struct SocketTableEntry {
    address: SocketAddr,
    uid: u32,
    inode: u64,
}

/// Parses one line of `/proc/net/tcp` and similar tables; `None` if the socket is in another state.
fn parse_socket_line(line: &str, wanted: &str) -> Option<SocketTableEntry> {
    let mut fields = line.split_ascii_whitespace();
    let (ip, port) = fields.nth(1)?.split_once(':')?;
    let address = SocketAddr::new(parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
    let state = fields.nth(1)?;
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    (state == wanted).then_some(SocketTableEntry {
        address,
        uid,
        inode,
    })
}

/// Parses an address, which the kernel prints as 32-bit words in native byte order.
fn parse_ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// Whether a socket bound to `held` prevents binding `wanted`.
fn addresses_overlap(held: SocketAddr, wanted: SocketAddr) -> bool {
    let (held_ip, wanted_ip) = (held.ip().to_canonical(), wanted.ip().to_canonical());
    held.port() == wanted.port()
        && (held_ip == wanted_ip || held_ip.is_unspecified() || wanted_ip.is_unspecified())
}

/// The first process with a descriptor that links to this target.
fn process_with_descriptor(target: &str) -> Option<OwningProcess> {
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| link.as_os_str() == target)
    })?;
    Some(OwningProcess {
        pid,
        command: command_of(pid),
    })
}

/// The command name of a process; `?` if it cannot be read.
pub(crate) fn command_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn reads_the_kernel_table() {
        let four = "   0: 0100007F:0539 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0000000000000000 100 0 0 10 0";
        let expected = SocketTableEntry {
            address: "127.0.0.1:1337".parse().expect("valid"),
            uid: 1000,
            inode: 4242,
        };
        assert_eq!(parse_socket_line(four, TCP_LISTEN), Some(expected));
        let six = "   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1 0000000000000000 100 0 0 10 0";
        assert_eq!(
            parse_socket_line(six, TCP_LISTEN)
                .map(|l| l.address.to_string())
                .as_deref(),
            Some("[::1]:80")
        );
        assert_eq!(
            parse_socket_line(&four.replace(" 0A ", " 01 "), TCP_LISTEN),
            None
        );
        for line in ["", "sl local_address", "0: x:y", "0: 0100007F:0539 0:0 0A"] {
            assert_eq!(parse_socket_line(line, TCP_LISTEN), None, "{line}");
        }
    }

    #[test]
    fn a_wildcard_overlaps_every_address_of_its_port() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("valid");
        assert!(addresses_overlap(
            address("0.0.0.0:80"),
            address("127.0.0.1:80")
        ));
        assert!(addresses_overlap(
            address("[::]:80"),
            address("127.0.0.1:80")
        ));
        assert!(addresses_overlap(
            address("[::ffff:127.0.0.1]:80"),
            address("127.0.0.1:80")
        ));
        assert!(!addresses_overlap(
            address("127.0.0.2:80"),
            address("127.0.0.1:80")
        ));
        assert!(!addresses_overlap(
            address("127.0.0.1:81"),
            address("127.0.0.1:80")
        ));
    }

    #[test]
    fn finds_this_very_process() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let owner = tcp_port_owner(listener.local_addr().expect("bound")).expect("a holder");
        let process = owner.process.clone().expect("our own process");
        assert_eq!(process.pid, std::process::id());
        assert_eq!(
            owner.to_string(),
            format!("pid {} ({})", process.pid, process.command)
        );
    }

    #[test]
    fn finds_who_takes_datagrams() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("bound");
        let process = udp_port_owner(address).and_then(|owner| owner.process);
        assert_eq!(process.map(|p| p.pid), Some(std::process::id()));
    }
}
