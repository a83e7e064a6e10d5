//! Settings of the server: keys of the configuration, and limits that are not configurable.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use pegel_config::{ByteSize, HostName, ListenAddress, Secret, TimeSpan, UserRef, settings};
use pegel_query::promql::PromqlLimits;

use crate::guard::TokenSource;
use crate::tls::TlsFiles;

settings! {
    /// Where the agent can be reached, and the limits on what clients can use. All limits are hard.
    pub struct ServeSettings {
        /// The addresses of the page, /metrics and all APIs. Every address serves all of them; 4242
        /// is where Grafana expects OpenTSDB. Addresses other than loopback require `tls` and a
        /// token, or `insecure: true`.
        listen: Vec<ListenAddress> = vec![ListenAddress::loopback(1337), ListenAddress::loopback(4242)],
        /// Addresses on loopback for the ends of tunnels: clients need the token here, whichever
        /// user they are, and browsers log in with it. A port that ssh forwards can be used by
        /// every user of the machine where the tunnel begins. Requires a token.
        forwarded: Vec<ListenAddress> = Vec::new(),
        /// The UNIX socket for programs and for `pegel list`, `values`, `get` and `track`.
        /// Without this key: $XDG_RUNTIME_DIR/pegel/push.sock, else /tmp/pegel-UID/push.sock.
        socket: Option<PathBuf> = None => "/run/pegel/push.sock",
        /// If a port is in use, use the next free one instead of failing to start.
        port_search: bool = false,
        /// Serve addresses that other machines can reach without TLS and, where there is neither a
        /// token nor `tls.ca`, without authentication.
        insecure: bool = false,
        /// Encryption for addresses that other machines can reach; loopback stays plain. The files
        /// are reloaded when they change, and on SIGHUP.
        tls: TlsSettings = TlsSettings::default(),
        /// A file with the token that grants full access, sent as `Authorization: Bearer TOKEN`. It
        /// must belong to the agent's user or root, with mode 0600. $PEGEL_TOKEN, if set, takes
        /// precedence.
        token_file: Option<PathBuf> = None => "/etc/pegel/token",
        /// Users of this machine who may read and write over HTTP without a token, besides the
        /// agent's own and root: the one that Prometheus or Grafana runs as.
        allow_users: Vec<UserRef> = Vec::new(),
        /// Users of this machine who see the jobs of all users, and may do what `allow_users` may.
        /// Others see their own jobs only.
        operators: Vec<UserRef> = Vec::new(),
        /// Additional Host names to accept, besides localhost, the node's own names and its
        /// addresses: the name of a proxy, for example.
        hosts: Vec<HostName> = Vec::new(),
        /// Respond to Grafana as Dragon's dashboards expect: a filter on `*` that
        /// does not group still returns one series per host, suggestions match text
        /// anywhere in a name, and an unknown metric returns no series instead of an error.
        dragon_compat: bool = false,
        /// Queries in PromQL, by Prometheus' API.
        promql: PromqlSettings = PromqlSettings::default(),
    } with {
        /// The token of the environment; it takes precedence over `token_file`.
        token_variable: Option<Secret> = None,
        /// The key that a Dragon client exchanges for a token that is valid until the agent stops.
        auth_key: Option<Secret> = None,
        limits: ServeLimits = ServeLimits::default(),
        /// How often to check whether the token or the certificates changed.
        reload_time: Duration = Duration::from_secs(10),
        /// Connections on the UNIX socket. A wrapper whose program the agent counts keeps one
        /// connection until its end.
        socket_connections_max: usize = 576,
        /// How many refused clients per listener are sent the reason concurrently; further ones are
        /// closed without it.
        refusals_max: usize = 32,
        /// Time limit from the start of a connection, or the first byte of a later request, to the
        /// end of the request's head.
        head_time: Duration = Duration::from_secs(5),
        /// How long a connection may stay idle between two requests.
        idle_time: Duration = Duration::from_secs(60),
        /// Time limit from the end of the head to the start of the response.
        request_time: Duration = Duration::from_secs(30),
        /// How long a client may read nothing of its response.
        write_time: Duration = Duration::from_secs(30),
        head_bytes_max: usize = 16 << 10,
        uri_bytes_max: usize = 8 << 10,
        /// The longest line on the UNIX socket or of OpenTSDB's telnet protocol.
        line_bytes_max: usize = 16 << 10,
        /// The largest response, and the budget of all responses that are being sent.
        response_bytes_max: usize = 32 << 20,
        responses_bytes_max: usize = 64 << 20,
        /// How many queries the store executes concurrently.
        queries_max: usize = 4,
        /// The memory of a query of OpenTSDB or for a range of time; PromQL has a key.
        query_bytes_max: usize = 32 << 20,
        /// The responses of all nodes to one request. Decoding one may take three times as much.
        node_responses_bytes_max: usize = 64 << 20,
    }
}

settings! {
    /// Queries in PromQL.
    pub struct PromqlSettings {
        /// The label `job` of this node's series. Series that have their own keep it.
        job: String = "node".to_owned(),
        /// The label `instance` of this node's series. Without this key: the name of the node and
        /// the port of the first address in `listen`.
        instance: Option<String> = None => "nid0001:1337",
        /// The age up to which the last sample of a series is its current value.
        lookback: TimeSpan = TimeSpan::seconds(300),
        /// How long a query may take; 30 s at most.
        timeout: TimeSpan = TimeSpan::seconds(10),
        /// The memory that a query may use. Four queries run at a time.
        memory: ByteSize = ByteSize::mebibytes(32),
    }
}

settings! {
    /// PEM files for TLS.
    pub struct TlsSettings {
        /// The certificate, followed by its intermediate certificates.
        cert: Option<PathBuf> = None => "/etc/pegel/cert.pem",
        /// Its private key.
        key: Option<PathBuf> = None => "/etc/pegel/key.pem",
        /// With this key, clients must present a certificate that one of these authorities signed.
        /// It replaces the token.
        ca: Option<PathBuf> = None => "/etc/pegel/clients.pem",
    }
}

settings! {
    /// The server's keys of the section `limits`.
    pub struct ServeLimits {
        /// Maximum number of open connections to the servers.
        connections: NonZeroU32 = NonZeroU32::new(512).expect("not zero"),
        /// Maximum size of a request body.
        body: ByteSize = ByteSize::mebibytes(1),
        /// Maximum memory for all request bodies being received or processed.
        bodies: ByteSize = ByteSize::mebibytes(32),
    }
}

impl ServeSettings {
    /// Returns the limits of a query in PromQL.
    pub(crate) fn promql_limits(&self) -> PromqlLimits {
        PromqlLimits {
            bytes_max: self.promql.memory.as_usize(),
            time_max: self.promql.timeout.duration().min(self.request_time),
            lookback: self.promql.lookback.duration(),
            ..PromqlLimits::default()
        }
    }

    /// Returns the users of this machine who may read and write, besides the agent's own and root.
    pub fn admitted_users(&self) -> Vec<UserRef> {
        { self.allow_users.iter().chain(&self.operators) }
            .cloned()
            .collect()
    }

    /// Returns where the token that grants every right is read from; `None` if there is no token.
    pub fn token(&self) -> Option<TokenSource> {
        match &self.token_variable {
            Some(secret) => Some(TokenSource::Variable(secret.clone())),
            None => self.token_file.clone().map(TokenSource::File),
        }
    }
}

impl TlsSettings {
    /// Returns the files if TLS is configured.
    pub fn files(&self) -> Option<TlsFiles> {
        let cert = self.cert.clone()?;
        let key = self.key.clone()?;
        let ca = self.ca.clone();
        Some(TlsFiles { cert, key, ca })
    }
}
