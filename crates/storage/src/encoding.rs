//! Encodings and digests that signatures of requests consist of. The cryptography is that of the
//! library that TLS uses.

use aws_lc_rs::{digest, hmac};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

pub(super) fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text).as_ref().to_vec()
}

/// Returns the SHA-256 digest in hexadecimal digits.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn base64_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(super) fn base64_decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Percent-encodes everything but the unreserved characters, for a component of a query.
pub(super) fn encode_component(text: &str) -> String {
    encode(text, false)
}

/// Percent-encodes a path: like [`encode_component`], but keeps slashes.
pub(super) fn encode_path(text: &str) -> String {
    encode(text, true)
}

fn encode(text: &str, keeps_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            b'/' if keeps_slashes => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standards() {
        // RFC 4231, test case 2.
        let code = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&code), expected);
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256_hex(b""), empty);
    }

    #[test]
    fn names_are_percent_encoded() {
        assert_eq!(encode_path("a/b c+@é"), "a/b%20c%2B%40%C3%A9");
        assert_eq!(encode_component("a/b~"), "a%2Fb~");
    }
}
