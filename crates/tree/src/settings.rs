//! The keys of the section `tree`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use pegel_config::{HostName, ListenAddress, Secret, TimeSpan, settings, text_setting};
use pegel_credentials::TokenSource;

/// The most children that can be configured.
pub const CHILDREN_MAX: u32 = 10_000;

/// The default of [`TreeSettings::responses_bytes_max`]; other limits on memory are in proportion.
const RESPONSES_BYTES_MAX: usize = 128 << 20;

settings! {
    /// The tree of agents. An agent with `parents` sends its values to the first of them that it
    /// can reach; an agent with `accept` reduces the values of its children and answers queries for
    /// all nodes below it.
    pub struct TreeSettings {
        /// The address for children. Addresses other than loopback require `cert` and `key`, and a
        /// token or `client_ca`.
        accept: Option<ListenAddress> = None => "0.0.0.0:1338",
        /// Agents that this one reports to, in order of preference: one of them at a time.
        parents: Vec<ParentAddress> = Vec::new(),
        /// The time between two ticks. That of the parent applies to its children.
        interval: TimeSpan = TimeSpan::seconds(1),
        /// The most children; at most 10000.
        children_max: u32 = 64,
        /// How far back reduced values are computed again after an outage.
        backfill: TimeSpan = TimeSpan::seconds(3600),
        /// The certificate of this agent as a parent, with its chain, in PEM form.
        cert: Option<PathBuf> = None => "/etc/pegel/tree/parent.pem",
        /// The key of `cert`.
        key: Option<PathBuf> = None => "/etc/pegel/tree/parent.key",
        /// Require certificates of children, signed by one of these authorities and made out to the
        /// name of the node.
        client_ca: Option<PathBuf> = None => "/etc/pegel/tree/ca.pem",
        /// The authorities that sign the certificates of parents.
        ca: Option<PathBuf> = None => "/etc/pegel/tree/ca.pem",
        /// The SHA-256 of the parent's certificate, instead of `ca`.
        fingerprint: Option<CertificateFingerprint> = None => "abababababababababababababababababababababababababababababababab",
        /// The certificate of this agent as a child.
        client_cert: Option<PathBuf> = None => "/etc/pegel/tree/node.pem",
        /// The key of `client_cert`.
        client_key: Option<PathBuf> = None => "/etc/pegel/tree/node.key",
        /// A file with the token that children present and parents require, mode 0600.
        /// $PEGEL_TOKEN, if set, takes precedence.
        token_file: Option<PathBuf> = None => "/etc/pegel/tree/token",
    } with {
        /// The most connections of peers that have not attached as a child yet.
        unproven_max: usize = 128,
        /// The most bytes of all responses to one request for values of the past.
        responses_bytes_max: usize = RESPONSES_BYTES_MAX,
        /// The token of the environment; it takes precedence over `token_file`.
        token_variable: Option<Secret> = None,
    }
}

impl TreeSettings {
    /// Returns whether the agent is part of a tree.
    pub fn is_configured(&self) -> bool {
        self.accept.is_some() || !self.parents.is_empty()
    }

    /// Returns the part of a limit that fits into the memory if responses are limited.
    pub(crate) fn scaled(&self, limit: usize) -> usize {
        let parts = RESPONSES_BYTES_MAX / self.responses_bytes_max.max(1);
        (limit / parts.max(1)).max(1)
    }

    pub(crate) fn token(&self) -> Option<TokenSource> {
        match &self.token_variable {
            Some(secret) => Some(TokenSource::Variable(secret.clone())),
            None => self.token_file.clone().map(TokenSource::File),
        }
    }
}

/// The address of a parent: `head1:1338`, `10.0.0.1:1338`, `[fd00::1]:1338`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentAddress {
    host: HostName,
    port: u16,
}

/// The port without which an address of a parent is written.
pub const DEFAULT_PORT: u16 = 1338;

impl ParentAddress {
    pub(crate) fn host(&self) -> &str {
        self.host.as_str()
    }

    /// Returns whether connections do not leave this machine. Names other than `localhost` may
    /// belong to any machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.host().parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => self.host() == "localhost",
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for ParentAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ParentAddress, String> {
        let trimmed = text.trim();
        let is_bare_ipv6 = trimmed.parse::<std::net::Ipv6Addr>().is_ok();
        let (host, port) = match trimmed.rsplit_once(':') {
            Some((host, port)) if !is_bare_ipv6 && !trimmed.ends_with(']') => {
                let port = port.parse().ok().filter(|port| *port != 0);
                let port = port.ok_or_else(|| format!("\"{text}\" has no valid port"))?;
                (host, port)
            }
            _ => (trimmed, DEFAULT_PORT),
        };
        let host = host.parse()?;
        Ok(ParentAddress { host, port })
    }
}

impl fmt::Display for ParentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.as_str().parse() {
            Ok(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

text_setting!(
    ParentAddress,
    "HOST:PORT such as head1:1338; without a port: 1338"
);

/// The SHA-256 of a certificate in DER form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateFingerprint(pub [u8; 32]);

impl FromStr for CertificateFingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<CertificateFingerprint, String> {
        let wrong = || format!("\"{text}\" is not the SHA-256 of a certificate");
        let digits = text.trim();
        let digits = digits.strip_prefix("sha256:").unwrap_or(digits);
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).ok_or_else(wrong);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(CertificateFingerprint(hash))
    }
}

impl fmt::Display for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

text_setting!(
    CertificateFingerprint,
    "64 hexadecimal digits, with or without colons and the prefix sha256:"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_in_proportion_to_responses() {
        let mut settings = TreeSettings::default();
        assert_eq!(settings.scaled(4_000_000), 4_000_000);
        settings.responses_bytes_max /= 32;
        assert_eq!(settings.scaled(4_000_000), 125_000);
        assert_eq!(settings.scaled(2), 1);
    }

    #[test]
    fn addresses_of_parents() {
        for (text, shown) in [
            ("head1:1338", "head1:1338"),
            ("Head1", "head1:1338"),
            ("10.0.0.1:99", "10.0.0.1:99"),
            ("[fd00::1]:99", "[fd00::1]:99"),
            ("[fd00::1]", "[fd00::1]:1338"),
            ("::1", "[::1]:1338"),
        ] {
            let address: ParentAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), shown);
        }
        for text in ["", "a b:1", "head1:0", "head1:x", "http://head1:1338"] {
            assert!(text.parse::<ParentAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn fingerprints() {
        let hex = "ab".repeat(32);
        let plain: CertificateFingerprint = hex.parse().expect("valid");
        assert_eq!(plain.0, [0xab; 32]);
        let colons = vec!["AB"; 32].join(":");
        assert_eq!(colons.parse(), Ok(plain));
        assert_eq!(plain.to_string().parse(), Ok(plain));
        for text in ["", "ab", &"zz".repeat(32), &"ab".repeat(33)] {
            assert!(text.parse::<CertificateFingerprint>().is_err(), "{text}");
        }
    }
}
