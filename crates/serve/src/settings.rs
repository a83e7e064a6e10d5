//! Settings of the server.
use std::path::PathBuf;
use std::time::Duration;

use pegel_config::{HostName, ListenAddress, Secret, UserRef};

use crate::guard::TokenSource;
use crate::tls::TlsFiles;

/// Where to serve, and the limits on what clients can use. All limits are hard.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// TCP addresses, all with the same routes.
    pub listen: Vec<ListenAddress>,
    /// Takes the next free port if one is busy.
    pub port_search: bool,
    /// Allows addresses that other machines can reach without TLS and without a token.
    pub insecure: bool,
    /// TLS for addresses that other machines can reach; loopback stays plain.
    pub tls: Option<TlsFiles>,
    /// The token that grants every right.
    pub token: Option<TokenSource>,
    /// The key that a Dragon client exchanges for a token that is valid until the agent stops.
    pub auth_key: Option<Secret>,
    /// Answers Grafana the way Dragon's dashboards expect.
    pub dragon_compat: bool,
    /// Users who may read and write, besides the agent's user and root.
    pub allow_users: Vec<UserRef>,
    /// Additional Host names to accept, besides those that the node knows itself.
    pub hosts: Vec<HostName>,
    /// How often to check whether the token or the certificates changed.
    pub reload_time: Duration,
    /// The UNIX socket, with the same routes; `None` serves none.
    pub socket: Option<PathBuf>,

    /// Connections over all TCP listeners together, and on the UNIX socket.
    pub connections_max: usize,
    pub socket_connections_max: usize,
    /// How many refused clients per listener are sent the reason concurrently; further ones are
    /// closed without it.
    pub refusals_max: usize,
    /// Time limit from the start of a connection, or the first byte of a later request, to the end
    /// of the request's head.
    pub head_time: Duration,
    /// How long a connection may stay idle between two requests.
    pub idle_time: Duration,
    /// Time limit from the end of the head to the start of the response.
    pub request_time: Duration,
    /// How long a client may read nothing of its response.
    pub write_time: Duration,
    pub head_bytes_max: usize,
    pub uri_bytes_max: usize,
    /// The largest request body, and the budget of all bodies that are being read or processed.
    pub body_bytes_max: usize,
    pub bodies_bytes_max: usize,
    /// The longest line on the UNIX socket or of OpenTSDB's telnet protocol.
    pub line_bytes_max: usize,
    /// The largest response, and the budget of all responses that are being sent.
    pub response_bytes_max: usize,
    pub responses_bytes_max: usize,
    /// How many queries the store executes concurrently.
    pub queries_max: usize,
}

impl Default for ServeSettings {
    fn default() -> ServeSettings {
        ServeSettings {
            listen: vec![ListenAddress::loopback(1337), ListenAddress::loopback(4242)],
            port_search: false,
            insecure: false,
            tls: None,
            token: None,
            auth_key: None,
            dragon_compat: false,
            allow_users: Vec::new(),
            hosts: Vec::new(),
            reload_time: Duration::from_secs(10),
            socket: Some(crate::socket::default_socket().0),
            connections_max: 256,
            // A wrapper whose program the agent counts keeps one connection until its end.
            socket_connections_max: 576,
            refusals_max: 32,
            head_time: Duration::from_secs(5),
            idle_time: Duration::from_secs(60),
            request_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            head_bytes_max: 16 << 10,
            uri_bytes_max: 8 << 10,
            body_bytes_max: 1 << 20,
            bodies_bytes_max: 32 << 20,
            line_bytes_max: 16 << 10,
            response_bytes_max: 32 << 20,
            responses_bytes_max: 64 << 20,
            queries_max: 4,
        }
    }
}
