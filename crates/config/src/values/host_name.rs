//! Host names and addresses without a port.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The host part of a URL: a name or an address, without scheme and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// Returns the host in lower case, without a trailing dot (which some clients send) and without
    /// brackets around an IPv6 address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        let trimmed = text.trim();
        let bare = trimmed
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(trimmed);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(HostName(ip.to_string()));
        }
        let name = trimmed.strip_suffix('.').unwrap_or(trimmed);
        let is_label = |label: &str| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if name.len() > 253 || !name.split('.').all(is_label) {
            return Err(format!("\"{text}\" is not a host name"));
        }
        Ok(HostName(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

crate::text_setting!(
    HostName,
    "a name or an address without scheme and port, such as login1.example.org"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_kept_in_one_form() {
        for (text, expected) in [
            ("Login1.Example.org.", "login1.example.org"),
            ("nid0001", "nid0001"),
            ("192.0.2.7", "192.0.2.7"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            assert_eq!(text.parse::<HostName>().expect(text).as_str(), expected);
        }
    }

    #[test]
    fn what_is_more_than_a_name_is_refused() {
        for text in [
            "", ".", "a:80", "http://a", "a/b", "*.a", "a..b", "a b", "u@a", "[a]",
        ] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
        assert!("x".repeat(254).parse::<HostName>().is_err());
    }
}
