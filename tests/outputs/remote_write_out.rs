//! Remote write out of a real agent: to Debian's Prometheus and VictoriaMetrics, to another agent,
//! and to a receiver that fails; processes on either side are killed. With TLS and a password too.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pegel_testkit::{
    AgentAddress, AgentProcess, CertificateSigner, ChildProcess, PLANTED_TOKEN, TempDir,
    WriteFault, WriteReceiver, assert_token_absent, curl, eventually_within, get, need, now_millis,
    post,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::PEGEL;

/// On a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(90);

/// A receiver that keeps its port and its directory over restarts.
pub(crate) struct ReceiverProcess {
    program: PathBuf,
    args: Vec<String>,
    pub(crate) address: AgentAddress,
    health: &'static str,
    process: Option<ChildProcess>,
    _home: TempDir,
}

impl ReceiverProcess {
    /// Starts a Prometheus that accepts remote write.
    pub(crate) fn prometheus() -> Option<ReceiverProcess> {
        let program = need("prometheus")?;
        let home = TempDir::new();
        let config = home.join("prometheus.yml");
        fs::write(&config, "global: {scrape_interval: 1h}\n").expect("written");
        let address = free_address();
        let args = vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", home.join("data").display()),
            format!("--web.listen-address={address}"),
            "--web.enable-remote-write-receiver".to_owned(),
        ];
        Some(ReceiverProcess::start(
            program, args, address, "/-/ready", home,
        ))
    }

    pub(crate) fn victoria() -> Option<ReceiverProcess> {
        ReceiverProcess::victoria_with(&[])
    }

    /// Starts a VictoriaMetrics with more arguments.
    pub(crate) fn victoria_with(more: &[&str]) -> Option<ReceiverProcess> {
        let program = need("victoria-metrics")?;
        let home = TempDir::new();
        let address = free_address();
        let mut args = vec![
            format!("-storageDataPath={}", home.join("data").display()),
            format!("-httpListenAddr={address}"),
        ];
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        Some(ReceiverProcess::start(
            program, args, address, "/health", home,
        ))
    }

    fn start(
        program: PathBuf,
        args: Vec<String>,
        address: SocketAddr,
        health: &'static str,
        home: TempDir,
    ) -> ReceiverProcess {
        let mut receiver = ReceiverProcess {
            program,
            args,
            address: AgentAddress::Tcp(address),
            health,
            process: None,
            _home: home,
        };
        receiver.restart();
        receiver
    }

    /// Kills it, and starts it again. VictoriaMetrics gets SIGTERM: what it confirmed in its last
    /// seconds is in memory only, and lost with SIGKILL.
    pub(crate) fn restart(&mut self) {
        if let Some(process) = self.process.take() {
            if self.health == "/health" {
                process.signal(Signal::TERM);
                process.wait(BOUND);
            } else {
                process.kill();
            }
        }
        let mut process = ChildProcess::start(Command::new(&self.program).args(&self.args));
        eventually_within(BOUND, "the receiver is ready", || {
            assert!(!process.has_ended(), "{}", process.output());
            let answer = get(&self.address, self.health).map_err(|error| error.to_string())?;
            let is_ready = answer.status == 200;
            is_ready.then_some(()).ok_or_else(|| process.output())
        });
        self.process = Some(process);
    }

    /// Kills it. `restart` starts it again.
    pub(crate) fn kill(&mut self) {
        let process = self.process.take().expect("it runs");
        process.kill();
    }

    /// Returns the URL before `/api/v1`.
    pub(crate) fn base_url(&self) -> String {
        let AgentAddress::Tcp(address) = &self.address else {
            unreachable!("it listens on TCP");
        };
        format!("http://{address}")
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/api/v1/write", self.base_url())
    }
}

/// Returns an address that was free.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("bound")
}

fn start(dir: &TempDir, listen: SocketAddr, remote_write: &str) -> AgentProcess {
    let config = format!("node: n1\nrate: 250ms\nremote_write: [{remote_write}]\n");
    PEGEL
        .agent()
        .dir(dir.join("store"))
        .listen(&[&listen.to_string()])
        .config(&config)
        .start()
}

/// Stores a value that no decimal number represents exactly.
pub(crate) fn put(agent: &AgentProcess, metric: &str, time: i64, value: f64) {
    let body = json!([{"metric": metric, "timestamp": time, "value": value, "tags": {"k": "a"}}]);
    let headers = [("Content-Type", "application/json")];
    let answer = post(
        agent.http(),
        "/api/put",
        &headers,
        body.to_string().as_bytes(),
    );
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 204, "{}", answer.text());
}

pub(crate) fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Series and their samples, as text.
pub(crate) type SampleTexts = BTreeMap<String, Vec<(i64, String)>>;

/// Returns the samples of the last `seconds` before a time in milliseconds.
pub(crate) fn samples(
    address: &AgentAddress,
    selector: &str,
    seconds: i64,
    end: i64,
) -> SampleTexts {
    let path = samples_path(selector, seconds, end);
    parse_samples(&get(address, &path).expect("an answer").json())
}

fn samples_path(selector: &str, seconds: i64, end: i64) -> String {
    let expression = encode(&format!("{selector}[{seconds}s]"));
    let time = format!("{}.{:03}", end / 1000, end % 1000);
    format!("/api/v1/query?time={time}&query={expression}")
}

fn parse_samples(answer: &Value) -> SampleTexts {
    let series = answer["data"]["result"].as_array();
    let series = series.unwrap_or_else(|| panic!("{answer}"));
    let list = |one: &Value| {
        let values = one["values"].as_array().expect("samples").iter();
        let values = values.map(|value| {
            let time = (value[0].as_f64().expect("a time") * 1000.0).round() as i64;
            (time, value[1].as_str().expect("a value").to_owned())
        });
        (one["metric"].to_string(), values.collect())
    };
    series.iter().map(list).collect()
}

/// Returns what VictoriaMetrics has, without what it got twice.
fn exported(
    victoria: &ReceiverProcess,
    selector: &str,
    (start, end): (i64, i64),
) -> BTreeMap<String, BTreeMap<i64, f64>> {
    get(&victoria.address, "/internal/force_flush").expect("flushed");
    let seconds = |time: i64| format!("{}.{:03}", time / 1000, time % 1000);
    let path = format!(
        "/api/v1/export?match[]={}&start={}&end={}",
        encode(selector),
        seconds(start),
        seconds(end)
    );
    let answer = get(&victoria.address, &path).expect("an answer");
    let mut found: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
    for line in answer.text().lines() {
        let one: Value = serde_json::from_str(line).expect("JSON");
        let times = one["timestamps"].as_array().expect("times").iter();
        let values = one["values"].as_array().expect("values").iter();
        let pairs = times.zip(values).map(|(time, value)| {
            let value = value.as_f64().unwrap_or(f64::NAN);
            (time.as_i64().expect("a time"), value)
        });
        let list = found.entry(one["metric"].to_string()).or_default();
        list.extend(pairs);
    }
    found
}

/// Returns the state of a target in `/status`.
fn target(agent: &AgentProcess, name: &str) -> Value {
    let status = agent.status();
    let targets = status["remote_write_out"].as_array().expect("a list");
    let found = targets.iter().find(|target| target["target"] == name);
    found.unwrap_or_else(|| panic!("{status}")).clone()
}

/// Waits until everything up to a time is confirmed.
#[track_caller]
pub(crate) fn until_sent(agent: &AgentProcess, name: &str, time: i64) -> Value {
    eventually_within(BOUND, "everything is sent", || {
        let target = target(agent, name);
        let newest = target["newest_sent"].as_i64();
        let is_sent = newest >= Some(time) && target["pending"] == 0;
        if is_sent { Ok(target) } else { Err(target) }
    })
}

const SELECTOR: &str =
    "{__name__=~\"ladder|node_load.*|node_memory_Mem.*|node_cpu_seconds_total\"}";

#[test]
fn every_sample_arrives_when_either_side_is_killed() {
    let (Some(mut prometheus), Some(mut victoria)) =
        (ReceiverProcess::prometheus(), ReceiverProcess::victoria())
    else {
        return;
    };
    let (dir, listen) = (TempDir::new(), free_address());
    let targets = format!(
        "{{url: '{}', name: prometheus, interval: 200ms, shards: 2}}, \
         {{url: '{}', name: victoria, interval: 200ms, max_samples_per_send: 500}}",
        prometheus.url(),
        victoria.url()
    );
    let began = now_millis();
    let mut agent = start(&dir, listen, &targets);
    let mut step = 0;
    let mut climb = |agent: &AgentProcess, seconds: u64| {
        let until = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < until {
            step += 1;
            put(agent, "ladder", now_millis(), f64::from(step).sqrt());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    climb(&agent, 2);
    for round in 0..3 {
        agent.kill();
        agent = start(&dir, listen, &targets);
        climb(&agent, 1);
        match round {
            0 => prometheus.restart(),
            1 => victoria.restart(),
            _ => {
                prometheus.restart();
                victoria.restart();
            }
        }
        climb(&agent, 1);
    }
    let end = now_millis();
    std::thread::sleep(Duration::from_millis(700));
    for name in ["prometheus", "victoria"] {
        let target = until_sent(&agent, name, end);
        assert_eq!(target["dropped"]["refused"], 0, "{target}");
        assert_eq!(target["dropped"]["lag"], 0, "{target}");
    }
    let seconds = (end - began) / 1000 + 1;
    let own = samples(agent.http(), SELECTOR, seconds, end);
    assert!(own.len() > 5, "{own:?}");
    let ladder = own.iter().find(|(labels, _)| labels.contains("ladder"));
    let (labels, rungs) = ladder.expect("stored");
    assert_eq!(rungs.len(), step as usize);
    assert!(
        labels.contains("\"job\":\"pegel\"") || labels.contains("\"job\":\"node\""),
        "{labels}"
    );
    let received = samples(&prometheus.address, SELECTOR, seconds, end);
    assert_eq!(
        received.keys().collect::<Vec<_>>(),
        own.keys().collect::<Vec<_>>()
    );
    for (labels, list) in &own {
        assert_eq!(&received[labels], list, "{labels}");
    }
    let received = exported(&victoria, SELECTOR, (end - seconds * 1000 + 1, end));
    for (labels, list) in &own {
        let found = &received[labels];
        let times = |list: &[(i64, String)]| list.iter().map(|(time, _)| *time).collect::<Vec<_>>();
        assert_eq!(
            found.keys().copied().collect::<Vec<_>>(),
            times(list),
            "{labels}"
        );
        for (time, value) in list {
            // It does not keep all bits of a value.
            let value: f64 = value.parse().expect("a number");
            let difference = (found[time] - value).abs();
            assert!(
                difference <= value.abs() * 1e-9,
                "{labels} at {time}: {value}"
            );
        }
    }
}

/// The receiver fails, loses answers and is slow while the agent is killed again and again. Every
/// request is new or one that came before.
#[test]
fn a_killed_agent_repeats_requests_and_nothing_else() {
    let receiver = WriteReceiver::start();
    let (dir, listen) = (TempDir::new(), free_address());
    let keys = "interval: 100ms, shards: 3, max_samples_per_send: 40";
    let remote_write = format!(
        "{{url: '{}', name: r, keep: [ladder, node_load1], {keys}}}",
        receiver.url
    );
    let mut put_values = Vec::new();
    let mut agent = start(&dir, listen, &remote_write);
    for round in 0..6 {
        for fault in [
            WriteFault::Status(503, ""),
            WriteFault::LostAnswer,
            WriteFault::Slow(Duration::from_millis(150)),
            WriteFault::Status(429, "Retry-After: 1\r\n"),
        ] {
            receiver.fail_next(fault);
        }
        for step in 0..30 {
            let (time, value) = (now_millis(), f64::from(round * 100 + step) / 7.0);
            put(&agent, "ladder", time, value);
            put_values.push((time, value.to_bits()));
            std::thread::sleep(Duration::from_millis(10));
        }
        agent.kill();
        agent = start(&dir, listen, &remote_write);
    }
    let end = now_millis();
    let target = until_sent(&agent, "r", end);
    assert_eq!(target["dropped"]["refused"], 0, "{target}");
    let mut stored: Vec<_> = receiver.requests();
    stored.retain(|request| request.is_stored);
    // At least once: a request that is not new is one of those before, bit for bit.
    let mut arrived = Vec::new();
    let mut newest: BTreeMap<String, i64> = BTreeMap::new();
    for (at, request) in stored.iter().enumerate() {
        if stored[..at]
            .iter()
            .any(|before| before.series == request.series)
        {
            continue;
        }
        for (labels, list) in &request.series {
            for (time, value) in list {
                let last = newest.insert(labels.clone(), *time);
                assert!(last.is_none_or(|last| last < *time), "{labels} at {time}");
                if labels.starts_with("ladder") {
                    arrived.push((*time, *value));
                }
            }
        }
    }
    put_values.dedup_by_key(|(time, _)| *time);
    assert_eq!(arrived, put_values);
    // And restarting without a receiver in the configuration leaves nothing behind.
    agent.stop();
    let agent = PEGEL.agent().dir(dir.join("store")).start();
    let left = fs::read_dir(dir.join("store/outgoing")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
    drop(agent);
}

/// What bcrypt makes of [`PLANTED_TOKEN`].
const PASSWORD_HASH: &str = "$2b$04$abcdefghijklmnopqrstuuZBj50tMO2aqhGHuBeTi1pxiJQiTjqtu";

/// A Prometheus that accepts remote write over TLS, from the user `pegel` with the password
/// [`PLANTED_TOKEN`].
struct ProtectedPrometheus {
    process: ChildProcess,
    address: SocketAddr,
    authority: String,
    _home: TempDir,
}

impl ProtectedPrometheus {
    fn start(program: &Path, signer: &CertificateSigner) -> ProtectedPrometheus {
        let home = TempDir::new();
        let (config, web) = (home.join("prometheus.yml"), home.join("web.yml"));
        fs::write(&config, "global: {scrape_interval: 1h}\n").expect("written");
        signer.sign("receiver");
        let text = format!(
            "tls_server_config:\n  cert_file: {}\n  key_file: {}\n\
             basic_auth_users:\n  pegel: '{PASSWORD_HASH}'\n",
            signer.path("receiver.pem"),
            signer.path("receiver.key"),
        );
        fs::write(&web, text).expect("written");
        let address = free_address();
        let process = ChildProcess::start(Command::new(program).args([
            format!("--config.file={}", config.display()),
            format!("--web.config.file={}", web.display()),
            format!("--storage.tsdb.path={}", home.join("data").display()),
            format!("--web.listen-address={address}"),
            "--web.enable-remote-write-receiver".to_owned(),
        ]));
        let mut prometheus = ProtectedPrometheus {
            process,
            address,
            authority: signer.path("ca.pem"),
            _home: home,
        };
        eventually_within(BOUND, "the receiver is ready", || {
            let output = prometheus.process.output();
            assert!(!prometheus.process.has_ended(), "{output}");
            match prometheus.ask("/-/ready") {
                (200, _) => Ok(()),
                (_, answer) => Err(answer + &output),
            }
        });
        prometheus
    }

    /// Returns the status of a response, and what curl wrote.
    fn ask(&self, path: &str) -> (u16, String) {
        let url = format!("https://{}{path}", self.address);
        let user = format!("pegel:{PLANTED_TOKEN}");
        curl(&["--cacert", &self.authority, "--user", &user, &url])
    }

    /// Returns the samples of a series of one receiver.
    fn samples(&self, selector: &str, seconds: i64, end: i64) -> SampleTexts {
        let (status, output) = self.ask(&samples_path(selector, seconds, end));
        assert_eq!(status, 200, "{output}");
        let body = output.split("\r\n\r\n").nth(1).expect("a body");
        let body = body.lines().next().expect("a line");
        parse_samples(&serde_json::from_str(body).expect("JSON"))
    }
}

/// While the password is wrong, samples wait; a renewed file is read again. A receiver whose
/// certificate is not trusted gets no request.
#[test]
fn a_prometheus_with_tls_and_a_password_receives() {
    let (Some(program), Some(_), Some(_)) = (need("prometheus"), need("openssl"), need("curl"))
    else {
        return;
    };
    let (signer, stranger) = (CertificateSigner::create(), CertificateSigner::create());
    let prometheus = ProtectedPrometheus::start(&program, &signer);
    let (dir, listen) = (TempDir::new(), free_address());
    let password = |name: &str, text: &str| {
        let (path, new) = (dir.join(name), dir.join("new"));
        fs::write(&new, text).expect("written");
        fs::rename(&new, &path).expect("renamed");
        path.display().to_string()
    };
    let right = password("right", &format!("{PLANTED_TOKEN}\n"));
    let renewed = password("renewed", "expired\n");
    let entry = |name: &str, file: &str, authority: &str| {
        format!(
            "{{url: 'https://{}/api/v1/write', name: {name}, user: pegel, password_file: '{file}', \
             ca_file: '{authority}', interval: 200ms, external_labels: {{receiver: {name}}}}}",
            prometheus.address
        )
    };
    let targets = [
        entry("right", &right, &prometheus.authority),
        entry("renewed", &renewed, &prometheus.authority),
        entry("untrusted", &right, &stranger.path("ca.pem")),
    ];
    let began = now_millis();
    let agent = start(&dir, listen, &targets.join(", "));
    for step in 0..20 {
        put(&agent, "ladder", now_millis(), f64::from(step).sqrt());
        std::thread::sleep(Duration::from_millis(20));
    }
    let end = now_millis();
    let sent = until_sent(&agent, "right", end);
    assert_eq!(sent["dropped"]["refused"], 0, "{sent}");
    let failing = |name: &str, message: &str| {
        let waiting = eventually_within(BOUND, "the error is shown", || {
            let target = target(&agent, name);
            let error = target["last_error"].as_str().unwrap_or_default();
            match error.contains(message) {
                true => Ok(target),
                false => Err(target),
            }
        });
        assert_eq!(waiting["sent"], 0, "{waiting}");
        assert_eq!(waiting["dropped"]["refused"], 0, "{waiting}");
        assert!(waiting["errors"].as_u64() > Some(0), "{waiting}");
    };
    failing("renewed", "HTTP status 401");
    failing("untrusted", "certificate");
    let report = agent.client(&["doctor"]).stdout;
    assert!(report.contains("renewed: HTTP status 401"), "{report}");
    assert!(report.contains("untrusted: "), "{report}");
    for path in ["/status", "/api/v1/status/config", "/metrics"] {
        let answer = get(agent.http(), path).expect("an answer");
        assert_token_absent(path, answer.text().as_bytes());
    }

    password("renewed", PLANTED_TOKEN);
    let sent = until_sent(&agent, "renewed", end);
    assert_eq!(sent["last_error"], Value::Null, "{sent}");
    assert_eq!(sent["dropped"]["refused"], 0, "{sent}");
    failing("untrusted", "certificate");
    let seconds = (end - began) / 1000 + 1;
    let own = samples(agent.http(), "ladder", seconds, end);
    let own: Vec<_> = own.into_values().collect();
    assert_eq!(own.len(), 1, "{own:?}");
    for name in ["right", "renewed"] {
        let selector = format!("ladder{{receiver=\"{name}\"}}");
        let received = prometheus.samples(&selector, seconds, end);
        assert_eq!(received.into_values().collect::<Vec<_>>(), own, "{name}");
    }
    let foreign = prometheus.samples("{receiver=\"untrusted\"}", seconds, end);
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn an_agent_receives_version_2_from_another() {
    let head = PEGEL.agent().args(&["--node", "head"]).start();
    let AgentAddress::Tcp(address) = *head.http() else {
        unreachable!("the first listener is TCP");
    };
    let target_keys = format!(
        "{{url: 'http://{address}/api/v1/write', interval: 200ms, \
         protobuf_message: io.prometheus.write.v2.Request, external_labels: {{cluster: c1}}}}"
    );
    let (dir, listen) = (TempDir::new(), free_address());
    let node = start(&dir, listen, &target_keys);
    let end = now_millis();
    let target = until_sent(&node, &address.to_string(), end);
    assert_eq!(target["version"], "2.0");
    assert_eq!(target["dropped"]["refused"], 0, "{target}");
    let selector = format!(
        "node_load1{{cluster=\"c1\",instance=\"n1:{}\"}}",
        listen.port()
    );
    let found = samples(head.http(), &selector, 60, now_millis());
    assert_eq!(found.len(), 1, "{found:?}");
    let text = node.get("/metrics").text().to_owned();
    let label = format!("{{target=\"{address}\"}}");
    for name in [
        "pegel_remote_write_samples_total",
        "pegel_remote_write_pending_bytes",
        "pegel_remote_write_highest_sent_timestamp_seconds",
        "pegel_remote_write_shards",
    ] {
        assert!(text.contains(&format!("{name}{label}")), "{name}: {text}");
    }
    head.kill();
    let report = eventually_within(BOUND, "the doctor notices", || {
        let report = node.client(&["doctor"]);
        let text = report.stdout.clone();
        if text.contains("remote write") && text.contains("waits") {
            Ok(text)
        } else {
            Err(text)
        }
    });
    assert!(report.contains(&address.to_string()), "{report}");
}

#[test]
fn a_prometheus_federates() {
    let Some(program) = need("prometheus") else {
        return;
    };
    let agent = PEGEL.agent().args(&["--node", "n1"]).start();
    put(&agent, "queue.depth", now_millis(), 0.1 + 0.2);
    let AgentAddress::Tcp(address) = agent.http() else {
        unreachable!("the first listener is TCP");
    };
    let home = TempDir::new();
    let config = home.join("prometheus.yml");
    let text = format!(
        "scrape_configs:\n- job_name: federate\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  \
         honor_labels: true\n  metrics_path: /federate\n  params: {{'match[]': ['queue_depth', '{{__name__=~\"node_load.*\"}}']}}\n  \
         static_configs: [{{targets: ['{address}']}}]\n"
    );
    fs::write(&config, text).expect("written");
    let listen = free_address();
    let args = vec![
        format!("--config.file={}", config.display()),
        format!("--storage.tsdb.path={}", home.join("data").display()),
        format!("--web.listen-address={listen}"),
    ];
    let prometheus = ReceiverProcess::start(program, args, listen, "/-/ready", home);
    let found = eventually_within(BOUND, "the federated samples are there", || {
        let found = samples(
            &prometheus.address,
            SELECTOR_OF_FEDERATION,
            60,
            now_millis(),
        );
        if found.len() == 4 {
            Ok(found)
        } else {
            Err(found)
        }
    });
    let own = samples(agent.http(), SELECTOR_OF_FEDERATION, 120, now_millis());
    for (labels, list) in &found {
        let own = own
            .get(labels)
            .unwrap_or_else(|| panic!("{labels}: {own:?}"));
        for sample in list {
            assert!(own.contains(sample), "{labels}: {sample:?}");
        }
    }
    let depth = found.keys().find(|labels| labels.contains("queue_depth"));
    assert!(depth.is_some_and(|labels| labels.contains("\"instance\":\"n1:")));
    let refused = get(agent.http(), "/federate").expect("an answer");
    assert_eq!(refused.status, 400, "{}", refused.text());
}

const SELECTOR_OF_FEDERATION: &str = "{__name__=~\"queue_depth|node_load.*\"}";
