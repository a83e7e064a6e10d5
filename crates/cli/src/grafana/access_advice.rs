//! How Grafana's and Prometheus' own users get into an agent that runs as another user.

use pegel_config::User;

/// The line for the agent's configuration, and what to say with it. `known` says whether this machine has a user.
pub fn allow_users(allowed: &[User], wanted: &[User], known: &dyn Fn(&User) -> bool) -> String {
    let missing: Vec<&User> = wanted
        .iter()
        .filter(|user| !allowed.contains(user))
        .collect();
    let (here, unknown): (Vec<&User>, Vec<&User>) =
        missing.into_iter().partition(|user| known(user));
    if here.is_empty() && unknown.is_empty() {
        return format!("allow_users already lets {} in.\n", join_users(wanted));
    }
    let mut text = String::new();
    if !here.is_empty() {
        let all: Vec<User> = allowed.iter().chain(here).cloned().collect();
        text.push_str(&format!(
            "Without a token, the agent serves its own user and root only. Put this into its configuration, and restart it:\n\n\
             allow_users: [{}]\n\n",
            join_users(&all)
        ));
    }
    if !unknown.is_empty() {
        let unknown: Vec<User> = unknown.into_iter().cloned().collect();
        text.push_str(&format!(
            "This machine has no user {}. Once it has, add it to allow_users in the agent's configuration; \
             for one that runs under another name: --user NAME.\n",
            join_users(&unknown)
        ));
    }
    text
}

fn join_users(users: &[User]) -> String {
    let users: Vec<String> = users.iter().map(User::to_string).collect();
    users.join(", ")
}

/// Whether the agent would take the name: it refuses to start with one that the system does not know.
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
    fn the_line_keeps_who_is_allowed_and_leaves_out_who_is_unknown() {
        let wanted = users(&["grafana", "prometheus"]);
        let known = |user: &User| user.to_string() == "grafana";
        let text = allow_users(&users(&["ada", "1001"]), &wanted, &known);
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
        assert_eq!(text, "allow_users already lets grafana, prometheus in.\n");
        let text = allow_users(&[], &wanted, &|_| false);
        assert!(!text.contains("allow_users: ["), "{text}");
    }
}
