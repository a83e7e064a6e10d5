//! The proxy: its startup messages, its port and its symlink.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use pegel_testkit::{AgentAddress, eventually, get};
use rustix::process::Signal;

use super::user::{BOUND, HTTP, TauUser};

fn is_link(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|found| found.is_symlink())
}

/// Returns the TCP ports on which a process listens, in its network namespace.
fn listening(pid: u32) -> Vec<u16> {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("it runs");
    let mut ports: Vec<u16> = table
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let port = words.get(1)?.rsplit(':').next()?;
            (words.get(3) == Some(&"0A")).then(|| u16::from_str_radix(port, 16).ok())?
        })
        .collect();
    ports.sort_unstable();
    ports
}

#[test]
fn the_proxy_prints_its_addresses_and_cleans_up() {
    let Some(user) = TauUser::new() else {
        return;
    };
    let proxy = user.proxy(&[]);
    let lines = user.first_lines(HTTP, &user.link());
    assert_eq!(proxy.stderr(), lines);
    assert!(is_link(&user.link()));
    // The URL in TAU's manual ends with a slash.
    let address = AgentAddress::Tcp(HTTP.parse().expect("an address"));
    let answer = user
        .network
        .run_inside(|| get(&address, "/metrics/"))
        .expect("an answer");
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("\nnode_load1 "));
    // TAU's proxy has only this port and the socket.
    assert_eq!(listening(proxy.pid()), [1337]);
    assert_eq!(user.run("tau_metric_client", &["-l"]).code(), Some(0));
    let link = user.link().display().to_string();
    assert_eq!(
        user.run("tau_metric_client", &["-l", "-u", &link]).code(),
        Some(0)
    );
    proxy.signal(Signal::TERM);
    let finished = proxy.wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");
    assert_eq!((finished.stdout.as_str(), finished.stderr), ("", lines));
    assert!(!is_link(&user.link()));
}

#[test]
fn the_proxy_prints_the_bound_port() {
    let Some(user) = TauUser::new() else {
        return;
    };
    let proxy = user.proxy(&[("PEGEL_LISTEN", Path::new("127.0.0.1:0"))]);
    let text = proxy.stderr();
    let address = text.lines().next().and_then(|line| line.rsplit(' ').next());
    let address: SocketAddr = address
        .and_then(|text| text.parse().ok())
        .expect("an address");
    assert_eq!(text, user.first_lines(&address.to_string(), &user.link()));
    let answer = user
        .network
        .run_inside(|| get(&AgentAddress::Tcp(address), "/metrics"));
    assert_eq!(answer.expect("an answer").status, 200);
    // With logging off, it still creates the symlink.
    drop(proxy);
    fs::remove_file(user.link()).expect("left by the one that was killed");
    let mut quiet = user.command("tau_metric_proxy", &[]);
    quiet.env("PEGEL_LOG", "off");
    let quiet = user.start(quiet);
    eventually("the link", || {
        is_link(&user.link())
            .then_some(())
            .ok_or_else(|| quiet.output())
    });
    assert_eq!(quiet.output(), "--- stdout\n\n--- stderr\n");
}

#[test]
fn a_port_in_use_is_an_error_that_names_the_holder() {
    let Some(user) = TauUser::new() else {
        return;
    };
    let proxy = user.proxy(&[]);
    let mut second = user.command("tau_metric_proxy", &[]);
    second
        .env("HOME", user.home.join("other"))
        .env("PEGEL_DIR", user.home.join("other"))
        .env("XDG_RUNTIME_DIR", user.home.join("other"));
    let finished = user.start(second).wait(BOUND);
    assert_eq!(finished.code(), Some(1), "{finished}");
    let words = format!(
        "tau_metric_proxy: {HTTP} is already in use by pid {}",
        proxy.pid()
    );
    assert!(finished.stderr.starts_with(&words), "{finished}");
    assert!(finished.stderr.contains("PEGEL_LISTEN"), "{finished}");
    // The running proxy keeps its symlink.
    assert!(is_link(&user.link()));
    assert_eq!(user.run("tau_metric_client", &["-l"]).code(), Some(0));
}

#[test]
fn a_stale_symlink_is_replaced() {
    let Some(user) = TauUser::new() else {
        return;
    };
    user.proxy(&[]).kill();
    assert!(is_link(&user.link()), "nobody could remove it");
    let other = user.home.join("other");
    user.make_dir(&other);
    let proxy = user.proxy(&[("XDG_RUNTIME_DIR", &other)]);
    assert_eq!(proxy.stderr(), user.first_lines(HTTP, &user.link()));
    let target = fs::read_link(user.link()).expect("a link");
    assert!(target.starts_with(&other), "{}", target.display());
    // After a kill and a restart with the same socket, the symlink is reused.
    proxy.kill();
    let proxy = user.proxy(&[("XDG_RUNTIME_DIR", &other)]);
    proxy.signal(Signal::INT);
    assert_eq!(proxy.wait(BOUND).code(), Some(0));
    assert!(!is_link(&user.link()));
}

#[test]
fn a_foreign_file_or_symlink_is_kept() {
    let Some(user) = TauUser::new() else {
        return;
    };
    let link = user.link();
    let check = |what: &str, words: &str| {
        let proxy = user.proxy(&[]);
        let socket = user.home.join("pegel/push.sock");
        let text = eventually("a warning", || {
            let text = proxy.stderr();
            (text.lines().count() == 3)
                .then_some(text.clone())
                .ok_or(text)
        });
        let lines = user.first_lines(HTTP, &socket);
        let warning = text
            .strip_prefix(&lines)
            .unwrap_or_else(|| panic!("{what}: {text}"));
        let start = format!("WARNING: {} {words}", link.display());
        assert!(warning.starts_with(&start), "{what}: {warning}");
        // The proxy works on the printed socket.
        assert_eq!(user.run("tau_metric_client", &["-l"]).code(), Some(0));
        proxy.signal(Signal::TERM);
        assert_eq!(proxy.wait(BOUND).code(), Some(0));
        assert!(link.symlink_metadata().is_ok(), "{what} stays");
    };
    fs::write(&link, "mine").expect("written");
    chown(&link, Some(user.uid), Some(user.uid)).expect("given");
    check("the user's own file", "is not our symlink");
    assert_eq!(fs::read(&link).expect("read"), b"mine");
    fs::remove_file(&link).expect("ours");
    symlink("/nowhere", &link).expect("made");
    check("a link of root's", "is not our symlink (owned by user 0)");
    assert_eq!(fs::read_link(&link).expect("a link"), Path::new("/nowhere"));
    fs::remove_file(&link).expect("ours");

    // Two proxies of one user: the symlink belongs to the first.
    let first = user.proxy(&[]);
    let other = user.home.join("other");
    user.make_dir(&other);
    let second = user.proxy(&[
        ("XDG_RUNTIME_DIR", &other),
        ("PEGEL_DIR", &other.join("store")),
        ("PEGEL_LISTEN", Path::new("127.0.0.1:0")),
    ]);
    eventually("a warning", || {
        let text = second.stderr();
        text.contains("points to another running proxy")
            .then_some(())
            .ok_or(text)
    });
    second.signal(Signal::TERM);
    assert_eq!(second.wait(BOUND).code(), Some(0));
    assert!(is_link(&link), "the first one's");
    first.signal(Signal::TERM);
    assert_eq!(first.wait(BOUND).code(), Some(0));
    assert!(!is_link(&link));
}
