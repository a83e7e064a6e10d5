//! Inputs against programs, files and servers that misbehave, with a real store.

mod servers;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_metric::{DropReason, Input, Selector, SystemClock};
use pegel_store::{Store, StoreOptions};
use pegel_testkit::{TempDir, eventually};

use self::servers::{ScriptedServer, respond_with};
use super::*;
use crate::admission::AdmissionSettings;

/// A store and the inputs of a configuration, which are running.
struct PullSetup {
    inputs: PullInputs,
    store: Store,
    once: Arc<Mutex<BTreeMap<String, OnceValues>>>,
    dir: TempDir,
}

impl PullSetup {
    /// `DIR` in the configuration is a directory of its own.
    fn start(yaml: &str) -> PullSetup {
        PullSetup::start_with(yaml, |_| {})
    }

    fn start_with(yaml: &str, prepare: impl FnOnce(&Path)) -> PullSetup {
        let dir = TempDir::new();
        prepare(dir.path());
        let yaml = yaml.replace("DIR", &dir.path().display().to_string());
        let tree = pegel_config::parse(Path::new("f.yaml"), &yaml).expect("YAML");
        let config: PullConfig = pegel_config::read(&tree).unwrap_or_else(|e| panic!("{e}"));
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        let settings = AdmissionSettings::for_tests();
        let rate = Duration::from_secs(1);
        let ingest = Ingest::start(settings, None, &store, Arc::new(SystemClock), rate);
        let ingest = Arc::new(ingest.expect("started"));
        let once: Arc<Mutex<BTreeMap<String, OnceValues>>> = Arc::default();
        let for_sink = once.clone();
        let sink: OnceSink = Arc::new(move |name, values| {
            for_sink.lock().insert(name.to_owned(), values);
        });
        let inputs = PullInputs::new(&config, &ingest, sink);
        inputs.start(store.supervisor()).expect("threads");
        PullSetup {
            inputs,
            store,
            once,
            dir,
        }
    }

    fn status(&self, name: &str) -> PullStatus {
        let mut statuses = self.inputs.statuses().into_iter();
        statuses.find(|status| status.name == name).expect(name)
    }

    #[track_caller]
    fn wait_for(&self, name: &str, what: &str, is_so: impl Fn(&PullStatus) -> bool) -> PullStatus {
        eventually(what, || {
            let status = self.status(name);
            let text = format!("{status:?}");
            if is_so(&status) {
                Ok(status)
            } else {
                Err(text)
            }
        })
    }

    #[track_caller]
    fn wait_up(&self, name: &str) -> PullStatus {
        self.wait_for(name, "it is up", |status| status.state == PullState::Up)
    }

    #[track_caller]
    fn wait_error(&self, name: &str) -> String {
        let failed = self.wait_for(name, "it fails", |status| {
            status.state == PullState::Failing
        });
        failed.error.expect("an error")
    }

    /// Returns the current values of all series, without label `job`.
    fn values(&self) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        self.store
            .latest(&Selector::all(), 0, &mut |series, latest| {
                values.insert(series.text().to_owned(), latest.value);
            });
        values
    }

    /// Stops the inputs and checks that every sample is kept or dropped with a reason.
    #[track_caller]
    fn assert_conserved(&self) {
        self.inputs.stop();
        let ledger = self.store.ledger();
        let dropped = DropReason::ALL.iter();
        let dropped: u64 = dropped
            .map(|reason| ledger.dropped_total(Input::Pull, *reason))
            .sum();
        let kept = ledger.kept_total(Input::Pull);
        assert_eq!(ledger.received_total(Input::Pull), kept + dropped);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.store.ledger().dropped_total(Input::Pull, reason)
    }
}

fn script(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).expect("written");
}

#[test]
fn programs_give_samples_in_every_format() {
    let setup = PullSetup::start_with(
        "exec:
- {name: influx, command: [cat, DIR/influx], labels: {rack: r1}}
- {name: text, command: [cat, DIR/text], format: prometheus}
- {name: json, command: [cat, DIR/json], format: json, prefix: j_}
file:
- {name: file, path: DIR/text}
",
        |dir| {
            script(
                dir,
                "influx",
                "psu,bay=1 watts=320,state=\"ok\"\npsu,bay=2 watts=15i\n",
            );
            script(
                dir,
                "text",
                "# TYPE jobs_total counter\njobs_total{job=\"7\"} 5\n",
            );
            script(dir, "json", r#"{"fan": {"rpm": 1200}}"#);
        },
    );
    for name in ["influx", "text", "json", "file"] {
        setup.wait_up(name);
    }
    let expected = [
        (r#"psu_watts{bay="1",job="influx",rack="r1"}"#, 320.0),
        (r#"psu_watts{bay="2",job="influx",rack="r1"}"#, 15.0),
        (r#"jobs_total{exported_job="7",job="text"}"#, 5.0),
        (r#"jobs_total{exported_job="7",job="file"}"#, 5.0),
        (r#"j_fan_rpm{job="json"}"#, 1200.0),
    ];
    let expected: BTreeMap<String, f64> = expected.map(|(k, v)| (k.to_owned(), v)).into();
    assert_eq!(setup.values(), expected);
    let influx = setup.status("influx");
    assert_eq!((influx.samples, influx.refused), (2, 1));
    assert_eq!(
        influx.first_refusal.as_deref(),
        Some("a field with text cannot be stored")
    );
    assert_eq!(setup.dropped(DropReason::Unsupported), 1);
    setup.assert_conserved();
}

#[test]
fn programs_that_misbehave_affect_no_other_input() {
    let setup = PullSetup::start_with(
        "exec:
- {name: hangs, command: [sleep, '1000'], timeout: 100ms}
- {name: forks, command: [sh, DIR/forks], timeout: 5s}
- {name: binary, command: [sh, -c, 'head -c 1000 /dev/urandom | tr \"\\\\n\" x']}
- {name: dies, command: [sh, -c, 'echo a value=1; kill -9 $$']}
- {name: fails, command: [sh, -c, 'echo a value=1; exit 3']}
- {name: floods, command: ['yes', 'a value=1'], output_max: 1MiB}
- {name: missing, command: [/no/such/program]}
- {name: silent, command: ['true']}
- {name: good, command: [echo, 'good value=1'], interval: 100ms}
",
        |dir| script(dir, "forks", "sleep 1000 & echo forks value=1"),
    );
    for (name, expected) in [
        ("hangs", "killed after 0.1 s"),
        ("binary", "nothing is in the format influx"),
        ("dies", "killed by signal 9"),
        ("fails", "exited with status 3"),
        ("floods", "output exceeds 1048576 bytes"),
        ("missing", "No such file"),
    ] {
        let error = setup.wait_error(name);
        assert!(error.contains(expected), "{name}: {error}");
    }
    setup.wait_up("forks");
    assert_eq!(setup.wait_up("silent").samples, 0);
    setup.wait_for("good", "it is read many times", |status| {
        status.attempts >= 5
    });
    let values = setup.values();
    let names: Vec<&str> = values.keys().map(String::as_str).collect();
    assert_eq!(names, [r#"forks{job="forks"}"#, r#"good{job="good"}"#]);
    setup.assert_conserved();
}

#[test]
fn files_that_cannot_be_read_are_reported_and_affect_no_other_input() {
    let setup = PullSetup::start_with(
        "file:
- {name: large, path: DIR/large, bytes_max: 1KiB}
- {name: pipe, path: DIR/pipe}
- {name: directory, path: DIR}
- {name: device, path: /dev/zero}
- {name: binary, path: DIR/binary}
- {name: html, path: DIR/html}
- {name: missing, path: DIR/none}
- {name: empty, path: DIR/empty}
- {name: limit, path: DIR/limit, bytes_max: 1KiB}
- {name: good, path: DIR/good, interval: 100ms}
",
        |dir| {
            script(dir, "large", &"# 45678\n".repeat(129));
            script(
                dir,
                "limit",
                &format!("{}a 12345\n", "# 45678\n".repeat(127)),
            );
            script(dir, "html", "<html>It works!</html>");
            script(dir, "empty", "");
            script(dir, "good", "good 1\n");
            fs::write(dir.join("binary"), [0xff, 0xfe, 0, 1, b'\n']).expect("written");
            let mut made = std::process::Command::new("mkfifo");
            assert!(
                made.arg(dir.join("pipe"))
                    .status()
                    .expect("mkfifo")
                    .success()
            );
        },
    );
    for (name, expected) in [
        ("large", "larger than 1024 bytes (bytes_max)"),
        ("pipe", "not a regular file"),
        ("directory", "not a regular file"),
        ("device", "not a regular file"),
        ("binary", ""),
        ("html", "expected a metric name"),
        ("missing", "No such file"),
    ] {
        let error = setup.wait_error(name);
        assert!(error.contains(expected), "{name}: {error}");
    }
    assert_eq!(setup.wait_up("empty").samples, 0);
    assert_eq!(setup.wait_up("limit").samples, 1);
    setup.wait_for("good", "it is read many times", |status| {
        status.attempts >= 5
    });
    setup.assert_conserved();
}

#[test]
fn a_failing_input_doubles_its_interval_and_recovers() {
    let setup = PullSetup::start(
        "file: {name: late, path: DIR/late.prom, interval: 100ms, max_interval: 400ms}",
    );
    let failing = setup.wait_for("late", "three failures", |status| status.failures >= 3);
    assert_eq!(failing.interval, 0.1);
    assert_eq!(failing.current_interval, 0.4, "doubled, up to max_interval");
    let error = failing.error.expect("an error");
    assert!(error.contains("late.prom: No such file"), "{error}");
    assert_eq!(failing.last_success, None);
    assert!(failing.next_attempt > failing.last_attempt);
    fs::write(setup.dir.join("late.prom"), "a 1\n").expect("written");
    let up = setup.wait_up("late");
    assert_eq!((up.current_interval, up.consecutive_failures), (0.1, 0));
    assert_eq!((up.error, up.samples), (None, 1));
    assert_eq!(
        setup.dropped(DropReason::Malformed),
        0,
        "nothing was received"
    );
    setup.assert_conserved();
}

#[test]
fn a_program_that_runs_once_is_repeated_until_it_succeeds() {
    let setup = PullSetup::start_with(
        "exec: {name: once, command: [sh, DIR/once], once: true, interval: 100ms, format: json}",
        |dir| {
            let text = "echo x >> DIR/runs; [ -e DIR/ready ] && echo '{\"dimms\": 8}'";
            script(
                dir,
                "once",
                &text.replace("DIR", &dir.display().to_string()),
            );
        },
    );
    setup.wait_error("once");
    fs::write(setup.dir.join("ready"), "").expect("written");
    setup.wait_up("once");
    let runs = || {
        fs::read_to_string(setup.dir.join("runs"))
            .expect("it ran")
            .len()
    };
    let ran = runs();
    let expected = OnceValues::from([(r#"dimms{job="once"}"#.to_owned(), 8.0)]);
    eventually("its values are handed over", || {
        let found = setup.once.lock().get("once").cloned();
        (found.as_ref() == Some(&expected))
            .then_some(())
            .ok_or(found)
    });
    // The values are stored again without another run.
    let input = &setup.inputs.inputs[0];
    setup.inputs.stop();
    let before = setup.store.ledger().kept_total(Input::Pull);
    input.read_again();
    assert_eq!(setup.store.ledger().kept_total(Input::Pull), before + 1);
    assert_eq!(runs(), ran);
}

#[test]
fn a_stopping_agent_does_not_wait_for_programs_or_servers() {
    let server = ScriptedServer::start(servers::hang);
    let yaml = format!(
        "exec: {{name: hangs, command: [sleep, '1000'], timeout: 1h}}
prometheus: {{name: endpoint, url: '{}', timeout: 1h}}",
        server.url
    );
    let setup = PullSetup::start(&yaml);
    server.wait_for_requests(1);
    let started = Instant::now();
    setup.inputs.stop();
    // Far less than the timeouts, whatever else the machine does.
    assert!(started.elapsed() < Duration::from_secs(60));
    setup.assert_conserved();
}

#[test]
fn endpoints_are_scraped_with_credentials_and_compression() {
    let server = ScriptedServer::start(|request| match request.path() {
        "/metrics" => respond_with(
            "Content-Type: application/openmetrics-text; version=1.0.0",
            b"# TYPE a counter\na_total{instance=\"x\"} 3\n# EOF\n",
        ),
        "/gzip" => respond_with("Content-Encoding: gzip", &servers::gzip(b"b 4\n")),
        "/basic" if request.has("authorization: Basic YWRhOnNlY3JldA==") => {
            respond_with("", b"c 5\n")
        }
        "/bearer" if request.has("authorization: Bearer secret") => respond_with("", b"d 6\n"),
        _ => b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_vec(),
    });
    let socket_dir = TempDir::new();
    let socket = socket_dir.join("x.sock");
    let _unix = ScriptedServer::start_unix(&socket, |_| respond_with("", b"e 7\n"));
    let yaml = format!(
        "prometheus:
- {{name: plain, url: '{0}/metrics'}}
- {{name: gzip, url: '{0}/gzip', honor_labels: true}}
- {{name: basic, url: '{0}/basic', user: ada, password_file: DIR/secret}}
- {{name: bearer, url: '{0}/bearer', bearer_token_file: DIR/secret}}
- {{name: denied, url: '{0}/basic'}}
- {{name: unix, url: 'unix:{1}:/metrics'}}
",
        server.url,
        socket.display()
    );
    let setup = PullSetup::start_with(&yaml, |dir| script(dir, "secret", "secret\n"));
    for name in ["plain", "gzip", "basic", "bearer", "unix"] {
        setup.wait_up(name);
    }
    assert_eq!(setup.wait_error("denied"), "HTTP status 401");
    let host = server.url.strip_prefix("http://").expect("a URL");
    let expected: BTreeMap<String, f64> = [
        (
            format!(r#"a_total{{exported_instance="x",instance="{host}",job="plain"}}"#),
            3.0,
        ),
        (format!(r#"b{{instance="{host}",job="gzip"}}"#), 4.0),
        (format!(r#"c{{instance="{host}",job="basic"}}"#), 5.0),
        (format!(r#"d{{instance="{host}",job="bearer"}}"#), 6.0),
        (
            format!(r#"e{{instance="{}",job="unix"}}"#, socket.display()),
            7.0,
        ),
    ]
    .into();
    assert_eq!(setup.values(), expected);
    setup.assert_conserved();
}

#[test]
fn endpoints_that_misbehave_are_reported_and_affect_no_other_input() {
    let server = ScriptedServer::start(|request| match request.path() {
        "/hang" => servers::hang(request),
        "/drip" => servers::drip(request),
        "/endless" => servers::endless(request),
        "/html" => respond_with("Content-Type: text/html", b"<html>It works!</html>"),
        "/broken" => b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\na 1\n".to_vec(),
        "/moved" => b"HTTP/1.1 302 Found\r\nLocation: /good\r\nContent-Length: 0\r\n\r\n".to_vec(),
        "/cut" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na 1\n".to_vec(),
        "/garbage" => b"\xff\xfe\0\0garbage\n\n".to_vec(),
        "/truncated" => respond_with("Content-Type: application/openmetrics-text", b"a 1\n"),
        "/bomb" => respond_with(
            "Content-Encoding: gzip",
            &servers::gzip(&vec![b' '; 64 << 20]),
        ),
        "/brotli" => respond_with("Content-Encoding: br", b"a 1\n"),
        "/nan" => respond_with("", b"a NaN\nb 1\n"),
        _ => respond_with("", b"good 1\n"),
    });
    let cases = [
        ("hang", "no complete response within 0.3 s"),
        ("drip", "no complete response within 0.3 s"),
        ("endless", "the response exceeds 1048576 bytes"),
        (
            "html",
            "line 1: expected a metric name, found \"<html>It works!</html>\"",
        ),
        ("broken", "HTTP status 500"),
        ("moved", "HTTP status 302: redirects are not followed"),
        ("cut", ""),
        ("garbage", ""),
        ("truncated", "truncated"),
        ("bomb", "the response exceeds 1048576 bytes"),
        ("brotli", "unsupported content encoding \"br\""),
    ];
    let mut yaml = format!(
        "prometheus:\n- {{name: good, url: '{0}/good', interval: 100ms}}\n- {{name: nan, url: '{0}/nan'}}\n- {{name: closed, url: 'http://127.0.0.1:1/'}}\n",
        server.url
    );
    for (name, _) in cases {
        let timeout = if ["hang", "drip"].contains(&name) {
            "300ms"
        } else {
            "20s"
        };
        yaml += &format!(
            "- {{name: {name}, url: '{}/{name}', timeout: {timeout}, body_max: 1MiB}}\n",
            server.url
        );
    }
    let setup = PullSetup::start(&yaml);
    for (name, expected) in cases {
        let error = setup.wait_error(name);
        assert!(error.contains(expected), "{name}: {error}");
    }
    let closed = setup.wait_error("closed");
    assert!(closed.contains("refused"), "{closed}");
    setup.wait_for("good", "it is read many times", |status| {
        status.attempts >= 5
    });
    let nan = setup.wait_up("nan");
    assert_eq!((nan.samples, nan.refused), (1, 1), "{nan:?}");
    setup.assert_conserved();
}

#[test]
fn a_log_is_followed_through_rotation_and_truncation() {
    let setup = PullSetup::start_with(
        "tail:
- {name: log, path: DIR/run.log, interval: 100ms, pattern: 'step (?P<step>[0-9]+)(?: on (?P<label_gpu>[a-z0-9]+))?'}
- {name: lines, path: DIR/lines.log, interval: 100ms, from_start: true}
",
        |dir| {
            script(dir, "run.log", "step 1\n");
            script(dir, "lines.log", "a value=1\nnot a line\n");
        },
    );
    setup.wait_up("log");
    setup.wait_up("lines");
    let append = |text: &str| {
        let file = fs::OpenOptions::new()
            .append(true)
            .open(setup.dir.join("run.log"));
        file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
            .expect("written");
    };
    let shows = |series: &str, value: f64| {
        eventually(series, || {
            let values = setup.values();
            (values.get(series) == Some(&value))
                .then_some(())
                .ok_or(values)
        });
    };
    append("step 2 on gpu0\nother\nstep 3");
    shows(r#"step{gpu="gpu0",job="log"}"#, 2.0);
    assert!(
        !setup.values().contains_key(r#"step{job="log"}"#),
        "the line is incomplete"
    );
    append("3\n");
    shows(r#"step{job="log"}"#, 33.0);
    // The rest of the old file is read, then the new one.
    append("step 4\n");
    fs::rename(setup.dir.join("run.log"), setup.dir.join("run.log.1")).expect("renamed");
    script(setup.dir.path(), "run.log", "step 5 on gpu1\n");
    shows(r#"step{gpu="gpu1",job="log"}"#, 5.0);
    shows(r#"step{job="log"}"#, 4.0);
    // Truncated: shorter than what was read.
    script(setup.dir.path(), "run.log", "step 6\n");
    shows(r#"step{job="log"}"#, 6.0);
    let long = format!("{}\nstep 7\n", "x".repeat(200_000));
    append(&long);
    shows(r#"step{job="log"}"#, 7.0);
    shows(r#"a{job="lines"}"#, 1.0);
    setup.assert_conserved();
    assert_eq!(
        setup.dropped(DropReason::Malformed),
        2,
        "a malformed line, and one that is too long"
    );
}

/// A program `flux` that runs scripts with a module `flux` that replays recorded responses.
fn fake_flux(dir: &Path) {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pull/tests/flux");
    let text = format!(
        "#!/bin/sh\necho run >> {dir}/runs\n[ \"$1\" = python ] || exit 64\nshift\nPYTHONPATH={fixtures} FLUX_FIXTURE={dir} exec python3 \"$@\"\n",
        dir = dir.display()
    );
    script(dir, "flux", &text);
    pegel_testkit::set_mode(dir.join("flux"), 0o755);
}

#[test]
fn counters_of_flux_modules_are_switched_one_by_one() {
    let Some(_) = pegel_testkit::need("python3") else {
        return;
    };
    for (responses, control) in [("current.json", "control"), ("older.json", "keepalive")] {
        let setup = PullSetup::start_with(
            "flux: {command: [DIR/flux], modules: [cron], interval: 100ms, timeout: 60s}",
            |dir| {
                let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pull/tests/flux");
                let recorded = fs::read(Path::new(fixtures).join(responses)).expect("recorded");
                fs::write(dir.join("responses.json"), recorded).expect("written");
                script(dir, "flags.json", "{}");
                fake_flux(dir);
            },
        );
        let modules = |setup: &PullSetup| {
            let values = setup.values();
            let modules = values.keys().filter_map(|series| series.split('.').nth(1));
            modules
                .map(str::to_owned)
                .collect::<std::collections::BTreeSet<_>>()
        };
        let parts = |on: &[&str]| {
            setup.wait_for("flux", "the modules that are read", |status| {
                let read = status.parts.iter().filter(|(_, is_on)| **is_on);
                read.map(|(name, _)| name.as_str()).eq(on.iter().copied())
            })
        };
        let up = parts(&["cron"]);
        assert_eq!((up.parts.len(), up.samples), (4, 8), "{up:?}");
        let values = setup.values();
        assert_eq!(
            values.get(&format!("flux.cron.0.{control}_tx{{job=\"flux\"}}")),
            Some(&1.0)
        );
        assert_eq!(
            values.get("flux.cron.0.event_rx{job=\"flux\"}"),
            Some(&275.0)
        );
        // As `flux module debug -s 0x1000 heartbeat` does.
        script(setup.dir.path(), "flags.json", r#"{"heartbeat": 4096}"#);
        parts(&["cron", "heartbeat"]);
        setup
            .inputs
            .set_enabled("flux/sched-simple", true)
            .expect("a part");
        setup
            .inputs
            .set_enabled("flux/cron", false)
            .expect("a part");
        let read = parts(&["heartbeat", "sched-simple"]);
        assert_eq!(read.samples, 16);
        assert_eq!(
            modules(&setup),
            ["cron", "heartbeat", "sched-simple"]
                .map(str::to_owned)
                .into()
        );
        // Modules with statistics of their own have no counters.
        setup.inputs.set_enabled("flux/kvs", true).expect("a part");
        let with_kvs = parts(&["heartbeat", "kvs", "sched-simple"]);
        assert_eq!((with_kvs.samples, with_kvs.refused), (16, 0));
        let reason = with_kvs.first_refusal.as_deref();
        assert_eq!(reason, Some("without message counters: kvs"));
        setup.assert_conserved();
        let runs = fs::read_to_string(setup.dir.join("runs")).expect("it ran");
        let attempts = setup.status("flux").attempts as usize;
        // The last attempt may have been ended by the stop.
        assert!(
            (attempts..=attempts + 1).contains(&runs.lines().count()),
            "one process per poll"
        );
    }
}

#[test]
fn inputs_are_switched_by_name() {
    let setup = PullSetup::start(
        "exec: {name: a, command: [echo, 'a value=1'], enabled: false, interval: 100ms}",
    );
    assert_eq!(setup.status("a").state, PullState::Disabled);
    setup.inputs.set_enabled("a", true).expect("known");
    setup.wait_up("a");
    setup.inputs.set_enabled("a", false).expect("known");
    assert_eq!(setup.status("a").state, PullState::Disabled);
    let unknown = setup.inputs.set_enabled("b", true).expect_err("unknown");
    assert_eq!(unknown.to_string(), "no input has the name \"b\"");
    let without = setup.inputs.set_enabled("a/b", true).expect_err("no parts");
    assert!(without.to_string().contains("has no parts"), "{without}");
}
