//! URLs of receivers.

use std::fmt;
use std::str::FromStr;

use pegel_config::{ConfigProblem, ConfigTree, ConfigValue, Setting, read_scalar};

/// A URL to which requests are sent: `http://HOST[:PORT][/PATH]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverUrl {
    text: String,
    /// The host without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// Begins with a slash, or is empty.
    pub path: String,
}

const ACCEPTS: &str = "a URL such as http://127.0.0.1:9093";

impl ReceiverUrl {
    /// Returns the value of the header `Host`.
    pub(crate) fn host_header(&self) -> &str {
        let rest = &self.text["http://".len()..];
        &rest[..rest.find(['/', '?']).unwrap_or(rest.len())]
    }
}

impl fmt::Display for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ReceiverUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<ReceiverUrl, String> {
        if text.starts_with("https://") {
            return Err(format!(
                "{text:?}: https is not supported; use a local proxy or an Alertmanager"
            ));
        }
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| format!("{text:?} does not begin with http://"))?;
        if text
            .chars()
            .any(|next| next.is_control() || next == ' ' || next == '#')
        {
            return Err(format!(
                "{text:?} contains a character that URLs do not permit"
            ));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("a URL with a user name or password is not accepted".to_owned());
        }
        let malformed = || format!("{text:?} has no valid host and port");
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, port) = v6.split_once(']').ok_or_else(malformed)?;
                (
                    host,
                    port.strip_prefix(':').or(port.is_empty().then_some("")),
                )
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, Some("")),
            },
        };
        let port = match port.ok_or_else(malformed)? {
            "" if !authority.ends_with(':') => 80,
            port => port.parse().map_err(|_| malformed())?,
        };
        if host.is_empty() || port == 0 {
            return Err(malformed());
        }
        Ok(ReceiverUrl {
            text: text.to_owned(),
            host: host.to_owned(),
            port,
            path: path.to_owned(),
        })
    }
}

impl Setting for ReceiverUrl {
    fn accepts() -> String {
        ACCEPTS.to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<ReceiverUrl> {
        read_scalar(tree, problems, str::parse)
    }

    fn to_value(&self) -> ConfigValue {
        ConfigValue::Scalar(self.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_host_port_and_path() {
        for (text, host, port, path, header) in [
            ("http://a:9093", "a", 9093, "", "a:9093"),
            ("http://a.b/x/", "a.b", 80, "/x/", "a.b"),
            ("http://[::1]:80/", "::1", 80, "/", "[::1]:80"),
            ("http://a?x=1", "a", 80, "?x=1", "a"),
        ] {
            let url: ReceiverUrl = text.parse().expect(text);
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
            assert_eq!((url.path.as_str(), url.host_header()), (path, header));
        }
        for wrong in [
            "a:9093",
            "https://a",
            "http://",
            "http://:80",
            "http://a:",
            "http://a:x",
            "http://a:0",
            "http://u:p@a",
            "http://[::1",
            "http://a b",
        ] {
            assert!(wrong.parse::<ReceiverUrl>().is_err(), "{wrong}");
        }
    }
}
