//! Promise 6: a shared node is no private place. Other users, other sites' pages and whoever was at our
//! paths before us get nothing, and are told why.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pegel_testkit::{
    Address, AgentBuilder, AgentProcess, Finished, PLANTED_TOKEN, Process, Stranger, TempDir,
    assert_not_shown, curl, eventually, get, get_with, need, need_hardware,
};
use rustix::process::Signal;

const PEGEL: &str = env!("CARGO_BIN_EXE_pegel");
/// Everything that can be asked for, and something that cannot.
const PATHS: [&str; 8] = [
    "/",
    "/metrics",
    "/metrics/",
    "/status",
    "/api/v1/list",
    "/api/v1/values",
    "/api/v1/range",
    "/api/v1/nothing",
];

fn agent() -> AgentBuilder {
    AgentBuilder::new(PEGEL)
}

fn url(agent: &AgentProcess, path: &str) -> String {
    format!("http://{}{path}", agent.http())
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

fn refused(agent: &AgentProcess, reason: &str) -> u64 {
    let status = agent.status();
    let count = &status["http"]["refused"][reason];
    count
        .as_u64()
        .unwrap_or_else(|| panic!("{reason} in {status}"))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
}

#[test]
fn another_user_gets_nothing_over_http_without_the_token() {
    let Some(stranger) = Stranger::new() else {
        return;
    };
    let agent = agent().args(&["--node", "secret-node-name"]).start();
    for path in PATHS {
        let (status, output) = stranger.curl(&[&url(&agent, path)]);
        assert_eq!(status, 401, "{path}: {output}");
        assert!(
            output.contains("www-authenticate: Bearer\r\n"),
            "{path}: {output}"
        );
        assert!(
            output.contains("nobody (uid 65534) may not use this agent"),
            "{path}: {output}"
        );
        assert!(!output.contains("secret-node-name"), "{path}: {output}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "SHUTDOWN"] {
        let (status, output) = stranger.curl(&["-X", method, "-d", "x", &url(&agent, "/status")]);
        assert_eq!(status, 401, "{method}: {output}");
    }
    let (status, output) = stranger.curl(&[&url(&agent, "/api/v1/stream")]);
    assert_eq!(status, 401, "{output}");
    assert_eq!(refused(&agent, "stranger"), PATHS.len() as u64 + 6);

    let wrong = [
        bearer("planted-but-wrong"),
        "Authorization: Basic eDp5".to_owned(),
    ];
    for header in &wrong {
        let (status, output) = stranger.curl(&["-H", header, &url(&agent, "/metrics")]);
        assert_eq!(status, 401, "{output}");
    }
    assert_eq!(refused(&agent, "token"), 1, "the other one was none");

    for path in &PATHS[..7] {
        let (status, output) = stranger.curl(&["-H", &bearer(PLANTED_TOKEN), &url(&agent, path)]);
        assert_eq!(status, 200, "{path}: {output}");
    }
    agent.assert_conserved();
}

#[test]
fn anyone_may_ask_whether_all_is_well_and_learns_no_more() {
    let Some(stranger) = Stranger::new() else {
        return;
    };
    let agent = agent().start();
    let (status, output) = stranger.curl(&[&url(&agent, "/healthz")]);
    assert_eq!(status, 200, "{output}");
    assert!(output.contains("\r\n\r\nok\n"), "{output}");
    for other in [
        "/healthz/",
        "//healthz",
        "/healthz/../status",
        "/status?/healthz",
    ] {
        let (status, output) = stranger.curl(&["--path-as-is", &url(&agent, other)]);
        assert_eq!(status, 401, "{other}: {output}");
    }
    agent.assert_conserved();
}

#[test]
fn the_agents_own_user_and_root_need_no_token() {
    let agent = agent().start();
    for address in [agent.http(), &agent.unix()] {
        for path in &PATHS[..7] {
            let answer = get(address, path).expect("an answer");
            assert_eq!(answer.status, 200, "{address} {path}: {}", answer.text());
        }
    }
    let listed = agent.client(PEGEL, &["list", "-f", "json"]);
    assert_eq!(listed.code(), Some(0), "{listed}");
    agent.assert_conserved();
}

#[test]
fn allow_users_lets_them_in_by_name_and_by_number() {
    let Some(stranger) = Stranger::new() else {
        return;
    };
    for user in [Stranger::NAME.to_owned(), Stranger::UID.to_string()] {
        let agent = agent().config(&format!("allow_users: [{user}]\n")).start();
        for path in &PATHS[..7] {
            let (status, output) = stranger.curl(&[&url(&agent, path)]);
            assert_eq!(status, 200, "{user} {path}: {output}");
        }
        assert_eq!(refused(&agent, "stranger"), 0);
        agent.assert_conserved();
    }
    let finished = agent().config("allow_users: [no-such-user-here]\n").run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(
        finished.stderr.contains("no user \"no-such-user-here\""),
        "{finished}"
    );
}

#[test]
fn an_agent_of_another_user_serves_that_user_and_root_only() {
    let Some(stranger) = Stranger::new() else {
        return;
    };
    // The binary may lie where only root can read: the stranger gets its own.
    let home = TempDir::new();
    set_mode(home.path(), 0o755);
    let (binary, place) = (home.join("pegel"), home.join("place"));
    fs::copy(PEGEL, &binary).expect("a copy");
    set_mode(&binary, 0o755);
    fs::create_dir(&place).expect("a directory");
    chown(&place, Some(Stranger::UID), Some(Stranger::UID)).expect("given away");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (dir, socket) = (
        text(&place.join("store")),
        text(&place.join("run/push.sock")),
    );
    let mut command = Command::new("setpriv");
    let uid = Stranger::UID.to_string();
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
        ])
        .env_clear()
        .env("HOME", &place)
        .current_dir("/");
    if need("setpriv").is_none() {
        return;
    }
    let theirs = Process::start(&mut command);
    let endpoint = eventually("it has started", || {
        fs::read(place.join("store/endpoint.json")).map_err(|e| (e, theirs.output()))
    });
    let endpoint: serde_json::Value = serde_json::from_slice(&endpoint).expect("JSON");
    let address = endpoint["http"][0].as_str().expect("an address");
    let status = format!("http://{address}/status");
    assert_eq!(stranger.curl(&[&status]).0, 200, "its own user");
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
    let finished = Process::start(&mut command).wait(Duration::from_secs(30));
    assert_eq!(finished.stdout, "401", "{finished}");
    // A client trusts its own agent and root's, and says whose this one is.
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65533", "--clear-groups"])
        .arg(&binary)
        .args(["list", "-u", &socket]);
    let finished = Process::start(&mut command).wait(Duration::from_secs(30));
    assert_ne!(finished.code(), Some(0), "{finished}");
    theirs.signal(Signal::TERM);
    assert_eq!(theirs.wait(Duration::from_secs(30)).code(), Some(0));
}

#[test]
fn another_user_gets_nothing_over_the_socket() {
    let Some(stranger) = Stranger::new() else {
        return;
    };
    let home = TempDir::new();
    let socket = home.join("run/push.sock");
    let agent = agent().socket(&socket).start();
    let path = socket.to_str().expect("UTF-8");
    let ask = |headers: &[&str]| {
        let fixed = ["--unix-socket", path, "http://localhost/status"];
        stranger.curl(&[headers, &fixed].concat())
    };
    assert_eq!(ask(&[]).0, 0, "it cannot even connect: {}", ask(&[]).1);

    // Somebody opens all doors by mistake: the kernel still says who comes in.
    set_mode(home.path(), 0o755);
    set_mode(&home.join("run"), 0o755);
    set_mode(&socket, 0o666);
    let (status, output) = ask(&[]);
    assert_eq!(status, 401, "{output}");
    assert_eq!(refused(&agent, "stranger"), 1);
    let (status, output) = ask(&["-H", &bearer(PLANTED_TOKEN)]);
    assert_eq!(status, 200, "the token counts here too: {output}");
    agent.assert_conserved();
}

#[test]
fn another_user_can_neither_stop_the_agent_nor_touch_its_files() {
    let Some(stranger) = Stranger::new() else {
        return;
    };
    let mut agent = agent().start();
    let pid = agent.pid().to_string();
    for signal in ["-TERM", "-KILL", "-HUP"] {
        let finished = stranger.run("sh", &["-c", "kill $0 $1", signal, &pid]);
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
        let finished = stranger.run("sh", &["-c", script, &dir]);
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
    let Some(stranger) = Stranger::new() else {
        return;
    };
    let agent = agent().config("limits: {connections: 16}\n").start();
    let Address::Tcp(address) = *agent.http() else {
        panic!("TCP")
    };
    let held = stranger.act(|| {
        let connect = |_| TcpStream::connect(address).expect("connected");
        (0..32).map(connect).collect::<Vec<_>>()
    });
    eventually("half of the seats are all it gets", || {
        let status = agent.status();
        let taken = status["http"]["connections"].as_u64().unwrap_or(0);
        let refused = refused(&agent, "unknown_connections");
        // One is ours, with which we ask.
        if (taken, refused) == (9, 24) {
            Ok(())
        } else {
            Err((taken, refused))
        }
    });
    assert_eq!(
        get(agent.http(), "/metrics").expect("an answer").status,
        200
    );
    drop(held);
    agent.assert_conserved();
}

#[test]
fn a_client_that_is_gone_before_it_is_looked_at_is_nobody() {
    let agent = agent().start();
    let Address::Tcp(address) = *agent.http() else {
        panic!("TCP")
    };
    // Half of them reset, half of them closed in order; none of them may disturb the agent.
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
fn a_name_that_is_not_ours_is_misdirected() {
    let config = "hosts: [telemetry.example]\n";
    let agent = agent().config(config).args(&["--node", "nid0001"]).start();
    let status = |host: &str| {
        let raw = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(agent.http(), &raw)
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
    assert_eq!(refused(&agent, "host"), 4);
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
    // The target counts as much as the header.
    let raw = "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(exchange(agent.http(), raw).starts_with("HTTP/1.1 421 "));
    agent.assert_conserved();
}

#[test]
fn another_sites_page_changes_nothing() {
    let agent = agent().start();
    let Address::Tcp(address) = *agent.http() else {
        panic!("TCP")
    };
    let post = |headers: &str| {
        let raw = format!(
            "POST /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n{headers}\r\n"
        );
        exchange(agent.http(), &raw)
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
    assert_eq!(refused(&agent, "origin"), 5);
    // Nothing can be posted there, but not because of who asks.
    for headers in [
        "",
        &format!("Origin: http://{address}\r\nSec-Fetch-Site: same-origin\r\n"),
    ] {
        let answer = post(headers);
        assert!(answer.starts_with("HTTP/1.1 405 "), "{headers}: {answer}");
    }
    // Reading is left to the browser, which does not show the page what it got.
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

/// Sends the bytes and returns all that comes back.
fn exchange(address: &Address, raw: &str) -> String {
    let Address::Tcp(address) = address else {
        panic!("TCP")
    };
    let mut stream = TcpStream::connect(address).expect("connected");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    std::io::Write::write_all(&mut stream, raw.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_new_token_is_taken_from_its_file_and_a_bad_one_is_not() {
    let Some(stranger) = Stranger::new() else {
        return;
    };
    let home = TempDir::new();
    let file = home.join("token");
    let write = |text: &str, mode: u32| {
        let new = home.join("token.new");
        fs::write(&new, text).expect("written");
        set_mode(&new, mode);
        fs::rename(&new, &file).expect("renamed");
    };
    write(&format!("{PLANTED_TOKEN}-1\n"), 0o600);
    let config = format!("token_file: {}\n", file.display());
    let agent = agent()
        .env("PEGEL_TOKEN", "")
        .config(&config)
        .args(&["--log", "info"])
        .start();
    let status = |suffix: &str| {
        let header = bearer(&format!("{PLANTED_TOKEN}{suffix}"));
        stranger.curl(&["-H", &header, &url(&agent, "/status")]).0
    };
    let takes = |suffix: &str| {
        eventually("the new token is taken", || match status(suffix) {
            200 => Ok(()),
            other => Err(other),
        });
    };
    assert_eq!((status("-1"), status("-2"), status("")), (200, 401, 401));

    write(&format!("{PLANTED_TOKEN}-2\n"), 0o600);
    agent.signal(Signal::HUP);
    takes("-2");
    assert_eq!(status("-1"), 401, "the old one is worth nothing");

    // Without a signal it takes up to ten seconds. A bad file changes nothing.
    write(&format!("{PLANTED_TOKEN}-3\n"), 0o644);
    eventually(
        "the trouble is shown",
        || match agent.status()["http"]["guard"]["trouble"].as_str() {
            Some(text) if text.contains("has mode 0644") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    assert_eq!((status("-2"), status("-3")), (200, 401));
    assert!(
        agent
            .stderr()
            .contains("the token cannot be read again and stays as it was")
    );
    set_mode(&file, 0o600);
    agent.signal(Signal::HUP);
    takes("-3");
    assert!(agent.status()["http"]["guard"]["trouble"].is_null());
    agent.assert_conserved();
}

#[test]
fn a_token_file_that_others_can_read_is_refused() {
    let home = TempDir::new();
    let file = home.join("token");
    let run = || {
        let config = format!("token_file: {}\n", file.display());
        let finished = agent().env("PEGEL_TOKEN", "").config(&config).run();
        assert_eq!(finished.code(), Some(1), "{finished}");
        assert!(
            finished.stderr.contains(file.to_str().expect("UTF-8")),
            "{finished}"
        );
        finished.stderr
    };
    assert!(run().contains("No such file"));
    fs::write(&file, PLANTED_TOKEN).expect("written");
    set_mode(&file, 0o644);
    assert!(run().contains("has mode 0644"));
    set_mode(&file, 0o600);
    for (text, problem) in [
        ("", "is empty"),
        ("planted-0b53e8f1c9d7 token", "has spaces"),
        ("planted-0b53e8f1c9d7\ntoken", "line breaks"),
    ] {
        fs::write(&file, text).expect("written");
        assert!(run().contains(problem));
    }
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to make another user's file").is_some() {
        chown(&file, Some(Stranger::UID), None).expect("given away");
        assert!(run().contains("belongs to nobody (uid 65534)"));
    }
}

/// The planted token is in every agent that tests start, and in all their output it is searched for.
/// Here in what else there is.
#[test]
fn the_token_shows_nowhere() {
    let home = TempDir::new();
    let file = home.join("token");
    fs::write(&file, format!("{PLANTED_TOKEN}\n")).expect("written");
    set_mode(&file, 0o600);
    let config = format!("token_file: {}\nnode: n1\n", file.display());
    for variable in ["", PLANTED_TOKEN] {
        let agent = agent()
            .env("PEGEL_TOKEN", variable)
            .config(&config)
            .args(&["--log", "trace"])
            .start();
        let header = format!("Bearer {PLANTED_TOKEN}");
        for headers in [&[][..], &[("Authorization", header.as_str())]] {
            for path in PATHS.iter().chain(&["/api/v1/range?match=*{", "/healthz"]) {
                for address in [agent.http(), &agent.unix()] {
                    // The answer is searched by whoever reads it.
                    get_with(address, path, headers).expect("an answer");
                }
            }
        }
        // Written where no secret belongs, it is not repeated either.
        for raw in [
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: {PLANTED_TOKEN}\r\nConnection: close\r\n\r\n"
            ),
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {PLANTED_TOKEN}x\r\nConnection: close\r\n\r\n"
            ),
            format!(
                "POST /status HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nAuthorization: Bearer {PLANTED_TOKEN}\r\nConnection: close\r\n\r\n"
            ),
        ] {
            assert_not_shown("an answer", exchange(agent.http(), &raw).as_bytes());
        }
        agent.signal(Signal::HUP);
        eventually("it has read its files again", || {
            if agent.stderr().contains("hangup") {
                Ok(())
            } else {
                Err(agent.stderr())
            }
        });
        agent.assert_conserved();
        let dir = agent.dir.clone();
        assert_not_shown("the agent's log", agent.output().as_bytes());
        search_files(&dir);
        assert_eq!(agent.stop().code(), Some(0));
    }
    // What the commands say about the configuration.
    let yaml = home.join("pegel.yaml");
    fs::write(&yaml, &config).expect("written");
    let yaml = yaml.to_str().expect("UTF-8");
    for args in [
        &["config", "show", "--config", yaml][..],
        &["config", "check", yaml],
        &["agent", "--config", yaml, "--listen", "nowhere"],
        &[
            "agent",
            "--config",
            yaml,
            "--dir",
            "/proc/nothing",
            "--log",
            "trace",
        ],
    ] {
        let finished = pegel(args);
        assert_not_shown("a command", finished.to_string().as_bytes());
    }
    let shown = pegel(&["config", "show", "--config", yaml]);
    assert!(shown.stdout.contains("token_file: "), "{shown}");
}

fn pegel(args: &[&str]) -> Finished {
    let mut command = Command::new(PEGEL);
    command
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("PEGEL_TOKEN", PLANTED_TOKEN);
    Process::start(command.args(args)).wait(Duration::from_secs(30))
}

fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries
        .flat_map(|entry| {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Searches all that the agent wrote to its directory.
fn search_files(dir: &Path) {
    let files = files_below(dir);
    assert!(
        files.len() > 2,
        "a log, a lock and where it listens: {files:?}"
    );
    for path in &files {
        // What was removed meanwhile shows nothing.
        let text = fs::read(path).unwrap_or_default();
        assert_not_shown(&path.display().to_string(), &text);
    }
}

/// What is there before the agent is not touched, and the message says what it is.
#[track_caller]
fn assert_left_alone(socket: &Path, at: &Path, words: &[&str]) {
    let before = fs::symlink_metadata(at).expect("it is there");
    let finished = agent()
        .socket(socket)
        .env(
            "XDG_RUNTIME_DIR",
            socket.parent().and_then(Path::parent).expect("a place"),
        )
        .run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    for word in words {
        assert!(finished.stderr.contains(word), "{word}: {finished}");
    }
    let after = fs::symlink_metadata(at).expect("it is still there");
    let seen = |found: &fs::Metadata| {
        (
            found.ino(),
            found.uid(),
            found.mode(),
            found.mtime_nsec(),
            found.size(),
        )
    };
    assert_eq!(seen(&before), seen(&after), "{}", at.display());
}

#[test]
fn a_link_in_place_of_the_socket_its_lock_or_its_directory_is_left_alone() {
    let home = TempDir::new();
    // Under $XDG_RUNTIME_DIR it is the default place, which strangers know beforehand.
    let dir = home.join("pegel");
    let socket = dir.join("push.sock");
    let precious = home.join("precious");
    fs::write(&precious, "precious").expect("written");
    fs::create_dir(&dir).expect("a directory");
    set_mode(&dir, 0o700);

    symlink(&precious, &socket).expect("linked");
    assert_left_alone(
        &socket,
        &socket,
        &["push.sock is not a socket (it belongs to "],
    );
    fs::remove_file(&socket).expect("removed");

    let lock = dir.join("push.sock.lock");
    let _ = fs::remove_file(&lock);
    symlink(&precious, &lock).expect("linked");
    assert_left_alone(
        &socket,
        &lock,
        &["push.sock.lock is a link or no plain file (it belongs to "],
    );
    fs::remove_file(&lock).expect("removed");

    fs::rename(&dir, home.join("elsewhere")).expect("moved");
    symlink(home.join("elsewhere"), &dir).expect("linked");
    assert_left_alone(&socket, &dir, &["pegel is not a directory (it belongs to "]);
    assert_eq!(
        fs::read_to_string(&precious).expect("still there"),
        "precious"
    );
    assert!(!home.join("elsewhere/push.sock").exists());
}

#[test]
fn what_belongs_to_another_user_is_left_alone_and_its_owner_named() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to make another user's files").is_none() {
        return;
    }
    let owner = "nobody (uid 65534)";
    let give_away = |path: &Path| chown(path, Some(Stranger::UID), None).expect("given away");
    for what in ["lock", "socket", "directory", "file"] {
        let home = TempDir::new();
        let dir = home.join("pegel");
        let socket = dir.join("push.sock");
        fs::create_dir(&dir).expect("a directory");
        set_mode(&dir, 0o700);
        let at = match what {
            "lock" => {
                fs::write(dir.join("push.sock.lock"), "1\n").expect("written");
                dir.join("push.sock.lock")
            }
            "socket" => {
                drop(std::os::unix::net::UnixListener::bind(&socket).expect("bound"));
                socket.clone()
            }
            "directory" => dir.clone(),
            _ => {
                fs::write(&socket, "theirs").expect("written");
                socket.clone()
            }
        };
        give_away(&at);
        assert_left_alone(&socket, &at, &[owner, at.to_str().expect("UTF-8")]);
    }
    // The same for the place of the store.
    let home = TempDir::new();
    let dir = home.join("store");
    fs::create_dir(&dir).expect("a directory");
    give_away(&dir);
    let finished = agent().dir(&dir).run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(
        finished.stderr.contains("belongs to user 65534"),
        "{finished}"
    );
    assert_eq!(
        fs::read_dir(&dir).expect("a directory").count(),
        0,
        "nothing was put there"
    );
}
