//! Tunnels to the head through a real sshd, and other users at their ends.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use pegel_testkit::{ChildProcess, OtherUser, TempDir, curl, eventually};

use crate::PEGEL;
use crate::ssh_server::{JOB_TIME, SshServer};
use crate::test_job::{BEGIN, TestJob};

/// A job whose command waits for the file `go`.
fn start(job: &TestJob, options: &[&str]) -> (ChildProcess, String) {
    let script = format!(
        "{BEGIN}echo ${{PEGEL_SOCKET%/primary/push.sock}} > dir; while [ ! -e go ]; do sleep 0.1; done"
    );
    let mut running = job.start(options, &["sh", "-c", &script]);
    job.wait_for_command(&mut running);
    let dir = eventually("the directory", || {
        let text = fs::read_to_string(job.home.join("dir")).map_err(|e| e.to_string())?;
        (!text.trim().is_empty())
            .then(|| text.trim().to_owned())
            .ok_or(text)
    });
    (running, dir)
}

fn finish(job: &TestJob, running: ChildProcess) {
    fs::write(job.home.join("go"), "").expect("written");
    let ended = running.wait(JOB_TIME);
    assert_eq!(ended.code(), Some(0), "{ended}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.local_addr().expect("an address").port()
}

/// Checks that only the token opens the page at the end of a tunnel, for every user.
#[track_caller]
fn only_the_token_opens(port: u16, token: &str) {
    let url = format!("http://localhost:{port}/api/v1/nodes");
    let bearer = format!("Authorization: Bearer {token}");
    eventually("the tunnel is open", || match curl(&[&url]) {
        (0, output) => Err(output),
        (status, output) => {
            assert!(
                status == 401 || status == 403,
                "the owner without the token: {output}"
            );
            Ok(())
        }
    });
    let (status, output) = curl(&["-H", &bearer, &url]);
    assert_eq!(status, 200, "the owner with the token: {output}");
    let login = format!("http://localhost:{port}/login");
    let (status, output) = curl(&["-d", &format!("token={token}"), &login]);
    assert_eq!(status, 303, "a browser logs in: {output}");
    let cookie = output
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie
        .and_then(|cookie| cookie.split(';').next())
        .expect("a cookie");
    let (status, output) = curl(&["-b", cookie, &url]);
    assert_eq!(status, 200, "with the session: {output}");
    let Some(other) = OtherUser::new() else {
        return;
    };
    for path in ["/api/v1/nodes", "/", "/metrics", "/api/telemetry_shutdown"] {
        let (status, output) = other.curl(&[&format!("http://localhost:{port}{path}")]);
        assert!(
            status == 401 || status == 403,
            "another user, {path}: {output}"
        );
    }
    let (status, output) = other.curl(&["-d", "token=wrong", &login]);
    assert!(
        status == 401 || status == 403,
        "another user with a wrong token: {output}"
    );
}

#[test]
fn the_printed_tunnel_leads_to_a_page_that_requires_the_token() {
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    let (running, dir) = start(&job, &["--login", "login1"]);
    let token = fs::read_to_string(format!("{dir}/head/token")).expect("read");
    // The printed line, with other ports and through the server of this test.
    let printed = running.stderr();
    let line = printed
        .lines()
        .find(|line| line.contains("ssh -J login1 -NL 1337:localhost:"));
    let line = line.unwrap_or_else(|| panic!("{printed}"));
    let far = line
        .split("-NL 1337:localhost:")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let (far, port) = (far.expect("a port"), free_port());
    let mut ssh = server.command();
    ssh.arg("-NL")
        .arg(format!("{port}:localhost:{far}"))
        .arg(server.address(0));
    let tunnel = ChildProcess::start(&mut ssh);
    only_the_token_opens(port, token.trim());
    drop(tunnel);
    finish(&job, running);
    job.leaves_nothing(&server.mark());
}

#[test]
fn a_port_on_the_login_host_requires_the_token() {
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    let port = free_port();
    let config = job.home.join("dragon.yaml");
    let text = format!(
        "remote_port_forward: {}\nremote_tunnel_port: {port}\n",
        server.address(0)
    );
    fs::write(&config, text).expect("written");
    let config = config.display().to_string();
    let options = [
        "--config",
        &config,
        "--launcher",
        &server.ssh(),
        "--hosts",
        &server.hosts(),
    ];
    let (running, dir) = start(&job, &options);
    let token = fs::read_to_string(format!("{dir}/head/token")).expect("read");
    only_the_token_opens(port, token.trim());
    finish(&job, running);
    job.leaves_nothing(&server.mark());
}

#[test]
fn pegel_tunnel_opens_a_private_socket_and_a_page_with_the_token() {
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    let (running, dir) = start(&job, &[]);
    let token = fs::read_to_string(format!("{dir}/head/token")).expect("read");
    let (laptop, port) = (TempDir::new(), free_port());
    let mut command = PEGEL.command(&laptop);
    command.args([
        "tunnel",
        "--ssh",
        &server.ssh(),
        "--port",
        &port.to_string(),
    ]);
    command.arg(format!("{}:{dir}", server.address(0)));
    let tunnel = ChildProcess::start(&mut command);
    let socket = eventually("the tunnel is announced", || {
        let text = tunnel.stderr();
        let socket = text
            .split("PEGEL_SOCKET=")
            .nth(1)
            .map(|rest| rest.trim().to_owned());
        socket.ok_or(text)
    });
    only_the_token_opens(port, token.trim());
    let mut nodes = PEGEL.command(&laptop);
    let listed = nodes
        .args(["nodes", "--check", "-u", &socket])
        .output()
        .expect("it starts");
    assert!(listed.status.success(), "{listed:?}");
    if let Some(other) = OtherUser::new() {
        let (status, output) = other.curl(&["--unix-socket", &socket, "http://localhost/status"]);
        assert_eq!(status, 0, "another user cannot connect: {output}");
    }
    tunnel.signal(rustix::process::Signal::INT);
    let ended = tunnel.wait(JOB_TIME);
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(
        !Path::new(&socket).parent().is_some_and(Path::exists),
        "{socket}"
    );
    // Another one ends with the job.
    let tunnel = ChildProcess::start(&mut command);
    eventually("the tunnel is announced", || {
        let text = tunnel.stderr();
        text.contains("PEGEL_SOCKET=").then_some(()).ok_or(text)
    });
    finish(&job, running);
    let ended = tunnel.wait(JOB_TIME);
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.stderr.contains("the job has ended"), "{ended}");
    let bad = PEGEL
        .command(&laptop)
        .args(["tunnel", "nowhere"])
        .output()
        .expect("it starts");
    assert_eq!(bad.status.code(), Some(2));
    job.leaves_nothing(&server.mark());
}
