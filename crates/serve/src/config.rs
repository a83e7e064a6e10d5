use std::path::PathBuf;

use pegel_config::{Address, settings};

settings! {
    /// Where the agent can be reached.
    pub struct Places {
        /// Where the page, /metrics and all APIs are served. Every address serves all of them; 4242 is
        /// where Grafana expects OpenTSDB. Addresses other than loopback need `insecure: true`.
        listen: Vec<Address> = vec![Address::loopback(1337), Address::loopback(4242)],
        /// The UNIX socket for programs and for `pegel list`, `values`, `get` and `track`.
        /// Without this key: $XDG_RUNTIME_DIR/pegel/push.sock, else /tmp/pegel-UID/push.sock.
        socket: Option<PathBuf> = None => "/run/pegel/push.sock",
        /// When a port is busy, take the next free one instead of refusing to start.
        port_search: bool = false,
        /// Serve addresses that other machines can reach, without encryption or a password.
        insecure: bool = false,
    }
}
