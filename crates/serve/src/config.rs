//! The configuration keys of the server.
use std::path::PathBuf;

use pegel_config::{HostName, ListenAddress, UserRef, settings};

settings! {
    /// Where the agent can be reached.
    pub struct ServeConfig {
        /// The addresses of the page, /metrics and all APIs. Every address serves all of them; 4242
        /// is where Grafana expects OpenTSDB. Addresses other than loopback require `tls` and a
        /// token, or `insecure: true`.
        listen: Vec<ListenAddress> = vec![ListenAddress::loopback(1337), ListenAddress::loopback(4242)],
        /// The UNIX socket for programs and for `pegel list`, `values`, `get` and `track`.
        /// Without this key: $XDG_RUNTIME_DIR/pegel/push.sock, else /tmp/pegel-UID/push.sock.
        socket: Option<PathBuf> = None => "/run/pegel/push.sock",
        /// When a port is busy, take the next free one instead of refusing to start.
        port_search: bool = false,
        /// Serve addresses that other machines can reach without TLS and, where there is neither a token
        /// nor `tls.ca`, without authentication.
        insecure: bool = false,
        /// Encryption for addresses that other machines can reach; loopback stays plain. The files
        /// are reloaded when they change, and on SIGHUP.
        tls: TlsConfig = TlsConfig::default(),
        /// A file with the token that grants every right, sent as `Authorization: Bearer TOKEN`. It
        /// must belong to the agent's user or root, with mode 0600. $PEGEL_TOKEN, if set, takes
        /// precedence.
        token_file: Option<PathBuf> = None => "/etc/pegel/token",
        /// Users of this machine who may read and write over HTTP without a token, besides the agent's
        /// own and root: the one that Prometheus or Grafana runs as.
        allow_users: Vec<UserRef> = Vec::new(),
        /// Additional Host names to accept, besides localhost, the node's own names and its
        /// addresses: the name of a proxy, for example.
        hosts: Vec<HostName> = Vec::new(),
        /// Answer Grafana as the dashboards that come with Dragon expect it: a filter on `*` that does not
        /// group gives a line for each host all the same, names are suggested wherever they hold the text,
        /// and a metric that was never sent gives no lines instead of an error.
        dragon_compat: bool = false,
    }
}

settings! {
    /// PEM files for TLS.
    pub struct TlsConfig {
        /// The certificate, followed by its intermediate certificates.
        cert: Option<PathBuf> = None => "/etc/pegel/cert.pem",
        /// Its private key.
        key: Option<PathBuf> = None => "/etc/pegel/key.pem",
        /// With this key, clients must present a certificate that one of these authorities signed.
        /// It replaces the token.
        ca: Option<PathBuf> = None => "/etc/pegel/clients.pem",
    }
}
