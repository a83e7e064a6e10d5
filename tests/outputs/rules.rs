//! Rules of a real agent: their series, their alerts and the receivers of these.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use pegel_testkit::{
    AgentBuilder, AgentProcess, PrometheusProcess, TempDir, eventually, get, need, set_mode,
};
use rustix::process::Signal;
use serde_json::Value;

use crate::PEGEL;

/// An alert for the series `heat`, which tests push.
const HOT: &str = r#"
groups:
- name: heat
  interval: 200ms
  rules:
  - record: heat:double
    expr: heat * 2
  - alert: Hot
    expr: heat:double > 2
    labels: {severity: page}
    annotations: {summary: "{{ $value | humanize }} degrees"}
"#;

/// Returns an agent with these rules and this section `alerts`.
fn agent(home: &TempDir, rules: &str, alerts: &str) -> AgentBuilder {
    fs::write(home.join("rules.yml"), rules).expect("written");
    // By default `instance` contains the port, which differs from start to start here.
    let config =
        format!("rules: [rules.yml]\nalerts: {alerts}\npromql: {{instance: n1, job: node}}\n");
    fs::write(home.join("pegel.yaml"), config).expect("written");
    let file = home.join("pegel.yaml");
    PEGEL
        .agent()
        .dir(home.join("store"))
        .args(&["--config", file.to_str().expect("UTF-8")])
}

fn push(agent: &AgentProcess, value: f64) {
    let finished = agent.client(&["push", &format!("heat={value}")]);
    assert_eq!(finished.code(), Some(0), "{finished}");
}

fn data(agent: &AgentProcess, path: &str) -> Value {
    let mut body = agent.get(path).json();
    assert_eq!(body["status"], "success", "{body}");
    body["data"].take()
}

/// Returns the states of all active alerts by name.
fn alert_states(agent: &AgentProcess) -> Vec<String> {
    let alerts = data(agent, "/api/v1/alerts")["alerts"].take();
    let alerts = alerts.as_array().expect("a list");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    alerts
        .iter()
        .map(|alert| {
            format!(
                "{} {}",
                text(&alert["labels"]["alertname"]),
                text(&alert["state"])
            )
        })
        .collect()
}

fn wait_for_states(agent: &AgentProcess, expected: &[&str]) {
    eventually("the alerts have these states", || {
        let states = alert_states(agent);
        if states == expected {
            Ok(())
        } else {
            Err(format!("{states:?}, not {expected:?}"))
        }
    });
}

fn wait_for_metric(agent: &AgentProcess, text: &str) {
    eventually("the metric has this value", || {
        let metrics = agent.get("/metrics").text().to_owned();
        let is_own = |line: &&str| !line.starts_with("node_") && !line.starts_with('#');
        let own: Vec<&str> = metrics.lines().filter(is_own).collect();
        if metrics.contains(text) {
            Ok(())
        } else {
            Err(own.join("\n"))
        }
    });
}

/// A server that records the bodies of requests and answers with one status after the other; the
/// last one stays.
struct HookServer {
    url: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl HookServer {
    fn start(statuses: &'static [u16]) -> HookServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/hook?a=b", listener.local_addr().expect("bound"));
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let received = bodies.clone();
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut request = Vec::new();
                let body = loop {
                    let mut buffer = [0; 4096];
                    let count = stream.read(&mut buffer).expect("readable");
                    request.extend_from_slice(&buffer[..count]);
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else {
                        continue;
                    };
                    assert!(head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{head}");
                    let length = head.to_ascii_lowercase();
                    let length = length.split("content-length: ").nth(1).expect("a length");
                    let length: usize = { length.lines().next() }
                        .and_then(|length| length.parse().ok())
                        .expect("a number");
                    if body.len() >= length {
                        break body.to_owned();
                    }
                };
                let mut received = received.lock();
                let status = statuses[received.len().min(statuses.len() - 1)];
                received.push(serde_json::from_str(&body).expect("JSON"));
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
                // Fails if the client has closed the connection.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        HookServer { url, bodies }
    }

    /// Waits for the status of each of this many requests.
    fn statuses(&self, count: usize) -> Vec<Value> {
        eventually("the hook is called", || {
            let bodies = self.bodies.lock();
            let statuses: Vec<Value> = bodies.iter().map(|body| body["status"].clone()).collect();
            if statuses.len() >= count {
                Ok(statuses)
            } else {
                Err(format!("{statuses:?}"))
            }
        })
    }
}

fn start_alertmanager(program: &Path, args: &[String]) -> PrometheusProcess {
    PrometheusProcess::start(program, |home| {
        let config = home.join("alertmanager.yml");
        let text = "route: {receiver: none}\nreceivers: [{name: none}]\n";
        fs::write(&config, text).expect("written");
        let own = [
            format!("--config.file={}", config.display()),
            format!("--storage.path={}", home.join("data").display()),
            "--cluster.listen-address=".to_owned(),
        ];
        own.iter().chain(args).cloned().collect()
    })
}

#[test]
fn an_alert_and_its_resolution_reach_a_real_alertmanager() {
    let Some(program) = need("prometheus-alertmanager") else {
        return;
    };
    let alertmanager = start_alertmanager(&program, &[]);
    let alerts = || alertmanager.get("/api/v2/alerts").json();
    let home = TempDir::new();
    let url = format!("http://{}", alertmanager.address);
    let settings = format!("{{alertmanagers: [\"{url}\"], external_labels: {{site: north}}}}");
    let agent = agent(&home, HOT, &settings).start();
    push(&agent, 21.0);
    let alert = eventually("Alertmanager has the alert", || {
        let alerts = alerts();
        alerts.get(0).cloned().ok_or_else(|| alerts.to_string())
    });
    assert_eq!(alert["labels"]["alertname"], "Hot");
    assert_eq!(alert["labels"]["severity"], "page");
    assert_eq!(alert["labels"]["site"], "north");
    assert_eq!(alert["annotations"]["summary"], "42 degrees");
    push(&agent, 1.0);
    // Without the resolution it would end only after four minutes.
    eventually("Alertmanager resolved the alert", || {
        let alerts = alerts();
        if alerts.get(0).is_none() {
            Ok(())
        } else {
            Err(alerts.to_string())
        }
    });
    let name = format!("pegel_alerts_sent_total{{receiver=\"{url}\"}}");
    wait_for_metric(&agent, &name);
}

#[test]
fn alerts_are_sent_over_tls_to_a_server_with_a_known_certificate() {
    let (Some(program), Some(openssl)) = (need("prometheus-alertmanager"), need("openssl")) else {
        return;
    };
    let home = TempDir::new();
    let created = Command::new(openssl)
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-days",
            "1",
            "-subj",
            "/CN=alertmanager",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(home.path())
        .output()
        .expect("openssl");
    assert!(created.status.success(), "{created:?}");
    let path = |name: &str| home.join(name).display().to_string();
    let web = format!(
        "tls_server_config: {{cert_file: {}, key_file: {}}}\n",
        path("cert.pem"),
        path("key.pem")
    );
    fs::write(home.join("web.yml"), web).expect("written");
    let alertmanager = start_alertmanager(
        &program,
        &[format!("--web.config.file={}", path("web.yml"))],
    );
    let url = format!("https://{}", alertmanager.address);
    let ca = path("cert.pem");
    let trusting = agent(
        &home,
        HOT,
        &format!("{{alertmanagers: [\"{url}\"], ca_file: {ca}}}"),
    )
    .start();
    push(&trusting, 21.0);
    wait_for_metric(
        &trusting,
        &format!("pegel_alerts_sent_total{{receiver=\"{url}\"}} 1"),
    );
    trusting.stop();
    // The authorities of the system do not know the certificate.
    let wary = agent(&home, HOT, &format!("{{alertmanagers: [\"{url}\"]}}")).start();
    push(&wary, 21.0);
    wait_for_metric(
        &wary,
        &format!("pegel_alerts_send_errors_total{{receiver=\"{url}\"}} 1"),
    );
    wait_for_metric(
        &wary,
        &format!("pegel_alerts_sent_total{{receiver=\"{url}\"}} 0"),
    );
}

#[test]
fn a_webhook_gets_changes_and_failed_attempts_are_repeated() {
    let hook = HookServer::start(&[500, 200]);
    let home = TempDir::new();
    let agent = agent(&home, HOT, &format!("{{webhooks: [\"{}\"]}}", hook.url)).start();
    push(&agent, 21.0);
    assert_eq!(
        hook.statuses(2),
        ["firing", "firing"],
        "repeated after the error"
    );
    push(&agent, 1.0);
    assert_eq!(hook.statuses(3), ["firing", "firing", "resolved"]);
    let body = hook.bodies.lock()[2].clone();
    assert_eq!(body["version"], "4");
    assert_eq!(body["groupLabels"]["alertname"], "Hot");
    assert_eq!(body["alerts"][0]["labels"]["severity"], "page");
    assert_eq!(body["alerts"][0]["annotations"]["summary"], "42 degrees");
    // The path of a webhook may be a secret.
    let shown = hook.url.split("/hook").next().expect("a prefix");
    let errors = format!("pegel_alerts_send_errors_total{{receiver=\"{shown}\"}} 1");
    wait_for_metric(&agent, &errors);
}

#[test]
fn a_command_gets_alerts_on_standard_input() {
    let home = TempDir::new();
    let (out, program) = (home.join("out.json"), home.join("notify"));
    // Arguments are not expanded by a shell.
    let script = format!("#!/bin/sh\ncat >> {}\necho \" $1\" >> {0}\n", out.display());
    fs::write(&program, script).expect("written");
    set_mode(&program, 0o755);
    let settings = format!("{{command: [\"{}\", \"$HOME; *\"]}}", program.display());
    let agent = agent(&home, HOT, &settings).start();
    push(&agent, 21.0);
    let lines = |count: usize| {
        eventually("the command ran", || {
            let text = fs::read_to_string(&out).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            // The command ends its line last.
            if lines.len() == count && text.ends_with('\n') {
                Ok(lines)
            } else {
                Err(text)
            }
        })
    };
    lines(1);
    push(&agent, 1.0);
    for (line, status) in lines(2).iter().zip(["firing", "resolved"]) {
        let body = line
            .strip_suffix(" $HOME; *")
            .expect("the argument as configured");
        let body: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body["status"], status);
    }
}

#[test]
fn rules_and_alerts_are_shown_by_the_api_and_the_commands() {
    let home = TempDir::new();
    let rules = format!(
        "{HOT}  - {{record: broken, expr: node_cpu_seconds_total, labels: {{cpu: '', mode: ''}}}}\n"
    );
    let agent = agent(&home, &rules, "{}").start();
    push(&agent, 21.0);
    wait_for_states(&agent, &["Hot firing"]);
    let groups = data(&agent, "/api/v1/rules")["groups"].take();
    let group = &groups[0];
    assert_eq!(
        (&group["name"], &group["interval"]),
        (&"heat".into(), &0.2.into())
    );
    let [record, alert, broken] = &group["rules"].as_array().expect("a list")[..] else {
        panic!("{group}");
    };
    assert_eq!(
        (&record["type"], &record["health"]),
        (&"recording".into(), &"ok".into())
    );
    assert_eq!(
        (&alert["type"], &alert["state"]),
        (&"alerting".into(), &"firing".into())
    );
    assert_eq!(alert["alerts"][0]["value"], "4.2e+01");
    assert_eq!(broken["health"], "err");
    let error = broken["lastError"].as_str().expect("an error");
    assert!(
        error.contains("same labelset after applying rule labels"),
        "{error}"
    );
    let only = data(&agent, "/api/v1/rules?type=record&rule_name[]=broken")["groups"].take();
    assert_eq!(only[0]["rules"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        get(agent.http(), "/api/v1/rules?type=x")
            .expect("answered")
            .status,
        400
    );

    let table = agent.client(&["alerts"]);
    assert!(table.stdout.contains("firing  Hot"), "{table}");
    assert!(table.stdout.contains("42 degrees"), "{table}");
    let list = agent.client(&["rules", "list"]);
    assert!(list.stdout.contains("heat:double  recording  ok"), "{list}");
    wait_for_metric(&agent, "\nheat:double{instance=\"n1\",job=\"node\"} 42\n");
    wait_for_metric(&agent, "ALERTS{alertname=\"Hot\",alertstate=\"firing\"");
    eventually("failures are counted", || {
        let metrics = agent.get("/metrics").text().to_owned();
        let failures = metrics
            .lines()
            .find(|line| line.starts_with("pegel_rule_evaluation_failures_total"))
            .and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        let is_counted = failures.is_some_and(|count| count >= 1.0);
        if is_counted { Ok(()) } else { Err(metrics) }
    });
    agent.assert_conserved();

    push(&agent, 1.0);
    wait_for_states(&agent, &[]);
    eventually("the series of the alert has ended", || {
        let metrics = agent.get("/metrics").text().to_owned();
        if metrics.contains("ALERTS") {
            Err(metrics)
        } else {
            Ok(())
        }
    });
}

/// Rules of every kind and state.
const ALL_STATES: &str = r#"
groups:
- name: all
  interval: 200ms
  limit: 3
  rules:
  - {record: "a:labels", expr: "vector(2)", labels: {k: v}}
  - {record: "a:plain", expr: "vector(2)"}
  - {alert: Now, expr: "vector(1.5)", labels: {severity: page}, annotations: {text: "{{ $value }}"}}
  - {alert: Later, expr: "vector(1)", for: 5m}
  - {alert: Never, expr: "vector(1) > 2", keep_firing_for: 1m}
  - record: broken
    expr: label_replace(vector(1), "a", "x", "", "") or label_replace(vector(1), "a", "y", "", "")
    labels: {a: same}
"#;

/// Removes what differs between two servers: times, and the directory of the file.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["evaluationTime", "lastEvaluation", "activeAt", "file"] {
                if let Some(field) = fields.get_mut(name) {
                    let kind = if field.is_number() {
                        "a number"
                    } else {
                        "a text"
                    };
                    *field = kind.into();
                }
            }
            fields.values_mut().for_each(without_times);
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        _ => {}
    }
}

#[test]
fn rules_and_alerts_look_as_in_a_real_prometheus() {
    let Some(program) = need("prometheus") else {
        return;
    };
    let prometheus = PrometheusProcess::start(&program, |home| {
        fs::write(home.join("rules.yml"), ALL_STATES).expect("written");
        let config = home.join("prometheus.yml");
        fs::write(&config, "rule_files: [rules.yml]\n").expect("written");
        vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", home.join("data").display()),
        ]
    });
    let home = TempDir::new();
    let agent = agent(&home, ALL_STATES, "{}").start();
    for path in [
        "/api/v1/rules",
        "/api/v1/alerts",
        "/api/v1/rules?type=alert",
    ] {
        eventually("both answer the same", || {
            let (mut theirs, mut ours) = (prometheus.get(path).json(), agent.get(path).json());
            without_times(&mut theirs);
            without_times(&mut ours);
            let is_evaluated = theirs.to_string().contains("\"firing\"");
            if is_evaluated && theirs == ours {
                Ok(())
            } else {
                Err(format!("theirs: {theirs}\nours: {ours}"))
            }
        });
    }
}

#[test]
fn a_pending_alert_survives_kill_9() {
    let home = TempDir::new();
    let rules = HOT.replace(
        "    labels: {severity",
        "    for: 1h\n    labels: {severity",
    );
    let active_at = |agent: &AgentProcess| {
        let alerts = data(agent, "/api/v1/alerts")["alerts"].take();
        alerts[0]["activeAt"].as_str().expect("a time").to_owned()
    };
    let first = agent(&home, &rules, "{}").start();
    push(&first, 21.0);
    wait_for_states(&first, &["Hot pending"]);
    let before = active_at(&first);
    // Stored twice at least: the second evaluation after the one that created it.
    let evaluated = || data(&first, "/api/v1/rules")["groups"][0]["lastEvaluation"].take();
    let seen = evaluated();
    eventually("it was evaluated again", || {
        if evaluated() == seen {
            Err("not yet")
        } else {
            Ok(())
        }
    });
    first.kill();
    let second = agent(&home, &rules, "{}").start();
    let started = second.status()["started"].as_i64().expect("a time");
    push(&second, 21.0);
    wait_for_states(&second, &["Hot pending"]);
    let after = active_at(&second);
    let to_millis = |text: &str| -> i64 {
        let time: jiff::Timestamp = text.parse().expect("a time");
        time.as_millisecond()
    };
    // The time without an agent does not count; everything before it does.
    assert!(
        to_millis(&after) < started,
        "{before} → {after}, started {started}"
    );
    assert!(
        to_millis(&after) >= to_millis(&before) / 1_000 * 1_000,
        "{before} → {after}"
    );
}

#[test]
fn a_hangup_reads_rule_files_again_and_keeps_state() {
    let home = TempDir::new();
    let agent = agent(&home, HOT, "{}").start();
    push(&agent, 21.0);
    wait_for_states(&agent, &["Hot firing"]);
    let since = || data(&agent, "/api/v1/alerts")["alerts"][0]["activeAt"].take();
    let before = since();
    let more = format!("{HOT}  - {{alert: Always, expr: vector(1)}}\n");
    fs::write(home.join("rules.yml"), &more).expect("written");
    agent.signal(Signal::HUP);
    wait_for_states(&agent, &["Hot firing", "Always firing"]);
    assert_eq!(since(), before);
    // A file with an error changes nothing.
    fs::write(home.join("rules.yml"), "groups: 3\n").expect("written");
    agent.signal(Signal::HUP);
    eventually("the error is logged", || {
        let log = agent.stderr();
        if log.contains("keeping the rules in force") {
            Ok(())
        } else {
            Err(log)
        }
    });
    assert_eq!(alert_states(&agent), ["Hot firing", "Always firing"]);
}

#[test]
fn bad_rule_files_prevent_the_start_and_without_rules_nothing_runs() {
    let home = TempDir::new();
    let finished = agent(&home, "groups: 3\n", "{}").run();
    assert_ne!(finished.code(), Some(0), "{finished}");
    assert!(
        finished
            .stderr
            .contains("rules.yml:1:9: groups: expected a list"),
        "{finished}"
    );
    let reserved = "groups:\n- name: g\n  rules:\n  - {record: node_load1, expr: vector(1)}\n";
    let finished = agent(&home, reserved, "{}").run();
    assert_ne!(finished.code(), Some(0), "{finished}");
    let message = "rules.yml:4: node_load1 is the name of a metric of this node";
    assert!(finished.stderr.contains(message), "{finished}");
    let without = PEGEL.agent().start();
    let status = without.status();
    let threads = status["threads"].as_array().expect("a list");
    assert!(
        threads.iter().all(|thread| thread["name"] != "rules"),
        "{status}"
    );
    assert_eq!(
        data(&without, "/api/v1/rules")["groups"],
        serde_json::json!([])
    );
    let finished = without.client(&["alerts"]);
    assert_eq!(finished.stdout, "no alerts\n", "{finished}");
}
