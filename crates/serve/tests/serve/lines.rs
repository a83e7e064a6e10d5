//! Line protocols: the text protocol of the UNIX socket, and OpenTSDB's telnet protocol.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use pegel_testkit::{FaultyFiles, eventually};
use serde_json::json;

use crate::support::{TestServer, now};

struct LineConnection(UnixStream);

impl TestServer {
    fn lines(&self) -> LineConnection {
        let path = self.running().socket_path().expect("a socket");
        let stream = UnixStream::connect(path).expect("connected");
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).expect("set");
        LineConnection(stream)
    }

    fn value(&self, name: &str) -> serde_json::Value {
        let found = self.get(&format!("/api/v1/values?names={name}")).json();
        found[0]["value"].clone()
    }
}

impl LineConnection {
    fn send(&mut self, text: impl AsRef<[u8]>) {
        self.0.write_all(text.as_ref()).expect("sent");
    }

    /// The reply to one line.
    #[track_caller]
    fn answer(&mut self) -> String {
        let mut text = String::new();
        let mut byte = [0];
        while self.0.read(&mut byte).expect("an answer") == 1 {
            match byte[0] {
                b'\n' => return text,
                byte => text.push(char::from(byte)),
            }
        }
        panic!("the connection ended after {text:?}")
    }

    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\n"));
        self.answer()
    }

    fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.0.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[test]
fn each_line_is_acknowledged_once_it_is_stored() {
    let server = TestServer::new();
    let mut client = server.lines();
    let time = now() - 10;
    assert_eq!(client.ask("jobs:2|c"), "ok");
    assert_eq!(client.ask("jobs:3|c\r"), "ok");
    assert_eq!(client.ask("depth:42|g|#q:main"), "ok");
    assert_eq!(client.ask(&format!("put p.q {time} 1.5 k=v")), "ok");
    assert_eq!(server.value("jobs"), 5.0);
    assert_eq!(server.value("depth"), 42.0);
    assert_eq!(server.value("p.q"), 1.5);
    // Several lines at once, with blank lines between.
    client.send(format!(
        "jobs:1|c\n\nput p.q {} 2 k=v\nnonsense\njobs:1|c\n",
        time + 1
    ));
    let answers: Vec<String> = (0..4).map(|_| client.answer()).collect();
    assert_eq!(
        answers,
        ["ok", "ok", "error no ':' between name and value", "ok"]
    );
    assert_eq!(server.value("jobs"), 7.0);
    assert_eq!(server.value("p.q"), 2.0);
    server.assert_ledger("push", 8, 7, &[("malformed", 1)]);
    let senders = server.get("/status").json()["senders"].clone();
    let uid = rustix::process::geteuid().as_raw();
    let sender = senders[0]["sender"].as_str().expect("a name").to_owned();
    assert_eq!(sender, format!("uid {uid}"));
}

#[test]
fn bad_lines_are_refused_by_reason_and_the_next_is_accepted() {
    let server = TestServer::new();
    let mut client = server.lines();
    let time = now();
    for (line, reason) in [
        (":1|c".to_owned(), "the name is empty"),
        (
            format!("{}:1|c", "x".repeat(1025)),
            "the name is longer than 1024 bytes",
        ),
        ("a:x|c".to_owned(), "malformed value; expected a number"),
        ("a:NaN|g".to_owned(), "the value is not finite"),
        ("a:1e400|g".to_owned(), "the value is not finite"),
        ("a:1|zz".to_owned(), "unknown type; expected"),
        ("a:1|c|@7".to_owned(), "the sample rate"),
        (
            "a\u{0}:1|c".to_owned(),
            "the line contains a control character",
        ),
        ("put".to_owned(), "the metric name is missing"),
        ("put a".to_owned(), "the timestamp is missing"),
        ("put a now 1".to_owned(), "the timestamp is not a number"),
        (format!("put a {time} inf"), "the value is not finite"),
        (format!("put a {time} 1e400"), "the value is not finite"),
        (
            format!("put a {time} 1 x"),
            "a tag must be written KEY=VALUE",
        ),
        (
            format!("put {} {time} 1", "x".repeat(1025)),
            "the metric name has 1025 bytes",
        ),
        (
            "put a 1 1".to_owned(),
            "the timestamp is older than the store's retention",
        ),
        (
            format!("put a {} 1", time + 86_400_000),
            "the timestamp is more than ten minutes in the future",
        ),
        ("level x a:1|c".to_owned(), "not `level N LINE`"),
        (
            "level 4 a:1|c".to_owned(),
            "metric level 4 exceeds the agent's level 3",
        ),
        (
            format!("level 4 put a {time} 1"),
            "metric level 4 exceeds the agent's level 3",
        ),
    ] {
        let answer = client.ask(&line);
        let shown = &line[..line.len().min(60)];
        assert!(
            answer.starts_with(&format!("error {reason}")),
            "{shown}: {answer}"
        );
    }
    client.send(b"b\xff:1|c\nput \xff 1 1\n");
    assert_eq!(client.answer(), "error the line is not UTF-8");
    assert_eq!(client.answer(), "error a name or a tag is not UTF-8");
    assert_eq!(client.ask("level 3 fine:1|c"), "ok");
    assert_eq!(server.value("fine"), 1.0);
    server.assert_ledger(
        "push",
        23,
        1,
        &[("level", 2), ("too_old", 1), ("future", 1)],
    );
}

#[test]
fn lines_may_come_byte_by_byte_but_not_for_ever() {
    let server = TestServer::with(|settings| settings.head_time = Duration::from_secs(1));
    let mut client = server.lines();
    for byte in b"slow:1|c\nslow:1|c\n" {
        client.send([*byte]);
    }
    assert_eq!(
        (client.answer(), client.answer()),
        ("ok".to_owned(), "ok".to_owned())
    );
    let begun = Instant::now();
    client.send("slow:1");
    assert_eq!(client.rest(), "error the line took longer than 1s\n");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.refused("line_time"), 1);
    server.assert_ledger("push", 3, 2, &[("malformed", 1)]);
    let begun = Instant::now();
    assert_eq!(server.lines().rest(), "", "a silent connection is closed");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(server.refused("head_time"), 1);
}

#[test]
fn a_line_that_does_not_end_is_not_taken() {
    let server = TestServer::new();
    for (text, is_counted) in [
        ("half:1|c", true),
        ("put half 1 1", true),
        ("half:1|c\nhalf:2", true),
    ] {
        let mut client = server.lines();
        client.send(text);
        client.0.shutdown(std::net::Shutdown::Write).expect("shut");
        let rest = client.rest();
        assert!(
            rest.ends_with("error the line is incomplete; end it with a newline\n"),
            "{rest}"
        );
        assert!(is_counted);
    }
    assert_eq!(server.value("half"), 1.0);
    server.assert_ledger("push", 4, 1, &[("malformed", 3)]);
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let server = TestServer::with(|settings| settings.line_bytes_max = 1000);
    let mut client = server.lines();
    client.send("x".repeat(100_000));
    assert_eq!(client.answer(), "error the line exceeds 1000 bytes");
    client.send(":1|c\nshort:1|c\n");
    assert_eq!(client.answer(), "ok");
    assert_eq!(server.refused("line_size"), 1);
    server.assert_ledger("push", 2, 1, &[("too_large", 1)]);
}

#[test]
fn refused_lines_are_not_counted() {
    let files = FaultyFiles::new();
    let server = TestServer::on(&files);
    let mut lines = server.lines();
    assert_eq!(lines.ask("a:1|c"), "ok");
    files.fill_up();
    // A point of a separate series, so that the store notices.
    let refused = lines.ask(&format!("put t.a {} 1 k=v", now()));
    assert!(
        refused.starts_with("error the log cannot be written: "),
        "{refused}"
    );
    for _ in 0..3 {
        let refused = lines.ask("a:10|c");
        assert!(
            refused.starts_with("error the log cannot be written: "),
            "{refused}"
        );
        assert!(!refused.contains("counted"), "{refused}");
    }
    files.clear_faults();
    eventually("it is accepted again", || {
        match lines.ask("a:100|c").as_str() {
            "ok" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    assert_eq!(server.value("a"), 101.0);
}

#[test]
fn a_line_that_was_counted_before_the_log_failed_says_so() {
    let files = FaultyFiles::new();
    let server = TestServer::on(&files);
    let mut lines = server.lines();
    assert_eq!(lines.ask("a:1|c"), "ok");
    files.fill_up();
    let refused = lines.ask("a:10|c");
    assert!(refused.contains("the line is counted"), "{refused}");
    files.clear_faults();
    eventually("it is accepted again", || {
        match lines.ask("a:100|c").as_str() {
            "ok" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    assert_eq!(server.value("a"), 111.0);
}

#[test]
fn telnet_is_silent_on_success_and_shares_the_port_with_http() {
    let server = TestServer::new();
    // In the past: a point ahead of the clock is not the current value yet.
    let time = now() - 10;
    let mut client = server.connect();
    client.send(&format!(
        "put t.a {time} 1 k=v\nput t.a x 1 k=v\nversion\nput t.a {} 2 k=v\n",
        time + 1
    ));
    assert_eq!(
        client.until("\n"),
        "put: the timestamp is not a number of seconds (up to 10 digits) or milliseconds since 1970\n"
    );
    assert_eq!(client.until("\n"), "pegel 1.2.3\n");
    client.send("a:1|c\n");
    assert_eq!(
        client.until("\n"),
        "put: unknown command; `help` lists the commands\n"
    );
    client.send("help\n");
    assert!(client.until("exit\n").starts_with("put METRIC TIME VALUE"));
    client.send("exit\nput t.a 1 1\n");
    assert_eq!(client.rest(), "");
    assert_eq!(server.value("t.a"), 2.0);
    server.assert_ledger("put", 4, 2, &[("malformed", 2)]);
    // Also in one-byte pieces; a similar beginning that is no command is HTTP.
    let mut client = server.connect();
    for byte in format!("put t.a {} 3 k=v\nversion\n", time + 2).bytes() {
        client.0.write_all(&[byte]).expect("sent");
    }
    assert_eq!(client.until("\n"), "pegel 1.2.3\n");
    assert_eq!(server.value("t.a"), 3.0);
    let mut client = server.connect();
    client.send("put\r\n");
    assert_eq!(client.until("\n"), "put: the metric name is missing\n");
    let mut client = server.connect();
    client.send("putt\r\n\r\n");
    assert!(client.until("\r\n").starts_with("HTTP/1.1 400 "));
    eventually("counted as no HTTP", || match server.refused("malformed") {
        1 => Ok(()),
        other => Err(other),
    });
}

#[test]
fn a_client_that_never_reads_is_disconnected() {
    let server = TestServer::with(|settings| settings.write_time = Duration::from_millis(300));
    let mut client = server.lines();
    // Each bad line is answered with more bytes than it has.
    let lines = "x\n".repeat(10_000);
    let begun = Instant::now();
    while client.0.write_all(lines.as_bytes()).is_ok() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the connection is not closed"
        );
    }
    eventually("counted", || match server.refused("slow_reader") {
        1 => Ok(()),
        other => Err(other),
    });
    let status = server.get("/status").json();
    assert_eq!(status["http"]["socket_connections"], json!(0));
    pegel_testkit::check_conserved(&status).expect("received = kept + dropped");
}
