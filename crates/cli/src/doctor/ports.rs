//! The ports that an agent takes, and who has them.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use pegel_agent::{Holder, holder_of, udp_holder_of};

use super::finding::Finding;

/// Where statsd clients send to.
const STATSD_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 8125);

#[derive(Debug, Clone)]
pub struct PortProbe {
    /// `1337`, `8125/udp`.
    pub name: String,
    pub holder: Option<Holder>,
    pub is_ours: bool,
}

/// `agent` is the running one's process.
pub fn probe(listen: &[SocketAddr], agent: Option<u32>) -> Vec<PortProbe> {
    let agent_uid =
        agent.and_then(|pid| Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid()));
    let port = |name: String, holder: Option<Holder>| {
        let is_ours = holder.as_ref().is_some_and(|holder| match &holder.process {
            Some(process) => Some(process.pid) == agent,
            // The kernel names only the user of another user's socket.
            None => Some(holder.owner.uid) == agent_uid,
        });
        PortProbe {
            name,
            holder,
            is_ours,
        }
    };
    let statsd = SocketAddr::from(STATSD_ADDRESS);
    let listen = listen.iter().filter(|address| address.port() != 0);
    let mut ports: Vec<PortProbe> = listen
        .map(|address| port(address.port().to_string(), holder_of(*address)))
        .collect();
    ports.push(port("8125/udp".to_owned(), udp_holder_of(statsd)));
    ports.push(port("8125/tcp".to_owned(), holder_of(statsd)));
    ports
}

pub fn evaluate(ports: &[PortProbe]) -> Vec<Finding> {
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
        findings.push(Finding::ok("ports", format!("the agent has {ours}")));
    }
    let free = names(&|port| port.holder.is_none());
    if !free.is_empty() {
        findings.push(Finding::ok("ports", format!("free: {free}")));
    }
    for port in ports.iter().filter(|port| !port.is_ours) {
        let Some(holder) = &port.holder else { continue };
        let fix = match port.name.contains('/') {
            true => "stop it if Pegel is to take statsd there, else leave it".to_owned(),
            false => match &holder.process {
                Some(process) => format!(
                    "pegel agent --port-search, or stop it: kill {}",
                    process.pid
                ),
                None => "pegel agent --port-search, or --listen with another port".to_owned(),
            },
        };
        findings.push(Finding::better(
            "ports",
            format!("{} is held by {holder}", port.name),
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
    fn a_held_port_is_somebodys_and_a_free_one_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let own = std::process::id();
        let ports = probe(&[address], Some(own));
        assert!(ports[0].is_ours);
        let says = evaluate(&ports[..1]);
        assert_eq!(
            says,
            [Finding::ok(
                "ports",
                format!("the agent has {}", address.port())
            )]
        );

        let ports = probe(&[address], None);
        let findings = evaluate(&ports[..1]);
        assert_eq!(findings[0].state, FindingState::Better);
        assert!(
            findings[0]
                .message
                .contains(&format!("is held by pid {own}")),
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
        let says = evaluate(&probe(&[address], None)[..1]);
        assert_eq!(
            says,
            [Finding::ok("ports", format!("free: {}", address.port()))]
        );
    }

    #[test]
    fn port_zero_is_never_taken() {
        let ports = probe(&["127.0.0.1:0".parse().expect("an address")], None);
        assert_eq!(ports.len(), 2, "statsd's two");
    }
}
