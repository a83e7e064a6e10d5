//! The server without free descriptors. Its test runs in a process of its own, because the limit
//! applies to the whole process.

use std::fs::File;
use std::time::{Duration, Instant};

use pegel_testkit::{eventually, run_alone};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::TestServer;

#[test]
fn without_descriptors_the_server_waits_and_continues() {
    run_alone(|| {
        let server = TestServer::new();
        let limit = getrlimit(Resource::Nofile);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(200),
                maximum: limit.maximum,
            },
        )
        .expect("lowered");
        let mut hoard = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            hoard.push(file);
        }
        // One descriptor for the client, none for the server's end.
        hoard.pop();
        let mut client = server.connect();
        client.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        eventually("the failure is counted", || {
            match server.refused("accept") {
                0 => Err(0),
                _ => Ok(()),
            }
        });
        let (before, begun) = (server.refused("accept"), Instant::now());
        std::thread::sleep(Duration::from_millis(500));
        let tried = server.refused("accept") - before;
        let took = begun.elapsed();
        assert!(
            u128::from(tried) <= took.as_millis() / 50,
            "{tried} attempts in {took:?}: that is a spin"
        );
        hoard.clear();
        assert!(client.until("ok\n").starts_with("HTTP/1.1 200 OK\r\n"));
    });
}
