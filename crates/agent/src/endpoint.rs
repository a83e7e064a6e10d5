//! `<dir>/endpoint.json`: where this agent can be reached, for scripts and for tests.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pegel_ingest::statsd::Bound;
use serde::Serialize;

/// What the file says; lists are in the order of the configuration.
#[derive(Serialize)]
struct Content<'a> {
    pid: u32,
    version: &'a str,
    node: &'a str,
    http: &'a [SocketAddr],
    socket: Option<&'a Path>,
    statsd: Statsd<'a>,
    accept: [String; 0],
    dir: &'a Path,
}

#[derive(Serialize)]
struct Statsd<'a> {
    udp: &'a [SocketAddr],
    tcp: &'a [SocketAddr],
    unix: Option<&'a Path>,
    unix_stream: Option<&'a Path>,
}

/// The file, removed when this goes away.
#[derive(Debug)]
pub struct Endpoint {
    path: PathBuf,
}

impl Endpoint {
    /// The file is whole from the moment it is there: it is renamed into place.
    pub fn write(
        dir: &Path,
        node: &str,
        http: &[SocketAddr],
        socket: Option<&Path>,
        statsd: &Bound,
    ) -> io::Result<Endpoint> {
        let content = Content {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            node,
            http,
            socket,
            statsd: Statsd {
                udp: &statsd.udp,
                tcp: &statsd.tcp,
                unix: statsd.unix.as_deref(),
                unix_stream: statsd.unix_stream.as_deref(),
            },
            accept: [],
            dir,
        };
        let content = serde_json::to_string(&content)?;
        let path = dir.join("endpoint.json");
        let temporary = dir.join("endpoint.json.new");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        writeln!(file, "{content}")?;
        fs::rename(&temporary, &path)?;
        Ok(Endpoint { path })
    }

    /// What an agent that was killed left behind must not be taken for this one's.
    pub fn remove_old(dir: &Path) {
        let _ = fs::remove_file(dir.join("endpoint.json"));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the endpoint file");
        }
    }
}
