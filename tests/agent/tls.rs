//! Addresses that other machines can reach, in a network namespace of the test: TLS, tokens and
//! certificates, and changes of them while the agent runs.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentAddress, AgentBuilder, AgentProcess, CertificateSigner, ChildProcess, NetworkNamespace,
    OtherUser, PLANTED_TOKEN, REPOSITORY, TempDir, curl, eventually, isolate, need, need_peer,
    now_seconds, post, set_mode,
};
use rustix::process::Signal;

use crate::PEGEL;

const LOOPBACK: &str = "127.0.0.1:0";
const OUTSIDE: &str = "192.0.2.7:0";

/// The files that an agent uses, and their current contents.
pub(crate) struct CertificateFiles {
    home: TempDir,
}

impl CertificateFiles {
    pub(crate) fn new(authority: &CertificateSigner, name: &str) -> CertificateFiles {
        let files = CertificateFiles {
            home: TempDir::new(),
        };
        files.put(authority, name);
        files
    }

    fn put(&self, authority: &CertificateSigner, name: &str) {
        for (from, to) in [("pem", "cert.pem"), ("key", "key.pem")] {
            let new = self.home.join("new");
            fs::copy(authority.path(&format!("{name}.{from}")), &new).expect("copied");
            fs::rename(&new, self.path(to)).expect("renamed");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    pub(crate) fn config(&self, ca: Option<&str>) -> String {
        let ca = ca.map_or_else(String::new, |ca| format!("\n  ca: {ca}"));
        let (cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        format!(
            "tls:\n  cert: {}\n  key: {}{ca}\n",
            cert.display(),
            key.display()
        )
    }
}

pub(crate) fn agent() -> AgentBuilder {
    PEGEL.agent().listen(&[LOOPBACK, OUTSIDE])
}

/// The network and the programs that these tests need.
pub(crate) fn prepared() -> Option<NetworkNamespace> {
    need("openssl")?;
    need("curl")?;
    NetworkNamespace::new()
}

pub(crate) fn outside(agent: &AgentProcess) -> &AgentAddress {
    &agent.endpoint.http[1]
}

fn bearer() -> String {
    format!("Authorization: Bearer {PLANTED_TOKEN}")
}

pub(crate) fn expect_refused(agent: &AgentProcess, reason: &str, count: u64) {
    eventually("the refusal is counted", || match agent.refused(reason) {
        found if found == count => Ok(()),
        found => Err(found),
    });
}

#[test]
fn other_machines_need_tls_and_the_token() {
    let Some(island) = prepared() else { return };
    let authority = CertificateSigner::create();
    authority.sign("node");
    let files = CertificateFiles::new(&authority, "node");
    island.run_inside(|| {
        let agent = agent().config(&files.config(None)).start();
        let ca = authority.path("ca.pem");
        let url = format!("https://{}/metrics", outside(&agent));
        let ask = |more: &[&str]| curl(&[&["--cacert", ca.as_str(), &url], more].concat());
        let (status, output) = ask(&[]);
        assert_eq!(status, 401, "root is nobody there: {output}");
        assert!(output.contains("www-authenticate: Bearer\r\n"), "{output}");
        let (status, output) = ask(&["-H", &bearer()]);
        assert_eq!(status, 200, "{output}");
        assert!(output.contains("node_load1"), "{output}");
        for version in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
            let header = bearer();
            let (status, output) = ask(&[&["-H", &header], version].concat());
            assert_eq!(status, 200, "{version:?}: {output}");
        }
        let (status, output) = ask(&["-H", &bearer(), "-H", "Host: evil.example"]);
        assert_eq!(status, 421, "{output}");
        // Loopback has no TLS, and users are known there.
        assert_eq!(agent.get("/status").json()["http"]["guard"]["tls"], true);
        if let Some(other_user) = OtherUser::new() {
            assert_eq!(
                other_user
                    .curl(&[&format!("http://{}/metrics", agent.http())])
                    .0,
                401
            );
        }
        assert!(
            agent.stderr().contains("page and API: http://127.0.0.1"),
            "{}",
            agent.output()
        );
        agent.assert_conserved();
    });
}

#[test]
fn connections_without_tls_get_an_error_and_are_counted() {
    let Some(island) = prepared() else { return };
    let authority = CertificateSigner::create();
    authority.sign("node");
    let files = CertificateFiles::new(&authority, "node");
    island.run_inside(|| {
        let agent = agent().config(&files.config(None)).start();
        let AgentAddress::Tcp(address) = *outside(&agent) else {
            panic!("TCP")
        };
        let (status, output) = curl(&[&format!("http://{address}/metrics")]);
        assert_eq!(status, 400, "{output}");
        assert!(output.contains("this address requires TLS"), "{output}");
        expect_refused(&agent, "plain_http", 1);

        let connect = || {
            let stream = TcpStream::connect(address).expect("connected");
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .expect("set");
            stream
        };
        // An invalid record, and one that never ends.
        let mut broken = connect();
        broken
            .write_all(&[0x16, 3, 1, 0, 4, 9, 9, 9, 9])
            .expect("sent");
        let mut rest = Vec::new();
        let _ = broken.read_to_end(&mut rest);
        expect_refused(&agent, "handshake", 1);
        let mut silent = connect();
        let mut slow = connect();
        slow.write_all(&[0x16, 3, 1, 0, 200, 1]).expect("sent");
        for stream in [&mut silent, &mut slow] {
            rest.clear();
            // A reset is also a closed connection.
            let _ = stream.read_to_end(&mut rest);
        }
        expect_refused(&agent, "handshake_time", 2);
        let ca = authority.path("ca.pem");
        let url = format!("https://{address}/healthz");
        assert_eq!(
            curl(&["--cacert", &ca, &url]).0,
            200,
            "others are served meanwhile"
        );
        agent.assert_conserved();
    });
}

/// Checks gRPC over TLS, which offers only HTTP/2 by ALPN: from another agent, and from
/// OpenTelemetry.
#[test]
fn metrics_of_opentelemetry_arrive_over_tls_with_the_token() {
    let Some(island) = prepared() else { return };
    let Some(marker) = need_peer("opentelemetry-python/bin/opentelemetry-sdk") else {
        return;
    };
    let authority = CertificateSigner::create();
    authority.sign("node");
    let files = CertificateFiles::new(&authority, "node");
    island.run_inside(|| {
        let receiver = agent().config(&files.config(None)).start();
        let (url, ca) = (outside(&receiver), authority.path("ca.pem"));
        let target = |protocol: &str, token: &str| {
            format!(
                "  - url: https://{url}\n    protocol: {protocol}\n    interval: 1s\n    names: [depth*]\n    \
                 ca_file: {ca}\n    headers: {{authorization: \"Bearer {token}\"}}\n    resource: {{via: {protocol}}}\n"
            )
        };
        let list = [
            target("grpc", PLANTED_TOKEN),
            target("http", PLANTED_TOKEN),
            target("grpc", "wrong"),
        ];
        let sender = PEGEL.agent().config(&format!("otlp:\n{}", list.concat())).start();
        let body = format!("depth,a=b value=7 {}", now_seconds());
        let answer = post(sender.http(), "/write?precision=s", &[], body.as_bytes());
        assert_eq!(answer.expect("an answer").status, 204);
        for protocol in ["grpc", "http"] {
            let query = format!("/api/v1/query?query=depth%7Bvia%3D%22{protocol}%22%7D");
            eventually("the value arrives", || {
                let answer = receiver.get(&query).json();
                let value = answer["data"]["result"][0]["value"][1].clone();
                (value == "7").then_some(()).ok_or(answer)
            });
        }
        eventually("the wrong token is refused", || {
            let counts = sender.status()["otlp_output"][2].clone();
            let error = counts["last_error"].as_str().unwrap_or_default();
            let is_refused = error.contains("gRPC status 16") && counts["rejected"] != 0;
            is_refused.then_some(()).ok_or(counts)
        });
        let mut python = Command::new(marker.with_file_name("python3"));
        let home = TempDir::new();
        isolate(&mut python, &home);
        let script = format!("{REPOSITORY}/tests/inputs/otlp/sender.py");
        python
            .args([&script, "grpc", &format!("https://{url}"), "cumulative"])
            .arg(format!("authorization=Bearer {PLANTED_TOKEN}"))
            .env("OTEL_EXPORTER_OTLP_CERTIFICATE", &ca)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let finished = ChildProcess::start(&mut python).wait(Duration::from_secs(120));
        assert!(finished.status.success(), "{finished}");
        let found = receiver.get("/api/v1/query?query=queue_length").json();
        assert_eq!(found["data"]["result"][0]["value"][1], "4", "{found}");
    });
}

#[test]
fn a_client_certificate_replaces_the_token() {
    let Some(island) = prepared() else { return };
    let (authority, other) = (CertificateSigner::create(), CertificateSigner::create());
    authority.sign("node");
    authority.sign("client");
    other.sign("client");
    let files = CertificateFiles::new(&authority, "node");
    let ca = authority.path("ca.pem");
    island.run_inside(|| {
        let agent = agent()
            .env("PEGEL_TOKEN", "")
            .config(&files.config(Some(&ca)))
            .start();
        let url = format!("https://{}/metrics", outside(&agent));
        let ask = |by: Option<&CertificateSigner>| {
            let shown = by.map(|by| (by.path("client.pem"), by.path("client.key")));
            let shown: Vec<&str> = match &shown {
                Some((cert, key)) => vec!["--cert", cert, "--key", key],
                None => Vec::new(),
            };
            curl(&[&["--cacert", ca.as_str(), &url], shown.as_slice()].concat())
        };
        let (status, output) = ask(Some(&authority));
        assert_eq!(status, 200, "{output}");
        assert_eq!(
            ask(None).0,
            0,
            "there is no connection without a certificate"
        );
        assert_eq!(ask(Some(&other)).0, 0, "nor with somebody else's");
        expect_refused(&agent, "handshake", 2);
        agent.assert_conserved();
    });
}

#[test]
fn valid_new_certificates_are_loaded_and_invalid_ones_refused() {
    let Some(island) = prepared() else { return };
    let (old, new) = (CertificateSigner::create(), CertificateSigner::create());
    old.sign("node");
    new.sign("node");
    let files = CertificateFiles::new(&old, "node");
    island.run_inside(|| {
        let agent = agent()
            .config(&files.config(None))
            .args(&["--log", "info"])
            .start();
        let url = format!("https://{}/healthz", outside(&agent));
        let is_trusted =
            |by: &CertificateSigner| curl(&["--cacert", &by.path("ca.pem"), &url]).0 == 200;
        let trusts = |by: &CertificateSigner| {
            eventually("the new certificate is shown", || {
                if is_trusted(by) {
                    Ok(())
                } else {
                    Err(agent.stderr())
                }
            });
        };
        let trouble = |words: &str| {
            eventually("the trouble is shown", || {
                let status = agent.status();
                let trouble = status["http"]["guard"]["trouble"].as_str();
                match trouble {
                    Some(text) if text.contains(words) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            });
        };
        assert!(is_trusted(&old) && !is_trusted(&new));

        files.put(&new, "node");
        agent.signal(Signal::HUP);
        trusts(&new);
        assert!(!is_trusted(&old));

        // A certificate without its key, as between two copies; then an invalid file.
        fs::copy(old.path("node.pem"), files.path("cert.pem")).expect("copied");
        agent.signal(Signal::HUP);
        trouble("cannot be used together");
        assert!(is_trusted(&new), "the good one stays");
        fs::write(files.path("cert.pem"), "not PEM").expect("written");
        agent.signal(Signal::HUP);
        trouble("holds no certificate in PEM form");
        assert!(is_trusted(&new));
        assert!(
            agent
                .stderr()
                .contains("cannot reload the certificate; keeping the previous one")
        );

        // Without a signal it takes up to ten seconds.
        files.put(&old, "node");
        trusts(&old);
        assert!(agent.status()["http"]["guard"]["trouble"].is_null());
        agent.assert_conserved();
    });
}

#[test]
fn bad_files_are_refused_with_a_reason_and_without_their_content() {
    let Some(_) = need("openssl") else { return };
    let authority = CertificateSigner::create();
    authority.sign("node");
    authority.sign("other");
    let run = |change: &dyn Fn(&CertificateFiles), expected: &str| {
        let files = CertificateFiles::new(&authority, "node");
        change(&files);
        // The files are read before any address is bound.
        let config = files.config(Some(files.path("ca.pem").to_str().expect("UTF-8")));
        let finished = PEGEL.agent().config(&config).run();
        assert_eq!(finished.code(), Some(1), "{expected}: {finished}");
        assert!(finished.stderr.contains(expected), "{expected}: {finished}");
        assert!(!finished.stderr.contains("BEGIN"), "{finished}");
    };
    let copy = |from: &str, to: PathBuf| {
        fs::copy(authority.path(from), to).expect("copied");
    };
    let with_ca = |files: &CertificateFiles| copy("ca.pem", files.path("ca.pem"));
    run(&|_| {}, "ca.pem: No such file");
    run(
        &|files| fs::remove_file(files.path("key.pem")).expect("removed"),
        "key.pem: No such file",
    );
    run(
        &|files| {
            with_ca(files);
            copy("node.key", files.path("cert.pem"));
        },
        "cert.pem holds no certificate",
    );
    run(
        &|files| {
            with_ca(files);
            copy("node.pem", files.path("key.pem"));
        },
        "key.pem holds no private key",
    );
    run(
        &|files| {
            with_ca(files);
            copy("other.key", files.path("key.pem"));
        },
        "cannot be used together",
    );
    run(
        &|files| {
            with_ca(files);
            open_to_all(&files.path("key.pem"));
        },
        "a private key that every user can read",
    );
    run(
        &|files| fs::write(files.path("ca.pem"), "x").expect("written"),
        "ca.pem holds no certificate",
    );
}

fn open_to_all(path: &Path) {
    set_mode(path, 0o644);
}

#[test]
fn addresses_for_other_machines_are_not_opened_by_accident() {
    let Some(island) = prepared() else { return };
    let authority = CertificateSigner::create();
    authority.sign("node");
    let files = CertificateFiles::new(&authority, "node");
    island.run_inside(|| {
        let plain = agent().run();
        assert_eq!(plain.code(), Some(2), "{plain}");
        assert!(
            plain.stderr.contains("can be reached from other machines"),
            "{plain}"
        );
        let unasked = agent()
            .env("PEGEL_TOKEN", "")
            .config(&files.config(None))
            .run();
        assert_eq!(unasked.code(), Some(1), "{unasked}");
        assert!(
            unasked
                .stderr
                .contains("TLS alone does not authenticate clients"),
            "{unasked}"
        );
    });
}

#[test]
fn insecure_logs_a_warning_and_still_requires_a_configured_token() {
    let Some(island) = prepared() else { return };
    island.run_inside(|| {
        let open = agent().env("PEGEL_TOKEN", "").arg("--insecure").start();
        let url = |agent: &AgentProcess| format!("http://{}/metrics", outside(agent));
        let (status, output) = curl(&[&url(&open)]);
        assert_eq!(status, 200, "{output}");
        let said = open.stderr();
        assert!(
            said.contains("NOT PROTECTED") && said.contains("NOT ENCRYPTED"),
            "{said}"
        );
        if let Some(other_user) = OtherUser::new() {
            assert_eq!(other_user.curl(&[&url(&open)]).0, 200, "everyone");
            let loopback = format!("http://{}/metrics", open.http());
            assert_eq!(
                other_user.curl(&[&loopback]).0,
                401,
                "loopback keeps its rule"
            );
        }
        open.assert_conserved();

        let closed = agent().arg("--insecure").start();
        assert_eq!(curl(&[&url(&closed)]).0, 401);
        assert_eq!(curl(&["-H", &bearer(), &url(&closed)]).0, 200);
        let said = closed.stderr();
        assert!(
            said.contains("NOT ENCRYPTED") && !said.contains("NOT PROTECTED"),
            "{said}"
        );
        closed.assert_conserved();
    });
}
