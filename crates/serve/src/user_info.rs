//! The owner of a file or process, for messages.

use std::fmt;

/// A user by uid and, if the local user database knows it, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserInfo {
    pub uid: u32,
    pub name: Option<String>,
}

impl UserInfo {
    pub fn lookup(uid: u32) -> UserInfo {
        UserInfo {
            uid,
            name: pegel_ingest::user_names::user_name(uid),
        }
    }
}

impl fmt::Display for UserInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {})", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_name_where_it_is_known() {
        assert_eq!(
            UserInfo {
                uid: 1001,
                name: Some("ada".into())
            }
            .to_string(),
            "ada (uid 1001)"
        );
        assert_eq!(UserInfo { uid: 7, name: None }.to_string(), "uid 7");
    }
}
