//! Tokens and passwords that must not appear in logs, dumps or messages.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Replaces a secret wherever it would be shown.
const HIDDEN: &str = "[hidden]";

/// A token or password. Its `Display`, `Debug` and serialised forms are all `[hidden]`; only
/// [`Secret::reveal`] returns the text.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: impl Into<Box<str>>) -> Secret {
        Secret(text.into())
    }

    /// Returns the text, to compare or to send it. Must never be used in a message.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Secret, &'static str> {
        if text.is_empty() {
            return Err("the secret is empty");
        }
        Ok(Secret::new(text))
    }
}

crate::text_setting!(Secret, "text that is never shown");

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone)]
    struct SecretHolder {
        #[allow(dead_code)] // Only its Debug form matters.
        token: Option<Secret>,
    }

    #[test]
    fn no_form_of_it_shows_the_text() {
        let secret = Secret::new("planted");
        let holder = SecretHolder {
            token: Some(secret.clone()),
        };
        let shown = format!(
            "{secret} {secret:?} {secret:#?} {holder:?} {:#?}",
            holder.clone()
        );
        assert!(!shown.contains("planted"), "{shown}");
        assert_eq!(secret.to_string(), "[hidden]");
        assert_eq!(secret.reveal(), "planted");
        assert_eq!(Serialised(secret).to_string(), "[hidden]");
    }

    /// Writes the text that a serde format receives.
    struct Serialised(Secret);

    impl fmt::Display for Serialised {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(f)
        }
    }
}
