//! Addresses to listen on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// An address to listen on: `127.0.0.1:1337`, `[::1]:1337`, `localhost:0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    text: String,
    socket: SocketAddr,
}

impl ListenAddress {
    pub const fn accepts() -> &'static str {
        "ADDRESS:PORT such as 127.0.0.1:1337, [::1]:1337 or localhost:0 (port 0: any free port), or \
         PORT for this machine only"
    }

    pub fn loopback(port: u16) -> ListenAddress {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()
    }

    pub fn socket(&self) -> SocketAddr {
        self.socket
    }

    /// Returns whether only this machine can connect to the address.
    pub fn is_loopback(&self) -> bool {
        match self.socket.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => {
                ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
            }
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(socket: SocketAddr) -> ListenAddress {
        ListenAddress {
            text: socket.to_string(),
            socket,
        }
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAddress, String> {
        let trimmed = text.trim();
        let port = trimmed.strip_prefix(':').unwrap_or(trimmed);
        if let Some(port) = parse_port(port) {
            // Loopback: an address for other machines is written out.
            return Ok(ListenAddress::loopback(port));
        }
        // Other names would require a lookup and may have several addresses.
        let numeric = match trimmed.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => trimmed.to_owned(),
        };
        let socket = numeric
            .parse()
            .map_err(|_| format!("\"{text}\" is not an address with a port"))?;
        Ok(ListenAddress {
            text: trimmed.to_owned(),
            socket,
        })
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

crate::text_setting!(ListenAddress, ListenAddress::accepts());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses() {
        for (text, socket, loopback) in [
            ("127.0.0.1:1337", "127.0.0.1:1337", true),
            ("localhost:0", "127.0.0.1:0", true),
            ("[::1]:80", "[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]:80", true),
            ("0.0.0.0:1337", "0.0.0.0:1337", false),
            ("[::]:1", "[::]:1", false),
        ] {
            let address: ListenAddress = text.parse().expect("valid");
            assert_eq!(address.socket().to_string(), socket);
            assert_eq!(address.is_loopback(), loopback, "{text}");
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        for text in ["1338", ":1338", " 1338 "] {
            let address: ListenAddress = text.parse().expect("valid");
            assert_eq!(address.to_string(), "127.0.0.1:1338");
            assert!(address.is_loopback());
        }
    }

    #[test]
    fn refuses_what_is_no_address() {
        for text in [
            "",
            ":",
            "99999",
            ":-1",
            "+80",
            "127.0.0.1",
            "nid1:80",
            "127.0.0.1:99999",
            "::1:80",
        ] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
    }
}
