//! Connects to a parent: TCP, TLS, the stream, Hello and Welcome.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hyper::Uri;
use pegel_tree_protocol::limits::PROTOCOL_VERSION;
use pegel_tree_protocol::{
    Hello, Welcome, check_parent_message, child_message, parent_message, refusal::Reason,
};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Uplink;
use super::connection::ParentConnection;
use crate::messages::encode_to_parent;
use crate::settings::ParentAddress;
use crate::transport::{CountedStream, ParentStream, PeerStream, open_parent_stream};

/// The time for each step of connecting.
const STEP_TIME: Duration = Duration::from_secs(5);
/// The most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

fn is_loopback(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => {
            ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
        }
    }
}

async fn within<T, E: ToString>(
    what: &str,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(STEP_TIME, step).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(format!("{what}: {}", error.to_string())),
        Err(_) => Err(format!("{what}: timed out")),
    }
}

impl Uplink {
    /// Connects to a parent and waits until it admits this agent.
    pub(super) async fn connect(
        &self,
        address: &ParentAddress,
    ) -> Result<ParentConnection, String> {
        let lookup = lookup_host((address.host(), address.port()));
        let found: Vec<SocketAddr> = within("lookup", lookup)
            .await?
            .take(ADDRESSES_MAX)
            .collect();
        let credentials = self.context.credentials();
        let mut last_error = format!("{} has no address", address.host());
        for socket in found {
            if credentials.client.is_none() && !is_loopback(&socket) {
                return Err(format!(
                    "{socket} is not a loopback address and requires tree.ca or tree.fingerprint"
                ));
            }
            match within("connect", TcpStream::connect(socket)).await {
                Ok(stream) => return self.attach(address, stream).await,
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    async fn attach(
        &self,
        address: &ParentAddress,
        stream: TcpStream,
    ) -> Result<ParentConnection, String> {
        let _ = stream.set_nodelay(true);
        let stream = CountedStream::new(stream, self.context.counts.clone());
        let credentials = self.context.credentials();
        let (io, scheme): (Box<dyn PeerStream>, &str) = match &credentials.client {
            None => (Box::new(stream), "http"),
            Some(config) => {
                let name = ServerName::try_from(address.host().to_owned());
                let name = name.map_err(|error| error.to_string())?;
                let connector = TlsConnector::from(config.clone());
                let stream = within("TLS", connector.connect(name, stream)).await?;
                (Box::new(stream), "https")
            }
        };
        let origin: Uri = format!("{scheme}://{address}")
            .parse()
            .map_err(|_| format!("{address} is not a valid address"))?;
        let epoch = self.next_epoch();
        let hello = Hello {
            protocol: PROTOCOL_VERSION,
            node: self.context.node.clone(),
            instance: self.context.instance.clone(),
            epoch,
            started_ms: self.context.started,
            version: self.context.version.clone(),
            is_parent: self.parent.is_some(),
        };
        let hello = encode_to_parent(child_message::Kind::Hello(hello));
        let opened = timeout(
            STEP_TIME,
            open_parent_stream(io, origin, credentials.token.as_ref(), hello),
        );
        let mut stream = match opened.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(status)) => return Err(format!("stream: {}", status.message())),
            Err(_) => return Err("stream: timed out".to_owned()),
        };
        let welcome = timeout(STEP_TIME, receive_welcome(&mut stream)).await;
        let welcome = welcome.map_err(|_| "no answer to Hello".to_owned())??;
        self.check_welcome(&welcome)?;
        Ok(ParentConnection::new(stream, welcome))
    }

    /// Refuses parents that are below this agent, or whose interval does not fit.
    fn check_welcome(&self, welcome: &Welcome) -> Result<(), String> {
        if welcome.path.contains(&self.context.node) {
            return Err("the parent is below this agent: the tree has a loop".to_owned());
        }
        if let Some(parent) = &self.parent {
            let registry = parent.registry.lock();
            let is_below = |node: &String| {
                { registry.route(node) }.is_some_and(|(_, child)| child.link.is_some())
            };
            if let Some(node) = welcome.path.iter().find(|node| is_below(node)) {
                return Err(format!(
                    "node {node} is above and below this agent: the tree has a loop"
                ));
            }
            let (above, own) = (i64::from(welcome.interval_ms), parent.interval);
            if above % own != 0 {
                return Err(format!(
                    "the parent's interval of {above} ms is not a multiple of tree.interval, {own} ms"
                ));
            }
        }
        Ok(())
    }
}

async fn receive_welcome(stream: &mut ParentStream) -> Result<Welcome, String> {
    loop {
        let received = stream.incoming.message().await;
        let received = received.map_err(|status| status.message().to_owned())?;
        let Some(message) = received else {
            return Err("the parent closed the stream".to_owned());
        };
        check_parent_message(&message).map_err(|fault| fault.to_string())?;
        match message.kind {
            Some(parent_message::Kind::Welcome(welcome)) => {
                if welcome.protocol != PROTOCOL_VERSION {
                    return Err(format!(
                        "the parent's protocol version {} is not supported",
                        welcome.protocol
                    ));
                }
                return Ok(welcome);
            }
            Some(parent_message::Kind::Refusal(refusal)) => {
                let reason = refusal.reason().as_str_name().to_ascii_lowercase();
                if refusal.reason() == Reason::Unknown {
                    return Err(format!("refused: {}", refusal.message));
                }
                return Err(format!("refused ({reason}): {}", refusal.message));
            }
            Some(_) => return Err("the parent sent something else than Welcome".to_owned()),
            // A message of a newer version.
            None => {}
        }
    }
}
