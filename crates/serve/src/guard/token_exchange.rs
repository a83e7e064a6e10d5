//! Dragon's token exchange: a client that sends the `auth_key` receives a token with all rights
//! that is valid until the agent stops.

use std::fs::File;
use std::io::{self, Read};

use pegel_config::Secret;

use pegel_credentials::Token;

const TOKEN_BYTES: usize = 32;

#[derive(Debug)]
pub(super) struct TokenExchange {
    /// `None` if the configured key is empty: it then matches nothing.
    key: Option<Token>,
    token: Token,
}

impl TokenExchange {
    pub(super) fn new(key: &Secret) -> io::Result<TokenExchange> {
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = Token::from_secret(Secret::new(text));
        Ok(TokenExchange {
            key: Token::from_secret(key.clone()),
            token: token.ok_or(io::ErrorKind::UnexpectedEof)?,
        })
    }

    /// Returns `Bearer TOKEN` if the key is right.
    pub(super) fn exchange(&self, key: &str) -> Option<String> {
        let is_right = self
            .key
            .as_ref()
            .is_some_and(|own| own.matches(key.as_bytes()));
        is_right.then(|| format!("Bearer {}", self.token.reveal()))
    }

    /// Whether this is the issued token.
    pub(super) fn is_issued_token(&self, given: &[u8]) -> bool {
        self.token.matches(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_is_exchanged_and_only_for_its_token() {
        let exchange = TokenExchange::new(&Secret::new("planted key")).expect("random bytes");
        for wrong in ["", "planted", "planted key ", "PLANTED KEY"] {
            assert_eq!(exchange.exchange(wrong), None, "{wrong:?}");
        }
        let bearer = exchange.exchange("planted key").expect("the right key");
        let token = bearer.strip_prefix("Bearer ").expect("a bearer token");
        assert_eq!(token.len(), 64);
        assert!(exchange.is_issued_token(token.as_bytes()));
        assert!(!exchange.is_issued_token(b"planted key"));
        let other = TokenExchange::new(&Secret::new("planted key")).expect("random bytes");
        assert!(!other.is_issued_token(token.as_bytes()), "another agent's");
        let empty = TokenExchange::new(&Secret::new("")).expect("random bytes");
        assert_eq!(empty.exchange(""), None);
        assert!(!format!("{exchange:?}").contains("planted"));
    }
}
