//! Dragon's way to a token: whoever shows `auth_key` gets one that is as good as the agent's own until it ends.

use std::fs::File;
use std::io::{self, Read};

use pegel_config::Secret;

use super::token::Token;

const TOKEN_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct Exchange {
    /// Empty keys fit nothing.
    key: Option<Token>,
    token: Token,
}

impl Exchange {
    pub fn new(key: &Secret) -> io::Result<Exchange> {
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = Token::of(Secret::new(text));
        Ok(Exchange {
            key: Token::of(key.clone()),
            token: token.ok_or(io::ErrorKind::UnexpectedEof)?,
        })
    }

    /// `Bearer TOKEN` for the right key.
    pub fn bearer(&self, key: &str) -> Option<String> {
        let is_right = self.key.as_ref().is_some_and(|own| own.is(key.as_bytes()));
        is_right.then(|| format!("Bearer {}", self.token.reveal()))
    }

    /// Whether this is the token that was handed out.
    pub fn handed_out(&self, given: &[u8]) -> bool {
        self.token.is(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_is_exchanged_and_only_for_its_token() {
        let exchange = Exchange::new(&Secret::new("planted key")).expect("random bytes");
        for wrong in ["", "planted", "planted key ", "PLANTED KEY"] {
            assert_eq!(exchange.bearer(wrong), None, "{wrong:?}");
        }
        let bearer = exchange.bearer("planted key").expect("the right key");
        let token = bearer.strip_prefix("Bearer ").expect("a bearer token");
        assert_eq!(token.len(), 64);
        assert!(exchange.handed_out(token.as_bytes()));
        assert!(!exchange.handed_out(b"planted key"));
        let other = Exchange::new(&Secret::new("planted key")).expect("random bytes");
        assert!(!other.handed_out(token.as_bytes()), "another agent's");
        let empty = Exchange::new(&Secret::new("")).expect("random bytes");
        assert_eq!(empty.bearer(""), None);
        assert!(!format!("{exchange:?}").contains("planted"));
    }
}
