//! Other statsd servers, each on a port of its own.

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pegel_testkit::TempDir;

pub(crate) struct StatsdPeer {
    pub name: &'static str,
    pub port: u16,
    child: Child,
    _dir: TempDir,
}

impl StatsdPeer {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for StatsdPeer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("bound").port()
}

fn start(name: &'static str, port: u16, dir: TempDir, mut command: Command) -> Option<StatsdPeer> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // Neither reports when it is ready.
    std::thread::sleep(Duration::from_secs(2));
    let mut peer = StatsdPeer {
        name,
        port,
        child,
        _dir: dir,
    };
    let has_ended = peer.child.try_wait().is_ok_and(|status| status.is_some());
    (!has_ended).then_some(peer)
}

/// Starts Debian's collectd with its statsd plugin only.
pub(crate) fn collectd() -> Option<StatsdPeer> {
    let (dir, port) = (TempDir::new(), free_port());
    let base = dir.path().display();
    let config = format!(
        "BaseDir \"{base}\"\nPIDFile \"{base}/pid\"\nPluginDir \"/usr/lib/collectd\"\nTypesDB \"/usr/share/collectd/types.db\"\n\
         Interval 10\nLoadPlugin statsd\n<Plugin statsd>\n  Host \"127.0.0.1\"\n  Port \"{port}\"\n  TimerPercentile 50\n  \
         TimerPercentile 90\n  TimerPercentile 99\n  TimerLower true\n  TimerUpper true\n  TimerSum true\n  TimerCount true\n</Plugin>\n"
    );
    let path = dir.path().join("collectd.conf");
    fs::write(&path, config).ok()?;
    let mut command = Command::new("/usr/sbin/collectd");
    command.arg("-f").arg("-C").arg(&path);
    start("collectd", port, dir, command)
}

/// Starts the original statsd, from npm, with a backend that discards everything.
pub(crate) fn statsd() -> Option<StatsdPeer> {
    let root = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../target/peers/node/node_modules/statsd"
    ));
    if !root.join("stats.js").exists() {
        return None;
    }
    let (dir, port) = (TempDir::new(), free_port());
    let backend = dir.path().join("nothing.js");
    fs::write(&backend, "exports.init = () => true;").ok()?;
    let config = format!(
        "{{ address: \"127.0.0.1\", port: {port}, mgmt_port: {}, percentThreshold: [50, 90, 99], backends: [\"{}\"] }}",
        free_port(),
        backend.display()
    );
    let path = dir.path().join("config.js");
    fs::write(&path, config).ok()?;
    let mut command = Command::new("node");
    command.arg(root.join("stats.js")).arg(&path);
    start("statsd", port, dir, command)
}
