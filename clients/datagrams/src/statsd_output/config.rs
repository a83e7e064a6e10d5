//! Where to send values, how often and in which form.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, io};

const INTERVAL: Duration = Duration::from_secs(10);
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(86_400);

/// The configuration of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsdConfig {
    pub server: StatsdServer,
    pub interval: Duration,
    /// Placed before every name, with its dot.
    pub prefix: String,
    pub labels: LabelStyle,
    /// A file with switches of sources.
    pub sources: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsdServer {
    /// Host and port.
    Udp(String),
    Unix(PathBuf),
}

/// How the labels of a series are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelStyle {
    /// `name.key.value`, which every server accepts.
    Name,
    /// DogStatsD's tags.
    Tags,
}

/// Why a configuration is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatsdConfigError {
    Address,
    Interval,
    Labels,
    Disabled,
}

impl StatsdConfigError {
    pub fn text(self) -> &'static str {
        match self {
            StatsdConfigError::Address => "expected HOST:PORT, or unix: and the path of a socket",
            StatsdConfigError::Interval => "PEGEL_STATSD_INTERVAL must be 0.1 to 86400 seconds",
            StatsdConfigError::Labels => "PEGEL_STATSD_LABELS must be name or tags",
            StatsdConfigError::Disabled => "metrics are turned off by PEGEL_DISABLE",
        }
    }
}

impl fmt::Display for StatsdConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for StatsdConfigError {}

impl StatsdConfig {
    /// Returns the configuration for a server. Everything else is taken from the environment.
    pub fn new(address: &str) -> Result<StatsdConfig, StatsdConfigError> {
        StatsdConfig::with(address, |name| env::var(name).ok())
    }

    fn with(
        address: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<StatsdConfig, StatsdConfigError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let interval = match variable("PEGEL_STATSD_INTERVAL") {
            None => INTERVAL,
            Some(text) => text
                .parse()
                .ok()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .filter(|interval| (INTERVAL_MIN..=INTERVAL_MAX).contains(interval))
                .ok_or(StatsdConfigError::Interval)?,
        };
        let labels = match variable("PEGEL_STATSD_LABELS").as_deref() {
            None | Some("name") => LabelStyle::Name,
            Some("tags") => LabelStyle::Tags,
            Some(_) => return Err(StatsdConfigError::Labels),
        };
        let prefix = variable("PEGEL_STATSD_PREFIX").unwrap_or_default();
        Ok(StatsdConfig {
            server: StatsdServer::parse(address).ok_or(StatsdConfigError::Address)?,
            interval,
            prefix: match prefix.trim_end_matches('.') {
                "" => String::new(),
                prefix => format!("{prefix}."),
            },
            labels,
            sources: variable("PEGEL_STATSD_SOURCES").map(PathBuf::from),
        })
    }
}

impl StatsdServer {
    fn parse(address: &str) -> Option<StatsdServer> {
        if let Some(path) = address.strip_prefix("unix:") {
            let path = path.trim_start_matches("//");
            return path
                .starts_with('/')
                .then(|| StatsdServer::Unix(path.into()));
        }
        let (host, port) = address.rsplit_once(':')?;
        let is_valid = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0);
        is_valid.then(|| StatsdServer::Udp(address.to_owned()))
    }

    /// Opens a socket that never blocks. May wait for the resolution of a name: only the thread of
    /// the output calls it.
    pub(super) fn connect(&self) -> io::Result<StatsdSocket> {
        match self {
            StatsdServer::Udp(address) => {
                let Some(server) = address.to_socket_addrs()?.next() else {
                    return Err(io::ErrorKind::NotFound.into());
                };
                let any = match server {
                    SocketAddr::V4(_) => "0.0.0.0:0",
                    SocketAddr::V6(_) => "[::]:0",
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(server)?;
                socket.set_nonblocking(true)?;
                Ok(StatsdSocket::Udp(socket))
            }
            StatsdServer::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(StatsdSocket::Unix(socket))
            }
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub(super) enum StatsdSocket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl StatsdSocket {
    pub(super) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self {
            StatsdSocket::Udp(socket) => socket.send(datagram),
            StatsdSocket::Unix(socket) => socket.send(datagram),
        }
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_configures_everything_but_the_server() {
        let plain = StatsdConfig::with("localhost:8125", |_| None).expect("valid");
        assert_eq!(plain.server, StatsdServer::Udp("localhost:8125".into()));
        assert_eq!((plain.interval, &*plain.prefix), (INTERVAL, ""));
        let set = |name: &str| {
            let value = match name {
                "PEGEL_STATSD_INTERVAL" => "0.5",
                "PEGEL_STATSD_PREFIX" => "site.app.",
                "PEGEL_STATSD_LABELS" => "tags",
                _ => "/tmp/sources",
            };
            Some(value.to_owned())
        };
        let full = StatsdConfig::with("unix:///run/statsd.sock", set).expect("valid");
        assert_eq!(full.server, StatsdServer::Unix("/run/statsd.sock".into()));
        assert_eq!(full.interval, Duration::from_millis(500));
        assert_eq!(
            (&*full.prefix, full.labels),
            ("site.app.", LabelStyle::Tags)
        );
        assert_eq!(full.sources, Some("/tmp/sources".into()));
    }

    #[test]
    fn mistakes_are_reported() {
        for address in [
            "",
            "localhost",
            ":8125",
            "host:0",
            "host:x",
            "host:70000",
            "unix:here",
        ] {
            let result = StatsdConfig::with(address, |_| None);
            assert_eq!(result, Err(StatsdConfigError::Address), "{address}");
        }
        for (name, values, problem) in [
            (
                "PEGEL_STATSD_INTERVAL",
                &["0", "-1", "x", "1e9", "nan"][..],
                StatsdConfigError::Interval,
            ),
            (
                "PEGEL_STATSD_LABELS",
                &["dog"][..],
                StatsdConfigError::Labels,
            ),
        ] {
            for value in values {
                let variable = |asked: &str| (asked == name).then(|| (*value).to_owned());
                let result = StatsdConfig::with("h:1", variable);
                assert_eq!(result, Err(problem), "{value}");
            }
        }
    }
}
