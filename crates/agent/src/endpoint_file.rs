//! `<dir>/endpoint.json`: the addresses of this agent, for scripts and tests.

use std::convert::Infallible;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegel_ingest::statsd::BoundAddresses;
use serde::Serialize;

/// The content of the file; lists are in the order of the configuration.
#[derive(Serialize)]
struct EndpointJson<'a> {
    pid: u32,
    version: &'a str,
    node: &'a str,
    http: &'a [SocketAddr],
    /// The addresses for the ends of tunnels.
    forwarded: &'a [SocketAddr],
    socket: Option<&'a Path>,
    statsd: StatsdEndpoints<'a>,
    /// The address for children of the tree; none or one.
    accept: Vec<SocketAddr>,
    dir: &'a Path,
}

/// The addresses of statsd, in `endpoint.json` and in `/status`.
#[derive(Serialize)]
pub(crate) struct StatsdEndpoints<'a> {
    udp: &'a [SocketAddr],
    tcp: &'a [SocketAddr],
    unix: Option<&'a Path>,
    unix_stream: Option<&'a Path>,
}

impl<'a> From<&'a BoundAddresses> for StatsdEndpoints<'a> {
    fn from(bound: &'a BoundAddresses) -> StatsdEndpoints<'a> {
        StatsdEndpoints {
            udp: &bound.udp,
            tcp: &bound.tcp,
            unix: bound.unix.as_deref(),
            unix_stream: bound.unix_stream.as_deref(),
        }
    }
}

/// How often a failed write is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The file. Removed when dropped.
#[derive(Debug)]
pub(crate) struct EndpointFile {
    path: PathBuf,
    text: String,
    is_written: bool,
}

impl EndpointFile {
    pub(crate) fn new(
        dir: &Path,
        node: &str,
        (http, forwarded): (&[SocketAddr], &[SocketAddr]),
        socket: Option<&Path>,
        statsd: &BoundAddresses,
        accept: Option<SocketAddr>,
    ) -> io::Result<EndpointFile> {
        let content = EndpointJson {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
            node,
            http,
            forwarded,
            socket,
            statsd: statsd.into(),
            accept: accept.into_iter().collect(),
            dir,
        };
        Ok(EndpointFile {
            path: dir.join("endpoint.json"),
            text: serde_json::to_string(&content)?,
            is_written: false,
        })
    }

    /// Writes the file atomically: it is renamed into place.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let temporary = self.path.with_extension("json.new");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        writeln!(file, "{}", self.text)?;
        fs::rename(&temporary, &self.path)?;
        self.is_written = true;
        Ok(())
    }

    /// Retries until the file is written: the disk may have been full at the start. Never returns.
    pub(crate) async fn retry_until_written(&mut self) -> Infallible {
        while !self.is_written {
            tokio::time::sleep(RETRY_INTERVAL).await;
            if self.write().is_ok() {
                tracing::info!(path = %self.path.display(), "wrote the endpoint file");
            }
        }
        std::future::pending().await
    }

    /// Removes the file of an agent that was killed, which must not be mistaken for this one's.
    pub(crate) fn remove_stale(dir: &Path) {
        let _ = fs::remove_file(dir.join("endpoint.json"));
    }
}

impl Drop for EndpointFile {
    fn drop(&mut self) {
        // A replaced directory may contain the file of another agent.
        let is_ours = fs::read_to_string(&self.path).is_ok_and(|text| text.trim_end() == self.text);
        if self.is_written
            && is_ours
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the endpoint file");
        }
    }
}
