//! Explains how to give the users of Grafana and Prometheus access to an agent that runs as another user.

use pegel_config::User;

/// Returns the line for the agent's configuration with an explanation. `exists` returns whether the system has a user.
pub fn allow_users(allowed: &[User], wanted: &[User], exists: &dyn Fn(&User) -> bool) -> String {
    let missing: Vec<&User> = wanted
        .iter()
        .filter(|user| !allowed.contains(user))
        .collect();
    let (existing, unknown): (Vec<&User>, Vec<&User>) =
        missing.into_iter().partition(|user| exists(user));
    if existing.is_empty() && unknown.is_empty() {
        return format!("allow_users already permits {}.\n", join_users(wanted));
    }
    let mut text = String::new();
    if !existing.is_empty() {
        let all: Vec<User> = allowed.iter().chain(existing).cloned().collect();
        text.push_str(&format!(
            "Without a token, the agent serves only its own user and root. Add this to its configuration and restart it:\n\n\
             allow_users: [{}]\n\n",
            join_users(&all)
        ));
    }
    if !unknown.is_empty() {
        let unknown: Vec<User> = unknown.into_iter().cloned().collect();
        text.push_str(&format!(
            "This machine has no user {}. Once it exists, add it to allow_users in the agent's configuration. \
             If the service runs as another user, pass --user NAME.\n",
            join_users(&unknown)
        ));
    }
    text
}

fn join_users(users: &[User]) -> String {
    let users: Vec<String> = users.iter().map(User::to_string).collect();
    users.join(", ")
}

/// Returns whether the system has this user: the agent does not start with an unknown name in allow_users.
pub fn is_system_user(user: &User) -> bool {
    match user {
        User::Uid(_) => true,
        User::Name(name) => matches!(nix::unistd::User::from_name(name), Ok(Some(_))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(names: &[&str]) -> Vec<User> {
        names
            .iter()
            .map(|name| name.parse().expect("a user"))
            .collect()
    }

    #[test]
    fn the_line_keeps_permitted_users_and_omits_unknown_ones() {
        let wanted = users(&["grafana", "prometheus"]);
        let exists = |user: &User| user.to_string() == "grafana";
        let text = allow_users(&users(&["ada", "1001"]), &wanted, &exists);
        assert!(
            text.contains("\nallow_users: [ada, 1001, grafana]\n"),
            "{text}"
        );
        assert!(text.contains("no user prometheus."), "{text}");
        let text = allow_users(&[], &wanted, &|_| true);
        assert!(
            text.contains("\nallow_users: [grafana, prometheus]\n"),
            "{text}"
        );
        let text = allow_users(&wanted, &wanted, &|_| true);
        assert_eq!(text, "allow_users already permits grafana, prometheus.\n");
        let text = allow_users(&[], &wanted, &|_| false);
        assert!(!text.contains("allow_users: ["), "{text}");
    }
}
