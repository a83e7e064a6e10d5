//! Chooses the address at which the nodes reach the head: that of the fastest link, InfiniBand
//! first.

use std::net::IpAddr;
use std::path::Path;

/// `ARPHRD_INFINIBAND` of `/sys/class/net/NAME/type`.
const TYPE_INFINIBAND: u32 = 32;
/// `ARPHRD_LOOPBACK`.
const TYPE_LOOPBACK: u32 = 772;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error(
        "--interface {wanted}: this machine has no such interface with an address; it has {known}"
    )]
    Unknown { wanted: String, known: String },
    #[error("cannot list this machine's addresses: {0}")]
    Addresses(String),
    #[error("this machine has no network address besides loopback")]
    None,
}

/// An address of an interface, with what is known about the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkAddress {
    pub interface: String,
    pub address: IpAddr,
    kind: u32,
    is_up: bool,
    /// Whether a device is behind it: bridges and tunnels have none.
    is_physical: bool,
    /// In Mbit/s; 0 if unknown.
    speed: u64,
}

impl LinkAddress {
    /// Orders links: the best one is the greatest.
    fn rank(&self) -> (bool, bool, bool, u64, bool) {
        (
            self.is_up,
            self.kind == TYPE_INFINIBAND,
            self.is_physical,
            self.speed,
            self.address.is_ipv4(),
        )
    }
}

/// Describes the links of a list of addresses, from files of `/sys/class/net`.
pub fn parse_links(root: &Path, addresses: &[(String, IpAddr)]) -> Vec<LinkAddress> {
    let links = addresses.iter().map(|(interface, address)| {
        let dir = root.join(interface);
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        LinkAddress {
            interface: interface.clone(),
            address: *address,
            kind: read("type").trim().parse().unwrap_or_default(),
            is_up: read("operstate").trim() != "down",
            is_physical: dir.join("device").exists(),
            // -1 if the driver does not know it.
            speed: read("speed").trim().parse().unwrap_or_default(),
        }
    });
    links.collect()
}

/// Returns the address at which other nodes reach this machine. `wanted` is the name of an
/// interface, or an address.
pub fn choose_address(wanted: Option<&str>) -> Result<IpAddr, NetworkError> {
    let found = nix::ifaddrs::getifaddrs();
    let found = found.map_err(|error| NetworkError::Addresses(error.to_string()))?;
    let addresses: Vec<(String, IpAddr)> = found
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address
                .as_sockaddr_in()
                .map(|address| IpAddr::V4(address.ip()));
            let v6 = address
                .as_sockaddr_in6()
                .map(|address| IpAddr::V6(address.ip()));
            Some((interface.interface_name, v4.or(v6)?))
        })
        .collect();
    choose(
        &parse_links(Path::new("/sys/class/net"), &addresses),
        wanted,
    )
}

fn choose(links: &[LinkAddress], wanted: Option<&str>) -> Result<IpAddr, NetworkError> {
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let usable = links.iter().filter(|link| !is_link_local(&link.address));
    let Some(wanted) = wanted else {
        let remote =
            usable.filter(|link| link.kind != TYPE_LOOPBACK && !link.address.is_loopback());
        let best = remote.max_by_key(|link| link.rank());
        return best.map(|link| link.address).ok_or(NetworkError::None);
    };
    let named =
        usable.filter(|link| link.interface == wanted || wanted.parse() == Ok(link.address));
    named
        .max_by_key(|link| link.rank())
        .map(|link| link.address)
        .ok_or_else(|| {
            let mut known: Vec<&str> = links.iter().map(|link| link.interface.as_str()).collect();
            known.dedup();
            NetworkError::Unknown {
                wanted: wanted.to_owned(),
                known: known.join(", "),
            }
        })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn the_fastest_link_is_chosen_and_infiniband_first() {
        let root = TempDir::new();
        let mut addresses = Vec::new();
        for (name, kind, state, speed, device, address) in [
            ("lo", "772", "unknown", "", false, "127.0.0.1"),
            ("eth0", "1", "up", "1000", true, "10.0.0.1"),
            ("eth1", "1", "up", "100000", true, "10.1.0.1"),
            ("eth1", "1", "up", "100000", true, "fe80::1"),
            ("eth2", "1", "down", "400000", true, "10.2.0.1"),
            ("docker0", "1", "up", "-1", false, "172.17.0.1"),
            ("ib0", "32", "up", "", true, "10.9.0.1"),
        ] {
            let dir = root.join(name);
            fs::create_dir_all(&dir).expect("made");
            fs::write(dir.join("type"), kind).expect("written");
            fs::write(dir.join("operstate"), state).expect("written");
            fs::write(dir.join("speed"), speed).expect("written");
            if device {
                fs::write(dir.join("device"), "").expect("written");
            }
            addresses.push((name.to_owned(), address.parse().expect("an address")));
        }
        let links = parse_links(root.path(), &addresses);
        let text = |found: Result<IpAddr, NetworkError>| found.expect("found").to_string();
        assert_eq!(text(choose(&links, None)), "10.9.0.1");
        assert_eq!(text(choose(&links[..6], None)), "10.1.0.1");
        assert_eq!(text(choose(&links, Some("eth0"))), "10.0.0.1");
        assert_eq!(text(choose(&links, Some("172.17.0.1"))), "172.17.0.1");
        assert_eq!(choose(&links[..1], None), Err(NetworkError::None));
        let error = choose(&links, Some("ib7"))
            .expect_err("unknown")
            .to_string();
        assert!(
            error.contains("ib7") && error.contains("eth0, eth1, eth2"),
            "{error}"
        );
    }
}
