//! Names of users, from `/etc/passwd`.

/// Returns the name of a user other than the agent's, or its number if it has no name.
pub fn other_than_own(uid: u32) -> Option<String> {
    let is_own = uid == rustix::process::geteuid().as_raw();
    (!is_own).then(|| user_name(uid).unwrap_or_else(|| uid.to_string()))
}

/// Returns the name of a user, if `/etc/passwd` has it.
pub fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    find_user_name(&users, uid).map(str::to_owned)
}

fn find_user_name(users: &str, uid: u32) -> Option<&str> {
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
        assert_eq!(find_user_name(users, 1001), Some("ada"));
        assert_eq!(find_user_name(users, 1002), None);
    }
}
