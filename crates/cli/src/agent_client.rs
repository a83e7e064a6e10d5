//! Client for the HTTP API on an agent's UNIX socket. Before it sends anything, it verifies that
//! the agent runs as this user, as root, or as a user to whom root delegated the socket's
//! directory.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use pegel_http_client::{HttpConnection, HttpRequest, HttpResponse, WaitLimit};
use pegel_lane::private_directory;

use crate::command_error::{CommandError, NO_AGENT};
use crate::node_access::{AnsweringNodes, NODES_HEADER};
use crate::output;
use crate::session::AgentProcessHandle;

/// Time limit for connecting and for each read.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The largest accepted response; 200,000 series of typical length need about 40 MB.
const RESPONSE_BYTES_MAX: u64 = 512 << 20;
/// The routes that add up nodes unless the series of each node are requested.
const PER_NODE_PATHS: [&str; 2] = ["/api/v1/list", "/api/v1/values"];

/// Time limit for `pegel run`, which delays the start of a program.
pub(crate) const STARTUP_TIMEOUT: Duration = Duration::from_secs(1);

/// A client of one agent, whose socket answered.
#[derive(Debug)]
pub(crate) struct AgentClient {
    socket: PathBuf,
    timeout: Duration,
    /// Precedes every path: empty, or the node below the agent that is read.
    path_prefix: String,
    /// Whether the series of each node are requested, rather than sums and means over nodes.
    is_per_node: bool,
    /// The last message about missing nodes; `None` if such messages are not printed.
    missing_nodes: Option<Mutex<String>>,
    /// The number of nodes to which the last answer refers.
    expected_nodes: AtomicU64,
}

/// Returns the sockets to try: the given one alone, else $PEGEL_SOCKET alone, else the default ones
/// and `more`.
pub(crate) fn candidate_sockets(given: Option<&Path>, more: &[PathBuf]) -> Vec<PathBuf> {
    let named = given.map(Path::to_owned).or_else(|| {
        std::env::var_os("PEGEL_SOCKET")
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    });
    match named {
        Some(path) => vec![path],
        None => pegel_agent::usual_sockets()
            .into_iter()
            .chain(more.iter().cloned())
            .collect(),
    }
}

impl AgentClient {
    fn new(socket: PathBuf, timeout: Duration) -> AgentClient {
        AgentClient {
            socket,
            timeout,
            path_prefix: String::new(),
            is_per_node: false,
            missing_nodes: None,
            expected_nodes: AtomicU64::new(1),
        }
    }

    /// Finds the agent on the given socket, else on the first default socket that accepts a
    /// connection.
    pub(crate) fn find(given: Option<&Path>, more: &[PathBuf]) -> anyhow::Result<AgentClient> {
        AgentClient::find_within(TIMEOUT, given, more)
    }

    /// Like [`AgentClient::find`], with a time limit.
    pub(crate) fn find_within(
        timeout: Duration,
        given: Option<&Path>,
        more: &[PathBuf],
    ) -> anyhow::Result<AgentClient> {
        let candidates = candidate_sockets(given, more);
        if let [socket] = candidates.as_slice()
            && socket.to_str().is_some_and(|text| text.contains("://"))
        {
            return Err(CommandError::usage(format!(
                "{} is a URL; -u and $PEGEL_SOCKET take the path of the agent's UNIX socket",
                socket.display()
            )));
        }
        for socket in &candidates {
            match connect(socket, timeout) {
                Ok(_) => {
                    return Ok(AgentClient::new(socket.clone(), timeout));
                }
                Err(ConnectError::NotListening) => {}
                Err(ConnectError::Other(error)) => return Err(error),
            }
        }
        Err(no_agent_error(&candidates))
    }

    /// Returns the same client with another time limit.
    pub(crate) fn with_timeout(self, timeout: Duration) -> AgentClient {
        AgentClient { timeout, ..self }
    }

    /// Returns a client of a node below the agent.
    pub(crate) fn through_node(self, node: &str) -> AgentClient {
        let path_prefix = format!("/nodes/{}", percent_encoded(node));
        AgentClient {
            path_prefix,
            ..self
        }
    }

    /// Returns a client of the same agent, without node and messages.
    pub(crate) fn of_agent(&self) -> AgentClient {
        AgentClient::new(self.socket.clone(), self.timeout)
    }

    /// Returns the same client; its lists and values are those of each node.
    pub(crate) fn with_per_node(self, is_per_node: bool) -> AgentClient {
        AgentClient {
            is_per_node,
            ..self
        }
    }

    /// Returns the same client, which prints a message if nodes are missing in an answer.
    pub(crate) fn with_missing_node_messages(self) -> AgentClient {
        AgentClient {
            missing_nodes: Some(Mutex::default()),
            ..self
        }
    }

    /// Returns the number of nodes to which the last answer refers.
    pub(crate) fn expected_nodes(&self) -> u64 {
        self.expected_nodes.load(Ordering::Relaxed)
    }

    /// Returns the process that serves the socket.
    pub(crate) fn agent_process(&self) -> anyhow::Result<AgentProcessHandle> {
        let stream = self.connect()?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)
            .with_context(|| format!("cannot determine what serves {}", self.socket.display()))?;
        AgentProcessHandle::open(peer.pid)
    }

    /// Opens a new connection to the agent.
    pub(crate) fn connect(&self) -> anyhow::Result<UnixStream> {
        let stream = match connect(&self.socket, self.timeout) {
            Ok(stream) => stream,
            Err(ConnectError::NotListening) => {
                return Err(no_agent_error(std::slice::from_ref(&self.socket)));
            }
            Err(ConnectError::Other(error)) => return Err(error),
        };
        stream
            .set_read_timeout(Some(self.timeout))
            .with_context(|| format!("cannot use {}", self.socket.display()))?;
        Ok(stream)
    }

    /// Sends a request and reads the response headers.
    pub(crate) fn request(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<HttpResponse> {
        self.request_over(self.connect()?, path, query)
    }

    /// Like [`AgentClient::request`], over an open connection.
    pub(crate) fn request_over(
        &self,
        stream: UnixStream,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<HttpResponse> {
        let mut query = query.to_vec();
        if self.is_per_node && PER_NODE_PATHS.contains(&path) {
            query.push(("nodes", "each"));
        }
        let request = HttpRequest {
            method: "GET",
            target: &target(&format!("{}{path}", self.path_prefix), &query),
            host: "localhost",
            headers: &[("Accept", "application/json")],
        };
        let response = HttpConnection::over_unix(stream)
            .and_then(|connection| connection.send(&request, WaitLimit::timeout(self.timeout)))
            .with_context(|| format!("the agent on {} did not respond", self.socket.display()))?;
        self.note_nodes(&response);
        Ok(response)
    }

    /// Remembers which nodes answered, and prints the missing ones once.
    fn note_nodes(&self, response: &HttpResponse) {
        let header = response.header(NODES_HEADER);
        let Some(nodes) = header.and_then(AnsweringNodes::parse) else {
            return;
        };
        self.expected_nodes.store(nodes.expected, Ordering::Relaxed);
        if let (Some(printed), Some(text)) = (&self.missing_nodes, nodes.missing_text()) {
            let mut printed = printed.lock();
            if *printed != text {
                output::print_message(&format!("pegel: {text}"));
                *printed = text;
            }
        }
    }

    /// Sends a request and parses the whole response as JSON.
    pub(crate) fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<serde_json::Value> {
        self.read_json(self.request(path, query)?)
    }

    /// Sends a JSON body and returns the JSON of the response.
    pub(crate) fn post(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<serde_json::Value> {
        let request = HttpRequest {
            method: "POST",
            target: path,
            host: "localhost",
            headers: &[("Content-Type", "application/json")],
        };
        let body = body.to_string().into_bytes();
        let sent = HttpConnection::over_unix(self.connect()?).and_then(|connection| {
            connection.send_body(&request, body, WaitLimit::timeout(self.timeout))
        });
        let answer = sent
            .with_context(|| format!("the agent on {} did not respond", self.socket.display()))?;
        self.read_json(answer)
    }

    pub(crate) fn read_json(&self, answer: HttpResponse) -> anyhow::Result<serde_json::Value> {
        let status = answer.status;
        let mut text = String::new();
        let what = || {
            format!(
                "truncated response from the agent on {}",
                self.socket.display()
            )
        };
        answer
            .body
            .take(RESPONSE_BYTES_MAX)
            .read_to_string(&mut text)
            .with_context(what)?;
        if status != 200 {
            return Err(response_error(status, &text));
        }
        serde_json::from_str(&text).with_context(what)
    }
}

/// Builds an error from the agent's error response, with the agent's message.
pub(crate) fn response_error(status: u16, text: &str) -> anyhow::Error {
    let json = serde_json::from_str::<serde_json::Value>(text).ok();
    let message = json.as_ref().and_then(|json| {
        let error = json.get("error")?;
        error.as_str().or_else(|| error.get("message")?.as_str())
    });
    let message = message.unwrap_or(text.trim());
    match status {
        400 => CommandError::usage(message),
        // The request was understood; the message tells why it was refused.
        403..=429 => anyhow::anyhow!("{message}"),
        _ => anyhow::anyhow!("the agent responded with status {status}: {message}"),
    }
}

/// Connects to a trusted agent on behalf of a program that is about to start.
pub(crate) fn connect_trusted(socket: &Path) -> io::Result<UnixStream> {
    connect(socket, STARTUP_TIMEOUT).map_err(|error| match error {
        ConnectError::NotListening => io::ErrorKind::NotFound.into(),
        ConnectError::Other(error) => io::Error::other(format!("{error:#}")),
    })
}

enum ConnectError {
    /// The socket does not exist, or no process listens on it.
    NotListening,
    Other(anyhow::Error),
}

/// Connects and verifies the user that serves the socket, before anything is sent.
fn connect(socket: &Path, timeout: Duration) -> Result<UnixStream, ConnectError> {
    let stream = open_stream(socket, timeout).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ConnectError::NotListening,
        io::ErrorKind::WouldBlock => ConnectError::Other(anyhow::anyhow!(
            "the agent on {} does not respond: its connection queue is full",
            socket.display()
        )),
        _ => ConnectError::Other(
            anyhow::Error::from(error).context(format!("cannot connect to {}", socket.display())),
        ),
    })?;
    check_owner(socket, &stream).map_err(ConnectError::Other)?;
    Ok(stream)
}

/// Connects with a time limit: connect() blocks while the listen queue is full.
fn open_stream(socket: &Path, timeout: Duration) -> io::Result<UnixStream> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let kind = SocketType::STREAM;
    let stream = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&stream, Timeout::Send, Some(timeout))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(UnixStream::from(stream))
}

/// Verifies the owner of the serving process by SO_PEERCRED: in a directory writable by others,
/// anyone can bind a socket.
fn check_owner(socket: &Path, stream: &UnixStream) -> anyhow::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)
        .with_context(|| format!("cannot determine which user serves {}", socket.display()))?;
    let (uid, own) = (peer.uid.as_raw(), rustix::process::getuid().as_raw());
    if uid == own || uid == 0 {
        return Ok(());
    }
    if socket == Path::new(pegel_agent::SYSTEM_SOCKET) && is_delegated_by_root(socket, uid) {
        return Ok(());
    }
    let file_owner = std::fs::metadata(socket).map_or(uid, |metadata| metadata.uid());
    bail!(
        "{} is served by user {uid} (process {}) and owned by user {file_owner}; \
         only agents of user {own} or root are trusted",
        socket.display(),
        peer.pid.as_raw_nonzero(),
    )
}

/// Returns whether root created the socket's directory for this user and no other user can write to
/// it. This holds for the system service, which runs as a user of its own.
fn is_delegated_by_root(socket: &Path, uid: u32) -> bool {
    let found = |path: Option<&Path>| std::fs::symlink_metadata(path?).ok();
    let is_for = |found: &std::fs::Metadata, uid: u32| {
        private_directory::not_private_reason(found, uid).is_none()
    };
    let dir = socket.parent();
    found(dir).is_some_and(|dir| is_for(&dir, uid))
        && found(dir.and_then(Path::parent)).is_some_and(|parent| is_for(&parent, 0))
}

fn no_agent_error(tried: &[PathBuf]) -> anyhow::Error {
    let tried: Vec<String> = tried
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let message = format!(
        "no agent is listening on {}\nhint: start one with `pegel agent`, or pass its socket with -u or $PEGEL_SOCKET",
        tried.join(" or ")
    );
    CommandError::with_code(NO_AGENT, message)
}

fn target(path: &str, query: &[(&str, &str)]) -> String {
    let mut target = path.to_owned();
    for (index, (key, value)) in query.iter().enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(key);
        target.push('=');
        target.push_str(&percent_encoded(value));
    }
    target
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        assert_eq!(target("/a", &[]), "/a");
        assert_eq!(
            target("/a", &[("match", "x{a=\"ü\"}&"), ("rate", "0.5")]),
            "/a?match=x%7Ba%3D%22%C3%BC%22%7D%26&rate=0.5"
        );
    }

    #[test]
    fn the_agents_error_message_is_kept() {
        assert_eq!(
            response_error(400, "{\"error\":\"bad match\"}").to_string(),
            "bad match"
        );
        assert_eq!(
            response_error(503, "busy\n").to_string(),
            "the agent responded with status 503: busy"
        );
    }

    #[test]
    fn a_directory_counts_as_delegated_only_if_root_controls_its_parent() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let is_root = rustix::process::geteuid().is_root();
        if pegel_testkit::need_hardware(is_root, "root privilege to give files away").is_none() {
            return;
        }
        let home = pegel_testkit::TempDir::new();
        let dir = home.join("pegel");
        let socket = dir.join("push.sock");
        std::fs::create_dir(&dir).expect("made");
        let set = |path: &Path, owner, mode| {
            chown(path, Some(owner), None).expect("given");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).expect("set");
        };
        set(home.path(), 0, 0o755);
        set(&dir, 4711, 0o755);
        assert!(is_delegated_by_root(&socket, 4711));
        assert!(!is_delegated_by_root(&socket, 4712));
        set(&dir, 4711, 0o777);
        assert!(!is_delegated_by_root(&socket, 4711), "writable by everyone");
        set(&dir, 4711, 0o755);
        set(home.path(), 0, 0o1777);
        assert!(
            !is_delegated_by_root(&socket, 4711),
            "parent is writable by everyone"
        );
        set(home.path(), 4711, 0o755);
        assert!(
            !is_delegated_by_root(&socket, 4711),
            "parent is not owned by root"
        );
        assert!(!is_delegated_by_root(Path::new("push.sock"), 4711));
    }
}
