//! Marks and phases: set by `pegel mark`, by events of statsd clients and over HTTP, read by every
//! interface.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};

use pegel_testkit::{
    AgentProcess, FinishedProcess, OtherUser, TempDir, eventually, now_millis, post,
};
use serde_json::{Value, json};

use crate::PEGEL;

fn mark(agent: &AgentProcess, args: &[&str]) -> FinishedProcess {
    agent.client(&[&["mark"], args].concat())
}

#[track_caller]
fn marked(agent: &AgentProcess, args: &[&str]) {
    let finished = mark(agent, args);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!((&*finished.stdout, &*finished.stderr), ("", ""));
}

/// Returns the marks of the last hour.
fn marks(agent: &AgentProcess) -> Vec<Value> {
    let list = agent.get("/api/v1/marks?start=-1h").json();
    list["marks"].as_array().expect("a list").clone()
}

fn texts(marks: &[Value]) -> Vec<&str> {
    marks
        .iter()
        .map(|mark| mark["text"].as_str().expect("a text"))
        .collect()
}

fn own_name() -> Value {
    let uid = rustix::process::geteuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2) == Some(&&*uid.to_string())).then(|| fields[0].to_owned())
    });
    json!(named.unwrap_or_else(|| format!("uid {uid}")))
}

#[test]
fn a_script_sets_marks_and_phases() {
    let agent = PEGEL.agent().start();
    let before = now_millis() as i64;
    marked(&agent, &["checkpoint 12", "--tag", "file=a.ckpt"]);
    let after = now_millis() as i64;
    let found = marks(&agent);
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (&one["kind"], &one["text"], &one["end"]),
        (&json!("mark"), &json!("checkpoint 12"), &Value::Null)
    );
    let start = one["start"].as_i64().expect("a time");
    assert!((before..=after).contains(&start), "{one}");
    let labels = &one["labels"];
    assert_eq!(
        (&labels["file"], &labels["user"]),
        (&json!("a.ckpt"), &own_name())
    );
    // This process started the command.
    assert_eq!(labels["pid"], std::process::id().to_string());
    let comm = std::fs::read_to_string("/proc/self/comm").expect("readable");
    assert_eq!(labels["program"], comm.trim());

    marked(&agent, &["--start", "solve", "--time", "-10m"]);
    marked(&agent, &["--start", "assembly"]);
    let running = marks(&agent);
    assert_eq!(
        texts(&running),
        ["solve", "checkpoint 12", "assembly"],
        "by their starts"
    );
    assert!(running.iter().all(|mark| mark["end"].is_null()));
    marked(&agent, &["--end", "solve", "--time", "-9m"]);
    let solve = marks(&agent)[0].clone();
    let length = solve["end"].as_i64().expect("over") - solve["start"].as_i64().expect("a time");
    assert!((55_000..=65_000).contains(&length), "{solve}");
    assert_eq!(
        solve["labels"]["pid"],
        std::process::id().to_string(),
        "of its start"
    );

    let missing = mark(&agent, &["--end", "solve"]);
    assert_eq!(missing.code(), Some(1), "{missing}");
    assert!(
        missing.stderr.contains("no running phase \"solve\""),
        "{missing}"
    );
    for (args, text) in [
        (&["--time", "later", "x"][..], "such as -5m"),
        (&["x", "--tag", "y"], "expected KEY=VALUE"),
        (&["x", "--start", "y"], "cannot be used with"),
        (&[], "required"),
    ] {
        let wrong = mark(&agent, args);
        assert_eq!(wrong.code(), Some(2), "{wrong}");
        assert!(wrong.stderr.contains(text), "{wrong}");
    }
    assert_eq!(marks(&agent).len(), 3);
}

#[test]
fn jobs_and_ranks_are_labels_and_phases_of_jobs_are_kept_apart() {
    let agent = PEGEL.agent().start();
    let home = TempDir::new();
    let in_job = |job: &str, args: &[&str]| {
        let mut command = PEGEL.command(&home);
        agent.connect(&mut command);
        command.arg("mark").args(args);
        command.env("SLURM_JOB_ID", job).env("SLURM_PROCID", "3");
        assert!(command.status().expect("it runs").success(), "{args:?}");
    };
    in_job("1", &["--start", "solve"]);
    in_job("2", &["--start", "solve"]);
    in_job("1", &["--end", "solve"]);
    let found = marks(&agent);
    let of_job = |job: &str| found.iter().find(|mark| mark["labels"]["jobid"] == job);
    let (first, second) = (of_job("1").expect("set"), of_job("2").expect("set"));
    assert!(
        !first["end"].is_null() && second["end"].is_null(),
        "{found:?}"
    );
    assert_eq!(first["labels"]["rank"], "3");
}

#[test]
fn events_of_statsd_clients_are_marks() {
    let agent = PEGEL.agent().start();
    let path = agent.endpoint.json["statsd"]["unix"]
        .as_str()
        .expect("a socket");
    let socket = UnixDatagram::unbound().expect("a socket");
    let time = now_millis() as i64 - 5_000;
    let send = |text: &str| {
        assert_eq!(
            socket.send_to(text.as_bytes(), path).expect("sent"),
            text.len()
        );
    };
    send(&format!(
        "_e{{10,4}}:checkpoint|note|d:{time}|#file:a,user:eve,pid:1\nhits:1|c"
    ));
    send(&format!(
        "_e{{5,0}}:solve||d:{time}|#kind:phase,state:begin,id:a"
    ));
    let found = eventually("both are stored", || {
        let found = marks(&agent);
        if found.len() == 2 {
            Ok(found)
        } else {
            Err(format!("{found:?}"))
        }
    });
    // Both have the same time: the second one got the next millisecond.
    assert_eq!(
        (found[0]["start"].as_i64(), found[1]["start"].as_i64()),
        (Some(time), Some(time + 1))
    );
    assert_eq!(
        (&found[0]["notes"], &found[1]["kind"]),
        (&json!("note"), &json!("phase"))
    );
    // What the kernel reports replaces what the client states.
    let labels = json!({"file": "a", "user": own_name(), "pid": std::process::id().to_string()});
    assert_eq!(found[0]["labels"], labels);
    send(&format!(
        "_e{{5,0}}:solve||d:{}|#kind:phase,state:end,id:a",
        time + 800
    ));
    eventually("the phase ends", || {
        let found = marks(&agent);
        match found[1]["end"].as_i64() {
            Some(end) if end == time + 800 => Ok(()),
            _ => Err(format!("{found:?}")),
        }
    });
    // Lines of the push socket get a reply.
    let stream = UnixStream::connect(&agent.socket).expect("connected");
    let mut replies = BufReader::new(stream.try_clone().expect("a copy")).lines();
    let mut ask = |line: &str| {
        (&stream).write_all(line.as_bytes()).expect("written");
        replies.next().expect("a reply").expect("readable")
    };
    assert_eq!(ask("_e{6,0}:pushed|\n"), "ok");
    let refused = ask("_e{5,0}:other||#kind:phase,state:end\n");
    assert!(
        refused.starts_with("error no running phase \"other\""),
        "{refused}"
    );
    assert!(ask("_sc|up|0\n").contains("service checks are not supported"));
    assert!(texts(&marks(&agent)).contains(&"pushed"));
    // Each event is counted once: kept, or dropped with its reason.
    let status = agent.status();
    let inputs = status["inputs"].as_array().expect("a list");
    let input = |name: &str| inputs.iter().find(|input| input["input"] == name);
    let push = input("push").expect("counted");
    assert_eq!(
        (&push["received"], &push["kept"]),
        (&json!(3), &json!(1)),
        "{push}"
    );
    let statsd = input("statsd").expect("counted");
    assert_eq!(
        (&statsd["received"], &statsd["kept"]),
        (&json!(4), &json!(4)),
        "{statsd}"
    );
    agent.assert_conserved();
}

#[test]
fn every_interface_shows_a_mark() {
    let dir = TempDir::new();
    let start_agent = || PEGEL.agent().dir(dir.join("store")).start();
    let agent = start_agent();
    marked(&agent, &["checkpoint 12"]);
    marked(&agent, &["--start", "solve", "--time", "-40s"]);
    marked(&agent, &["--end", "solve", "--time", "-20s"]);
    let found = marks(&agent);
    let [start, end] = ["start", "end"].map(|key| found[0][key].as_i64().expect("a time"));
    let time = found[1]["start"].as_i64().expect("a time");
    // OpenTSDB, in the form of Grafana, which expects seconds.
    let query = json!({
        "start": "1h-ago", "msResolution": false, "globalAnnotations": true,
        "queries": [{"metric": "pegel_cpu_seconds_total", "aggregator": "sum"}],
    });
    let answer = post(
        agent.http(),
        "/api/query",
        &[],
        query.to_string().as_bytes(),
    );
    let answer = answer.expect("answered").json();
    let notes = answer[0]["globalAnnotations"]
        .as_array()
        .expect("annotations");
    let note_text = |note: &Value| format!("{} {}", note["description"], note["startTime"]);
    let expected = [
        format!("\"solve\" {}", start / 1000),
        format!("\"checkpoint 12\" {}", time / 1000),
    ];
    assert_eq!(notes.iter().map(note_text).collect::<Vec<_>>(), expected);
    // PromQL, in the form of Grafana's annotation queries.
    let ask = |expression: &str, step: u32| {
        let until = time + 5_000;
        let path = format!(
            "/api/v1/query_range?query={expression}&start={}&end={}&step={step}",
            (until - 120_000) as f64 / 1e3,
            until as f64 / 1e3
        );
        agent.get(&path).json()["data"]["result"].clone()
    };
    let marked = ask("last_over_time(pegel_mark%5B5s%5D)", 5);
    assert_eq!(marked[0]["metric"]["text"], "checkpoint 12", "{marked}");
    let values = marked[0]["values"].as_array().expect("values").clone();
    assert_eq!((values.len(), &values[0][1]), (1, &json!(time.to_string())));
    let phases = ask(
        "max_over_time(pegel_phase%5B5s%5D)%20or%20pegel_phase%20*%201",
        5,
    );
    let times = phases[0]["values"].as_array().expect("values").clone();
    let [first, last] = [times.first(), times.last()].map(|value| {
        let seconds = value.expect("a value")[0].as_f64().expect("a time");
        (seconds * 1e3) as i64
    });
    assert!(
        (start..start + 5_000).contains(&first) && (end..=end + 5_000).contains(&last),
        "{phases}"
    );
    let names = agent.get("/api/v1/label/__name__/values").json();
    let names = names["data"].as_array().expect("a list").clone();
    assert!(names.contains(&json!("pegel_mark")) && names.contains(&json!("pegel_phase")));
    // Counted, and kept by a restart.
    eventually("they are counted", || {
        let values = agent
            .get("/api/v1/values?match=pegel_marks_stored_total")
            .json();
        if values[0]["value"].as_f64() == Some(2.0) {
            Ok(())
        } else {
            Err(values.to_string())
        }
    });
    agent.kill();
    assert_eq!(marks(&start_agent()), found);
}

#[test]
fn another_user_sets_marks_where_permitted_and_ends_only_its_own_phases() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let allow = format!("allow_users: [{}]\n", OtherUser::UID);
    let agent = PEGEL.agent().config(&allow).start();
    marked(&agent, &["--start", "solve"]);
    let url = format!("http://{}/api/annotation", agent.http());
    let send = |body: Value| other_user.curl(&["-d", &body.to_string(), &url]);
    let end = json!({"endTime": now_millis() as i64 + 9, "description": "solve", "custom": {"kind": "phase"}});
    assert_eq!(send(end).0, 404);
    let labels = json!({"kind": "mark", "user": "root"});
    let theirs =
        json!({"startTime": now_millis() as i64 + 9, "description": "theirs", "custom": labels});
    assert_eq!(send(theirs).0, 200);
    let found = agent.get("/api/v1/marks?end=4102444800").json()["marks"].clone();
    assert_eq!(
        texts(found.as_array().expect("a list")),
        ["solve", "theirs"]
    );
    assert!(found[0]["end"].is_null());
    assert_eq!(found[1]["labels"]["user"], OtherUser::NAME);
}
