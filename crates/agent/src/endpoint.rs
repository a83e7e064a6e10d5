//! `<dir>/endpoint.json`: where this agent can be reached, for scripts and for tests.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

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
    ) -> io::Result<Endpoint> {
        let http: Vec<String> = http.iter().map(SocketAddr::to_string).collect();
        let content = json!({
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "node": node,
            "http": http,
            "socket": socket,
            "statsd": {"udp": [], "tcp": [], "unix": null},
            "accept": [],
            "dir": dir,
        });
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
