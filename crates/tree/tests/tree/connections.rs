//! Who may connect: names, tokens, certificates and versions. What is refused is listed.

use std::fs;
use std::path::PathBuf;

use aws_lc_rs::digest;
use pegel_config::Secret;
use pegel_metric::MetricKind;
use pegel_testkit::{TempDir, set_mode};
use pegel_tree::{CertificateFingerprint, TreeSettings};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::support::{FixedUser, TestAgent, accepting, reporting};

/// An authority and the certificates that it signed, in PEM files.
struct TestAuthority {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
    fn new() -> TestAuthority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        let certificate = params.self_signed(&key).expect("signed");
        let dir = TempDir::new();
        fs::write(dir.join("ca.pem"), certificate.pem()).expect("written");
        let issuer = Issuer::new(params, key);
        TestAuthority { dir, issuer }
    }

    /// Returns the files of a certificate and its key, and the fingerprint.
    fn sign(&self, name: &str, dns: &[&str]) -> (PathBuf, PathBuf, CertificateFingerprint) {
        let dns: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(dns).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let (cert_file, key_file) = (self.dir.join(format!("{name}.pem")), self.dir.join(name));
        fs::write(&cert_file, certificate.pem()).expect("written");
        fs::write(&key_file, key.serialize_pem()).expect("written");
        set_mode(&key_file, 0o600);
        let hash = digest::digest(&digest::SHA256, certificate.der());
        let hash = hash.as_ref().try_into().expect("32 bytes");
        (cert_file, key_file, CertificateFingerprint(hash))
    }

    fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }
}

fn with_tls(authority: &TestAuthority) -> (TreeSettings, CertificateFingerprint) {
    let (cert, key, fingerprint) = authority.sign("head", &["127.0.0.1"]);
    let settings = TreeSettings {
        cert: Some(cert),
        key: Some(key),
        ..accepting()
    };
    (settings, fingerprint)
}

fn token(text: &str) -> Option<Secret> {
    Some(Secret::new(text))
}

#[test]
fn a_second_agent_of_a_name_is_refused_and_listed() {
    let head = TestAgent::start("head", accepting());
    let first = TestAgent::start("a", reporting(&[head.address()]));
    head.wait_for_up(&["a"]);
    let second = TestAgent::start("a", reporting(&[head.address()]));
    head.wait_for_problem("duplicate", "another agent with the name a is connected");
    second.wait_for_error("refused (duplicate)");
    head.wait_for_nodes("it is noted at the node", |rows| {
        rows.iter()
            .any(|row| row.node == "a" && row.problem.contains("duplicate"))
    });
    let same_name = TestAgent::start("head", reporting(&[head.address()]));
    same_name.wait_for_error("the parent itself has this name");
    assert_eq!(
        first.tree.as_ref().expect("it runs").status_json()["parents"][0]["connected"],
        true
    );
}

#[test]
fn an_agent_is_not_below_itself() {
    let mut one = TestAgent::start("one", accepting());
    let address = one.address();
    let mut settings = reporting(&[address]);
    settings.accept = accepting().accept;
    let two = TestAgent::start("two", settings);
    one.wait_for_up(&["two"]);
    // Now one is given two as its parent.
    let mut settings = reporting(&[two.address()]);
    settings.accept = Some(address.to_string().parse().expect("an address"));
    one.run(settings);
    pegel_testkit::eventually_within(crate::support::PATIENCE, "the loop is found", || {
        let errors = [&one, &two].map(|agent| {
            let status = agent.tree.as_ref().expect("it runs").status_json();
            status["parents"][0]["last_error"].to_string()
        });
        if errors.iter().any(|error| error.contains("loop")) {
            Ok(())
        } else {
            Err(errors)
        }
    });
}

#[test]
fn a_parent_accepts_as_many_children_as_configured() {
    let mut settings = accepting();
    settings.children_max = 1;
    let head = TestAgent::start("head", settings);
    let _first = TestAgent::start("a", reporting(&[head.address()]));
    head.wait_for_up(&["a"]);
    let second = TestAgent::start("b", reporting(&[head.address()]));
    second.wait_for_error("refused (full)");
    head.wait_for_problem("full", "accepts 1 children");
}

#[test]
fn the_token_must_be_right() {
    let mut settings = accepting();
    settings.token_variable = token("planted-0123456789");
    let head = TestAgent::start("head", settings);
    for (node, given, message) in [
        ("a", None, "no token"),
        ("b", token("planted-0123456780"), "invalid token"),
    ] {
        let mut settings = reporting(&[head.address()]);
        settings.token_variable = given;
        let child = TestAgent::start(node, settings);
        child.wait_for_error(message);
        head.wait_for_problem("token", message);
    }
    let mut settings = reporting(&[head.address()]);
    settings.token_variable = token("planted-0123456789");
    let _child = TestAgent::start("c", settings);
    head.wait_for_up(&["c"]);
}

#[test]
fn without_a_token_only_programs_of_the_agents_users_attach() {
    for (user, message) in [
        (
            Some(4711),
            "a program of uid 4711 cannot attach without a token",
        ),
        (None, "whose user the kernel does not report cannot attach"),
    ] {
        let mut head = TestAgent::new("head");
        head.peer_user = FixedUser(user);
        head.run(accepting());
        let child = TestAgent::start("a", reporting(&[head.address()]));
        child.wait_for_error(message);
        child.wait_for_error("tree.token_file");
        head.wait_for_problem("user", message);
        assert_eq!(head.nodes().nodes().len(), 1, "the parent itself");

        // The token is proof enough.
        let mut settings = accepting();
        settings.token_variable = token("planted-0123456789");
        head.run(settings);
        let mut settings = reporting(&[head.address()]);
        settings.token_variable = token("planted-0123456789");
        let _child = TestAgent::start("b", settings);
        head.wait_for_up(&["b"]);
    }
}

#[test]
fn certificates_are_checked_on_both_sides() {
    let (authority, other) = (TestAuthority::new(), TestAuthority::new());
    let (mut settings, fingerprint) = with_tls(&authority);
    settings.client_ca = Some(authority.ca());
    let head = TestAgent::start("head", settings);
    let address = head.address();
    let child = |node: &str, signed_by: &TestAuthority, name: &str| {
        let (cert, key, _) = signed_by.sign(name, &[]);
        let settings = TreeSettings {
            ca: Some(authority.ca()),
            client_cert: Some(cert),
            client_key: Some(key),
            ..reporting(&[address])
        };
        TestAgent::start(node, settings)
    };
    let right = child("a", &authority, "a");
    right.put("hits", MetricKind::Counter, 5.0);
    head.wait_for_up(&["a"]);
    head.wait_for_last("hits:sum", 5.0);

    let wrong_name = child("b", &authority, "c");
    wrong_name.wait_for_error("not made out to b");
    head.wait_for_problem("name", "not made out to b");
    let _unknown_authority = child("d", &other, "d");
    head.wait_for_problem("handshake", "ertificate");

    let (cert, key, _) = authority.sign("e", &[]);
    let pinned = |fingerprint| TreeSettings {
        fingerprint: Some(fingerprint),
        client_cert: Some(cert.clone()),
        client_key: Some(key.clone()),
        ..reporting(&[address])
    };
    let wrong_pin = TestAgent::start("e", pinned(CertificateFingerprint([7; 32])));
    wrong_pin.wait_for_error("fingerprint");
    drop(wrong_pin);
    let _right_pin = TestAgent::start("e", pinned(fingerprint));
    head.wait_for_up(&["e"]);
    let wrong_ca = TestAgent::start(
        "f",
        TreeSettings {
            ca: Some(other.ca()),
            ..reporting(&[address])
        },
    );
    wrong_ca.wait_for_error("TLS");
    let plain = TestAgent::start("g", reporting(&[address]));
    plain.wait_for_error("stream");
}

#[test]
fn unsafe_settings_are_refused_at_the_start() {
    let agent = TestAgent::new("head");
    let authority = TestAuthority::new();
    let message = |settings: TreeSettings| agent.bind(settings).expect_err("refused").to_string();
    let mut open = accepting();
    open.accept = Some("0.0.0.0:0".parse().expect("an address"));
    assert!(message(open.clone()).contains("tree.cert"));
    let (with_tls, _) = with_tls(&authority);
    let mut no_token = with_tls;
    no_token.accept.clone_from(&open.accept);
    assert!(message(no_token.clone()).contains("tree.token_file"));
    no_token.token_variable = token("planted-0123456789");
    agent.bind(no_token).expect("accepted");
    let mut elsewhere = reporting(&[]);
    elsewhere.parents = vec!["192.0.2.1:1338".parse().expect("an address")];
    elsewhere.token_variable = token("planted-0123456789");
    assert!(message(elsewhere).contains("requires tree.ca or tree.fingerprint"));
    let mut many = accepting();
    many.children_max = 10_001;
    assert!(message(many).contains("children_max"));
    let mut plain = accepting();
    plain.client_ca = Some(authority.ca());
    assert!(message(plain).contains("client_ca requires"));
    let missing = TreeSettings {
        cert: Some(agent.path("none.pem")),
        ..accepting()
    };
    assert!(message(missing).contains("require each other"));
}
