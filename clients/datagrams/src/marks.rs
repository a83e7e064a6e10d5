//! Marks and phases: a datagram to the agent on this node, in the form of a DogStatsD event.
//!
//! Sending one takes a few system calls and never waits: without an agent, or with one that does
//! not keep up, the mark is lost and counted. The socket is that of the agent's statsd input, next
//! to its push socket.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pegel_lane::{is_disabled, job_id, now_ms, private_directory, rank};

/// Longer texts are truncated.
const TEXT_BYTES_MAX: usize = 4_096;
const SOCKET_NAME: &str = "statsd.sock";
const SYSTEM_SOCKET: &str = "/run/pegel/statsd.sock";

static LOST: AtomicU64 = AtomicU64::new(0);

/// The number of a phase of this process, for [`end_phase`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseNumber(pub u64);

/// Sets a mark at the current time.
pub fn mark(text: &str) {
    send_event(text, now_ms(), &[("kind", "mark")]);
}

/// Begins a phase.
pub fn begin_phase(name: &str) -> PhaseNumber {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = PhaseNumber(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    let id = number.id();
    send_event(
        name,
        now_ms(),
        &[("kind", "phase"), ("state", "begin"), ("id", &id)],
    );
    number
}

/// Ends a phase that this process began with the same name.
pub fn end_phase(name: &str, number: PhaseNumber) {
    let id = number.id();
    send_event(
        name,
        now_ms(),
        &[("kind", "phase"), ("state", "end"), ("id", &id)],
    );
}

/// Returns the number of marks and phases that reached no agent.
pub fn lost_marks() -> u64 {
    LOST.load(Ordering::Relaxed)
}

impl PhaseNumber {
    /// Returns an id that no other process of this node has: pids are reused, start times of
    /// phases with the same number are not the same.
    fn id(self) -> String {
        format!("{}-{}", std::process::id(), self.0)
    }
}

fn send_event(text: &str, time_ms: i64, tags: &[(&str, &str)]) {
    if is_disabled() {
        return;
    }
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let known = [
        ("program", Some(program)),
        ("rank", rank()),
        ("jobid", job_id()),
    ];
    let mut all: Vec<(&str, String)> = Vec::new();
    all.extend(tags.iter().map(|(key, value)| (*key, (*value).to_owned())));
    all.extend(
        known
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    let event = format_event(text, time_ms, &all);
    let sent = sockets()
        .iter()
        .any(|socket| send_to(socket, event.as_bytes()).is_ok());
    if !sent {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns an event. The text keeps its line breaks; other control characters become spaces.
fn format_event(text: &str, time_ms: i64, tags: &[(&str, String)]) -> String {
    let text = truncate(text).replace('\n', "\\n");
    let text = text.replace(|c: char| c.is_control(), " ");
    let text = if text.is_empty() { " " } else { &text };
    let tags = tags.iter().filter_map(|(key, value)| {
        let value = value.trim();
        let value = value.replace(|c: char| c.is_control() || ",|".contains(c), "_");
        (!value.is_empty()).then(|| format!("{key}:{value}"))
    });
    let tags: Vec<String> = tags.collect();
    format!(
        "_e{{{},0}}:{text}||d:{time_ms}|#{}",
        text.len(),
        tags.join(",")
    )
}

fn truncate(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the sockets of agents of this user and of the system: next to `$PEGEL_SOCKET`, or the
/// default ones. Directories that belong to another user are left out.
fn sockets() -> Vec<PathBuf> {
    let given = std::env::var_os("PEGEL_SOCKET").filter(|path| !path.is_empty());
    if let Some(path) = given {
        return vec![PathBuf::from(path).with_file_name(SOCKET_NAME)];
    }
    let uid = rustix::process::geteuid().as_raw();
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir = runtime_dir.filter(|dir| dir.is_absolute() && dir.is_dir());
    let runtime_dir = runtime_dir.map(|dir| dir.join("pegel"));
    let own = runtime_dir
        .into_iter()
        .chain(private_directory::candidates(Path::new("/tmp"), uid));
    own.filter(|dir| private_directory::unusable_reason(dir, uid).is_none())
        .map(|dir| dir.join(SOCKET_NAME))
        .chain([PathBuf::from(SYSTEM_SOCKET)])
        .collect()
}

/// Sends a datagram without waiting.
fn send_to(socket: &Path, bytes: &[u8]) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to(bytes, socket).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_length_of_its_text_and_only_valid_tags() {
        let tags = [
            ("kind", "mark".to_owned()),
            ("program", "a,b|c\n".to_owned()),
        ];
        assert_eq!(
            format_event("checkpoint ü\n12\t", 1_713_379_493_123, &tags),
            "_e{18,0}:checkpoint ü\\n12 ||d:1713379493123|#kind:mark,program:a_b_c"
        );
        assert_eq!(
            format_event("", 5, &[("rank", String::new())]),
            "_e{1,0}: ||d:5|#"
        );
        let long = format_event(&"ü".repeat(5_000), 5, &[]);
        assert!(
            long.starts_with("_e{4096,0}:ü") && long.len() < 4_200,
            "{}",
            long.len()
        );
    }
}
