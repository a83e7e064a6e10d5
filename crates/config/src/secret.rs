use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// What stands in place of a secret wherever one would be shown.
const HIDDEN: &str = "[hidden]";

/// A text that must not be seen: a token, a password. Printed, logged or serialised it says only that
/// it is there; [`Secret::reveal`] is the one way to it.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: impl Into<Box<str>>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for comparing and for sending; never for messages.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Secret, &'static str> {
        match text.is_empty() {
            true => Err("the secret is empty"),
            false => Ok(Secret::new(text)),
        }
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

    /// Writes what any serde format would be handed.
    struct Serialised(Secret);

    impl fmt::Display for Serialised {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.serialize(f)
        }
    }
}
