//! Jobs that ran on several nodes of a tree.

use pegel_testkit::{eventually, get};
use serde_json::{Value, json};

use crate::tree_agent::TreeAgent;

fn jobs(node: &TreeAgent, query: &str) -> Vec<Value> {
    let answer = node.get(&format!("/api/v1/jobs{query}")).json();
    answer["jobs"].as_array().expect("a list").clone()
}

#[test]
fn the_jobs_of_nodes_are_merged_by_id() {
    let (root, root_address) = TreeAgent::head("root");
    let (middle, address) = TreeAgent::middle("mid", &[root_address]);
    let mut leaves = ["a", "b"].map(|name| TreeAgent::child(name, &[address]));
    root.all_up(&["a", "b", "mid", "root"]);
    for (leaf, script) in leaves.iter().zip([":", "exit 3"]) {
        let run = ["run", "-j", "sim", "-q", "--", "sh", "-c", script];
        leaf.agent().client(&run);
    }
    let own = ["run", "-j", "other", "-q", "--", "true"];
    middle.agent().client(&own);
    let job = eventually("both parts have ended", || {
        let found = jobs(&root, "?job=sim");
        let is_complete = found.len() == 1 && found[0]["nodes"] == json!(["a", "b"]);
        is_complete.then(|| found[0].clone()).ok_or(found)
    });
    assert_eq!(
        job["state"], "exit 3",
        "a failure on one node is one of the job: {job}"
    );
    assert_eq!(job["on_nodes"].as_array().expect("parts").len(), 2);
    let all = jobs(&root, "");
    let ids: Vec<Value> = { all.iter() }.map(|job| job["job"].clone()).collect();
    assert_eq!(ids, [json!("other"), json!("sim")], "the newest first");
    assert_eq!(jobs(&root, "?nodes=a")[0]["nodes"], json!(["a"]));
    let answer = root.get("/api/v1/jobs");
    assert_eq!(answer.header("pegel-nodes"), Some("answered=4 expected=4"));

    // A query of the job reads its nodes only.
    let load = "/api/v1/range?match=node_load1&start=-1h&job=sim";
    let found = root.get(load).json();
    let hosts: Vec<Value> = { found.as_array().expect("series").iter() }
        .map(|series| series["labels"]["host"].clone())
        .collect();
    assert!(
        hosts
            .iter()
            .all(|host| ["a", "b"].contains(&host.as_str().unwrap_or_default())),
        "{hosts:?}"
    );
    let unknown = get(&root.unix(), "/api/v1/range?job=none").expect("an answer");
    assert_eq!(unknown.status, 404, "{}", unknown.text());

    leaves[1].kill();
    eventually("the missing node is named", || {
        let answer = root.get("/api/v1/jobs?job=sim");
        let nodes = answer.header("pegel-nodes").unwrap_or_default().to_owned();
        (nodes.contains("late=b")).then_some(()).ok_or(nodes)
    });
    let left = jobs(&root, "?job=sim");
    assert_eq!(left[0]["nodes"], json!(["a"]));
}
