//! Builds the header `Authorization` for servers in the configuration. Secrets are read from files
//! for each request, so that renewed ones are used. No error message contains any part of them.

use std::path::{Path, PathBuf};

use pegel_plain_file::read_plain;

/// The most bytes of a file with a password or a token.
const SECRET_BYTES_MAX: u64 = 16 << 10;

/// The credentials for a server: a token, or a user and a password, or none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Authorization<'a> {
    /// Sent as `Bearer TOKEN`.
    pub bearer_token_file: Option<&'a Path>,
    /// The user of HTTP's basic authentication.
    pub user: Option<&'a str>,
    pub password_file: Option<&'a Path>,
}

/// A secret that cannot be used. No message contains any part of it.
#[derive(Debug)]
pub struct AuthorizationError {
    path: PathBuf,
    problem: String,
}

impl std::fmt::Display for AuthorizationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for AuthorizationError {}

impl Authorization<'_> {
    /// Returns the value of the header, or `None` without credentials.
    pub fn header(&self) -> Result<Option<String>, AuthorizationError> {
        if let Some(file) = self.bearer_token_file {
            return Ok(Some(format!("Bearer {}", read_secret(file)?)));
        }
        let (Some(user), Some(file)) = (self.user, self.password_file) else {
            return Ok(None);
        };
        let credentials = format!("{user}:{}", read_secret(file)?);
        Ok(Some(format!(
            "Basic {}",
            encode_base64(credentials.as_bytes())
        )))
    }
}

/// Checks a file with a password or a token.
pub fn check_secret_file(path: &Path) -> Result<(), AuthorizationError> {
    read_secret(path).map(drop)
}

/// Reads a secret, without the line break at its end.
fn read_secret(path: &Path) -> Result<String, AuthorizationError> {
    // Absolute: a relative path begins in the directory in which the agent was started.
    let unusable = |problem: String| AuthorizationError {
        path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        problem,
    };
    let bytes = read_plain(path, SECRET_BYTES_MAX);
    let bytes = bytes.map_err(|error| unusable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unusable("not UTF-8".to_owned()))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    if secret.is_empty() || secret.contains(|c: char| c.is_control()) {
        return Err(unusable("not one line of text".to_owned()));
    }
    Ok(secret.to_owned())
}

fn encode_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for at in 0..4 {
            let digit = DIGITS[((bits >> (18 - 6 * at)) & 63) as usize];
            text.push(if at <= chunk.len() { digit.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded_as_base64() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("Aladdin:open sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ("ÿ?~", "w78/fg=="),
        ] {
            assert_eq!(encode_base64(plain.as_bytes()), encoded, "{plain}");
        }
    }
}
