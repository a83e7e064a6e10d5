//! Credentials: wrong tokens, certificates of another authority, names that a certificate does not
//! prove, peers without TLS, and many peers without any credential.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use pegel_testkit::{
    ChildProcess, NetworkLink, NetworkNamespace, OtherUser, TempDir, eventually, eventually_within,
    need, resident_bytes,
};
use pegel_tree_protocol::child_message::Kind as FromChild;
use pegel_tree_protocol::parent_message::Kind as FromParent;
use pegel_tree_simulator::{ScriptedChild, hello};
use rustix::process::Signal;
use serde_json::Value;

use crate::PEGEL;
use crate::tree_agent::{TreeAgent, loopback_address};

/// A directory that `pegel tree init` wrote.
#[derive(Debug)]
pub(crate) struct TreeCertificates {
    home: TempDir,
}

impl TreeCertificates {
    fn init(address: SocketAddr, nodes: &[&str]) -> TreeCertificates {
        TreeCertificates::for_hosts(&[address.ip().to_string()], nodes)
    }

    /// Makes certificates for parents at these addresses, and for these nodes.
    pub(crate) fn for_hosts(hosts: &[String], nodes: &[&str]) -> TreeCertificates {
        let home = TempDir::new();
        let mut command = PEGEL.command(&home);
        command
            .args(["tree", "init", "--dir"])
            .arg(home.join("tree"));
        for host in hosts {
            command.args(["--host", host]);
        }
        for node in nodes {
            command.args(["--node", node]);
        }
        let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(20));
        assert_eq!(finished.code(), Some(0), "{finished}");
        TreeCertificates { home }
    }

    fn path(&self, name: &str) -> String {
        let path = self.home.join("tree").join(name);
        assert!(path.exists(), "{}", path.display());
        path.display().to_string()
    }

    /// Returns the section of a parent, without the braces.
    pub(crate) fn parent(&self, address: &str) -> String {
        let (cert, key) = (self.path("parent.pem"), self.path("parent.key"));
        format!("accept: \"{address}\", cert: {cert}, key: {key}")
    }

    /// Returns the section of a child, without the braces. The addresses are quoted.
    pub(crate) fn child(&self, parents: &str) -> String {
        format!("parents: [{parents}], ca: {}", self.path("ca.pem"))
    }

    /// Returns the keys of a child's own certificate.
    fn proof(&self, node: &str) -> String {
        let (cert, key) = (
            self.path(&format!("nodes/{node}.pem")),
            self.path(&format!("nodes/{node}.key")),
        );
        format!("client_cert: {cert}, client_key: {key}")
    }
}

fn quoted(address: SocketAddr) -> String {
    format!("\"{address}\"")
}

fn started(name: &str, section: &str) -> TreeAgent {
    let mut node = TreeAgent::new(name, section);
    node.start();
    node
}

/// Waits until the child reports an error of its parent; returns it.
fn parent_error(child: &TreeAgent) -> String {
    eventually(&format!("{} has no parent", child.name), || {
        let tree = child.get("/api/v1/tree").json();
        let error = tree["parents"][0]["last_error"].as_str().map(str::to_owned);
        error.ok_or(tree)
    })
}

#[test]
fn a_wrong_token_is_refused_and_named() {
    let (head, address) = TreeAgent::head("head");
    let good = TreeAgent::child("good", &[address]);
    good.counter("hits_total").add(7);
    let mut bad = TreeAgent::new("bad", &format!("parents: [\"{address}\"]"));
    bad.set_token("another-token");
    bad.start();
    bad.counter("hits_total").add(1000);
    let error = parent_error(&bad);
    assert!(error.contains("token"), "{error}");
    let problem = head.problem("token");
    assert!(
        problem["count"].as_u64().is_some_and(|count| count >= 1),
        "{problem}"
    );
    let good_state = ("good".to_owned(), "up".to_owned());
    assert!(head.node_states().contains(&good_state));
    head.shows("match=hits_total", &[("hits_total", 7.0)]);
    head.reduces("hits_total:sum", 7.0);
}

#[test]
fn certificates_prove_parents_and_names() {
    let address = loopback_address();
    let ours = TreeCertificates::init(address, &["good", "other"]);
    let theirs = TreeCertificates::init(address, &["evil"]);
    let client_ca = format!("client_ca: {}", ours.path("ca.pem"));
    let head = started(
        "head",
        &format!("{}, {client_ca}", ours.parent(&address.to_string())),
    );
    let section = |files: &TreeCertificates, proof: String| {
        format!("{}, {proof}", files.child(&quoted(address)))
    };
    let good = started("good", &section(&ours, ours.proof("good")));
    good.counter("hits_total").add(7);
    head.all_up(&["good", "head"]);

    // Its certificate is made out to another name.
    let imposter = started("imposter", &section(&ours, ours.proof("other")));
    let error = parent_error(&imposter);
    assert!(
        error.contains("name") || error.contains("certificate"),
        "{error}"
    );
    let problem = head.problem("name");
    assert_eq!(problem["node"], "imposter", "{problem}");
    // Its certificate is signed by another authority.
    let section_of_evil = format!("{}, {}", ours.child(&quoted(address)), theirs.proof("evil"));
    let evil = started("evil", &section_of_evil);
    parent_error(&evil);
    // It trusts another authority: the parent is not the one that it expects.
    let misled = started("misled", &section(&theirs, ours.proof("other")));
    let error = parent_error(&misled);
    assert!(error.contains("certificate"), "{error}");
    // It has none.
    let bare = started("bare", &ours.child(&quoted(address)));
    parent_error(&bare);
    // It speaks plain text.
    let plain = started("plain", &format!("parents: [\"{address}\"]"));
    parent_error(&plain);
    let mut stream = TcpStream::connect(address).expect("connected");
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("sent");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let count = eventually("refusals are counted", || {
        let tree = head.get("/api/v1/tree").json();
        let problems = tree["problems"].as_array().expect("a list").clone();
        let count = |problem: &Value| problem["count"].as_u64().unwrap_or(0);
        let sum: u64 = problems.iter().map(count).sum();
        (sum >= 4).then_some(sum).ok_or(problems)
    });
    assert!(count >= 4);
    eventually("the tree has metrics of its own", || {
        let metrics = head.get("/metrics");
        let is_there = metrics.text().contains("pegel_tree_refused_total");
        is_there.then_some(()).ok_or(())
    });

    let good_state = ("good".to_owned(), "up".to_owned());
    assert!(head.node_states().contains(&good_state));
    head.shows("match=hits_total", &[("hits_total", 7.0)]);
    head.reduces("hits_total:sum", 7.0);
}

#[test]
fn certificates_of_tree_init_connect_two_hosts() {
    let Some(_) = need("ip") else { return };
    let (Some(above), Some(below)) = (NetworkNamespace::new(), NetworkNamespace::new()) else {
        return;
    };
    let (above, below) = (Arc::new(above), Arc::new(below));
    let Some(link) = NetworkLink::new(&above, &below, 1) else {
        return;
    };
    let host = link.address(0).to_string();
    let files = Arc::new(TreeCertificates::for_hosts(
        std::slice::from_ref(&host),
        &["good", "other"],
    ));
    let strangers = TreeCertificates::for_hosts(std::slice::from_ref(&host), &["evil"]);
    let client_ca = format!("client_ca: {}", files.path("ca.pem"));
    let place = |name: &str, section: String, space: &Arc<NetworkNamespace>| {
        let mut node = TreeAgent::new(name, &section);
        node.place_in(space.clone(), files.clone());
        node.start();
        node
    };
    let head = place(
        "head",
        format!("{}, {client_ca}", files.parent("0.0.0.0:1338")),
        &above,
    );
    let reports = files.child(&format!("\"{host}:1338\""));
    let good = place(
        "good",
        format!("{reports}, {}", files.proof("good")),
        &below,
    );
    good.counter("hits_total").add(7);
    head.all_up(&["good", "head"]);
    head.shows("match=hits_total", &[("hits_total", 7.0)]);
    let imposter = place(
        "imposter",
        format!("{reports}, {}", files.proof("other")),
        &below,
    );
    let error = parent_error(&imposter);
    assert!(error.contains("certificate"), "{error}");
    let problem = head.problem("name");
    assert_eq!(problem["node"], "imposter", "{problem}");
    assert_eq!(problem["peer"], link.address(1).to_string(), "{problem}");
    let evil = place(
        "evil",
        format!("{reports}, {}", strangers.proof("evil")),
        &below,
    );
    parent_error(&evil);
    let bare = place("bare", reports.clone(), &below);
    parent_error(&bare);
    let problem = head.problem("handshake");
    assert_eq!(problem["peer"], link.address(1).to_string(), "{problem}");
    let printed = head.agent().client(&["tree"]);
    let peer = link.address(1).to_string();
    assert!(printed.stdout.contains("imposter"), "{printed}");
    assert!(
        printed.stdout.contains(&format!("{peer}: handshake")),
        "{printed}"
    );
    head.shows("match=hits_total", &[("hits_total", 7.0)]);
}

#[test]
fn a_renewed_certificate_and_token_are_used_without_a_restart() {
    let address = loopback_address();
    let old = TreeCertificates::init(address, &[]);
    let new = TreeCertificates::init(address, &[]);
    let head = started("head", &old.parent(&address.to_string()));
    let mut first = started("first", &old.child(&quoted(address)));
    head.all_up(&["first", "head"]);
    let second = started("second", &new.child(&quoted(address)));
    let error = parent_error(&second);
    assert!(error.contains("certificate"), "{error}");
    // A half-written pair is not used.
    fs::write(old.path("parent.pem"), "").expect("written");
    head.agent().signal(Signal::HUP);
    eventually("the error is logged", || {
        let log = head.agent().stderr();
        let is_logged = log.contains("cannot reload the credentials of the tree");
        is_logged.then_some(()).ok_or(log)
    });
    for name in ["parent.key", "parent.pem"] {
        fs::copy(new.path(name), old.path(name)).expect("copied");
    }
    head.agent().signal(Signal::HUP);
    // Attempts are up to 30 s apart.
    eventually_within(
        Duration::from_secs(60),
        "the new authority is accepted",
        || {
            let states = head.node_states();
            let is_up = |name: &str| states.contains(&(name.to_owned(), "up".to_owned()));
            // The connection that exists stays.
            (is_up("first") && is_up("second"))
                .then_some(())
                .ok_or(states)
        },
    );
    first.kill();
    first.start();
    let error = parent_error(&first);
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn addresses_that_others_reach_require_tls_and_credentials() {
    let refused = |section: &str| {
        let agent = PEGEL
            .agent()
            .env("PEGEL_TOKEN", "")
            .config(&format!("tree: {{{section}}}\n"));
        let finished = agent.run();
        assert_ne!(finished.code(), Some(0), "{section}: {finished}");
        finished.stderr
    };
    let address = loopback_address();
    let files = TreeCertificates::init(address, &[]);
    let error = refused("accept: \"0.0.0.0:0\"");
    assert!(error.contains("cert"), "{error}");
    let (cert, key) = (files.path("parent.pem"), files.path("parent.key"));
    let error = refused(&format!("accept: \"0.0.0.0:0\", cert: {cert}, key: {key}"));
    assert!(
        error.contains("token") && error.contains("client_ca"),
        "{error}"
    );
    // A parent elsewhere must prove its name.
    let error = refused("parents: [\"192.0.2.9:1338\"]");
    assert!(error.contains("tree.ca"), "{error}");
}

#[test]
fn peers_without_credentials_cost_no_memory() {
    const PEERS: usize = 500;
    let address = loopback_address();
    let files = TreeCertificates::init(address, &[]);
    let head = started("head", &files.parent(&address.to_string()));
    let good = started("good", &files.child(&quoted(address)));
    good.counter("hits_total").add(7);
    head.reduces("hits_total:sum", 7.0);
    // Buffers of the first seconds of an agent are not caused by its peers.
    std::thread::sleep(Duration::from_secs(5));
    let before = resident_bytes(head.agent().pid());
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(address).expect("connected");
        match number % 3 {
            // Silence, the beginning of a handshake that promises more, and noise.
            0 => {}
            1 => drop(stream.write_all(&[0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb])),
            _ => drop(stream.write_all(&[0xaa; 4096])),
        }
        stream
    };
    let peers: Vec<TcpStream> = (0..PEERS).map(connect).collect();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(200));
        let grown = resident_bytes(head.agent().pid()).saturating_sub(before);
        // The connections of an unoptimised agent, at most 128 at a time, and its own growth.
        assert!(grown < 20_000_000, "{} KB more", grown >> 10);
    }
    // A child gets in meanwhile.
    let second = started("second", &files.child(&quoted(address)));
    second.counter("hits_total").add(1);
    head.all_up(&["good", "head", "second"]);
    head.reduces("hits_total:sum", 8.0);
    drop(peers);
}

#[test]
fn two_agents_with_one_name_are_reported() {
    let (head, address) = TreeAgent::head("head");
    let first = TreeAgent::child("twin", &[address]);
    first.counter("hits_total").add(7);
    head.all_up(&["head", "twin"]);
    head.reduces("hits_total:sum", 7.0);
    let second = TreeAgent::child("twin", &[address]);
    second.counter("hits_total").add(1000);
    let problem = head.problem("duplicate");
    assert_eq!(problem["node"], "twin", "{problem}");
    let error = parent_error(&second);
    assert!(error.contains("name") || error.contains("twin"), "{error}");
    head.shows("match=hits_total", &[("hits_total", 7.0)]);
    head.reduces("hits_total:sum", 7.0);
    let printed = head.agent().client(&["tree"]);
    assert!(printed.stdout.contains("twin"), "{printed}");
}

#[test]
fn an_agent_below_itself_is_refused() {
    let (first, second) = (loopback_address(), loopback_address());
    let section =
        |own: SocketAddr, parent: SocketAddr| format!("accept: \"{own}\", parents: [\"{parent}\"]");
    let a = started("a", &section(first, second));
    let b = started("b", &section(second, first));
    a.counter("hits_total").add(5);
    b.counter("hits_total").add(2);
    // At most one of the two connections stays.
    let errors = eventually("the loop is found", || {
        let errors = [&a, &b].map(|node| {
            let tree = node.get("/api/v1/tree").json();
            tree["parents"][0]["last_error"].as_str().map(str::to_owned)
        });
        let is_found = errors
            .iter()
            .flatten()
            .any(|error| error.contains("loop") || error.contains("itself"));
        is_found.then_some(errors.clone()).ok_or(errors)
    });
    for node in [&a, &b] {
        let sum = node.values("match=hits_total");
        assert!(
            sum.iter().all(|(_, value)| *value <= 7.0),
            "{sum:?} {errors:?}"
        );
    }
    // The parent of itself.
    let own = loopback_address();
    let selfish = started("selfish", &section(own, own));
    parent_error(&selfish);
}

/// Every user of the machine can connect to loopback.
#[test]
fn another_user_cannot_attach_over_loopback_without_a_token() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let address = loopback_address();
    let mut head = TreeAgent::new("head", &format!("accept: \"{address}\""));
    head.set_token("");
    head.start();
    let attach = |node: &'static str| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let first = FromChild::Hello(hello(node));
            let mut child = ScriptedChild::connect(address, None, first).await?;
            child.receive().await
        })
    };
    let refused = other_user.run_as(|| attach("stranger"));
    let status = refused.expect_err("refused");
    let expected = format!("a program of uid {} cannot attach", OtherUser::UID);
    assert!(status.message().contains(&expected), "{status:?}");
    assert!(status.message().contains("tree.token_file"), "{status:?}");
    let problem = head.problem("user");
    assert_eq!(problem["count"], 1, "{problem}");
    assert_eq!(head.node_states().len(), 1);
    let welcome = attach("own").expect("the agent's user");
    assert!(
        matches!(welcome, Some(FromParent::Welcome(_))),
        "{welcome:?}"
    );
}
