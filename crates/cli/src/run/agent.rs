//! Finds or starts the agent that receives the counts of `pegel run`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::RunArgs;
use crate::agent_client::{AgentClient, STARTUP_TIMEOUT};

/// Time limit for a started agent to accept connections; then the program runs without it.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Directs the counts to the requested agent. Best effort: failures are reported with `note`, and
/// the program runs.
pub(super) fn connect_or_start(args: &RunArgs, note: &dyn Fn(&str)) {
    let socket = args.socket.as_deref();
    let is_wanted = args.agent
        || std::env::var_os("PEGEL_AUTO_AGENT")
            .is_some_and(|value| !value.is_empty() && value != "0");
    let is_named =
        socket.is_some() || std::env::var_os("PEGEL_SOCKET").is_some_and(|path| !path.is_empty());
    if pegel_lane::is_disabled() || !(is_wanted || is_named || args.verbose) {
        return;
    }
    let client = match AgentClient::find_within(STARTUP_TIMEOUT, socket, &[]) {
        Ok(client) => Some(client),
        Err(_) if is_wanted => start(socket, note),
        Err(error) => {
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            note(&format!(
                "{first}; an agent that starts later receives the counts"
            ));
            None
        }
    };
    if let Some(client) = client {
        use_lane_directory_of(&client, note);
    }
}

/// Starts an agent that exits with the last program. If several start at once, the socket's lock
/// admits one.
fn start(socket: Option<&Path>, note: &dyn Fn(&str)) -> Option<AgentClient> {
    let binary = std::env::current_exe().ok()?;
    let mut command = Command::new(binary);
    command.args(["agent", "--until-lanes-end", "--port-search"]);
    if let Some(socket) = socket {
        command
            .arg("--socket")
            .arg(std::path::absolute(socket).ok()?);
    }
    let started = pegel_run::spawn_detached(|| {
        // exec returns only on failure, which the wait below detects.
        let _ = command.exec();
    });
    if let Err(error) = started {
        note(&format!("cannot start an agent: {error}"));
        return None;
    }
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        if let Ok(client) = AgentClient::find_within(STARTUP_TIMEOUT, socket, &[]) {
            note("started an agent; it exits with the last program");
            return Some(client);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    note("the started agent does not respond; the program runs without one");
    None
}

/// Makes the program create its lanes in a directory that the agent reads.
fn use_lane_directory_of(client: &AgentClient, note: &dyn Fn(&str)) {
    if std::env::var_os("PEGEL_LANES").is_some_and(|path| !path.is_empty()) {
        return;
    }
    let Ok(status) = client.get("/status", &[]) else {
        return;
    };
    let directories = status["lanes"]["directories"].as_array();
    let directories: Vec<PathBuf> = directories
        .into_iter()
        .flatten()
        .filter_map(|path| path.as_str().map(PathBuf::from))
        .collect();
    let usual = pegel_lane::lane_directory();
    if directories.is_empty() || directories.contains(&usual) {
        return;
    }
    let can_write = |path: &&PathBuf| {
        use rustix::fs::Access;
        rustix::fs::access(path.as_path(), Access::WRITE_OK | Access::EXEC_OK).is_ok()
    };
    let Some(directory) = directories.iter().find(can_write) else {
        let first = directories[0].display();
        note(&format!(
            "the agent reads lanes in {first}, which this user cannot write to: it does not receive the counts"
        ));
        return;
    };
    note(&format!("the agent reads lanes in {}", directory.display()));
    // SAFETY: set_var requires that no other thread accesses the environment; this process has one
    // thread.
    unsafe { std::env::set_var("PEGEL_LANES", directory) };
}
