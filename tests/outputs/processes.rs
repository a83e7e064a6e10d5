//! `GET /api/v1/processes` of a real agent.

use std::os::unix::process::CommandExt;
use std::process::Command;

use pegel_testkit::{AgentProcess, ChildProcess, OtherUser, eventually, get};
use serde_json::Value;

use crate::PEGEL;

/// The response when the table has been read, as the agent's user gets it.
fn processes(agent: &AgentProcess, query: &str) -> Value {
    eventually("the processes are read", || {
        let answer = get(agent.http(), &format!("/api/v1/processes{query}")).expect("an answer");
        match answer.status {
            200 => Ok(answer.json()),
            503 => Err("not ready".to_owned()),
            other => panic!("{other}: {}", answer.text()),
        }
    })
}

fn row(found: &Value, pid: u32) -> Option<Value> {
    let rows = found["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["pid"] == pid).cloned()
}

#[test]
fn a_process_is_shown_with_its_user_command_and_use() {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "while :; do :; done",
        "--token=planted-value",
        "job input.nml",
    ]);
    let busy = ChildProcess::start(&mut command);
    let agent = PEGEL
        .agent()
        .config("collectors: {top_processes: {rate: 500ms}}\n")
        .start();
    let found = eventually("it uses CPU time", || {
        let found = row(&processes(&agent, "?limit=500"), busy.pid());
        match &found {
            Some(row) if row["cpu"].as_f64().is_some_and(|cpu| cpu > 0.05) => Ok(row.clone()),
            _ => Err(found),
        }
    });
    assert_eq!(
        (&found["comm"], &found["state"]),
        (&"sh".into(), &"R".into())
    );
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(found["uid"], uid);
    assert_eq!(
        found["command"],
        "sh -c while :; do :; done --token=[hidden] job input.nml"
    );
    assert!(found["memory"].as_u64().expect("bytes") > 4096, "{found}");
    assert!(found["write"].is_number(), "readable for its user: {found}");
    eventually("its history is stored", || {
        let query = format!(
            "/api/v1/values?match=node_process_cpu_seconds_total{{pid=\"{}\"}}",
            busy.pid()
        );
        let query = query
            .replace('{', "%7B")
            .replace('}', "%7D")
            .replace('"', "%22");
        let values = get(agent.http(), &query).expect("an answer").json();
        let is_stored = values.as_array().is_some_and(|values| !values.is_empty());
        is_stored.then_some(()).ok_or(values)
    });
    let users = processes(&agent, "?by=user&sort=cpu");
    assert!(
        users["rows"][0]["cpu"].as_f64().expect("cores") > 0.05,
        "{users}"
    );
    let text = get(agent.http(), "/metrics").expect("an answer");
    assert!(
        !text.text().contains("input.nml"),
        "command lines are not metrics"
    );
    drop(busy);
}

#[test]
fn an_allowed_user_sees_no_command_lines_of_others() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let allow = format!(
        "allow_users: [{}]\ncollectors: {{top_processes: {{rate: 500ms}}}}\n",
        OtherUser::UID
    );
    let mut command = Command::new("sleep");
    command
        .arg("271828")
        .uid(OtherUser::UID)
        .gid(OtherUser::UID);
    let own = ChildProcess::start(&mut command);
    let agent = PEGEL.agent().config(&allow).start();
    let url = format!(
        "http://{}/api/v1/processes?limit=500&sort=threads",
        agent.http()
    );
    let found = eventually("it sees its own", || {
        let (status, output) = other_user.curl(&[&url]);
        let body = output.split("\r\n\r\n").nth(1).unwrap_or_default();
        let end = body.rfind('}').map_or(0, |end| end + 1);
        match serde_json::from_str::<Value>(&body[..end]) {
            Ok(found) if status == 200 && row(&found, own.pid()).is_some() => Ok(found),
            _ => Err(output),
        }
    });
    let of_own = row(&found, own.pid()).expect("found");
    assert_eq!(of_own["command"], "sleep 271828");
    let of_agent = row(&found, agent.pid()).expect("processes of others are listed");
    assert_eq!(of_agent["comm"], "pegel");
    for row in found["rows"].as_array().expect("rows") {
        let is_own = row["uid"] == OtherUser::UID;
        assert!(is_own || row["command"].is_null(), "{row}");
    }
    let all = row(&processes(&agent, "?limit=500&sort=threads"), agent.pid());
    let all = all.expect("listed");
    assert!(all["command"].is_string(), "for the agent's user: {all}");
    drop(own);
}

#[test]
fn a_disabled_collector_is_named() {
    for config in [
        "collectors: {top_processes: {enabled: false}}\n",
        "level: 2\n",
    ] {
        let agent = PEGEL.agent().config(config).start();
        let answer = get(agent.http(), "/api/v1/processes").expect("an answer");
        assert_eq!(answer.status, 404, "{}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["message"], "the collector top_processes does not run");
        let hint = error["hint"].as_str().expect("a hint");
        assert!(hint.contains("collectors.top_processes.enabled"), "{hint}");
    }
}
