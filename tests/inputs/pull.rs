//! Sources that the agent reads by itself: a real node_exporter, a real Apache, programs and files.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use pegel_testkit::{
    AgentProcess, ChildProcess, PrometheusProcess, TempDir, eventually, get, need,
};
use serde_json::Value;

use crate::PEGEL;

/// Returns the state of one input in `/status`.
fn input(agent: &AgentProcess, name: &str) -> Value {
    let status = agent.status();
    let inputs = status["pull"].as_array().expect("inputs").iter();
    let mut named = inputs.filter(|input| input["name"] == name);
    named.next().expect("it is configured").clone()
}

#[track_caller]
fn wait_for_state(agent: &AgentProcess, name: &str, state: &str) -> Value {
    eventually(&format!("{name} is {state}"), || {
        let found = input(agent, name);
        if found["state"] == state {
            Ok(found)
        } else {
            Err(found)
        }
    })
}

/// Encodes the characters of an expression that a URL does not permit.
fn encode(expression: &str) -> String {
    let encoded = expression.chars().map(|c| match c {
        '{' | '}' | '"' | '=' => format!("%{:X}", c as u32),
        c => c.to_string(),
    });
    encoded.collect()
}

/// Returns the series and values of an instant query.
fn query(agent: &AgentProcess, expression: &str) -> Vec<(Value, f64)> {
    let answer = agent
        .get(&format!("/api/v1/query?query={}", encode(expression)))
        .json();
    let found = answer["data"]["result"]
        .as_array()
        .expect("a vector")
        .clone();
    let number = |sample: &Value| sample["value"][1].as_str()?.parse().ok();
    let samples = found.into_iter();
    let samples = samples.map(|sample| {
        let value = number(&sample).expect("a number");
        (sample["metric"].clone(), value)
    });
    samples.collect()
}

#[test]
fn a_node_exporter_is_scraped_beside_the_nodes_own_metrics() {
    let Some(program) = need("prometheus-node-exporter") else {
        return;
    };
    let exporter = PrometheusProcess::start(&program, |_| Vec::new());
    let agent = PEGEL
        .agent()
        .config(&format!(
            "inputs:\n  prometheus: {{name: exporter, url: 'http://{}/metrics', labels: {{rack: r1}}}}\n",
            exporter.address
        ))
        .start();
    let up = wait_for_state(&agent, "exporter", "up");
    assert!(up["samples"].as_u64() > Some(100), "{up}");
    let theirs = query(&agent, "node_memory_MemTotal_bytes{job=\"exporter\"}");
    let [(labels, value)] = theirs.as_slice() else {
        panic!("one series: {theirs:?}");
    };
    assert_eq!(labels["instance"], exporter.address.to_string());
    assert_eq!(labels["rack"], "r1");
    let ours = query(&agent, "node_memory_MemTotal_bytes{job=\"node\"}");
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert_eq!(ours[0].1, *value, "both describe this machine");
    let metrics = agent.get("/metrics");
    let line = "\npegel_input_up{input=\"exporter\"} 1\n";
    eventually("the state of the input is a metric", || {
        let text = agent.get("/metrics").text().to_owned();
        text.contains(line).then_some(()).ok_or(text)
    });
    assert!(
        metrics.text().contains("\nnode_memory_MemTotal_bytes "),
        "the node's own"
    );
    // What is not a name of the node is found everywhere, with its type.
    let listed = agent
        .get("/api/v1/list?match=go_memstats_mallocs_total")
        .json();
    assert_eq!(listed[0]["type"], "counter", "{listed}");
    // What is one is found by PromQL alone: no output of this node mixes the two.
    let own = agent.get("/api/v1/list?match=node_load1").json();
    assert_eq!(own.as_array().map(Vec::len), Some(1), "{own}");
    agent.assert_conserved();
}

/// Runs Apache with a status page: plain, and with TLS and a password.
struct ApacheServer {
    home: TempDir,
    plain: String,
    encrypted: String,
    _process: ChildProcess,
}

const APACHE_MODULES: [&str; 8] = [
    "mpm_event",
    "authz_core",
    "authz_user",
    "authn_core",
    "authn_file",
    "auth_basic",
    "status",
    "ssl",
];

impl ApacheServer {
    fn start(program: &Path) -> ApacheServer {
        let home = TempDir::new();
        let path = |name: &str| home.join(name).display().to_string();
        let made = Command::new("openssl")
            .args([
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            ])
            .args([
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &path("key.pem"), "-out", &path("cert.pem")])
            .output()
            .expect("openssl runs");
        assert!(made.status.success(), "{made:?}");
        // The hash of `secret`.
        fs::write(
            home.join("users"),
            "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n",
        )
        .expect("written");
        fs::write(home.join("password"), "secret\n").expect("written");
        let free_port = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            listener.local_addr().expect("bound").to_string()
        };
        let (plain, encrypted) = (free_port(), free_port());
        let modules = APACHE_MODULES.map(|name| {
            format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
        });
        let config = format!(
            "ServerRoot {root}
ServerName localhost
PidFile {root}/pid
Mutex file:{root}
ErrorLog {root}/error.log
User daemon
{modules}Listen {plain}
Listen {encrypted}
<Location /server-status>
SetHandler server-status
</Location>
<VirtualHost {encrypted}>
SSLEngine on
SSLCertificateFile {root}/cert.pem
SSLCertificateKeyFile {root}/key.pem
<Location /server-status>
AuthType Basic
AuthName status
AuthUserFile {root}/users
Require valid-user
</Location>
</VirtualHost>
",
            root = home.path().display(),
            modules = modules.concat(),
        );
        fs::write(home.join("apache.conf"), config).expect("written");
        let mut command = Command::new(program);
        command.arg("-X").arg("-f").arg(home.join("apache.conf"));
        let process = ChildProcess::start(&mut command);
        let server = ApacheServer {
            plain: format!("http://{plain}/server-status?auto"),
            encrypted: format!("https://{encrypted}/server-status?auto"),
            home,
            _process: process,
        };
        let address = pegel_testkit::AgentAddress::Tcp(plain.parse().expect("an address"));
        eventually("Apache responds", || {
            get(&address, "/server-status?auto").map_err(|error| {
                let log = fs::read_to_string(server.home.join("error.log"));
                format!("{error}: {log:?}")
            })
        });
        server
    }
}

#[test]
fn two_apaches_are_read_with_credentials_and_tls() {
    let Some(program) = need("apache2") else {
        return;
    };
    let Some(_) = need("openssl") else { return };
    let server = ApacheServer::start(&program);
    let home = server.home.path().display();
    let config = format!(
        "inputs:
  apache:
  - {{name: plain, url: '{plain}', interval: 1s, timeout: 20s}}
  - {{name: tls, url: '{encrypted}', user: ada, password_file: {home}/password, ca_file: {home}/cert.pem, timeout: 20s}}
  - {{name: unverified, url: '{encrypted}', user: ada, password_file: {home}/password, verify_peer: false, timeout: 20s}}
  - {{name: untrusted, url: '{encrypted}', user: ada, password_file: {home}/password, timeout: 20s}}
  - {{name: denied, url: '{encrypted}', verify_peer: false, timeout: 20s}}
",
        plain = server.plain,
        encrypted = server.encrypted,
    );
    let agent = PEGEL.agent().config(&config).start();
    for name in ["plain", "tls", "unverified"] {
        wait_for_state(&agent, name, "up");
        let busy = query(&agent, &format!("apache_busy_workers{{job=\"{name}\"}}"));
        assert!(busy[0].1 >= 1.0, "it serves this request: {busy:?}");
        let idle = query(&agent, &format!("apache_idle_workers{{job=\"{name}\"}}"));
        assert!(idle[0].1 >= 1.0, "{idle:?}");
    }
    let states = query(&agent, "apache_scoreboard{job=\"plain\"}");
    assert_eq!(states.len(), 11, "{states:?}");
    let sending = states
        .iter()
        .find(|(labels, _)| labels["state"] == "sending");
    assert!(
        sending.is_some_and(|(_, count)| *count >= 1.0),
        "{states:?}"
    );
    eventually("requests are counted", || {
        let requests = query(&agent, "apache_requests_total{job=\"plain\"}");
        (requests[0].1 >= 1.0).then_some(()).ok_or(requests)
    });
    let untrusted = wait_for_state(&agent, "untrusted", "failing");
    let error = untrusted["error"].as_str().expect("an error");
    assert!(error.contains("certificate"), "{error}");
    let denied = wait_for_state(&agent, "denied", "failing");
    assert_eq!(denied["error"], "HTTP status 401");
    agent.assert_conserved();
}

#[test]
fn programs_and_files_are_read_and_survive_a_kill() {
    let dir = TempDir::new();
    fs::write(
        dir.join("x.prom"),
        "# TYPE raid_errors counter\nraid_errors{disk=\"sda\"} 3\n",
    )
    .expect("written");
    let config = format!(
        "inputs:
  exec:
  - {{name: once, command: [echo, '{{\"dimms\": 8}}'], format: json, once: true}}
  - {{name: broken, command: ['false'], interval: 100ms, max_interval: 300ms}}
  file: {{name: raid, path: {}/x.prom}}
",
        dir.path().display()
    );
    let start = || PEGEL.agent().dir(dir.join("store")).config(&config).start();
    let agent = start();
    wait_for_state(&agent, "once", "up");
    wait_for_state(&agent, "raid", "up");
    let broken = wait_for_state(&agent, "broken", "failing");
    assert_eq!(broken["error"], "exited with status 1");
    eventually("the interval doubles up to max_interval", || {
        let interval = input(&agent, "broken")["current_interval"].clone();
        (interval == 0.3).then_some(()).ok_or(interval)
    });
    eventually(
        "the values of a program that runs once are in the snapshot",
        || {
            let snapshot = agent.get("/api/v1/snapshot").json();
            let value = &snapshot["inputs"]["once"]["dimms{job=\"once\"}"];
            (*value == 8.0)
                .then_some(())
                .ok_or(snapshot["inputs"].clone())
        },
    );
    let doctor = agent.client(&["doctor"]);
    assert!(
        doctor.stdout.contains("exec broken: failed"),
        "{}",
        doctor.stdout
    );
    agent.assert_conserved();
    let matching = "/api/v1/range?start=-1h&match=raid_errors*";
    let before = agent.get(matching).json();
    agent.kill();
    let agent = start();
    let after = agent.get(matching).json();
    let first = |range: &Value| range[0]["points"][0].clone();
    assert!(first(&before).is_array(), "{before}");
    assert_eq!(first(&after), first(&before));
    assert_eq!(
        after[0]["labels"],
        serde_json::json!({"disk": "sda", "job": "raid"})
    );
    agent.assert_conserved();
}

#[test]
fn inputs_are_shown_and_switched_on_the_command_line() {
    let config = "inputs:
  exec:
  - {name: power, command: [echo, 'watts value=7'], interval: 100ms, enabled: false}
  - {name: broken, command: ['false'], interval: 100ms}
";
    let agent = PEGEL.agent().config(config).start();
    wait_for_state(&agent, "broken", "failing");
    let shown = agent.client(&["inputs"]);
    assert_eq!(shown.code(), Some(0), "{shown}");
    let line = |name: &str| {
        let mut lines = shown.stdout.lines();
        lines
            .find(|line| line.contains(name))
            .expect(name)
            .to_owned()
    };
    assert!(line("power").contains("disabled"), "{shown}");
    assert!(line("broken").contains("exited with status 1"), "{shown}");
    let enabled = agent.client(&["inputs", "enable", "power"]);
    assert_eq!(enabled.code(), Some(0), "{enabled}");
    wait_for_state(&agent, "power", "up");
    assert_eq!(query(&agent, "watts")[0].1, 7.0);
    let disabled = agent.client(&["inputs", "disable", "power"]);
    assert_eq!(disabled.code(), Some(0), "{disabled}");
    assert_eq!(input(&agent, "power")["state"], "disabled");
    for (name, message) in [
        ("none", "no input has the name"),
        ("power/kvs", "has no parts"),
    ] {
        let failed = agent.client(&["inputs", "enable", name]);
        assert_ne!(failed.code(), Some(0), "{failed}");
        assert!(failed.stderr.contains(message), "{failed}");
    }
    agent.assert_conserved();
}
