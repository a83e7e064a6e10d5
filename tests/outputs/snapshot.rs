//! `pegel snapshot`, and the snapshot of a running agent.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use pegel_testkit::{
    ChildProcess, FakeReply, FakeService, FinishedProcess, TempDir, eventually, fixture, get,
};
use rustix::process::Signal;
use serde_json::Value;

use crate::PEGEL;

const PLANTED: &str = "PLANTED";

/// Runs `pegel snapshot` on a fixture tree.
fn snapshot(machine: &str, args: &[&str]) -> FinishedProcess {
    let home = TempDir::new();
    let mut command = PEGEL.command(&home);
    command
        .env("PEGEL_ROOT", fixture(machine))
        .env("PEGEL_TOKEN", PLANTED)
        .env("SLURM_JWT", PLANTED)
        .arg("snapshot")
        .args(args);
    let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(30));
    assert!(!finished.stdout.contains(PLANTED), "{finished}");
    finished
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_snapshot_needs_no_agent() {
    let page = snapshot("cray", &[]);
    assert_eq!(page.code(), Some(0), "{page}");
    assert!(page.stdout.contains("2 × AMD Instinct MI250X"), "{page}");
    assert!(
        page.stdout
            .contains("|     8 | 64 GiB | DDR4 | 3200 MT/s |"),
        "{page}"
    );

    let found = json(&snapshot("cray", &["-f", "json"]).stdout);
    assert_eq!(
        (&found["format"], &found["job"]["id"]),
        (&1.into(), &"4711".into())
    );
    assert_eq!(found["configuration"]["values"]["level"], "3");

    let yaml = snapshot("cray", &["-f", "yaml"]).stdout;
    assert!(yaml.starts_with("format: 1\n"), "{yaml}");
    assert!(
        yaml.contains("\n  model: AMD EPYC 7A53 64-Core Processor\n"),
        "{yaml}"
    );
}

#[test]
fn the_file_extension_selects_the_format() {
    let dir = TempDir::new();
    for (name, begins) in [
        ("a.json", "{"),
        ("a.yml", "format: 1"),
        ("a.md", "# "),
        ("a", "# "),
    ] {
        let path = dir.join(name);
        let finished = snapshot("azure", &["-o", path.to_str().expect("UTF-8")]);
        assert_eq!(
            (finished.code(), finished.stdout.as_str()),
            (Some(0), ""),
            "{finished}"
        );
        let text = fs::read_to_string(path).expect("written");
        assert!(
            text.starts_with(begins) && !text.contains(PLANTED),
            "{text}"
        );
    }
}

#[test]
fn comments_and_secrets_of_the_configuration_are_not_shown() {
    let dir = TempDir::new();
    let path = dir.join("pegel.yaml");
    fs::write(
        &path,
        format!(
            "# {PLANTED}\nnode: n7 # {PLANTED}\nauth_key: {PLANTED}\nsnapshot: {{every: 1h}}\n"
        ),
    )
    .expect("written");
    let found = json(
        &snapshot(
            "aws",
            &["-f", "json", "--config", path.to_str().expect("UTF-8")],
        )
        .stdout,
    );
    assert_eq!(
        (
            &found["node"],
            &found["configuration"]["values"]["snapshot"]["every"]
        ),
        (&"n7".into(), &"1h".into())
    );
    let key = &found["configuration"]["values"]["auth_key"];
    assert_eq!(key, "[hidden]");
    fs::write(&path, "snapshot: {evry: 1h}\n").expect("written");
    let wrong = snapshot("aws", &["--config", path.to_str().expect("UTF-8")]);
    assert_eq!(wrong.code(), Some(2), "{wrong}");
    assert!(wrong.stderr.contains("every"), "{wrong}");
}

#[test]
fn an_agent_serves_stores_and_renews_the_snapshot() {
    let root = TempDir::copy_of(fixture("azure"));
    let agent = PEGEL.agent().env("PEGEL_ROOT", root.path()).start();
    let read = || {
        eventually("the snapshot is taken", || {
            let answer = get(agent.http(), "/api/v1/snapshot").expect("an answer");
            let is_there = answer.status == 200;
            is_there.then(|| answer.json()).ok_or(answer.status)
        })
    };
    assert_eq!(read()["azure_batch"]["pool"], "pool-hb");
    let stored = || {
        let entries = fs::read_dir(agent.dir.join("snapshots"))
            .into_iter()
            .flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<PathBuf> = paths
            .filter(|path| path.extension() == Some("json".as_ref()))
            .collect();
        paths.sort();
        paths
    };
    eventually("it is stored", || {
        (stored().len() == 1).then_some(()).ok_or(stored())
    });
    fs::write(root.join("sys/class/dmi/id/bios_date"), "01/01/2025\n").expect("written");
    agent.signal(Signal::HUP);
    eventually(
        "the change is noticed",
        || match read()["firmware"]["bios_date"].as_str() {
            Some("01/01/2025") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    eventually("it is stored too", || {
        (stored().len() == 2).then_some(()).ok_or(stored())
    });
    let text = fs::read_to_string(&stored()[1]).expect("read");
    assert!(
        text.contains("01/01/2025") && !text.contains(PLANTED),
        "{text}"
    );
    let status = &agent.status()["snapshot"];
    assert!(
        status["stored"] == 2 && status["trouble"].is_null(),
        "{status}"
    );
    agent.assert_conserved();
}

#[test]
fn an_eviction_becomes_a_metric() {
    let service = FakeService::start();
    let document =
        |name: &str| fs::read_to_string(fixture("metadata").join(name)).expect("a document");
    let set = |path: &str, text: String| {
        service.set(&format!("GET /metadata/{path}"), None, FakeReply::ok(text))
    };
    set(
        "instance?api-version=2021-12-13",
        document("azure-instance.json"),
    );
    set(
        "scheduledevents?api-version=2020-07-01",
        document("azure-events.json"),
    );
    let agent = PEGEL
        .agent()
        .env("PEGEL_ROOT", fixture("azure"))
        .env("PEGEL_IMDS_URL", &service.url)
        .args(&["--rate", "100ms"])
        .start();
    let wanted =
        "node_cloud_scheduled_event{provider=\"azure\",status=\"scheduled\",type=\"preempt\"} 1\n";
    eventually("the event is a metric", || {
        let text = agent.get("/metrics").text().to_owned();
        let found = text.contains(wanted);
        let about = text
            .lines()
            .filter(|line| line.contains("cloud"))
            .collect::<Vec<_>>()
            .join("\n");
        found.then_some(()).ok_or(about)
    });
    let snapshot = eventually("the snapshot has it too", || {
        let answer = get(agent.http(), "/api/v1/snapshot").expect("an answer");
        let snapshot = answer.json();
        let has = snapshot["cloud"]["events"][0]["kind"] == "preempt";
        has.then_some(snapshot.clone()).ok_or(snapshot)
    });
    assert_eq!(snapshot["cloud"]["facts"]["type"], "Standard_HB120rs_v3");
    assert!(!snapshot.to_string().contains(PLANTED), "{snapshot}");
    let requests = service.requests();
    let is_known = |path: &String| path.starts_with("GET /metadata/");
    assert!(requests.iter().all(is_known), "{requests:?}");
}
