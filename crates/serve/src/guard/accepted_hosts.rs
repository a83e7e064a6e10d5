//! The `Host` names that this node accepts. A web page can point its own name at 127.0.0.1 (DNS
//! rebinding) and would then pass for our own page; the `Host` header that browsers send reveals
//! it.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

use pegel_config::HostName;

use super::peer::is_loopback;

/// The names and addresses of this node.
#[derive(Debug)]
pub(crate) struct AcceptedHosts {
    names: BTreeSet<String>,
}

impl AcceptedHosts {
    /// `node` is the node's name in the configuration, `more` are additional names.
    pub(super) fn new(node: &str, more: &[HostName]) -> AcceptedHosts {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mut names = host_names(&host, &read("/etc/hosts"), &read("/etc/resolv.conf"));
        names.extend(host_names(node, "", ""));
        names.extend(more.iter().map(|name| name.as_str().to_owned()));
        AcceptedHosts { names }
    }

    /// Whether a request for `authority` (`NAME`, `NAME:PORT`) that arrived at the address `local`
    /// is for this node.
    pub(super) fn accepts(&self, authority: &str, local: IpAddr) -> bool {
        let Some(host) = host_in_authority(authority) else {
            return false;
        };
        // An IP address cannot be rebound: one that leads here is ours.
        if let Ok(ip) = host.parse::<IpAddr>() {
            let ip = ip.to_canonical();
            return is_loopback(ip)
                || ip == local.to_canonical()
                || self.names.contains(&ip.to_string());
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host == "localhost" || self.names.contains(&host)
    }
}

/// The host of an authority; `None` if it is not exactly a host with an optional port.
pub(super) fn host_in_authority(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            // Brackets hold an IPv6 address and nothing else.
            host.contains(':').then_some(())?;
            match after {
                "" => (host, None),
                after => (host, Some(after.strip_prefix(':')?)),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    // `Host: name:` is valid and means the default port.
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    (!host.is_empty() && port.is_none_or(is_port)).then_some(host)
}

/// The short and full names of a host, as far as local files know them.
fn host_names(host: &str, hosts_file: &str, resolv_conf: &str) -> BTreeSet<String> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if host.is_empty() {
        return BTreeSet::new();
    }
    let short = host.split('.').next().unwrap_or(&host).to_owned();
    let mut names = BTreeSet::from([host.clone(), short.clone()]);
    for line in hosts_file.lines() {
        let line = line
            .split('#')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let aliases: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
        if aliases.contains(&host.as_str()) || aliases.contains(&short.as_str()) {
            names.extend(aliases.into_iter().map(str::to_owned));
        }
    }
    if !host.contains('.') {
        for line in resolv_conf.lines() {
            let mut words = line.split_ascii_whitespace();
            if matches!(words.next(), Some("search" | "domain")) {
                let domains = words.map(|domain| domain.trim_matches('.').to_ascii_lowercase());
                names.extend(
                    domains
                        .filter(|d| !d.is_empty())
                        .map(|d| format!("{short}.{d}")),
                );
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> AcceptedHosts {
        AcceptedHosts::new("nid0001", &["Metrics.Example.org".parse().expect("a name")])
    }

    #[test]
    fn loopback_the_nodes_names_and_configured_ones_are_ours() {
        let local = "192.0.2.7".parse().expect("an address");
        let own = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        for authority in [
            "localhost",
            "LOCALHOST:1337",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:8080",
            "127.8.9.10:1",
            "[::1]",
            "[::1]:1337",
            "[::ffff:127.0.0.1]:1337",
            "nid0001",
            "NID0001:1337",
            "metrics.example.org:443",
            "192.0.2.7:1337",
            "[::ffff:192.0.2.7]",
            "localhost:",
            &own,
        ] {
            assert!(hosts().accepts(authority, local), "{authority}");
        }
    }

    #[test]
    fn other_names_are_not() {
        let local = "127.0.0.1".parse().expect("an address");
        for authority in [
            "",
            "evil.example",
            "evil.example:1337",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "nid0001.evil.example",
            "evil.example@localhost",
            "localhost@evil.example",
            "localhost/evil",
            "localhost:1337x",
            "localhost:133700",
            "[localhost]",
            "[::1]evil.example",
            "[::1",
            "::1",
            "192.0.2.7",
            "0.0.0.0",
            "0x7f.1",
            "2130706433",
            ":1337",
            " localhost",
        ] {
            assert!(!hosts().accepts(authority, local), "{authority}");
        }
    }

    #[test]
    fn full_names_are_found_in_the_machines_files() {
        let hosts_file = "127.0.0.1 localhost\n10.0.0.5 nid7.cluster.example nid7 # a comment\n";
        let resolv_conf = "nameserver 10.0.0.1\nsearch Site.example. other.example\n";
        let names: Vec<String> = host_names("NID7", hosts_file, resolv_conf)
            .into_iter()
            .collect();
        let expected = [
            "nid7",
            "nid7.cluster.example",
            "nid7.other.example",
            "nid7.site.example",
        ];
        assert_eq!(names, expected);
        let full = host_names("nid7.a.example", "", "search b.example\n");
        assert_eq!(
            full.into_iter().collect::<Vec<_>>(),
            ["nid7", "nid7.a.example"]
        );
        assert!(host_names("", hosts_file, resolv_conf).is_empty());
    }
}
