//! URLs of pages to fetch: over TCP, or over a UNIX socket.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use pegel_config::{ConfigProblem, ConfigTree, ConfigValue, Setting, read_scalar};
use pegel_http_client::ServerUrl;

const ACCEPTS: &str = "a URL: http[s]://HOST[:PORT]/PATH, or unix:/SOCKET:/PATH";

/// `http[s]://HOST[:PORT][/PATH]`, or `unix:SOCKET[:/PATH]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointUrl {
    Tcp(ServerUrl),
    Unix { socket: PathBuf, target: String },
}

impl EndpointUrl {
    /// Returns the value of the label `instance`: host and port, or the socket.
    pub(crate) fn instance(&self) -> String {
        match self {
            EndpointUrl::Tcp(url) => url.host_and_port(),
            EndpointUrl::Unix { socket, .. } => socket.display().to_string(),
        }
    }

    /// Returns the path and the query of a request.
    pub(crate) fn target(&self) -> String {
        match self {
            EndpointUrl::Tcp(url) if url.path.starts_with('/') => url.path.clone(),
            EndpointUrl::Tcp(url) => format!("/{}", url.path),
            EndpointUrl::Unix { target, .. } => target.clone(),
        }
    }
}

impl FromStr for EndpointUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<EndpointUrl, String> {
        let Some(rest) = text.strip_prefix("unix:") else {
            return text.parse().map(EndpointUrl::Tcp);
        };
        let (socket, target) = match rest.split_once(":/") {
            Some((socket, target)) => (socket, format!("/{target}")),
            None => (rest, "/".to_owned()),
        };
        if !socket.starts_with('/') || rest.chars().any(|c| c.is_control() || c == ' ') {
            return Err("the socket is not an absolute path".to_owned());
        }
        Ok(EndpointUrl::Unix {
            socket: socket.into(),
            target,
        })
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointUrl::Tcp(url) => write!(f, "{url}{}", url.path),
            EndpointUrl::Unix { socket, target } => {
                write!(f, "unix:{}:{target}", socket.display())
            }
        }
    }
}

impl Setting for EndpointUrl {
    fn accepts() -> String {
        ACCEPTS.to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<EndpointUrl> {
        read_scalar(tree, problems, str::parse)
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Scalar(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server_or_a_socket() {
        for (text, instance, target) in [
            ("http://a:9100/metrics", "a:9100", "/metrics"),
            ("https://a?auto", "a:443", "/?auto"),
            ("unix:/run/x.sock:/metrics", "/run/x.sock", "/metrics"),
            ("unix:/run/x.sock", "/run/x.sock", "/"),
        ] {
            let url: EndpointUrl = text.parse().expect(text);
            assert_eq!(
                (url.instance().as_str(), url.target().as_str()),
                (instance, target)
            );
        }
        for wrong in ["unix:x.sock", "unix:", "unix:/a b", "a:1", "http://"] {
            assert!(wrong.parse::<EndpointUrl>().is_err(), "{wrong}");
        }
    }
}
