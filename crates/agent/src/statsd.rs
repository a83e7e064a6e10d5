//! statsd in this agent: the option `--statsd`, the policy for peers, and owners of ports.

use std::net::SocketAddr;

use pegel_config::{ConfigError, ConfigOrigin, ConfigProblem, ConfigTree};
use pegel_ingest::statsd::{LoopbackPeer, StatsdPeerPolicy, TransportProtocol};
use pegel_serve::{LocalUsers, tcp_port_owner, udp_port_owner};

const ACCEPTS: &str =
    "udp:ADDRESS:PORT, tcp:ADDRESS:PORT, unix:PATH, unix-stream:PATH, or off for none at all";

/// Applies `--statsd` to the configuration: its addresses replace all others. UNIX sockets are
/// kept, unless one is named or all are off.
pub(crate) fn apply_statsd_argument(
    tree: &mut ConfigTree,
    texts: &[String],
    place: &ConfigOrigin,
) -> Result<(), ConfigError> {
    let (mut udp, mut tcp, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    for text in texts {
        match text.split_once(':') {
            Some(("udp", address)) => udp.push(address.to_owned()),
            Some(("tcp", address)) => tcp.push(address.to_owned()),
            Some(("unix", path)) => sockets.push(("unix", path)),
            Some(("unix-stream", path)) => sockets.push(("unix_stream", path)),
            _ if text == "off" => sockets.extend([("unix", "off"), ("unix_stream", "off")]),
            _ => {
                return Err(ConfigError::from(ConfigProblem {
                    origin: Some(place.clone()),
                    key: "statsd".to_owned(),
                    message: format!("{text:?} is not a statsd address"),
                    hint: ACCEPTS.to_owned(),
                }));
            }
        }
    }
    let section = tree.section("statsd", place.clone());
    section.set_list("udp", &udp, place.clone());
    section.set_list("tcp", &tcp, place.clone());
    for (key, path) in sockets {
        section.set(key, path, place.clone());
    }
    Ok(())
}

/// Implements the policy with the server's knowledge of local users and ports.
#[derive(Debug)]
pub(crate) struct AgentPeerPolicy {
    pub users: LocalUsers,
}

impl StatsdPeerPolicy for AgentPeerPolicy {
    fn port_holder(&self, protocol: TransportProtocol, address: SocketAddr) -> Option<String> {
        let holder = match protocol {
            TransportProtocol::Udp => udp_port_owner(address),
            TransportProtocol::Tcp => tcp_port_owner(address),
        };
        holder.map(|holder| holder.to_string())
    }

    fn peer_owner(&self, local: SocketAddr, peer: SocketAddr) -> LoopbackPeer {
        self.users
            .owner_of(peer, local)
            .map_or(LoopbackPeer::Unknown, LoopbackPeer::Uid)
    }

    fn allows_user(&self, uid: u32) -> bool {
        self.users.admits(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_sources::{ConfigArgument, LoadedConfig, load_config};

    fn load_with(texts: &[&str]) -> Result<LoadedConfig, ConfigError> {
        let argument = ConfigArgument {
            key: "statsd",
            flag: "--statsd",
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        };
        load_config(None, &[argument], &|_| None)
    }

    #[test]
    fn the_command_line_replaces_all_addresses() {
        let places = |texts: &[&str]| {
            let keys = load_with(texts).expect("valid").config.agent.statsd;
            let list = |addresses: &[pegel_config::ListenAddress]| {
                let all: Vec<String> = addresses.iter().map(|a| a.to_string()).collect();
                all.join(",")
            };
            [
                list(&keys.udp),
                list(&keys.tcp),
                keys.unix.to_string(),
                keys.unix_stream.to_string(),
            ]
        };
        let udp = ["udp:127.0.0.1:1", "udp:[::1]:2"];
        assert_eq!(places(&udp), ["127.0.0.1:1,[::1]:2", "", "auto", "auto"]);
        let other = ["tcp:127.0.0.1:3", "unix:/a/b", "unix-stream:off"];
        assert_eq!(places(&other), ["", "127.0.0.1:3", "/a/b", "off"]);
        let ports = ["udp:8125", "tcp::8126"];
        assert_eq!(
            places(&ports),
            ["127.0.0.1:8125", "127.0.0.1:8126", "auto", "auto"]
        );
        assert_eq!(places(&["off"]), ["", "", "off", "off"]);
    }

    #[test]
    fn mistakes_name_the_option() {
        for (text, expected) in [
            ("8125", "--statsd: statsd: \"8125\" is not a statsd address"),
            (
                "udp:here",
                "--statsd: statsd.udp[0]: \"here\" is not an address",
            ),
            (
                "udp:0.0.0.0:0",
                "--statsd: statsd.udp[0]: \"0.0.0.0:0\" can be reached",
            ),
            (
                "unix:here",
                "--statsd: statsd.unix: \"here\" is neither auto",
            ),
        ] {
            let error = load_with(&[text]).expect_err("wrong").to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
