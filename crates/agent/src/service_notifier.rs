//! Notifies the service manager of the agent's state: sends datagrams to the socket in
//! `NOTIFY_SOCKET`.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::config_sources::EnvironmentLookup;

/// The service manager that started this process, if it requests notifications.
#[derive(Debug)]
pub(crate) struct ServiceNotifier {
    socket: UnixDatagram,
    manager: SocketAddr,
    /// How long the manager waits for a watchdog notification before it restarts the agent.
    watchdog: Option<Duration>,
}

impl ServiceNotifier {
    /// Returns `None` if no notifications are requested or the socket cannot be used; the agent
    /// runs without them.
    pub(crate) fn new(environment: EnvironmentLookup<'_>) -> Option<ServiceNotifier> {
        let name = environment("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
        let made = parse_address(&name).and_then(|manager| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok((manager, socket))
        });
        let (manager, socket) = made
            .inspect_err(|error| tracing::warn!(?name, %error, "cannot use $NOTIFY_SOCKET"))
            .ok()?;
        let watchdog = watchdog_timeout(environment, std::process::id());
        Some(ServiceNotifier {
            socket,
            manager,
            watchdog,
        })
    }

    pub(crate) fn ready(&self, status: &str) {
        // Control characters would split the message into lines.
        let status = status.replace(char::is_control, " ");
        self.send(&format!(
            "READY=1\nSTATUS={status}\nMAINPID={}\n",
            std::process::id()
        ));
    }

    pub(crate) fn stopping(&self, status: &str) {
        let status = status.replace(char::is_control, " ");
        self.send(&format!("STOPPING=1\nSTATUS={status}\n"));
    }

    pub(crate) fn notify_watchdog(&self) {
        self.send("WATCHDOG=1\n");
    }

    /// The interval of watchdog notifications: half of the manager's timeout.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    fn send(&self, text: &str) {
        if let Err(error) = self.socket.send_to_addr(text.as_bytes(), &self.manager) {
            tracing::warn!(%error, "cannot notify the service manager");
        }
    }
}

/// Parses a path, or an abstract name after `@`.
fn parse_address(name: &OsString) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither an absolute path nor a name that begins with @",
        )),
    }
}

/// The watchdog timeout. `WATCHDOG_PID` names the process that it applies to: child processes
/// inherit both variables.
fn watchdog_timeout(environment: EnvironmentLookup<'_>, pid: u32) -> Option<Duration> {
    let number = |name: &str| environment(name)?.to_str()?.parse::<u64>().ok();
    let is_meant =
        environment("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(pid.into());
    let time = number("WATCHDOG_USEC").filter(|micros| is_meant && *micros > 0);
    time.map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        |name: &str| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        }
    }

    fn heard(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let count = manager.recv(&mut buffer).expect("told");
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[test]
    fn a_manager_without_a_file_is_told() {
        let name = format!("pegel-notify-{}", std::process::id());
        let bound = SocketAddr::from_abstract_name(&name).expect("an address");
        let manager = UnixDatagram::bind_addr(&bound).expect("bound");
        let set = [("NOTIFY_SOCKET", format!("@{name}"))];
        let set = set.each_ref().map(|(key, value)| (*key, value.as_str()));
        let notify = ServiceNotifier::new(&variables(&set)).expect("a manager");
        notify.ready("two\nlines");
        let pid = std::process::id();
        assert_eq!(
            heard(&manager),
            format!("READY=1\nSTATUS=two lines\nMAINPID={pid}\n")
        );
        notify.notify_watchdog();
        assert_eq!(heard(&manager), "WATCHDOG=1\n");
        drop(manager);
        notify.stopping("flushing the store");
    }

    #[test]
    fn without_a_socket_of_an_understandable_kind_nobody_is_told() {
        for name in ["", "relative", "vsock:2:1"] {
            assert!(
                ServiceNotifier::new(&variables(&[("NOTIFY_SOCKET", name)])).is_none(),
                "{name}"
            );
        }
        assert!(ServiceNotifier::new(&|_| None).is_none());
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let time = |set: &[(&str, &str)]| watchdog_timeout(&variables(set), 7);
        let usual = Some(Duration::from_secs(30));
        assert_eq!(time(&[("WATCHDOG_USEC", "30000000")]), usual);
        assert_eq!(
            time(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "7")]),
            usual
        );
        assert_eq!(
            time(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "8")]),
            None
        );
        assert_eq!(time(&[("WATCHDOG_USEC", "soon")]), None);
        assert_eq!(time(&[("WATCHDOG_USEC", "0")]), None);
    }
}
