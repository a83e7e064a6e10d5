//! Points pushed in the formats of other systems: InfluxDB's line protocol, as Slurm sends it, and
//! Pushgateway's groups.

use pegel_testkit::{AgentProcess, TempDir, curl, need, now_seconds, post};
use serde_json::{Value, json};

use crate::PEGEL;

fn url(agent: &AgentProcess, path: &str) -> String {
    format!("http://{}{path}", agent.http())
}

/// Returns the series that match, with their last values.
fn values(agent: &AgentProcess, matching: &str) -> Vec<(String, f64)> {
    let range = agent
        .get(&format!("/api/v1/range?start=-1h&match={matching}"))
        .json();
    let series = range.as_array().expect("a list").iter();
    let last = |series: &Value| series["points"].as_array()?.last()?[1].as_f64();
    let values = series.map(|series| {
        let name = series["name"].as_str().expect("a name");
        let labels = series["labels"].as_object().expect("labels").iter();
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let text = match labels.is_empty() {
            true => name.to_owned(),
            false => format!("{name}{{{}}}", labels.join(",")),
        };
        (text, last(series).unwrap_or(f64::NAN))
    });
    values.collect()
}

fn ledger(agent: &AgentProcess, input: &str) -> Value {
    let status = agent.status();
    let inputs = status["inputs"].as_array().expect("a list").iter();
    let mut named = inputs.filter(|one| one["input"] == input);
    named.next().expect("the input is counted").clone()
}

#[test]
fn what_slurm_sends_is_stored() {
    let agent = PEGEL.agent().start();
    let time = now_seconds();
    // As acct_gather_profile/influxdb builds it: one line for each value of a task.
    let mut body = String::new();
    for (name, value) in [
        ("CPUFrequency", "2400"),
        ("CPUTime", "0.25"),
        ("CPUUtilization", "99.50"),
        ("GPUMemMB", "0"),
        ("GPUUtilization", "0.00"),
        ("RSS", "104857600"),
        ("VMSize", "209715200"),
        ("Pages", "0"),
        ("ReadMB", "1.50"),
        ("WriteMB", "0.00"),
    ] {
        body += &format!("{name},host=n1,job=1234,step=0,task=3 value={value} {time}\n");
    }
    let answer = post(
        agent.http(),
        "/write?db=slurm&precision=s&rp=autogen",
        &[("Content-Type", "application/x-www-form-urlencoded")],
        body.as_bytes(),
    );
    let answer = answer.expect("an answer");
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(
        values(&agent, "CPU*"),
        [
            (
                "CPUFrequency{host=\"n1\",job=\"1234\",step=\"0\",task=\"3\"}".to_owned(),
                2400.0
            ),
            (
                "CPUTime{host=\"n1\",job=\"1234\",step=\"0\",task=\"3\"}".to_owned(),
                0.25
            ),
            (
                "CPUUtilization{host=\"n1\",job=\"1234\",step=\"0\",task=\"3\"}".to_owned(),
                99.5
            ),
        ]
    );
    let grouped =
        format!("task,host=n1,job=1234,step=batch,task=0 CPUFrequency=2400i,CPUTime=0.25 {time}\n");
    let answer = post(
        agent.http(),
        "/write?db=slurm&precision=s",
        &[],
        grouped.as_bytes(),
    );
    assert_eq!(answer.expect("an answer").status, 204);
    assert_eq!(values(&agent, "task_CPUTime*").len(), 1);
    assert_eq!(ledger(&agent, "influx")["kept"], 12);
    agent.assert_conserved();
}

/// Slurm before 26.05 has its tags in another order and signed steps. With `ProfileInfluxDBUser` it
/// sends credentials, which mean nothing here: the kernel reports the user.
#[test]
fn what_older_slurm_sends_is_stored() {
    let agent = PEGEL.agent().start();
    let time = now_seconds();
    let mut body = String::new();
    for (name, step, task, value) in [
        ("CPUTime", "0", "3", "0.25"),
        // The batch script, and the external step.
        ("CPUTime", "-5", "0", "1.00"),
        ("CPUTime", "-4", "0", "0.00"),
        ("RSS", "0", "3", "18446744073709551615"),
        ("Power", "0", "Energy", "211"),
        ("PacketsIn", "0", "Network", "0"),
        ("ReadMB", "0", "Filesystem", "12.50"),
    ] {
        body += &format!("{name},job=1234,step={step},task={task},host=n1 value={value} {time}\n");
    }
    let path = "/write?db=slurm&rp=default&precision=s";
    let headers = [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Authorization", "Basic c2x1cm06c2VjcmV0"),
    ];
    let answer = post(agent.http(), path, &headers, body.as_bytes()).expect("an answer");
    assert_eq!((answer.status, answer.text()), (204, ""));
    let found = values(&agent, "CPUTime*");
    let labels = |step: &str, task: &str| {
        format!("CPUTime{{host=\"n1\",job=\"1234\",step=\"{step}\",task=\"{task}\"}}")
    };
    for (series, value) in [
        (labels("-4", "0"), 0.0),
        (labels("-5", "0"), 1.0),
        (labels("0", "3"), 0.25),
    ] {
        assert!(
            found.contains(&(series.clone(), value)),
            "{series}: {found:?}"
        );
    }
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(values(&agent, "RSS*")[0].1, u64::MAX as f64);
    assert_eq!(
        values(&agent, "Power*")[0].0,
        "Power{host=\"n1\",job=\"1234\",step=\"0\",task=\"Energy\"}"
    );
    assert_eq!(ledger(&agent, "influx")["kept"], 7);
    agent.assert_conserved();
}

#[test]
fn partial_writes_are_reported_as_influxdb_reports_them() {
    let agent = PEGEL.agent().start();
    let body = b"good value=1,note=\"text\"\nbad\nnode_load1 value=7\nalso,tag= value=2\n";
    let answer = post(agent.http(), "/write?db=x", &[], body).expect("an answer");
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json(),
        json!({"error": "partial write: unable to parse 'bad': missing fields dropped=3"})
    );
    assert_eq!(values(&agent, "good*"), [("good".to_owned(), 1.0)]);
    let dropped = &ledger(&agent, "influx")["dropped"];
    assert_eq!(dropped["unsupported"], 1, "{dropped}");
    assert_eq!(dropped["bad_name"], 1, "{dropped}");
    assert_eq!(dropped["malformed"], 2, "{dropped}");
    let answer = post(
        agent.http(),
        "/api/v2/write?org=o&bucket=b&precision=ms",
        &[],
        b"x",
    );
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["code"], "invalid");
    let body = format!("v2,a=b x=1 {}000\n", now_seconds());
    let answer = post(
        agent.http(),
        "/api/v2/write?org=o&bucket=b&precision=ms",
        &[],
        body.as_bytes(),
    );
    assert_eq!(answer.expect("an answer").status, 204);
    assert_eq!(values(&agent, "v2_x*"), [("v2_x{a=\"b\"}".to_owned(), 1.0)]);
    let answer = post(agent.http(), "/write?db=x&precision=d", &[], b"a value=1");
    assert_eq!(
        answer.expect("an answer").json()["error"],
        "invalid precision"
    );
    let many = "a x=1\n".repeat(60_000);
    let answer = post(agent.http(), "/write?db=x", &[], many.as_bytes());
    assert_eq!(answer.expect("an answer").status, 413);
    agent.assert_conserved();
}

fn push(agent: &AgentProcess, method: &str, path: &str, body: &str) -> u16 {
    let url = url(agent, path);
    curl(&["-X", method, "--data-binary", body, &url]).0
}

#[test]
fn groups_are_replaced_merged_and_deleted_and_survive_a_kill() {
    let Some(_) = need("curl") else { return };
    let dir = TempDir::new();
    let start = || PEGEL.agent().dir(dir.join("store")).start();
    let agent = start();
    let group = "/metrics/job/backup/path@base64/L3Zhci90bXA";
    let labels = "{job=\"backup\",path=\"/var/tmp\"}";
    let body = "# TYPE done counter\ndone{job=\"x\"} 1\nbytes 5\n";
    assert_eq!(push(&agent, "PUT", group, body), 200);
    let current = |agent: &AgentProcess, name: &str| {
        let values = agent.get(&format!("/api/v1/values?match={name}*")).json();
        let values = values.as_array().expect("a list").clone();
        let text = |value: &Value| {
            format!(
                "{} {}",
                value["name"].as_str().unwrap_or("?"),
                value["value"]
            )
        };
        values.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(current(&agent, "done"), [format!("done{labels} 1.0")]);
    assert_eq!(current(&agent, "push_time_seconds").len(), 1);
    assert_eq!(push(&agent, "POST", group, "bytes 6\n"), 200);
    assert_eq!(kept_names(&dir), ["bytes", "done", "push_time_seconds"]);
    assert_eq!(push(&agent, "PUT", group, "bytes 7\n"), 200);
    assert_eq!(kept_names(&dir), ["bytes", "push_time_seconds"]);
    assert_eq!(current(&agent, "bytes"), [format!("bytes{labels} 7.0")]);
    for (path, body) in [
        ("/metrics/job/", "a 1\n"),
        ("/metrics/job/x/y", "a 1\n"),
        ("/metrics/job/x", "<html>"),
        ("/metrics/job/x", "a 1 1395066363000\n"),
        ("/metrics/job/x", "node_load1 1\n"),
    ] {
        let status = push(&agent, "PUT", path, body);
        assert!([400, 404].contains(&status), "{path}: {status}");
    }
    agent.assert_conserved();
    agent.kill();
    let agent = start();
    assert_eq!(current(&agent, "bytes"), [format!("bytes{labels} 7.0")]);
    assert_eq!(kept_names(&dir), ["bytes", "push_time_seconds"]);
    assert_eq!(push(&agent, "DELETE", group, ""), 202);
    assert_eq!(push(&agent, "DELETE", group, ""), 202, "it is gone already");
    assert_eq!(kept_names(&dir), [""; 0]);
    agent.assert_conserved();
}

/// Returns the names of the metrics that are kept for later, except those of the group `x`.
fn kept_names(dir: &TempDir) -> Vec<String> {
    let files = std::fs::read_dir(dir.join("store/pushgateway")).expect("groups are kept");
    let groups = files.map(|file| -> Value {
        let text = std::fs::read(file.expect("a file").path()).expect("readable");
        serde_json::from_slice(&text).expect("JSON")
    });
    let groups = groups.filter(|group| group["labels"]["job"] != "x");
    let families = |group: Value| group["families"].as_object().expect("families").clone();
    groups
        .flat_map(|group| families(group).into_iter().map(|(name, _)| name))
        .collect()
}
