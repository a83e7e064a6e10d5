//! The snapshot worker: stores changed snapshots and watches the events of the cloud.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use pegel_snapshot::{SnapshotOptions, SnapshotWorker};
use pegel_supervisor::Supervisor;
use pegel_testkit::{FakeReply, FakeService, TempDir, eventually};

use crate::cloud::{azure, document};
use crate::support::{fixture, options};

const LONG: Duration = Duration::from_secs(3600);
const EVENTS: &str = "GET /metadata/scheduledevents?api-version=2020-07-01";

fn stored(dir: &Path) -> usize {
    fs::read_dir(dir.join("snapshots")).map_or(0, |entries| {
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.ends_with(".json")).count()
    })
}

/// Starts a worker that takes snapshots only on request.
fn start(mut options: SnapshotOptions, dir: &TempDir) -> SnapshotWorker {
    options.settings.every = LONG.into();
    let dir = dir.path().to_owned();
    SnapshotWorker::start(options, dir, &Supervisor::default()).expect("started")
}

fn current(worker: &SnapshotWorker) -> serde_json::Value {
    let text = eventually("there is a snapshot", || worker.current().ok_or("none"));
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_change_is_noticed_on_request_and_stored_once() {
    let (dir, root) = (TempDir::new(), TempDir::copy_of(fixture("aws")));
    let worker = start(options(root.path(), &[]), &dir);
    assert_eq!(current(&worker)["mounts"].as_array().map(Vec::len), Some(1));
    assert_eq!(stored(dir.path()), 1);
    let path = root.join("proc/self/mountinfo");
    let mounts = fs::read_to_string(&path).expect("read");
    fs::write(
        &path,
        format!("{mounts}60 25 0:50 / /data rw - nfs4 filer:/data rw,vers=4.2\n"),
    )
    .expect("written");
    worker.retake();
    eventually("the mount is there", || {
        match current(&worker)["mounts"].as_array() {
            Some(mounts) if mounts.len() == 2 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    eventually("it is stored", || {
        (worker.status().stored == 2)
            .then_some(())
            .ok_or(worker.status())
    });
    assert_eq!(stored(dir.path()), 2);
    drop(worker);
    let worker = start(options(root.path(), &[]), &dir);
    current(&worker);
    assert_eq!(
        (worker.status().stored, stored(dir.path())),
        (0, 2),
        "unchanged for the next agent"
    );
}

#[test]
fn cloud_events_are_watched_and_change_the_snapshot() {
    let (dir, service) = (TempDir::new(), FakeService::start());
    azure(&service);
    service.set(
        EVENTS,
        Some(("metadata", "true")),
        FakeReply::ok(r#"{"DocumentIncarnation":1,"Events":[]}"#),
    );
    let options = options(&fixture("azure"), &[("PEGEL_IMDS_URL", &service.url)]);
    let worker = start(options, &dir);
    eventually("the cloud is watched", || match worker.events() {
        Some((_, events)) if events.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    service.set(EVENTS, None, FakeReply::ok(document("azure-events.json")));
    let events = eventually("the event is seen", || match worker.events() {
        Some((_, events)) if !events.is_empty() => Ok(events),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(
        events.len(),
        1,
        "another machine's reboot is left out: {events:?}"
    );
    assert_eq!(
        (events[0].kind.as_str(), events[0].status.as_str()),
        ("preempt", "scheduled")
    );
    eventually(
        "it is in the snapshot",
        || match current(&worker)["cloud"]["events"][0]["kind"].as_str() {
            Some("preempt") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    assert!(stored(dir.path()) >= 2);
}

#[test]
fn a_slow_first_response_delays_nothing() {
    let (dir, service) = (TempDir::new(), FakeService::start());
    azure(&service);
    let slow = FakeReply {
        delay: Duration::from_secs(15),
        ..FakeReply::ok(r#"{"DocumentIncarnation":1,"Events":[]}"#)
    };
    service.set(EVENTS, None, slow);
    let options = options(&fixture("azure"), &[("PEGEL_IMDS_URL", &service.url)]);
    let worker = start(options, &dir);
    eventually("the facts are there", || {
        match current(&worker)["cloud"]["facts"]["type"].as_str() {
            Some("Standard_HB120rs_v3") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    eventually("events are requested", || {
        let requests = service.requests();
        requests
            .iter()
            .any(|path| path == EVENTS)
            .then_some(())
            .ok_or(requests)
    });
    assert_eq!(worker.events(), None, "not answered yet");
    let started = Instant::now();
    drop(worker);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "stopping is not delayed"
    );
}

#[test]
fn amazon_and_google_announce_the_end_of_a_spot_instance() {
    let (dir, service) = (TempDir::new(), FakeService::start());
    service.set("PUT /latest/api/token", None, FakeReply::ok("t"));
    service.set(
        "GET /latest/dynamic/instance-identity/document",
        None,
        FakeReply::ok(document("aws-document.json")),
    );
    let action = r#"{"action":"terminate","time":"2024-01-01T00:12:00Z"}"#;
    service.set(
        "GET /latest/meta-data/spot/instance-action",
        None,
        FakeReply::ok(action),
    );
    service.set(
        "GET /latest/meta-data/events/maintenance/scheduled",
        None,
        FakeReply::ok(document("aws-maintenance.json")),
    );
    let amazon = options(&fixture("aws"), &[("PEGEL_IMDS_URL", &service.url)]);
    let worker = start(amazon, &dir);
    let kinds = || {
        let (_, events) = worker.events().ok_or("none")?;
        Ok::<_, &str>(
            events
                .into_iter()
                .map(|event| event.kind)
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(eventually("events", kinds), ["terminate", "system-reboot"]);
    drop(worker);

    let (dir, service) = (TempDir::new(), FakeService::start());
    let set = |path: &str, text: &str| {
        service.set(
            &format!("GET /computeMetadata/v1/instance/{path}"),
            None,
            FakeReply::ok(text),
        );
    };
    set("id", "7");
    set("preempted", "TRUE");
    set("maintenance-event", "NONE");
    let google = options(&fixture("google"), &[("PEGEL_IMDS_URL", &service.url)]);
    let worker = start(google, &dir);
    let events = eventually("events", || {
        worker.events().map(|(_, events)| events).ok_or("none")
    });
    assert_eq!((events.len(), events[0].kind.as_str()), (1, "preempt"));
}
