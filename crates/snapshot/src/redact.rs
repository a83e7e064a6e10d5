//! Taking secrets out of text whose form allows them.

/// Stands where something was.
const HIDDEN: &str = "[hidden]";

/// Words in a name that say that its value is a secret.
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

/// Whether a name says that its value is a secret. `token_file` names a file, which is none.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_place = ["file", "path", "dir"]
        .iter()
        .any(|end| name.ends_with(&format!("_{end}")));
    !is_place && SECRET_WORDS.iter().any(|word| name.contains(word))
}

pub(crate) fn placeholder() -> String {
    HIDDEN.to_owned()
}

/// An address without user, password, query and fragment: `https://u:p@host/x?sig=y` is
/// `https://host/x`. Other text with an `@` before its first slash loses what stands before it.
pub(crate) fn redact_address(text: &str) -> String {
    let (scheme, rest) = match text.find("//") {
        // Everything up to the last `@`: a password may hold slashes.
        Some(at) if at == 0 || text[..at].ends_with(':') => {
            let (scheme, rest) = text.split_at(at + 2);
            let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            (
                scheme,
                rest.split(['?', '#', ';']).next().unwrap_or_default(),
            )
        }
        _ => {
            let authority = text.find('/').unwrap_or(text.len());
            match text[..authority].rfind('@') {
                Some(at) if !is_lustre(&text[..authority]) => ("", &text[at + 1..]),
                _ => ("", text),
            }
        }
    };
    format!("{scheme}{rest}")
}

/// Lustre names its servers `10.0.0.1@o2ib`, several of them with commas and colons between.
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

/// Whether a text looks as if it carried a secret although its name does not say so.
pub(crate) fn looks_like_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let marks = [
        "sig=",
        "password=",
        "passwd=",
        "token=",
        "secret=",
        "accountkey=",
        "bearer ",
        "-----begin",
    ];
    marks.iter().any(|mark| lower.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lose_what_is_secret() {
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
    fn names_tell_secrets() {
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
