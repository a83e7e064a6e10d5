//! The owner of a file or process: its uid and, from `/etc/passwd`, its name.

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
            name: std::fs::read_to_string("/etc/passwd")
                .ok()
                .and_then(|users| user_name_in(&users, uid).map(str::to_owned)),
        }
    }

    /// Returns the user that a sender of samples is named after: `uid 1001`. Hosts are no users.
    pub fn of_sender(sender: &str) -> Option<UserInfo> {
        let uid = sender.strip_prefix("uid ")?;
        Some(UserInfo::lookup(uid.parse().ok()?))
    }

    /// Returns its name, or its number if it has none.
    pub fn short_name(&self) -> String {
        let number = || format!("uid {}", self.uid);
        self.name.clone().unwrap_or_else(number)
    }

    /// Returns the number of the user with this name, as [`UserInfo::lookup`] finds it.
    pub fn uid_of(name: &str) -> Option<u32> {
        find_uid(&std::fs::read_to_string("/etc/passwd").ok()?, name)
    }
}

/// Returns the name of a user in the text of `/etc/passwd`.
pub fn user_name_in(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

fn find_uid(users: &str, name: &str) -> Option<u32> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_same = fields.next()? == name;
        is_same.then(|| fields.nth(1)?.parse().ok())?
    })
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
    fn finds_the_name_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\n+::::::\nada:x:1001:1001::/home/ada:\n";
        assert_eq!(user_name_in(users, 1001), Some("ada"));
        assert_eq!(user_name_in(users, 1002), None);
    }

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
