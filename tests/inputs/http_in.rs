//! Points posted over HTTP and with OpenTSDB's telnet protocol, to a real agent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pegel_testkit::{
    AgentAddress, AgentProcess, OtherUser, TempDir, TestResponse, curl, get_with, now_seconds, post,
};
use serde_json::{Value, json};

use crate::PEGEL;

#[track_caller]
fn send(agent: &AgentProcess, path: &str, body: &Value) -> TestResponse {
    post(agent.http(), path, &[], body.to_string().as_bytes()).expect("an answer")
}

fn url(agent: &AgentProcess, path: &str) -> String {
    format!("http://{}{path}", agent.http())
}

fn points(agent: &AgentProcess, name: &str) -> Value {
    let range = agent
        .get(&format!("/api/v1/range?start=-1h&match={name}"))
        .json();
    range[0]["points"].clone()
}

#[test]
fn a_dragon_program_finds_its_node_store() {
    let dir = TempDir::new();
    let start = || {
        PEGEL
            .agent()
            .dir(dir.join("store"))
            .listen(&["127.0.0.1:0", "127.0.0.1:0"])
            .config("collector_rate: 0.5\ntsdb_server_port: 0\n")
            .start()
    };
    let agent = start();
    // The port for Dragon comes last.
    let dragon = agent.endpoint.http.last().expect("a listener").clone();
    let ready = get_with(&dragon, "/api/ready", &[]).expect("an answer");
    assert_eq!((ready.status, ready.text()), (200, "{\"is_ready\":true}"));
    let time = now_seconds();
    let old = json!({"timestamp": time - 400, "dps": [{"metric": "step", "value": 1, "tags": {"gpu": 0}}]});
    let new = json!({"timestamp": time, "dps": [
        {"metric": "step", "value": 2.5, "tags": {"gpu": 0}},
        {"metric": "step", "value": "fast", "tags": {"gpu": 0}},
    ]});
    let answer = post(&dragon, "/api/metrics", &[], old.to_string().as_bytes()).expect("an answer");
    assert_eq!(
        (answer.status, answer.json()["success"].as_u64()),
        (201, Some(1))
    );
    let answer = post(&dragon, "/api/metrics", &[], new.to_string().as_bytes()).expect("an answer");
    assert_eq!(answer.status, 201);
    assert_eq!(
        answer.json(),
        json!({"success": 1, "failed": 1, "errors": ["point 1: malformed value; expected a number"]})
    );
    assert_eq!(points(&agent, "step").as_array().map(Vec::len), Some(2));
    let cleanup = json!({"start_time": time - 300}).to_string();
    let answer = post(&dragon, "/api/tsdb_cleanup", &[], cleanup.as_bytes()).expect("an answer");
    assert_eq!(answer.status, 201);
    let expected = json!([[time * 1000, 2.5]]);
    assert_eq!(points(&agent, "step"), expected);
    agent.assert_conserved();
    agent.kill();
    let agent = start();
    assert_eq!(
        points(&agent, "step"),
        expected,
        "a clean-up survives a kill"
    );
    let dragon = agent.endpoint.http.last().expect("a listener").clone();
    let answer = get_with(&dragon, "/api/set_shutdown", &[]).expect("an answer");
    assert_eq!(
        answer.json(),
        json!({"success": 1, "failed": 0, "errors": []})
    );
    let answer = get_with(&dragon, "/api/telemetry_shutdown", &[]).expect("an answer");
    assert_eq!(
        (answer.status, &answer.json()["shutdown"]),
        (200, &json!(true))
    );
    let finished = agent.wait();
    assert_eq!(finished.code(), Some(0), "{finished}");
}

#[test]
fn an_agent_that_no_job_started_cannot_be_stopped_over_http() {
    let agent = PEGEL.agent().start();
    for path in [
        "/api/telemetry_shutdown",
        "/api/set_telemetry_shutdown",
        "/api/set_shutdown",
    ] {
        let answer = get_with(agent.http(), path, &[]).expect("an answer");
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    assert_eq!(agent.get("/healthz").text(), "ok\n");
    let job = PEGEL
        .agent()
        .args(&["--until-pid", &std::process::id().to_string()])
        .start();
    let answer = get_with(job.http(), "/api/set_telemetry_shutdown", &[]).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(job.wait().code(), Some(0));
}

#[test]
fn points_put_by_http_and_telnet_are_read_back_after_a_kill() {
    let dir = TempDir::new();
    let start = || PEGEL.agent().dir(dir.join("store")).start();
    let agent = start();
    let AgentAddress::Tcp(address) = *agent.http() else {
        panic!("not TCP");
    };
    let time = now_seconds() - 5;
    let body = json!([
        {"metric": "sys.cpu", "timestamp": time - 1, "value": "18", "tags": {"host": "a"}},
        {"metric": "sys.cpu", "timestamp": time * 1000, "value": 19.5, "tags": {"host": "a"}},
    ]);
    assert_eq!(send(&agent, "/api/put?sync", &body).status, 204);
    let answer = send(
        &agent,
        "/api/put?details",
        &json!({"metric": "x", "timestamp": time, "value": "y"}),
    );
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json()["errors"][0]["error"],
        "malformed value; expected a number"
    );
    let mut telnet = TcpStream::connect(address).expect("connected");
    telnet
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    for byte in format!("put sys.cpu {} 20 host=a\nput broken\n", time + 1).bytes() {
        telnet.write_all(&[byte]).expect("sent");
    }
    let expected = b"put: the timestamp is missing\n";
    let mut said = vec![0; expected.len()];
    telnet.read_exact(&mut said).expect("an answer");
    assert_eq!(said, expected);
    let expected = json!([
        [(time - 1) * 1000, 18.0],
        [time * 1000, 19.5],
        [(time + 1) * 1000, 20.0]
    ]);
    assert_eq!(points(&agent, "sys.cpu"), expected);
    agent.assert_conserved();
    agent.kill();
    assert_eq!(points(&start(), "sys.cpu"), expected);
}

#[test]
fn other_users_and_foreign_pages_cannot_write() {
    let agent = PEGEL.agent().start();
    let body = json!({"metric": "x", "timestamp": now_seconds(), "value": 1}).to_string();
    for header in [
        "Origin: http://evil.example",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        for path in [
            "/api/put",
            "/api/metrics",
            "/api/tsdb_cleanup",
            "/api/token",
        ] {
            let (status, output) = curl(&["-H", header, "-d", &body, &url(&agent, path)]);
            assert_eq!(status, 403, "{path} {header}: {output}");
        }
        let (status, output) = curl(&["-H", header, &url(&agent, "/api/telemetry_shutdown")]);
        assert_eq!(status, 403, "{header}: {output}");
    }
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    for path in ["/api/put", "/api/metrics", "/api/tsdb_cleanup"] {
        let (status, output) = other_user.curl(&["-d", &body, &url(&agent, path)]);
        assert_eq!(status, 401, "{path}: {output}");
    }
    for path in ["/api/set_shutdown", "/api/telemetry_shutdown"] {
        let (status, output) = other_user.curl(&[&url(&agent, path)]);
        assert_eq!(status, 401, "{path}: {output}");
    }
    let AgentAddress::Tcp(address) = *agent.http() else {
        panic!("not TCP");
    };
    let said = other_user.run_as(|| {
        let mut telnet = TcpStream::connect(address).expect("connected");
        telnet.write_all(b"put x 1 1\n").expect("sent");
        let mut text = String::new();
        let _ = telnet.read_to_string(&mut text);
        text
    });
    assert_eq!(
        said,
        "put: user nobody (uid 65534) is not permitted without a token\n"
    );
    assert_eq!(agent.get("/api/v1/list?match=x").text(), "[]");
    agent.assert_conserved();
}

#[test]
fn allowed_users_may_write_but_not_clean_up_or_stop() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = PEGEL
        .agent()
        .config("allow_users: [nobody]\ncollector_rate: 0.5\ntsdb_server_port: 0\n")
        .start();
    let body = json!({"metric": "x", "timestamp": now_seconds(), "value": 1}).to_string();
    let (status, output) = other_user.curl(&["-d", &body, &url(&agent, "/api/put")]);
    assert_eq!(status, 204, "{output}");
    let (status, output) = other_user.curl(&[
        "-d",
        "{\"start_time\":1}",
        &url(&agent, "/api/tsdb_cleanup"),
    ]);
    assert_eq!(status, 403, "{output}");
    let (status, output) = other_user.curl(&[&url(&agent, "/api/telemetry_shutdown")]);
    assert_eq!(status, 403, "{output}");
    let senders = agent.status()["senders"].clone();
    assert_eq!(senders[0]["sender"], "uid 65534", "{senders}");
    agent.assert_conserved();
}

#[test]
fn another_user_with_the_key_gets_a_token() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = PEGEL
        .agent()
        .config("auth_key: a key of dragons\ntsdb_server_port: 0\n")
        .start();
    let token_url = url(&agent, "/api/token");
    let (status, output) = other_user.curl(&["-d", "{\"auth_key\":\"a key\"}", &token_url]);
    assert_eq!(status, 400, "{output}");
    assert!(output.contains("{\"msg\":\"Bad auth_key\"}"), "{output}");
    let (status, output) =
        other_user.curl(&["-d", "{\"auth_key\":\"a key of dragons\"}", &token_url]);
    assert_eq!(status, 200, "{output}");
    let (_, rest) = output.split_once("{\"access_token\":\"").expect("a token");
    let (bearer, _) = rest.split_once('"').expect("its end");
    let header = format!("Authorization: {bearer}");
    let (status, output) = other_user.curl(&[&url(&agent, "/status")]);
    assert_eq!(status, 401, "{output}");
    let (status, output) = other_user.curl(&["-H", &header, &url(&agent, "/status")]);
    assert_eq!(status, 200, "{output}");
    assert!(!output.contains("a key of dragons"), "{output}");
    let config = agent.get("/api/v1/config");
    assert!(
        !config.text().contains("a key of dragons"),
        "{}",
        config.text()
    );
    assert!(
        !agent.output().contains("a key of dragons"),
        "{}",
        agent.output()
    );
}
