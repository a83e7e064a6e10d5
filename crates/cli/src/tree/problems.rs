//! Lists what is wrong in the tree, with what to do about it.

use jiff::Timestamp;
use pegel_metric::one_line;
use serde_json::Value;

use super::drawing::TreeNode;
use crate::alerts::since;
use crate::doctor::pluralize::pluralized;

/// The number of nodes that one line names.
const NAMED_MAX: usize = 8;

const LOST_FIX: &str = "start the agent on the node, or check the network between it and its parent: pegel doctor there";
const LATE_FIX: &str =
    "the node is overloaded or the network is slow; see pegel nodes and the load of the node";

/// Returns what to do about a reason for which a connection is refused or fails.
pub(crate) fn advice(reason: &str) -> &'static str {
    match reason {
        "duplicate" => {
            "give each agent a name of its own with --node; remove `tree-instance` from a copied directory"
        }
        "version" => "upgrade the older of the two agents",
        "full" => "raise tree.children_max of the parent, or put parents between it and the nodes",
        "name" => {
            "the common name of the node's certificate must be the node's name: pegel tree init --node NAME"
        }
        "loop" => "remove one parent: an agent must not be below itself",
        "malformed" => {
            "the peer violated the protocol; make sure that it is a Pegel agent, and upgrade both"
        }
        "timeout" => "the node, or a node below it, is overloaded or suspended; see its log",
        "clock" => "set the clocks of both machines: chrony or systemd-timesyncd",
        "user" => {
            "set the same tree.token_file on both agents, or add the user to allow_users of the parent"
        }
        "series" => "raise limits.series of the parent, or send fewer series",
        "token" => "copy the parent's token to the node: tree.token_file or $PEGEL_TOKEN",
        "handshake" => {
            "use certificates of one authority: tree.ca on the node, tree.client_ca on the parent; check their dates and host names"
        }
        _ => "see the logs of both agents",
    }
}

/// Describes the agent's parents; `None` if it has none.
pub(super) fn parents(json: &Value, now: Timestamp) -> Option<String> {
    let parents = json["parents"].as_array().filter(|all| !all.is_empty())?;
    let address = |parent: &Value| text(&parent["address"]);
    let width = parents.iter().map(|parent| address(parent).chars().count());
    let width = width.max().unwrap_or(0);
    let line = |parent: &Value| {
        let error = parent["last_error"]
            .as_str()
            .filter(|error| !error.is_empty());
        let state = match (parent["connected"].as_bool(), error) {
            (Some(true), _) => match time(&parent["since"]) {
                Some(at) => format!("connected for {}", since(at, now)),
                None => "connected".to_owned(),
            },
            (_, Some(error)) => format!("not connected: {}", one_line(error)),
            _ => "not connected".to_owned(),
        };
        format!("  {:width$}  {state}\n", address(parent))
    };
    Some(format!(
        "Parents\n{}",
        parents.iter().map(line).collect::<String>()
    ))
}

/// Lists nodes that are not up and peers that were refused; `None` without problems.
pub(super) fn list(json: &Value, tree: &TreeNode, now: Timestamp) -> Option<String> {
    let mut lines = String::new();
    for (state, fix) in [("lost", LOST_FIX), ("late", LATE_FIX)] {
        let mut names = Vec::new();
        tree.visit(&mut |node| {
            if node.state == state {
                names.push(node.name.as_str());
            }
        });
        if !names.is_empty() {
            lines.push_str(&format!("  {state}: {}\n    fix: {fix}\n", named(&names)));
        }
    }
    for problem in json["problems"].as_array().into_iter().flatten() {
        lines.push_str(&refusal(problem, now));
    }
    (!lines.is_empty()).then(|| format!("Problems\n{lines}"))
}

fn refusal(problem: &Value, now: Timestamp) -> String {
    let reason = text(&problem["reason"]);
    let peer = text(&problem["peer"]);
    let subject = match text(&problem["node"]) {
        node if node.is_empty() => peer,
        node if peer.is_empty() => node,
        node => format!("{node} from {peer}"),
    };
    let mut line = format!("  {subject}: {reason}");
    if let Some(count) = problem["count"].as_u64().filter(|count| *count > 1) {
        line.push_str(&format!(", {}", pluralized(count, "time")));
    }
    if let Some(last) = time(&problem["last"]) {
        line.push_str(&format!(", last {} ago", since(last, now)));
    }
    let message = text(&problem["message"]);
    if !message.is_empty() {
        line.push_str(&format!(": {message}"));
    }
    format!("{line}\n    fix: {}\n", advice(&reason))
}

fn named(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn text(json: &Value) -> String {
    one_line(json.as_str().unwrap_or_default())
}

/// Returns a time given in seconds since 1970.
fn time(json: &Value) -> Option<Timestamp> {
    let millis = json.as_f64()? * 1000.0;
    Timestamp::from_millisecond(millis as i64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_counted() {
        assert_eq!(named(&["a", "b"]), "a, b");
        assert_eq!(named(&["a"; 10]), "a, a, a, a, a, a, a, a and 2 more");
    }

    #[test]
    fn every_reason_of_the_protocol_has_advice() {
        let unknown = advice("something new");
        for reason in [
            "version",
            "duplicate",
            "full",
            "name",
            "loop",
            "malformed",
            "clock",
            "token",
            "handshake",
        ] {
            assert_ne!(advice(reason), unknown, "{reason}");
        }
    }
}
