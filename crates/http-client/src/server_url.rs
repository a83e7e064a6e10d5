//! URLs of servers.

use std::fmt;
use std::str::FromStr;

/// The parts of `http[s]://HOST[:PORT][/PATH]`. The path may be a secret, as those of many webhooks
/// are: only scheme, host and port are shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl {
    pub is_encrypted: bool,
    /// Host and port as they were written.
    authority: String,
    /// The host without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
    /// Path and query. Begins with a slash or a question mark, or is empty.
    pub path: String,
}

impl ServerUrl {
    /// Returns the value of the header `Host`.
    pub fn host_header(&self) -> &str {
        &self.authority
    }

    /// Returns the host and the port, also if the port was not written.
    pub fn host_and_port(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerUrl, String> {
        let (rest, is_encrypted) =
            match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
                (Some(rest), _) => (rest, false),
                (None, Some(rest)) => (rest, true),
                (None, None) => {
                    return Err("the URL does not begin with http:// or https://".to_owned());
                }
            };
        if text
            .chars()
            .any(|next| next.is_control() || next == ' ' || next == '#')
        {
            return Err("the URL contains a character that URLs do not permit".to_owned());
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("a URL with a user name or password is not accepted".to_owned());
        }
        let malformed = || "the URL has no valid host and port".to_owned();
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
            "" if !authority.ends_with(':') => {
                if is_encrypted {
                    443
                } else {
                    80
                }
            }
            port => port.parse().map_err(|_| malformed())?,
        };
        if host.is_empty() || port == 0 {
            return Err(malformed());
        }
        Ok(ServerUrl {
            is_encrypted,
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            path: path.to_owned(),
        })
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
            ("https://a/s", "a", 443, "/s", "a"),
        ] {
            let url: ServerUrl = text.parse().expect(text);
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
            assert_eq!((url.path.as_str(), url.host_header()), (path, header));
        }
        let v6: ServerUrl = "https://[::1]/x".parse().expect("valid");
        assert_eq!(v6.host_and_port(), "[::1]:443");
        for wrong in [
            "a:9093",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:",
            "http://a:x",
            "http://a:0",
            "http://u:p@a",
            "http://[::1",
            "http://a b",
        ] {
            assert!(wrong.parse::<ServerUrl>().is_err(), "{wrong}");
        }
    }
}
