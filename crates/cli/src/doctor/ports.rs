//! Checks the ports of the agent and which process holds them.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use pegel_agent::{PortOwner, tcp_port_owner, udp_port_owner};

use super::finding::Finding;

/// The default address of statsd clients.
const STATSD_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 8125);

#[derive(Debug, Clone)]
pub(super) struct PortProbe {
    /// The port as shown: `1337`, `8125/udp`.
    pub name: String,
    pub holder: Option<PortOwner>,
    pub is_ours: bool,
}

/// The addresses to examine: those of the running agent, else those of an agent started here.
#[derive(Debug, Clone, Default)]
pub(super) struct AgentPorts {
    pub http: Vec<SocketAddr>,
    pub statsd_udp: Vec<SocketAddr>,
    pub statsd_tcp: Vec<SocketAddr>,
}

impl AgentPorts {
    /// Returns the HTTP addresses and those to which statsd clients send by default.
    pub(super) fn with_default_statsd(http: Vec<SocketAddr>) -> AgentPorts {
        let statsd = SocketAddr::from(STATSD_ADDRESS);
        AgentPorts {
            http,
            statsd_udp: vec![statsd],
            statsd_tcp: vec![statsd],
        }
    }
}

/// Looks up the holder of each port. `agent` is the process ID of the running agent.
pub(super) fn probe(ports: &AgentPorts, agent: Option<u32>) -> Vec<PortProbe> {
    let agent_uid =
        agent.and_then(|pid| Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid()));
    let port = |name: String, holder: Option<PortOwner>| {
        let is_ours = holder.as_ref().is_some_and(|holder| match &holder.process {
            Some(process) => Some(process.pid) == agent,
            // For a socket of another user, only the user is known, not the process.
            None => Some(holder.user.uid) == agent_uid,
        });
        PortProbe {
            name,
            holder,
            is_ours,
        }
    };
    // Port 0 stands for any free port.
    let numbered = |addresses: &[SocketAddr]| {
        let addresses = addresses.iter().copied();
        addresses
            .filter(|address| address.port() != 0)
            .collect::<Vec<_>>()
    };
    let http = numbered(&ports.http).into_iter();
    let udp = numbered(&ports.statsd_udp).into_iter();
    let tcp = numbered(&ports.statsd_tcp).into_iter();
    http.map(|address| port(address.port().to_string(), tcp_port_owner(address)))
        .chain(udp.map(|address| port(format!("{}/udp", address.port()), udp_port_owner(address))))
        .chain(tcp.map(|address| port(format!("{}/tcp", address.port()), tcp_port_owner(address))))
        .collect()
}

pub(super) fn evaluate(ports: &[PortProbe]) -> Vec<Finding> {
    let names = |wanted: &dyn Fn(&PortProbe) -> bool| {
        let names: Vec<&str> = ports
            .iter()
            .filter(|port| wanted(port))
            .map(|port| port.name.as_str())
            .collect();
        names.join(", ")
    };
    let mut findings = Vec::new();
    let ours = names(&|port| port.is_ours);
    if !ours.is_empty() {
        findings.push(Finding::ok("ports", format!("in use by the agent: {ours}")));
    }
    let free = names(&|port| port.holder.is_none());
    if !free.is_empty() {
        findings.push(Finding::ok("ports", format!("free: {free}")));
    }
    for port in ports.iter().filter(|port| !port.is_ours) {
        let Some(holder) = &port.holder else { continue };
        let fix = if port.name.contains('/') {
            "to receive statsd lines on this port, stop that process; otherwise no action is needed"
                .to_owned()
        } else {
            match &holder.process {
                Some(process) => format!(
                    "pegel agent --port-search, or stop that process: kill {}",
                    process.pid
                ),
                None => "pegel agent --port-search, or --listen with another port".to_owned(),
            }
        };
        findings.push(Finding::better(
            "ports",
            format!("{} is in use by {holder}", port.name),
            fix,
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::doctor::finding::FindingState;

    #[test]
    fn held_and_free_ports_are_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let own = std::process::id();
        let ports = probe(&AgentPorts::with_default_statsd(vec![address]), Some(own));
        assert!(ports[0].is_ours);
        let findings = evaluate(&ports[..1]);
        assert_eq!(
            findings,
            [Finding::ok(
                "ports",
                format!("in use by the agent: {}", address.port())
            )]
        );

        let ports = probe(&AgentPorts::with_default_statsd(vec![address]), None);
        let findings = evaluate(&ports[..1]);
        assert_eq!(findings[0].state, FindingState::Better);
        assert!(
            findings[0]
                .message
                .contains(&format!("is in use by pid {own}")),
            "{findings:?}"
        );
        assert!(
            findings[0]
                .fix
                .as_deref()
                .expect("a fix")
                .contains("--port-search")
        );

        drop(listener);
        let findings = evaluate(&probe(&AgentPorts::with_default_statsd(vec![address]), None)[..1]);
        assert_eq!(
            findings,
            [Finding::ok("ports", format!("free: {}", address.port()))]
        );
    }

    #[test]
    fn port_zero_is_skipped() {
        let ports = probe(
            &AgentPorts::with_default_statsd(vec!["127.0.0.1:0".parse().expect("an address")]),
            None,
        );
        assert_eq!(ports.len(), 2, "the two statsd ports");
    }
}
