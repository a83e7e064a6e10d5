//! Credentials in files and variables: tokens, certificates and keys. Shared by the HTTP server and
//! the tree. No error message contains any part of a secret.

mod pem;
mod reloadable;
mod token;

pub use pem::{TlsError, crypto_provider, load_authorities, load_certificates, load_key};
pub use reloadable::Reloadable;
pub use token::{TOKEN_BYTES_MAX, Token, TokenError, TokenSource, parse_bearer};
