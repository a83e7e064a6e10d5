//! Redaction of secrets in names, values and addresses. The snapshot uses it in addition to its
//! allow-lists, for text whose format permits secrets; the command lines of processes pass through
//! it too ([`redact_command_line`](crate::redact_command_line)).

/// Replacement for a redacted value.
const HIDDEN: &str = "[hidden]";

/// Words in a name that mark its value as a secret.
const SECRET_WORDS: &[&str] = &[
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "apikey",
    "api_key",
    "auth",
    "cookie",
    "jwt",
    "sas",
    "signature",
    "private",
    "accesskey",
    "access_key",
    "account_key",
];

/// Whether a name marks its value as a secret. The value of `token_file` is a path, not a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_path = ["file", "path", "dir"]
        .iter()
        .any(|suffix| name.ends_with(&format!("_{suffix}")));
    !is_path && SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Returns the replacement for a redacted value.
pub fn placeholder() -> String {
    HIDDEN.to_owned()
}

/// Whether the last word of a name is one of a secret, as in `DB_PASS` or `--ssh-key`.
pub fn has_secret_ending(name: &str) -> bool {
    let last = name.rsplit(['_', '-']).next().unwrap_or_default();
    ["KEY", "PWD", "PASS", "PW", "PSK", "CREDS"]
        .iter()
        .any(|ending| last.to_ascii_uppercase().ends_with(ending))
}

/// Replaces a value that looks like a secret, and removes credentials from an address.
pub fn redact_value(value: &str) -> String {
    if looks_like_secret(value) {
        placeholder()
    } else if value.contains("://") {
        redact_address(value)
    } else {
        value.to_owned()
    }
}

/// Removes user, password, query and fragment from an address: `https://u:p@host/x?sig=y` becomes
/// `https://host/x`. In other text with an `@` before the first slash, everything up to the `@` is
/// removed.
pub fn redact_address(text: &str) -> String {
    let (scheme, rest) = match text.find("//") {
        // Removes everything up to the last `@`: a password may contain slashes.
        Some(slashes) if slashes == 0 || text[..slashes].ends_with(':') => {
            let (scheme, rest) = text.split_at(slashes + 2);
            let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            (
                scheme,
                rest.split(['?', '#', ';']).next().unwrap_or_default(),
            )
        }
        _ => {
            let authority = text.find('/').unwrap_or(text.len());
            match text[..authority].rfind('@') {
                Some(user_end) if !is_lustre(&text[..authority]) => ("", &text[user_end + 1..]),
                _ => ("", text),
            }
        }
    };
    format!("{scheme}{rest}")
}

/// Whether a text is a list of Lustre servers such as `10.0.0.1@o2ib`, separated by commas or
/// colons.
fn is_lustre(servers: &str) -> bool {
    let is_address = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let is_network = |text: &str| {
        let name = text.trim_end_matches(|c: char| c.is_ascii_digit());
        ["tcp", "o2ib", "kfi", "gni"].contains(&name)
    };
    let mut servers = servers
        .split([',', ':'])
        .filter(|server| !server.is_empty());
    servers.all(|server| {
        let parts = server.split_once('@');
        parts.is_some_and(|(host, network)| is_address(host) && is_network(network))
    })
}

/// Whether a value looks like a secret, whatever its name.
pub fn looks_like_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let markers = [
        "sig=",
        "password=",
        "passwd=",
        "token=",
        "secret=",
        "accountkey=",
        "bearer ",
        "-----begin",
    ];
    markers.iter().any(|marker| lower.contains(marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_addresses_are_removed() {
        for (text, expected) in [
            ("https://u:p@host/x?sig=y", "https://host/x"),
            ("https://u:p/q@host/x#y", "https://host/x"),
            ("//u:p@host/share", "//host/share"),
            ("u:p@host:/x", "host:/x"),
            ("ada@host:/x", "host:/x"),
            ("filer:/export/home", "filer:/export/home"),
            ("10.0.0.1@o2ib:/scratch", "10.0.0.1@o2ib:/scratch"),
            (
                "10.0.0.1@tcp1:10.0.0.2@tcp1:/s",
                "10.0.0.1@tcp1:10.0.0.2@tcp1:/s",
            ),
            ("10.0.0.1@secret:/s", "secret:/s"),
            ("/dev/sda1", "/dev/sda1"),
            ("pool/home@monday", "pool/home@monday"),
            ("tmpfs", "tmpfs"),
        ] {
            assert_eq!(redact_address(text), expected, "{text}");
        }
    }

    #[test]
    fn secrets_are_recognized_by_name_and_value() {
        for name in [
            "token",
            "PEGEL_TOKEN",
            "auth_key",
            "SLURM_JWT",
            "sas_token",
            "DB_PASSWORD",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["token_file", "listen", "key", "cert", "OMP_NUM_THREADS"] {
            assert!(!is_secret_name(name), "{name}");
        }
        assert!(looks_like_secret("https://x/?SIG=1") && !looks_like_secret("design is 1"));
    }
}
