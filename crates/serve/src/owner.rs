//! Who owns a file or a process, in words that a person can act on.

use std::fmt;

/// A user, by number and, where the machine's own list knows it, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub name: Option<String>,
}

impl Owner {
    pub fn of(uid: u32) -> Owner {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        Owner {
            uid,
            name: name_in(&users, uid).map(str::to_owned),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {})", self.uid),
            None => write!(f, "uid {}", self.uid),
        }
    }
}

fn name_in(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_name_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\n+::::::\nada:x:1001:1001::/home/ada:\n";
        assert_eq!(name_in(users, 1001), Some("ada"));
        assert_eq!(name_in(users, 1002), None);
        assert_eq!(
            Owner {
                uid: 1001,
                name: Some("ada".into())
            }
            .to_string(),
            "ada (uid 1001)"
        );
        assert_eq!(Owner { uid: 7, name: None }.to_string(), "uid 7");
    }
}
