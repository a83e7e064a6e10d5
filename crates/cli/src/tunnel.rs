//! `pegel tunnel`: opens the page of a job on this machine, through ssh. The port requires the
//! job's token, because every user of this machine can connect to it; the socket for commands has
//! mode 0600 and requires none.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::command_error::CommandError;
use crate::end_with_parent::end_with_parent;
use crate::output;

/// The most bytes of the head's description.
const DESCRIPTION_BYTES_MAX: usize = 64 << 10;
/// How often the head is asked whether it is still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long ssh may take to open the socket.
const OPEN_TIME: Duration = Duration::from_secs(60);

/// Open the page of a job on this machine, through ssh
///
/// NODE:DIR is what `pegel job` prints. The page is at http://localhost:1337 and asks for the
/// token, which is printed: every user of this machine can connect to the port. Other commands use
/// the printed socket. Ends with Ctrl-C or with the job.
#[derive(Debug, clap::Args)]
pub(crate) struct TunnelArgs {
    /// The head of the job and its directory: nid0027:/tmp/pegel-job-1000-4fa29c
    #[arg(value_name = "NODE:DIR")]
    target: String,
    /// Host through which the node is reached; several are separated by commas
    #[arg(short = 'J', long, value_name = "HOST")]
    jump: Option<String>,
    /// Port of the page on this machine
    #[arg(long, value_name = "PORT", default_value_t = 1337)]
    port: u16,
    /// Program for ssh, with options
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    ssh: String,
}

pub(crate) fn run(args: &TunnelArgs) -> anyhow::Result<()> {
    let (host, dir) = parse_target(&args.target)?;
    let description = read_description(args, host, dir)?;
    let sockets = private_dir()?;
    let socket = sockets.join("push.sock");
    let mut ssh = ssh_command(args);
    ssh.args([
        "-o",
        "ExitOnForwardFailure=yes",
        "-o",
        "StreamLocalBindMask=0177",
        "-N",
        "-T",
    ]);
    ssh.arg("-L")
        .arg(format!("{}:localhost:{}", args.port, description.port));
    ssh.arg("-L")
        .arg(format!("{}:{dir}/primary/push.sock", socket.display()));
    ssh.arg("--").arg(host).stdin(Stdio::null());
    end_with_parent(&mut ssh);
    let started = ssh
        .spawn()
        .with_context(|| format!("cannot start {}", args.ssh));
    let ended = started.and_then(|child| announce_and_wait(args, child, &socket, &description));
    let _ = std::fs::remove_dir_all(&sockets);
    ended
}

/// What is needed of the head.
struct HeadDescription {
    port: u16,
    token: String,
}

fn announce_and_wait(
    args: &TunnelArgs,
    mut child: std::process::Child,
    socket: &Path,
    description: &HeadDescription,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + OPEN_TIME;
    while !socket.exists() {
        if let Some(status) = child.try_wait()? {
            bail!("{} ended with {status}", args.ssh);
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "{} opened no tunnel within {} s",
                args.ssh,
                OPEN_TIME.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    output::print_message(&format!(
        "pegel: page: http://localhost:{}\npegel: token: {}\npegel: for other commands: export PEGEL_SOCKET={}",
        args.port,
        description.token,
        socket.display()
    ));
    let pid = Pid::from_child(&child);
    let mut next_check = Instant::now() + CHECK_INTERVAL;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stopped = is_stopped.clone();
    pegel_agent::on_stop_signal(move || {
        stopped.store(true, Ordering::Relaxed);
        let _ = kill_process(pid, Signal::TERM);
    })?;
    loop {
        if let Some(status) = child.try_wait()? {
            return match status.success() || is_stopped.load(Ordering::Relaxed) {
                true => Ok(()),
                false => bail!("{} ended with {status}", args.ssh),
            };
        }
        if next_check <= Instant::now() && !is_stopped.load(Ordering::Relaxed) {
            next_check = Instant::now() + CHECK_INTERVAL;
            if has_ended(socket) {
                output::print_message("pegel: the job has ended");
                let _ = child.kill();
                let _ = child.wait();
                return Ok(());
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns whether the head is gone: ssh then closes or resets the connection without an answer. A
/// head that is slow has not ended.
fn has_ended(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return false;
    };
    let request = b"GET /-/ready HTTP/1.0\r\nHost: localhost\r\n\r\n";
    let asked = stream
        .set_read_timeout(Some(CHECK_INTERVAL))
        .and_then(|()| stream.write_all(request));
    // EPIPE: it was closed before the request was sent.
    if asked.is_err() {
        return true;
    }
    match stream.read(&mut [0; 16]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Reads the addresses and the token of the head.
fn read_description(args: &TunnelArgs, host: &str, dir: &str) -> anyhow::Result<HeadDescription> {
    let mut ssh = ssh_command(args);
    ssh.arg("-T").arg("--").arg(host);
    ssh.arg(format!(
        "cat {dir}/head/store/endpoint.json {dir}/head/token"
    ));
    let read = ssh.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let read = read.with_context(|| format!("cannot start {}", args.ssh))?;
    if !read.status.success() || read.stdout.len() > DESCRIPTION_BYTES_MAX {
        bail!("cannot read {dir} on {host}; does the job still run there?");
    }
    let text = String::from_utf8_lossy(&read.stdout);
    let (json, token) = text
        .split_once('\n')
        .context("incomplete description of the head")?;
    let json: Value = serde_json::from_str(json).context("malformed description of the head")?;
    let address = json["forwarded"][0].as_str().unwrap_or_default();
    let port = address
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok());
    Ok(HeadDescription {
        port: port.context("the agent has no address for tunnels; is it the head of a job?")?,
        token: token.trim().to_owned(),
    })
}

/// Returns ssh with the options of the user and the hosts between.
fn ssh_command(args: &TunnelArgs) -> Command {
    let mut words = args.ssh.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words);
    if let Some(jump) = &args.jump {
        command.args(["-J", jump]);
    }
    command
}

/// Splits NODE:DIR and refuses what a shell or ssh could take for something else.
fn parse_target(target: &str) -> anyhow::Result<(&str, &str)> {
    let (host, dir) = target
        .split_once(":/")
        .map_or((target, ""), |(host, _)| (host, &target[host.len() + 1..]));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/@:[]".contains(&byte);
    let is_valid = !host.is_empty()
        && !host.starts_with('-')
        && host.bytes().all(is_plain)
        && dir.bytes().all(is_plain);
    match is_valid && dir.len() > 1 {
        true => Ok((host, dir.trim_end_matches('/'))),
        false => Err(CommandError::usage(format!(
            "\"{target}\" is not NODE:DIR, such as nid0027:/tmp/pegel-job-1000-4fa29c; \
             `pegel job` prints it"
        ))),
    }
}

/// Creates a directory that only this user can access, for the socket.
fn private_dir() -> anyhow::Result<PathBuf> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let base = base
        .filter(|base| base.is_dir())
        .unwrap_or_else(std::env::temp_dir);
    let dir = base.join(format!("pegel-tunnel-{}", std::process::id()));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
    made.with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_a_node_and_a_directory() {
        let target = parse_target("nid1:/tmp/pegel-job-7-x/").expect("valid");
        assert_eq!(target, ("nid1", "/tmp/pegel-job-7-x"));
        for bad in [
            "nid1",
            "nid1:",
            ":/tmp/x",
            "-oX:/tmp/x",
            "a:/tmp/$(x)",
            "a b:/tmp/x",
        ] {
            assert!(parse_target(bad).is_err(), "{bad}");
        }
    }
}
