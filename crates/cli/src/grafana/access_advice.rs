//! Explains how to give the users of Grafana and Prometheus access to an agent that runs as another
//! user.

use pegel_config::UserRef;

/// Returns the line for the agent's configuration with an explanation. `exists` returns whether the
/// system has a user.
pub(super) fn allow_users(
    allowed: &[UserRef],
    wanted: &[UserRef],
    exists: &dyn Fn(&UserRef) -> bool,
) -> String {
    let missing: Vec<&UserRef> = wanted
        .iter()
        .filter(|user| !allowed.contains(user))
        .collect();
    let (existing, unknown): (Vec<&UserRef>, Vec<&UserRef>) =
        missing.into_iter().partition(|user| exists(user));
    if existing.is_empty() && unknown.is_empty() {
        return format!("allow_users already permits {}.\n", join_users(wanted));
    }
    let mut text = String::new();
    if !existing.is_empty() {
        let all: Vec<UserRef> = allowed.iter().chain(existing).cloned().collect();
        text.push_str(&format!(
            "Without a token, the agent serves only its own user and root. Add this to its configuration and restart it:\n\n\
             allow_users: [{}]\n\n",
            join_users(&all)
        ));
    }
    if !unknown.is_empty() {
        let unknown: Vec<UserRef> = unknown.into_iter().cloned().collect();
        text.push_str(&format!(
            "This machine has no user {}. Once it exists, add it to allow_users in the agent's configuration. \
             If the service runs as another user, pass --user NAME.\n",
            join_users(&unknown)
        ));
    }
    text
}

fn join_users(users: &[UserRef]) -> String {
    let users: Vec<String> = users.iter().map(UserRef::to_string).collect();
    users.join(", ")
}

/// Returns whether the system has this user: the agent does not start with an unknown name in
/// allow_users.
pub(super) fn is_system_user(user: &UserRef) -> bool {
    match user {
        UserRef::Uid(_) => true,
        UserRef::Name(name) => matches!(nix::unistd::User::from_name(name), Ok(Some(_))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(names: &[&str]) -> Vec<UserRef> {
        names
            .iter()
            .map(|name| name.parse().expect("a user"))
            .collect()
    }

    #[test]
    fn the_line_keeps_permitted_users_and_omits_unknown_ones() {
        let wanted = users(&["grafana", "prometheus"]);
        let exists = |user: &UserRef| user.to_string() == "grafana";
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
