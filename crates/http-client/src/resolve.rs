//! Name resolution with a deadline. The C library has none: with the defaults of `resolv.conf` it
//! waits 10 s for each server that does not respond. Some callers are threads of one target, which
//! could wait; queries that read the history cannot.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Instant;

use pegel_supervisor::AbandonableThreads;

/// Bounds the threads that wait for name servers.
static RESOLVERS: AbandonableThreads = AbandonableThreads::new("resolve", 16);
/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Returns the addresses of a host.
pub(crate) fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    call_within(&RESOLVERS, deadline, move || {
        let addresses = (host.as_str(), port).to_socket_addrs()?;
        Ok(addresses.take(ADDRESSES_MAX).collect())
    })
}

/// Waits for a call that may hang, until the deadline.
fn call_within<T: Send + 'static>(
    threads: &'static AbandonableThreads,
    deadline: Instant,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (send, receive) = sync_channel(1);
    threads.start(move || {
        // An error means that the caller does not wait any more.
        let _ = send.send(call());
    })?;
    let left = deadline.saturating_duration_since(Instant::now());
    match receive.recv_timeout(left) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "name resolution timed out",
        )),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("name resolution failed")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_server_that_does_not_respond_does_not_extend_the_deadline() {
        static HANGING: AbandonableThreads = AbandonableThreads::new("hanging", 1);
        let (release, released) = mpsc::channel::<()>();
        let hang = move || {
            let _ = released.recv();
            Ok(())
        };
        let soon = Instant::now() + Duration::from_millis(20);
        let late = call_within(&HANGING, soon, hang).expect_err("it hangs");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        let deadline = Instant::now() + Duration::from_secs(60);
        let refused = call_within(&HANGING, deadline, || Ok(())).expect_err("no thread is free");
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        drop(release);
        while call_within(&HANGING, deadline, || Ok(())).is_err() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    #[test]
    fn addresses_need_no_resolution() {
        let past = Instant::now();
        let found = resolve("::1", 80, past).expect("an address");
        assert_eq!(found, ["[::1]:80".parse().expect("an address")]);
        let deadline = past + Duration::from_secs(60);
        let found = resolve("localhost", 80, deadline).expect("it is in /etc/hosts");
        assert!(found.iter().all(|address| address.ip().is_loopback()));
    }
}
