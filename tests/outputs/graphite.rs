//! The output to Graphite: a real carbon, compared with a real collectd, and servers that fail.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pegel_testkit::{AgentProcess, ChildProcess, TempDir, eventually, eventually_within, need};
use serde_json::Value;

use crate::PEGEL;

/// Carbon starts slowly on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// Debian's carbon, which keeps every second for an hour.
struct Carbon {
    process: Option<ChildProcess>,
    program: PathBuf,
    home: TempDir,
    port: u16,
    pickle_port: u16,
}

impl Carbon {
    fn start() -> Option<Carbon> {
        let program = need("carbon-cache")?;
        let mut carbon = Carbon {
            process: None,
            program,
            home: TempDir::new(),
            port: free_port(),
            pickle_port: free_port(),
        };
        let home = carbon.home.path().display();
        let (port, pickle_port) = (carbon.port, carbon.pickle_port);
        let config = format!(
            "[cache]\nSTORAGE_DIR = {home}/\nLOCAL_DATA_DIR = {home}/whisper/\nCONF_DIR = {home}/\nLOG_DIR = {home}/\n\
             PID_DIR = {home}/\nUSER =\nLINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = {port}\n\
             PICKLE_RECEIVER_INTERFACE = 127.0.0.1\nPICKLE_RECEIVER_PORT = {pickle_port}\nENABLE_UDP_LISTENER = True\n\
             UDP_RECEIVER_INTERFACE = 127.0.0.1\nUDP_RECEIVER_PORT = {port}\nCACHE_QUERY_INTERFACE = 127.0.0.1\n\
             CACHE_QUERY_PORT = {}\nMAX_UPDATES_PER_SECOND = inf\nMAX_CREATES_PER_MINUTE = inf\n\
             ENABLE_LOGROTATION = False\nENABLE_TAGS = False\nLOG_UPDATES = False\nLOG_CREATES = False\n",
            free_port()
        );
        fs::write(carbon.home.join("carbon.conf"), config).expect("written");
        let schema = "[all]\npattern = .*\nretentions = 1s:1h\n";
        fs::write(carbon.home.join("storage-schemas.conf"), schema).expect("written");
        carbon.restart();
        Some(carbon)
    }

    fn restart(&mut self) {
        // Left by an instance that was killed.
        let _ = fs::remove_file(self.home.join("carbon-cache-a.pid"));
        let mut command = Command::new(&self.program);
        let config = self.home.join("carbon.conf");
        command
            .arg(format!("--config={}", config.display()))
            .args(["--nodaemon", "start"])
            .current_dir(self.home.path());
        let mut process = ChildProcess::start(&mut command);
        eventually_within(BOUND, "carbon listens", || {
            assert!(!process.has_ended(), "{}", process.output());
            let connect = |port| TcpStream::connect(("127.0.0.1", port));
            connect(self.port)
                .and_then(|_| connect(self.pickle_port))
                .map_err(|error| error.to_string())
        });
        self.process = Some(process);
    }

    fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Returns the values of a path, oldest first, with their times.
    fn values(&self, path: &str) -> Vec<(i64, f64)> {
        let file = self.home.join("whisper").join(path.replace('.', "/"));
        let file = format!("{}.wsp", file.display());
        let script = "import sys, whisper\n\
            (start, end, step), values = whisper.fetch(sys.argv[1], 0)\n\
            for i, v in enumerate(values):\n    \
                if v is not None: print(start + i * step, repr(v))\n";
        // Debian's own Python has the library.
        let output = Command::new("/usr/bin/python3")
            .args(["-c", script, &file])
            .output()
            .expect("python3 is installed");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let pairs = text.lines().map(|line| {
            let (time, value) = line.split_once(' ').expect("two fields");
            let value = value.parse().expect("a value");
            (time.parse().expect("a time"), value)
        });
        pairs.collect()
    }

    /// Returns all paths below a prefix.
    fn paths(&self, prefix: &str) -> Vec<String> {
        let root = self.home.join("whisper").join(prefix);
        let (mut paths, mut open) = (Vec::new(), vec![root.clone()]);
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|ending| ending == "wsp") {
                    let path = path.with_extension("");
                    let path = path.strip_prefix(&root).expect("below it");
                    paths.push(path.to_string_lossy().replace('/', "."));
                }
            }
        }
        paths.sort();
        paths
    }
}

/// Returns a port that was free. Carbon cannot choose one itself.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("bound").port()
}

fn agent(graphite: &str) -> AgentProcess {
    let config = format!(
        "node: n1.site\nrate: 500ms\nstatsd: {{flush: 1s, percentiles: [50]}}\ngraphite: [{graphite}]\n"
    );
    PEGEL.agent().config(&config).start()
}

fn statsd_port(agent: &AgentProcess) -> u16 {
    let address = &agent.endpoint.json["statsd"]["udp"][0];
    let address = address.as_str().expect("an address");
    let port = address.rsplit(':').next().expect("a port");
    port.parse().expect("a number")
}

fn send(port: u16, lines: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let sent = socket.send_to(lines.as_bytes(), ("127.0.0.1", port));
    assert_eq!(sent.expect("sent"), lines.len());
}

fn status(agent: &AgentProcess, server: usize) -> Value {
    agent.status()["graphite"][server].take()
}

#[test]
fn carbon_has_the_values_of_the_node_and_of_programs() {
    let Some(carbon) = Carbon::start() else {
        return;
    };
    let (port, pickle_port) = (carbon.port, carbon.pickle_port);
    let agent = agent(&format!(
        "{{host: 127.0.0.1, port: {port}, interval: 1s, prefix: tcp.}}, \
         {{host: 127.0.0.1, port: {pickle_port}, format: pickle, interval: 1s, prefix: pickle.}}, \
         {{host: 127.0.0.1, port: {port}, protocol: udp, interval: 1s, prefix: udp.}}"
    ));
    send(statsd_port(&agent), "queue:7|g\njobs:3|c");
    for prefix in ["tcp", "pickle", "udp"] {
        let host = format!("{prefix}.n1_site");
        // A gauge that does not change is sent at each flush.
        eventually_within(BOUND, "the gauge arrives twice", || {
            let values = carbon.values(&format!("{host}.statsd.gauge-queue"));
            let is_there = values.len() > 1 && values.iter().all(|(_, value)| *value == 7.0);
            is_there.then_some(()).ok_or((values, agent.stderr()))
        });
        // Counters are sent as rates: first the increase, then nothing.
        eventually_within(BOUND, "the rate of the counter", || {
            let values = carbon.values(&format!("{host}.statsd.derive-jobs"));
            let last = values.last().map(|(_, value)| *value);
            (last == Some(0.0)).then_some(()).ok_or(values)
        });
        let values = eventually_within(BOUND, "a value of the node", || {
            let values = carbon.values(&format!("{host}.memory.MemTotal_bytes"));
            Some(values)
                .filter(|values| !values.is_empty())
                .ok_or("none")
        });
        let stored = agent.get("/api/v1/values?match=node_memory_MemTotal_bytes");
        let text = stored.text();
        assert!(text.contains(&format!("{:.0}", values[0].1)), "{text}");
        eventually_within(BOUND, "the time that a processor was idle", || {
            let values = carbon.values(&format!("{host}.cpu-0.seconds_total-idle"));
            let is_share = |(_, value): &(i64, f64)| (0.0..1.1).contains(value);
            let is_there = !values.is_empty() && values.iter().all(is_share);
            is_there.then_some(()).ok_or(values)
        });
    }
    // Carbon cannot store a path that is too long: it is counted.
    let part = "x".repeat(1_000);
    let long = format!("long:1|g|#a:{part},b:{part}");
    send(statsd_port(&agent), &long);
    eventually_within(BOUND, "the long name is counted", || {
        let status = status(&agent, 0);
        (status["unsuitable"].as_u64() > Some(0))
            .then_some(())
            .ok_or(status)
    });
    let metrics = agent.get("/metrics");
    let sent = format!("pegel_graphite_sent_total{{server=\"127.0.0.1:{port}\"}} ");
    assert!(metrics.text().contains(&sent), "{}", metrics.text());
}

/// The same lines go to Pegel and to collectd, and both write to the same carbon.
#[test]
fn paths_and_totals_are_those_of_collectd() {
    let (Some(carbon), Some(collectd)) = (Carbon::start(), need("collectd")) else {
        return;
    };
    let (home, port) = (TempDir::new(), carbon.port);
    let statsd = free_port();
    let base = home.path().display();
    let config = format!(
        "BaseDir \"{base}\"\nPIDFile \"{base}/pid\"\nPluginDir \"/usr/lib/collectd\"\n\
         TypesDB \"/usr/share/collectd/types.db\"\nHostname \"n1.site\"\nFQDNLookup false\nInterval 1\n\
         LoadPlugin statsd\nLoadPlugin load\nLoadPlugin memory\nLoadPlugin write_graphite\n\
         <Plugin statsd>\n Host \"127.0.0.1\"\n Port \"{statsd}\"\n TimerLower true\n TimerUpper true\n \
         TimerPercentile 50\n</Plugin>\n\
         <Plugin write_graphite>\n <Node \"a\">\n  Host \"127.0.0.1\"\n  Port \"{port}\"\n  Prefix \"collectd.\"\n  \
         StoreRates false\n </Node>\n</Plugin>\n"
    );
    fs::write(home.join("collectd.conf"), config).expect("written");
    let mut command = Command::new(collectd);
    let mut collectd =
        ChildProcess::start(command.arg("-f").arg("-C").arg(home.join("collectd.conf")));
    let agent = agent(&format!(
        "{{host: 127.0.0.1, port: {port}, interval: 1s, prefix: pegel., store_rates: false}}"
    ));
    // collectd does not report when it is ready.
    eventually_within(BOUND, "collectd writes", || {
        assert!(!collectd.has_ended(), "{}", collectd.output());
        let values = carbon.values("collectd.n1_site.load.load.shortterm");
        (!values.is_empty())
            .then_some(())
            .ok_or_else(|| collectd.output())
    });
    for port in [statsd, statsd_port(&agent)] {
        for _ in 0..10 {
            send(port, "app.requests:3|c\napp.queue:5|g");
        }
        send(port, "app.queue:+2|g");
    }
    let last = |path: String| carbon.values(&path).last().map(|(_, value)| *value);
    for (path, expected) in [
        ("statsd.derive-app_requests", 30.0),
        ("statsd.gauge-app_queue", 7.0),
    ] {
        for host in ["collectd.n1_site", "pegel.n1_site"] {
            eventually_within(BOUND, "both have the value", || {
                let value = last(format!("{host}.{path}"));
                (value == Some(expected))
                    .then_some(())
                    .ok_or((host, path, value))
            });
        }
    }
    // Timers and sets have other paths, as docs/graphite.md explains; their values are the same.
    for (theirs, ours, factor) in [
        ("latency-app_time-lower", "gauge-app_time_min", 1_000.0),
        ("latency-app_time-upper", "gauge-app_time_max", 1_000.0),
        (
            "latency-app_time-percentile-50",
            "gauge-app_time_p50",
            1_000.0,
        ),
        ("objects-app_users", "gauge-app_users_count", 1.0),
    ] {
        // Sent until an interval of both has them.
        eventually_within(BOUND, "nearly the same value", || {
            for port in [statsd, statsd_port(&agent)] {
                send(
                    port,
                    "app.time:20|ms\napp.time:40|ms\napp.time:60|ms\napp.users:a|s\napp.users:b|s",
                );
            }
            let newest = |prefix: &str, path: &str| last(format!("{prefix}.n1_site.statsd.{path}"));
            let theirs = newest("collectd", theirs).map(|value| value * factor);
            let ours = newest("pegel", ours);
            // The buckets of both have a limited resolution.
            let is_near = theirs
                .zip(ours)
                .is_some_and(|(a, b)| b > 0.0 && (a / b - 1.0).abs() < 0.05);
            is_near.then_some(()).ok_or((ours, theirs))
        });
    }
    let statsd_paths = |prefix: &str| -> Vec<String> {
        let paths = carbon.paths(prefix).into_iter();
        let is_compared = |path: &String| {
            let is_same = !path.contains("app_time") && !path.contains("app_users");
            path.contains(".statsd.") && is_same
        };
        paths.filter(is_compared).collect()
    };
    assert_eq!(statsd_paths("collectd"), statsd_paths("pegel"));
    // The node's metrics have Prometheus' names here, not those of collectd.
    for (ours, theirs) in [
        ("load1.load1", "load.load.shortterm"),
        ("memory.SReclaimable_bytes", "memory.memory-slab_recl"),
    ] {
        let host = |prefix: &str, path: &str| last(format!("{prefix}.n1_site.{path}"));
        eventually_within(BOUND, "nearly the same value", || {
            let (ours, theirs) = (host("pegel", ours), host("collectd", theirs));
            let ratio = ours.zip(theirs).map(|(a, b)| (a + 0.01) / (b + 0.01));
            let is_near = ratio.is_some_and(|ratio| (0.5..2.0).contains(&ratio));
            is_near.then_some(()).ok_or((ours, theirs))
        });
    }
}

#[test]
fn an_outage_is_bridged_and_what_does_not_fit_is_counted() {
    let Some(mut carbon) = Carbon::start() else {
        return;
    };
    let port = carbon.port;
    // A batch has about 40 bytes: ten of them fit.
    let agent = agent(&format!(
        "{{host: 127.0.0.1, port: {port}, interval: 1s, names: [beat], paths: name, spool_bytes: 400}}"
    ));
    let socket = statsd_port(&agent);
    let mut beat = 0;
    let mut next = || {
        beat += 1;
        send(socket, &format!("beat:{beat}|g"));
        thread::sleep(Duration::from_millis(100));
    };
    eventually_within(BOUND, "values arrive", || {
        next();
        (carbon.values("beat").len() > 2)
            .then_some(())
            .ok_or("none")
    });
    carbon.kill();
    let dropped = eventually_within(BOUND, "the spool is full", || {
        next();
        let status = status(&agent, 0);
        let dropped = status["dropped"].as_u64().expect("a count");
        assert!(status["spool_bytes"].as_u64() <= Some(400), "{status}");
        (dropped > 2).then_some(dropped).ok_or(status)
    });
    let before = carbon.values("beat").len() as u64;
    carbon.restart();
    let sent = eventually_within(BOUND, "what waited is sent", || {
        next();
        let status = status(&agent, 0);
        let is_sent = status["spool_bytes"] == 0 && status["connected"] == true;
        is_sent
            .then(|| status["sent"].as_u64().expect("a count"))
            .ok_or(status)
    });
    assert!(status(&agent, 0)["dropped"].as_u64() >= Some(dropped));
    let values = eventually_within(BOUND, "carbon has written them", || {
        next();
        let values = carbon.values("beat");
        (values.len() as u64 >= before + 5)
            .then_some(values.clone())
            .ok_or((values, sent))
    });
    // A flush on a busy machine may find the value of the one before.
    let in_order = values.windows(2).all(|pair| pair[0].1 <= pair[1].1);
    assert!(in_order, "{values:?}");
}

/// Reads lines as they arrive, until one is good enough.
fn read_until(stream: &TcpStream, lines: &mut Vec<String>, mut is_last: impl FnMut(&str) -> bool) {
    stream.set_read_timeout(Some(BOUND)).expect("set");
    for line in BufReader::new(stream).lines() {
        let line = line.expect("a line in time");
        let is_over = is_last(&line);
        lines.push(line);
        if is_over {
            return;
        }
    }
}

/// Returns value and time of a line.
fn parse_beat(line: &str) -> (u64, i64) {
    let words: Vec<&str> = line.split(' ').collect();
    assert!(words.len() == 3 && words[0] == "beat", "{line}");
    let (value, time) = (words[1].parse(), words[2].parse());
    (value.expect("a value"), time.expect("a time"))
}

/// An agent that sends the gauge `beat` five times a second, and the port of its statsd input.
fn beating_agent(port: u16, options: &str) -> (AgentProcess, u16) {
    let agent = PEGEL.agent().config(&format!(
        "rate: 100ms\ngraphite: [{{host: 127.0.0.1, port: {port}, interval: 200ms, names: [beat], paths: name, \
         {options}}}]\n"
    ));
    let agent = agent.start();
    let statsd = statsd_port(&agent);
    (agent, statsd)
}

/// Whisper files are ordered by time however values arrive: the order is that of the connection.
#[test]
fn after_an_outage_the_newest_values_arrive_in_order() {
    let server = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = server.local_addr().expect("bound");
    let (agent, statsd) = beating_agent(address.port(), "spool_bytes: 200");
    let mut beat = 0;
    let mut next = || {
        beat += 1;
        send(statsd, &format!("beat:{beat}|g"));
        beat
    };
    next();
    let (stream, _) = server.accept().expect("a connection");
    let (mut before, mut count) = (Vec::new(), 0);
    read_until(&stream, &mut before, |_| {
        next();
        count += 1;
        count == 3
    });
    drop((stream, server));
    eventually_within(BOUND, "the spool is full", || {
        next();
        let status = status(&agent, 0);
        (status["dropped"].as_u64() > Some(2))
            .then_some(())
            .ok_or(status)
    });
    let last_of_outage = next();
    let server = TcpListener::bind(address).expect("a port that was free");
    let (stream, _) = server.accept().expect("a connection");
    let mut after = Vec::new();
    read_until(&stream, &mut after, |line| {
        parse_beat(line).0 > last_of_outage || next() == 0
    });
    let values = |lines: &[String]| {
        lines
            .iter()
            .map(|line| parse_beat(line))
            .collect::<Vec<_>>()
    };
    let (before, after) = (values(&before), values(&after));
    for lines in [&before, &after] {
        let is_ordered = lines.is_sorted_by_key(|(value, _)| *value);
        assert!(
            is_ordered && lines.is_sorted_by_key(|(_, time)| *time),
            "{lines:?}"
        );
    }
    // The oldest values of the outage made room.
    assert!(after[0].0 > before[2].0 + 1, "{before:?} {after:?}");
}

/// The connection breaks while waiting values are sent: none of them is lost.
#[test]
fn what_waited_is_sent_again_if_the_connection_breaks() {
    let port = free_port();
    let (agent, statsd) = beating_agent(port, "spool_bytes: 1MiB");
    send(statsd, "beat:1|g");
    eventually_within(BOUND, "values wait", || {
        let status = status(&agent, 0);
        (status["spool_bytes"].as_u64() > Some(100))
            .then_some(())
            .ok_or(status)
    });
    send(statsd, "beat:2|g");
    let server = TcpListener::bind(("127.0.0.1", port)).expect("a port that was free");
    let (stream, _) = server.accept().expect("a connection");
    stream.set_read_timeout(Some(BOUND)).expect("set");
    let mut start = [0; 8];
    stream.peek(&mut start).expect("the first value");
    // What it got is discarded with its buffers.
    drop(stream);
    let (stream, _) = server.accept().expect("another connection");
    let mut lines = Vec::new();
    read_until(&stream, &mut lines, |line| parse_beat(line).0 == 2);
    assert_eq!(parse_beat(&lines[0]).0, 1, "{lines:?}");
    let ones = lines.iter().filter(|line| parse_beat(line).0 == 1).count();
    assert!(ones > 3, "all that waited: {lines:?}");
    eventually_within(BOUND, "nothing waits", || {
        let status = status(&agent, 0);
        (status["spool_bytes"] == 0).then_some(()).ok_or(status)
    });
    assert_eq!(status(&agent, 0)["dropped"], 0);
}

#[test]
fn a_connection_is_renewed_after_the_configured_time() {
    let server = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = server.local_addr().expect("bound").port();
    let (agent, statsd) = beating_agent(port, "reconnect_interval: 500ms");
    send(statsd, "beat:1|g");
    for _ in 0..3 {
        let (stream, _) = server.accept().expect("a connection");
        // The agent closes it, after whole lines.
        let lines: Result<Vec<String>, _> = BufReader::new(stream).lines().collect();
        let lines = lines.expect("closed in an orderly way");
        assert!(!lines.is_empty() && lines.iter().all(|line| parse_beat(line).0 == 1));
    }
    assert_eq!(status(&agent, 0)["errors"], 0);
    assert_eq!(status(&agent, 0)["dropped"], 0);
}

#[test]
fn errors_are_logged_once_or_not_at_all() {
    let message = "cannot send values to Graphite";
    for (option, expected) in [("log_send_errors: true", 1), ("log_send_errors: false", 0)] {
        let (agent, statsd) = beating_agent(free_port(), option);
        send(statsd, "beat:1|g");
        eventually_within(BOUND, "two failures", || {
            let status = status(&agent, 0);
            (status["errors"].as_u64() > Some(1))
                .then_some(())
                .ok_or(status)
        });
        let doctor = agent.client(&["doctor"]).stdout;
        let words: Vec<&str> = doctor.split_whitespace().collect();
        assert!(
            words
                .join(" ")
                .contains("Connection refused (os error 111); "),
            "{doctor}"
        );
        let logged = agent.stderr().matches(message).count();
        assert_eq!(logged, expected, "{option}: {}", agent.stderr());
    }
}

/// A server whose first connections end early, and which then reads everything.
fn flaky_server() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let for_thread = lines.clone();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().take(20).enumerate() {
            let Ok(mut stream) = stream else { return };
            match number {
                // Closes at once; then half-way through a batch.
                0 => {}
                1 => drop(stream.read(&mut [0; 10])),
                _ => {
                    let lines = BufReader::new(stream).lines().map_while(Result::ok);
                    lines.for_each(|line| for_thread.lock().push(line));
                }
            }
        }
    });
    (port, lines)
}

#[test]
fn a_server_that_closes_half_way_gets_its_values_again_and_in_order() {
    let (port, lines) = flaky_server();
    let agent = agent(&format!(
        "{{host: 127.0.0.1, port: {port}, interval: 1s, names: [beat], paths: name}}"
    ));
    let socket = statsd_port(&agent);
    let mut beat = 0;
    eventually_within(BOUND, "five values arrive", || {
        beat += 1;
        send(socket, &format!("beat:{beat}|g"));
        let count = lines.lock().len();
        (count >= 5).then_some(()).ok_or((count, status(&agent, 0)))
    });
    let status = status(&agent, 0);
    assert!(status["errors"].as_u64() > Some(0), "{status}");
    assert_eq!(status["dropped"], 0, "{status}");
    let lines = lines.lock().clone();
    let times = lines.iter().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words.len() == 3 && words[0] == "beat", "{line}");
        words[2].parse::<i64>().expect("a time")
    });
    let times: Vec<i64> = times.collect();
    assert!(times.is_sorted(), "{lines:?}");
}

#[test]
fn values_that_wait_survive_the_agent() {
    let home = TempDir::new();
    let port = free_port();
    let start = |home: &Path| {
        let config = format!(
            "graphite: [{{host: 127.0.0.1, port: {port}, interval: 1s, names: [node_load1], paths: name}}]\n"
        );
        PEGEL
            .agent()
            .dir(home.join("store"))
            .config(&config)
            .start()
    };
    let agent = start(home.path());
    let waiting = eventually("values wait", || {
        let status = status(&agent, 0);
        let bytes = status["spool_bytes"].as_u64().filter(|bytes| *bytes > 0);
        assert_eq!(status["connected"], false);
        bytes.ok_or(status)
    });
    agent.kill();
    let server = TcpListener::bind(("127.0.0.1", port)).expect("a port that was free");
    let agent = start(home.path());
    let (stream, _) = server.accept().expect("a connection");
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().expect("a line").expect("readable");
    assert!(first.starts_with("node_load1 "), "{first}");
    assert!(first.len() as u64 <= waiting);
    eventually("nothing waits", || {
        let status = status(&agent, 0);
        (status["spool_bytes"] == 0).then_some(()).ok_or(status)
    });
}

/// A server that accepts connections and reads nothing.
#[test]
fn a_server_that_does_not_read_delays_nothing_else() {
    let server = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = server.local_addr().expect("bound").port();
    let agent = agent(&format!(
        "{{host: 127.0.0.1, port: {port}, interval: 1s, timeout: 1s, paths: name}}"
    ));
    let socket = statsd_port(&agent);
    // Enough names to fill the buffers of the connection.
    for start in (0..20_000).step_by(500) {
        let names = start..start + 500;
        let lines: Vec<String> = names
            .map(|name| format!("a.long.name.to.fill.the.buffers.of.the.connection.{name}:1|g"))
            .collect();
        send(socket, &lines.join("\n"));
    }
    eventually_within(BOUND, "sending fails", || {
        let status = status(&agent, 0);
        let is_slow = status["last_error"].as_str().is_some();
        is_slow.then_some(()).ok_or(status)
    });
    let health = agent.get("/healthz");
    assert_eq!(health.status, 200, "{}", health.text());
    // A stop waits for it only for a short time.
    let finished = agent.stop();
    assert_eq!(finished.code(), Some(0), "{finished}");
}

#[test]
fn impossible_settings_are_refused() {
    for (entry, message) in [
        (
            "{protocol: udp, format: pickle}",
            "carbon accepts pickle over TCP only",
        ),
        ("{port: 0}", "the port is 0"),
        ("{interval: 0s}", "is not greater than 0"),
        ("{escape_character: \"..\"}", "is not a single character"),
        ("{escape_character: /}", "is not allowed in a path itself"),
        ("{protocol: sctp}", "accepted: tcp or udp"),
        ("{hots: x}", "host"),
    ] {
        let finished = PEGEL
            .agent()
            .config(&format!("graphite: [{entry}]\n"))
            .run();
        assert_eq!(finished.code(), Some(2), "{entry}: {finished}");
        assert!(finished.stderr.contains(message), "{entry}: {finished}");
    }
}
