//! Other users of the node, and pages of other sites, have no access, and get an error with the
//! reason.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    AgentAddress, AgentProcess, ChildProcess, OtherUser, PLANTED_TOKEN, TempDir, curl, eventually,
    eventually_within, get, get_with, isolate, need, need_hardware, now_millis, post, send_raw,
    set_mode,
};
use rustix::process::Signal;

use crate::PEGEL;

/// All paths of the agent, and one that does not exist.
const PATHS: [&str; 12] = [
    "/",
    "/metrics",
    "/metrics/",
    "/status",
    "/api/v1/list",
    "/api/v1/values",
    "/api/v1/range",
    "/api/v1/export",
    "/api/v1/config",
    "/api/v1/processes",
    "/page/app.js",
    "/api/v1/nothing",
];

fn url(agent: &AgentProcess, path: &str) -> String {
    format!("http://{}{path}", agent.http())
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

#[test]
fn another_user_gets_nothing_over_http_without_the_token() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = PEGEL.agent().args(&["--node", "secret-node-name"]).start();
    for path in PATHS {
        let (status, output) = other_user.curl(&[&url(&agent, path)]);
        assert_eq!(status, 401, "{path}: {output}");
        assert!(
            output.contains("www-authenticate: Bearer\r\n"),
            "{path}: {output}"
        );
        assert!(
            output.contains("nobody (uid 65534) is not permitted without a token"),
            "{path}: {output}"
        );
        assert!(!output.contains("secret-node-name"), "{path}: {output}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "SHUTDOWN"] {
        let (status, output) = other_user.curl(&["-X", method, "-d", "x", &url(&agent, "/status")]);
        assert_eq!(status, 401, "{method}: {output}");
    }
    let (status, output) = other_user.curl(&[&url(&agent, "/api/v1/stream")]);
    assert_eq!(status, 401, "{output}");
    assert_eq!(agent.refused("stranger"), PATHS.len() as u64 + 6);

    let wrong = [
        bearer("planted-but-wrong"),
        "Authorization: Basic eDp5".to_owned(),
    ];
    for header in &wrong {
        let (status, output) = other_user.curl(&["-H", header, &url(&agent, "/metrics")]);
        assert_eq!(status, 401, "{output}");
    }
    assert_eq!(agent.refused("token"), 1, "the other one was none");

    for path in &PATHS[..7] {
        let (status, output) = other_user.curl(&["-H", &bearer(PLANTED_TOKEN), &url(&agent, path)]);
        assert_eq!(status, 200, "{path}: {output}");
    }
    agent.assert_conserved();
}

#[test]
fn healthz_is_public_and_reveals_nothing_else() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = PEGEL.agent().start();
    let (status, output) = other_user.curl(&[&url(&agent, "/healthz")]);
    assert_eq!(status, 200, "{output}");
    assert!(output.contains("\r\n\r\nok\n"), "{output}");
    for other in [
        "/healthz/",
        "//healthz",
        "/healthz/../status",
        "/status?/healthz",
    ] {
        let (status, output) = other_user.curl(&["--path-as-is", &url(&agent, other)]);
        assert_eq!(status, 401, "{other}: {output}");
    }
    agent.assert_conserved();
}

#[test]
fn the_agents_own_user_and_root_need_no_token() {
    let agent = PEGEL.agent().start();
    for address in [agent.http(), &agent.unix()] {
        for path in &PATHS[..7] {
            let answer = get(address, path).expect("an answer");
            assert_eq!(answer.status, 200, "{address} {path}: {}", answer.text());
        }
    }
    let listed = agent.client(&["list", "-f", "json"]);
    assert_eq!(listed.code(), Some(0), "{listed}");
    agent.assert_conserved();
}

#[test]
fn allow_users_accepts_names_and_numbers() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    for user in [OtherUser::NAME.to_owned(), OtherUser::UID.to_string()] {
        let agent = PEGEL
            .agent()
            .config(&format!("allow_users: [{user}]\n"))
            .start();
        for path in &PATHS[..7] {
            let (status, output) = other_user.curl(&[&url(&agent, path)]);
            assert_eq!(status, 200, "{user} {path}: {output}");
        }
        assert_eq!(agent.refused("stranger"), 0);
        agent.assert_conserved();
    }
    let finished = PEGEL
        .agent()
        .config("allow_users: [no-such-user-here]\n")
        .run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(
        finished.stderr.contains("no user \"no-such-user-here\""),
        "{finished}"
    );
}

#[test]
fn an_agent_of_another_user_serves_that_user_and_root_only() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    // The binary may be in a directory that only root can read: copy it for the other user.
    let home = TempDir::new();
    set_mode(home.path(), 0o755);
    let (binary, place) = (home.join("pegel"), home.join("place"));
    PEGEL.copy_to(&binary);
    set_mode(&binary, 0o755);
    fs::create_dir(&place).expect("a directory");
    chown(&place, Some(OtherUser::UID), Some(OtherUser::UID)).expect("given away");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (dir, socket) = (
        text(&place.join("store")),
        text(&place.join("run/push.sock")),
    );
    let mut command = Command::new("setpriv");
    isolate(&mut command, &place);
    let own = Some(OtherUser::UID);
    chown(place.join("lanes"), own, own).expect("given away");
    let uid = OtherUser::UID.to_string();
    command
        .args(["--reuid", &uid, "--regid", &uid, "--clear-groups"])
        .arg(&binary)
        .args([
            "agent",
            "--dir",
            &dir,
            "--socket",
            &socket,
            "--listen",
            "127.0.0.1:0",
            "--statsd",
            "off",
        ])
        .current_dir("/");
    if need("setpriv").is_none() {
        return;
    }
    let theirs = ChildProcess::start(&mut command);
    let endpoint = eventually("it has started", || {
        fs::read(place.join("store/endpoint.json")).map_err(|e| (e, theirs.output()))
    });
    let endpoint: serde_json::Value = serde_json::from_slice(&endpoint).expect("JSON");
    let address = endpoint["http"][0].as_str().expect("an address");
    let status = format!("http://{address}/status");
    assert_eq!(other_user.curl(&[&status]).0, 200, "its own user");
    assert_eq!(curl(&[&status]).0, 200, "root");
    let third = [
        "--reuid",
        "65533",
        "--clear-groups",
        "curl",
        "-s",
        "-o",
        "/dev/null",
    ];
    let mut command = Command::new("setpriv");
    command.args(third).args(["-w", "%{http_code}", &status]);
    let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(30));
    assert_eq!(finished.stdout, "401", "{finished}");
    // A client trusts agents of its own user and of root only; the message names the owner of this
    // one.
    let mut command = Command::new("setpriv");
    isolate(&mut command, &home);
    command
        .args(["--reuid", "65533", "--clear-groups"])
        .arg(&binary)
        .args(["list", "-u", &socket]);
    let finished = ChildProcess::start(&mut command).wait(Duration::from_secs(30));
    assert_ne!(finished.code(), Some(0), "{finished}");
    theirs.signal(Signal::TERM);
    assert_eq!(theirs.wait(Duration::from_secs(30)).code(), Some(0));
}

#[test]
fn every_loopback_address_knows_its_users() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    if need_hardware(has_ipv6, "IPv6 loopback address").is_none() {
        return;
    }
    let agent = PEGEL.agent().listen(&["[::1]:0", "127.0.0.2:0"]).start();
    for address in &agent.endpoint.http {
        let url = format!("http://{address}/metrics");
        let (status, output) = other_user.curl(&[&url]);
        assert_eq!(status, 401, "{address}: {output}");
        let (status, output) = curl(&[&url]);
        assert_eq!(status, 200, "{address}: {output}");
    }
    agent.assert_conserved();
}

#[test]
fn another_user_gets_nothing_over_the_socket() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let home = TempDir::new();
    let socket = home.join("run/push.sock");
    let agent = PEGEL.agent().socket(&socket).start();
    let path = socket.to_str().expect("UTF-8");
    let ask = |headers: &[&str]| {
        let fixed = ["--unix-socket", path, "http://localhost/status"];
        other_user.curl(&[headers, &fixed].concat())
    };
    assert_eq!(ask(&[]).0, 0, "it cannot even connect: {}", ask(&[]).1);

    // All permissions open by mistake: the kernel still reports the peer.
    set_mode(home.path(), 0o755);
    set_mode(home.join("run"), 0o755);
    set_mode(&socket, 0o666);
    let (status, output) = ask(&[]);
    assert_eq!(status, 401, "{output}");
    assert_eq!(agent.refused("stranger"), 1);
    let (status, output) = ask(&["-H", &bearer(PLANTED_TOKEN)]);
    assert_eq!(status, 200, "the token counts here too: {output}");
    agent.assert_conserved();
}

#[test]
fn another_user_can_neither_stop_the_agent_nor_touch_its_files() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let mut agent = PEGEL.agent().start();
    let pid = agent.pid().to_string();
    for signal in ["-TERM", "-KILL", "-HUP"] {
        let finished = other_user.run("sh", &["-c", "kill $0 $1", signal, &pid]);
        assert_ne!(finished.code(), Some(0), "{signal}: {finished}");
    }
    let dir = agent.dir.to_str().expect("UTF-8").to_owned();
    for script in [
        "ls $0",
        "cat $0/endpoint.json",
        "rm -rf $0/*",
        "echo x > $0/x",
        "mv $0 $0.old",
    ] {
        let finished = other_user.run("sh", &["-c", script, &dir]);
        assert!(
            !finished.stdout.contains("endpoint"),
            "{script}: {finished}"
        );
    }
    assert!(agent.dir.join("endpoint.json").exists() && !agent.dir.join("x").exists());
    assert!(!agent.has_ended());
    agent.assert_conserved();
}

#[test]
fn another_user_cannot_take_all_connections() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = PEGEL.agent().config("limits: {connections: 16}\n").start();
    let AgentAddress::Tcp(address) = *agent.http() else {
        panic!("TCP")
    };
    let held = other_user.run_as(|| {
        let connect = |_| TcpStream::connect(address).expect("connected");
        (0..32).map(connect).collect::<Vec<_>>()
    });
    // One of the eight stays free: the oldest connection is closed for the next one.
    eventually("half of the seats are all it gets", || {
        match agent.refused("unknown_connections") {
            25 => Ok(()),
            other => Err(other),
        }
    });
    assert_eq!(agent.refused("connections"), 0);
    let (status, output) = other_user.curl(&[&url(&agent, "/healthz")]);
    assert_eq!(status, 200, "{output}");
    assert_eq!(
        get(agent.http(), "/metrics").expect("an answer").status,
        200
    );
    drop(held);
    agent.assert_conserved();
}

#[test]
fn another_user_cannot_send_large_bodies_even_to_open_routes() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let agent = PEGEL.agent().start();
    let body = "x".repeat(8 << 10);
    for path in ["/healthz", "/api/ready", "/api/token"] {
        let (status, output) = other_user.curl(&["-H", "Expect:", "-d", &body, &url(&agent, path)]);
        assert_eq!(status, 413, "{path}: {output}");
    }
    agent.assert_conserved();
}

#[test]
fn an_allowed_user_does_not_change_annotations_of_the_agents_user() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let allow = format!("allow_users: [{}]\n", OtherUser::UID);
    let agent = PEGEL.agent().config(&allow).start();
    let note = url(&agent, "/api/annotation?start_time=1369141261&notes=");
    assert_eq!(curl(&["-X", "POST", &format!("{note}owner")]).0, 200);
    for method in ["POST", "PUT", "DELETE"] {
        let (status, output) = other_user.curl(&["-X", method, &format!("{note}user")]);
        assert_eq!(status, 403, "{method}: {output}");
    }
    let own = url(&agent, "/api/annotation?start_time=1369141262&notes=own");
    for (method, expected) in [("POST", 200), ("DELETE", 204)] {
        assert_eq!(other_user.curl(&["-X", method, &own]).0, expected);
    }
    agent.assert_conserved();
}

#[test]
fn an_allowed_user_does_not_register_filters_for_all_readers() {
    let Some(other_user) = OtherUser::new() else {
        return;
    };
    let allow = format!("allow_users: [{}]\n", OtherUser::UID);
    let agent = PEGEL.agent().config(&allow).start();
    let filter = url(&agent, "/api/v1/filters/f");
    let body = r#"{"match":"node_load1"}"#;
    let (status, output) = other_user.curl(&["-X", "PUT", "-d", body, &filter]);
    assert_eq!(status, 403, "{output}");
    assert_eq!(curl(&["-X", "PUT", "-d", body, &filter]).0, 200);
    assert_eq!(other_user.curl(&["-X", "DELETE", &filter]).0, 403);
    let (status, output) = other_user.curl(&[&url(&agent, "/api/v1/filters")]);
    assert!(status == 200 && output.contains("node_load1"), "{output}");
    agent.assert_conserved();
}

#[test]
fn connections_closed_before_the_check_disturb_nothing() {
    let agent = PEGEL.agent().start();
    let AgentAddress::Tcp(address) = *agent.http() else {
        panic!("TCP")
    };
    // Half of them are reset, half are closed; none may disturb the agent.
    for round in 0..200 {
        let stream = TcpStream::connect(address).expect("connected");
        std::io::Write::write_all(
            &mut &stream,
            b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
        )
        .expect("sent");
        if round % 2 == 0 {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("set");
        }
    }
    assert_eq!(agent.get("/healthz").status, 200);
    agent.assert_conserved();
}

#[test]
fn unknown_host_names_get_421() {
    let config = "hosts: [telemetry.example]\n";
    let agent = PEGEL
        .agent()
        .config(config)
        .args(&["--node", "nid0001"])
        .start();
    let status = |host: &str| {
        let raw = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        send_raw(agent.http(), &raw)
    };
    for host in [
        "evil.example",
        "evil.example:1337",
        "localhost.evil.example",
        "192.0.2.1",
    ] {
        let answer = status(host);
        assert!(answer.starts_with("HTTP/1.1 421 "), "{host}: {answer}");
    }
    assert_eq!(agent.refused("host"), 4);
    let own = rustix::system::uname();
    let own = own.nodename().to_str().expect("UTF-8");
    for host in [
        "localhost",
        "127.0.0.1:1",
        "127.9.9.9",
        "[::1]:1",
        "nid0001",
        "telemetry.example",
        own,
    ] {
        let answer = status(host);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    // The host in the request target counts as much as the header.
    let raw = "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(send_raw(agent.http(), raw).starts_with("HTTP/1.1 421 "));
    agent.assert_conserved();
}

#[test]
fn pages_of_other_sites_change_nothing() {
    let agent = PEGEL.agent().start();
    let AgentAddress::Tcp(address) = *agent.http() else {
        panic!("TCP")
    };
    let post = |headers: &str| {
        let raw = format!(
            "POST /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n"
        );
        send_raw(agent.http(), &raw)
    };
    for headers in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://127.0.0.1:1\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        let answer = post(headers);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{headers}: {answer}");
    }
    assert_eq!(agent.refused("origin"), 5);
    // Posting is not permitted there for any client.
    for headers in [
        "",
        &format!("Origin: http://{address}\r\nSec-Fetch-Site: same-origin\r\n"),
    ] {
        let answer = post(headers);
        assert!(answer.starts_with("HTTP/1.1 405 "), "{headers}: {answer}");
    }
    // The browser keeps responses from pages of other sites.
    let answer = get_with(
        agent.http(),
        "/metrics",
        &[("Origin", "http://evil.example")],
    );
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), None);
    agent.assert_conserved();
}

/// Returns files and directories below `dir` that group or others can access.
fn open_to_others(dir: &Path) -> Vec<String> {
    with_mode(dir, 0o077)
}

/// Returns files and directories below `dir` whose mode has one of these bits.
fn with_mode(dir: &Path, bits: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let metadata = fs::symlink_metadata(&path).expect("there");
        if metadata.mode() & bits != 0 {
            found.push(format!("{} {:o}", path.display(), metadata.mode()));
        }
        if metadata.is_dir() {
            found.extend(with_mode(&path, bits));
        }
    }
    found
}

#[test]
fn the_stores_files_are_private_for_every_umask() {
    let home = TempDir::new();
    let dir = home.join("store");
    // Blocks are written after a second.
    let start = || {
        let builder = PEGEL.agent_after(&home, "umask 000").dir(&dir);
        builder.config("rate: 50ms\nkeep: {memory: 1s}\n").start()
    };
    let agent = start();
    eventually("there is a block", || {
        let blocks = fs::read_dir(dir.join("blocks"))
            .expect("a directory")
            .count();
        if blocks > 0 { Ok(()) } else { Err(blocks) }
    });
    assert_eq!(fs::metadata(&dir).expect("there").mode() & 0o777, 0o700);
    assert_eq!(open_to_others(&dir), [""; 0]);
    agent.stop();

    // Files of an earlier version, in a directory that others may read.
    for path in ["", "log", "blocks", "format", "lanes.journal"] {
        let mode = if path.contains('.') { 0o644 } else { 0o755 };
        set_mode(dir.join(path), mode);
    }
    let agent = start();
    assert_eq!(open_to_others(&dir), [""; 0]);
    agent.stop();

    for mode in [0o775, 0o757] {
        set_mode(&dir, mode);
        let finished = PEGEL.agent().dir(&dir).run();
        assert_eq!(finished.code(), Some(1), "{finished}");
        assert!(finished.stderr.contains("can be written by"), "{finished}");
    }
}

/// Outputs whose receivers do not respond, a tree, an archive, and what users leave in the store.
#[test]
fn what_inputs_and_outputs_store_is_private_for_every_umask() {
    if need("curl").is_none() {
        return;
    }
    let home = TempDir::new();
    let dir = home.join("store");
    let (archive, records) = (home.join("archive/deep"), home.join("records/deep"));
    // Nothing listens there any more.
    let free = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let config = format!(
        "node: n1\nrate: 100ms\nkeep: {{memory: 1s, disk: 20d}}\ntree: {{accept: '127.0.0.1:0'}}\n\
         remote_write: [{{url: 'http://127.0.0.1:{port}/api/v1/write'}}]\n\
         graphite: [{{host: 127.0.0.1, port: {port}, interval: 200ms}}]\n\
         archive: {{to: 'file://{}'}}\n",
        archive.display()
    );
    let start = || {
        let builder = PEGEL.agent_after(&home, "umask 000").dir(&dir);
        builder.config(&config).start()
    };
    let agent = start();
    let filter = url(&agent, "/api/v1/filters/f");
    let body = r#"{"match":"hidden"}"#;
    assert_eq!(curl(&["-X", "PUT", "-d", body, &filter]).0, 200);
    let past = now_millis() - 2 * 3_600_000;
    let point = format!(r#"{{"metric":"queue","timestamp":{past},"value":1,"tags":{{"x":"y"}}}}"#);
    let put = post(&agent.unix(), "/api/put?sync", &[], point.as_bytes()).expect("an answer");
    assert!(put.status < 300, "{}", put.text());
    let pushed = post(&agent.unix(), "/metrics/job/j", &[], b"a 1\n").expect("an answer");
    assert!(pushed.status < 300, "{}", pushed.text());
    let (socket, place) = (
        agent.socket.display().to_string(),
        format!("file://{}", records.display()),
    );
    for args in [
        &["mark", "begin"][..],
        &["push", "depth=1"],
        &["run", "-j", "j1", "-q", "--", "true"],
        &[
            "session",
            "start",
            "--workflow",
            "wf",
            "--task",
            "t",
            "--to",
            &place,
            "-u",
            &socket,
        ],
        &["session", "stop", "--wait", "-u", &socket],
    ] {
        let finished = agent.client(args);
        assert_eq!(finished.code(), Some(0), "{args:?}: {finished}");
    }
    let written = [
        "annotations.jsonl",
        "filters",
        "graphite",
        "jobs.log",
        "outgoing",
        "pushgateway",
        "remote_write",
        "sessions",
        "tree-instance",
    ];
    eventually_within(Duration::from_secs(60), "everything is written", || {
        let missing = written.iter().filter(|name| !dir.join(name).exists());
        let missing: Vec<_> = missing.collect();
        let is_complete = missing.is_empty() && archive.exists() && records.exists();
        is_complete.then_some(()).ok_or(format!("{missing:?}"))
    });
    assert_eq!(open_to_others(&dir), [""; 0]);
    // Readers of archives and records may be other users; writers may not.
    for root in [&archive, &records] {
        let top = root.parent().expect("a directory");
        assert_eq!(with_mode(top, 0o022), [""; 0]);
        let mode = fs::metadata(top).expect("there").mode();
        assert_eq!(mode & 0o022, 0, "{}: {mode:o}", top.display());
    }
    agent.stop();
    assert_eq!(open_to_others(&dir), [""; 0]);

    // Files of an earlier version.
    fs::write(dir.join("tree-backfill.json"), "{}").expect("written");
    for name in ["filters", "jobs.log", "tree-backfill.json"] {
        set_mode(dir.join(name), 0o644);
    }
    let agent = start();
    assert_eq!(open_to_others(&dir), [""; 0]);
    agent.stop();
}
