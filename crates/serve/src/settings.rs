use std::path::PathBuf;
use std::time::Duration;

use pegel_config::{HostName, ListenAddress, Secret, UserRef};

use crate::guard::TokenSource;
use crate::tls::TlsFiles;

/// Where to serve and how much a client may ask for. The limits are hard.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// TCP addresses, all with the same routes.
    pub listen: Vec<ListenAddress>,
    /// When a port is busy, take the next free one.
    pub port_search: bool,
    /// Allow addresses that other machines can reach without TLS, and without a token.
    pub insecure: bool,
    /// For addresses that other machines can reach; loopback stays plain.
    pub tls: Option<TlsFiles>,
    /// What gives a client every right.
    pub token: Option<TokenSource>,
    /// What a client of Dragon's exchanges for a token of this run.
    pub auth_key: Option<Secret>,
    /// Answer Grafana's questions as Dragon's dashboards expect it.
    pub dragon_compat: bool,
    /// Who may read and write besides the agent's user and root.
    pub allow_users: Vec<UserRef>,
    /// Names of this node besides those that it knows by itself.
    pub hosts: Vec<HostName>,
    /// How often to look whether the token or the certificates changed.
    pub reload_time: Duration,
    /// The UNIX socket, with the same routes; none when it is `None`.
    pub socket: Option<PathBuf>,

    /// Connections over all TCP listeners together, and on the UNIX socket.
    pub connections_max: usize,
    pub socket_connections_max: usize,
    /// How many refused clients per listener are sent the reason at one time; others are only closed.
    pub refusals_max: usize,
    /// How many programs may be watched for wrappers at one time.
    pub programs_max: usize,
    /// From the first moment of a connection, or the first byte of a later request, to the end of
    /// the request's head.
    pub head_time: Duration,
    /// How long a connection may rest between two requests.
    pub idle_time: Duration,
    /// From the end of the head to the beginning of the answer.
    pub request_time: Duration,
    /// How long a client may take nothing of its answer.
    pub write_time: Duration,
    pub head_bytes_max: usize,
    pub uri_bytes_max: usize,
    /// The largest body of a request, and all bodies that are being read or worked on, together.
    pub body_bytes_max: usize,
    pub bodies_bytes_max: usize,
    /// The longest line on the socket, or of a client that speaks OpenTSDB's telnet protocol.
    pub line_bytes_max: usize,
    /// The largest single answer, and all answers that are being read, together.
    pub response_bytes_max: usize,
    pub responses_bytes_max: usize,
    /// How many questions the store works on at once.
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
            // A wrapper whose program the agent counts keeps one to its end.
            socket_connections_max: 576,
            refusals_max: 32,
            programs_max: usize::MAX,
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
