//! Tests of certificates with openssl and rustls, which did not make them.

use std::fs;
use std::path::Path;
use std::process::Command;

use pegel_testkit::{TempDir, need};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::ServerName;

use super::*;

const DAYS: u32 = 825;

fn hosts() -> Vec<String> {
    ["head1", "head1.cluster", "127.0.0.1", "fd00::1"]
        .map(str::to_owned)
        .to_vec()
}

#[track_caller]
fn openssl(program: &Path, arguments: &[&str], home: &TempDir) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(home.path()).output();
    let output = output.expect("started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "openssl {arguments:?}: {text}{errors}"
    );
    text
}

#[test]
fn openssl_verifies_chain_names_usage_and_dates() {
    let Some(program) = need("openssl") else {
        return;
    };
    let authority = CertificateAuthority::create(DAYS).expect("made");
    let parent = authority.issue_server(&hosts(), DAYS).expect("made");
    let node = authority.issue_client("nid0001", DAYS).expect("made");
    let home = TempDir::new();
    for (name, text) in [
        ("ca.pem", authority.certificate_pem()),
        ("parent.pem", &parent.certificate),
        ("node.pem", &node.certificate),
        ("node.key", &node.key),
    ] {
        fs::write(home.join(name), text).expect("written");
    }
    let ssl = |arguments: &[&str]| openssl(&program, arguments, &home);
    let verify = ["verify", "-x509_strict", "-CAfile", "ca.pem", "-purpose"];
    ssl(&[
        &verify[..],
        &[
            "sslserver",
            "-verify_hostname",
            "head1.cluster",
            "parent.pem",
        ],
    ]
    .concat());
    ssl(&[
        &verify[..],
        &["sslserver", "-verify_ip", "fd00::1", "parent.pem"],
    ]
    .concat());
    ssl(&[&verify[..], &["sslclient", "node.pem"]].concat());
    for (wrong, file) in [("sslclient", "parent.pem"), ("sslserver", "node.pem")] {
        let mut command = Command::new(&program);
        command
            .args(verify)
            .args([wrong, file])
            .current_dir(home.path());
        let output = command.output().expect("started");
        assert!(!output.status.success(), "{file} as {wrong}");
    }
    let text = |file: &str| ssl(&["x509", "-in", file, "-noout", "-text"]);
    let ca = text("ca.pem");
    for expected in ["CA:TRUE, pathlen:0", "Certificate Sign, CRL Sign"] {
        assert!(ca.contains(expected), "{ca}");
    }
    let server = text("parent.pem");
    for expected in [
        "DNS:head1, DNS:head1.cluster, IP Address:127.0.0.1, IP Address:FD00:0:0:0:0:0:0:1",
        "TLS Web Server Authentication",
        "Digital Signature",
        "CA:FALSE",
    ] {
        assert!(server.contains(expected), "{server}");
    }
    let subject = ssl(&["x509", "-in", "node.pem", "-noout", "-subject"]);
    assert!(subject.contains("CN = nid0001"), "{subject}");
    let last = u64::from(DAYS) * 86_400;
    for (file, seconds, is_valid) in [
        ("parent.pem", last - 60, true),
        ("parent.pem", last + 60, false),
        ("ca.pem", last + 60, true),
    ] {
        let mut command = Command::new(&program);
        let seconds = seconds.to_string();
        command.args(["x509", "-in", file, "-noout", "-checkend", &seconds]);
        let status = command.current_dir(home.path()).output().expect("started");
        assert_eq!(status.status.success(), is_valid, "{file} {seconds}");
    }
    let digest = ssl(&[
        "x509",
        "-in",
        "parent.pem",
        "-noout",
        "-fingerprint",
        "-sha256",
    ]);
    let digits = digest.trim().rsplit('=').next().expect("digits");
    assert_eq!(digits.replace(':', "").to_lowercase(), parent.fingerprint);
    ssl(&["pkey", "-in", "node.key", "-check", "-noout"]);
}

fn roots(authority: &CertificateAuthority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let pem = authority.certificate_pem().as_bytes();
    roots
        .add(CertificateDer::from_pem_slice(pem).expect("PEM"))
        .expect("an authority");
    Arc::new(roots)
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")
}

#[test]
fn rustls_accepts_the_names_of_a_parent_and_no_others() {
    let authority = CertificateAuthority::create(DAYS).expect("made");
    let parent = authority.issue_server(&hosts(), DAYS).expect("made");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = |authority: &CertificateAuthority| {
        WebPkiServerVerifier::builder_with_provider(roots(authority), provider.clone())
            .build()
            .expect("built")
    };
    let accepts = |authority: &CertificateAuthority, certificate: &str, host: &str| {
        let name = ServerName::try_from(host.to_owned()).expect("a name");
        verifier(authority)
            .verify_server_cert(&der(certificate), &[], &name, &[], UnixTime::now())
            .is_ok()
    };
    for host in hosts() {
        assert!(accepts(&authority, &parent.certificate, &host), "{host}");
    }
    assert!(!accepts(&authority, &parent.certificate, "head2"));
    let other = CertificateAuthority::create(DAYS).expect("made");
    assert!(!accepts(&other, &parent.certificate, "head1"));
    let node = authority.issue_client("head1", DAYS).expect("made");
    assert!(!accepts(&authority, &node.certificate, "head1"));
}

#[test]
fn an_authority_is_read_back_and_must_match_its_key() {
    let authority = CertificateAuthority::create(DAYS).expect("made");
    let again = CertificateAuthority::from_pem(authority.certificate_pem(), &authority.key_pem());
    let node = again.expect("read").issue_client("n1", 1).expect("made");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(&authority), provider);
    let verifier = verifier.build().expect("built");
    let verified = verifier.verify_client_cert(&der(&node.certificate), &[], UnixTime::now());
    verified.expect("accepted");
    let other = CertificateAuthority::create(DAYS).expect("made");
    let mixed = CertificateAuthority::from_pem(authority.certificate_pem(), &other.key_pem());
    assert!(
        matches!(mixed, Err(CertificateError::AuthorityMismatch(_))),
        "{mixed:?}"
    );
    let key = authority.key_pem();
    assert!(CertificateAuthority::from_pem("no PEM", &key).is_err());
    assert!(CertificateAuthority::from_pem(authority.certificate_pem(), "no PEM").is_err());
}

#[test]
fn invalid_names_are_named() {
    let authority = CertificateAuthority::create(1).expect("made");
    for host in ["", "a b", "-x-.", "ü", "a/b"] {
        let error = authority.issue_server(&[host.to_owned()], 1);
        let error = error.expect_err(host).to_string();
        assert!(error.contains("host name"), "{error}");
    }
    for node in ["", "a b", "ü", &"x".repeat(65)] {
        let error = authority.issue_client(node, 1).expect_err(node).to_string();
        assert!(error.contains("node name"), "{error}");
    }
}
