//! Start and stop of the server.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::TestServer;

/// Less than the time that a stop waits for connections, and more than a busy machine needs.
const AT_ONCE: Duration = Duration::from_secs(30);

#[test]
fn stopping_frees_the_ports_and_removes_the_socket() {
    let mut server = TestServer::new();
    let addresses = server.running().http_addresses().to_vec();
    let socket = server.running().socket_path().expect("a socket").to_owned();
    // An idle connection does not delay the stop.
    let mut idle = server.connect();
    idle.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    idle.until("ok\n");
    let running = server.running.take().expect("running");
    let begun = Instant::now();
    server.runtime.block_on(running.stop(AT_ONCE * 2));
    assert!(begun.elapsed() < AT_ONCE);
    assert_eq!(idle.rest(), "");
    assert!(!socket.exists());
    for address in addresses {
        TcpListener::bind(address).expect("free again");
    }
}

#[test]
fn requests_that_do_not_finish_in_time_are_dropped() {
    let mut server = TestServer::with(|settings| settings.queries_max = 0);
    let mut waiting = server.connect();
    waiting.send("GET /api/v1/range HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let running = server.running.take().expect("running");
    let begun = Instant::now();
    let grace = Duration::from_millis(300);
    server.runtime.block_on(running.stop(grace));
    assert!(begun.elapsed() < AT_ONCE);
    assert_eq!(waiting.rest(), "");
}
