//! References to users of this machine.

use std::fmt;
use std::str::FromStr;

/// A user of this machine, by name or by ID. Names are looked up when the agent starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserRef {
    Name(String),
    Uid(u32),
}

impl FromStr for UserRef {
    type Err = String;

    fn from_str(text: &str) -> Result<UserRef, String> {
        let text = text.trim();
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return match text.parse() {
                // The kernel's "no user" (-1).
                Ok(u32::MAX) | Err(_) => Err(format!("\"{text}\" is not a valid user ID")),
                Ok(uid) => Ok(UserRef::Uid(uid)),
            };
        }
        let is_name =
            |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, ':' | '/' | ',');
        if text.is_empty() || text.starts_with('-') || !text.chars().all(is_name) {
            return Err(format!("\"{text}\" is not a valid user name"));
        }
        Ok(UserRef::Name(text.to_owned()))
    }
}

impl fmt::Display for UserRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UserRef::Name(name) => f.write_str(name),
            UserRef::Uid(uid) => uid.fmt(f),
        }
    }
}

crate::text_setting!(
    UserRef,
    "the name or the number of a user, such as prometheus or 1001"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        assert_eq!("1001".parse(), Ok(UserRef::Uid(1001)));
        assert_eq!(
            " prometheus ".parse(),
            Ok(UserRef::Name("prometheus".into()))
        );
        assert_eq!(
            "ada@example.org".parse(),
            Ok(UserRef::Name("ada@example.org".into()))
        );
        for text in ["", "-1", "4294967295", "4294967296", "a b", "a:b", "a,b"] {
            assert!(text.parse::<UserRef>().is_err(), "{text}");
        }
    }
}
