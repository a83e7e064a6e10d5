//! `tau_metric_proxy`: the agent under the name of TAU's proxy, for existing scripts. It takes no
//! options but `-h`, prints the addresses that it listens on, and creates a symlink at the path
//! where TAU's clients expect the socket.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Parser;
use pegel_agent::{AgentStartError, RunningAgent};

use crate::agent::{self, ConfigFlags};
use crate::command_error::{CommandError, clap_message};
use crate::output;

pub(crate) const NAME: &str = "tau_metric_proxy";

const HELP: &str = "\
tau_metric_proxy [-h]

Receives the metrics of programs on this node and serves them to Prometheus.

-h: show this help
";

#[derive(Debug, Parser)]
#[command(name = NAME, disable_help_flag = true)]
struct TauProxyArgs {
    #[arg(short = 'h', long = "help")]
    help: bool,
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let args = TauProxyArgs::try_parse_from(arguments).map_err(|error| {
        let message = clap_message(&error);
        CommandError::usage(format!("{NAME}: {message}\n\n{HELP}"))
    })?;
    if args.help {
        return output::write(None, HELP);
    }
    let mut args = agent::AgentArgs::default();
    args.config_flags = default_flags()?;
    let mut link = None;
    agent::run_with(&args, |node, is_quiet| link = announce(node, is_quiet)).map_err(|error| {
        // The agent's messages name options that tau_metric_proxy does not have.
        let hint = if error.is::<AgentStartError>() {
            "\nhint: tau_metric_proxy has no such options; set PEGEL_LISTEN, PEGEL_SOCKET and PEGEL_DIR instead"
        } else {
            ""
        };
        anyhow::anyhow!("{NAME}: {error:#}{hint}")
    })
}

/// TAU's proxy has one port for Prometheus and one socket. The agent's other ports, which its users
/// do not expect and could not turn off by option, open only if a configuration names them.
fn default_flags() -> anyhow::Result<ConfigFlags> {
    let mut settings = ConfigFlags::default();
    let loaded = settings.load()?;
    if loaded.origin_of("listen").is_none() {
        let first = loaded.config.serve.listen.iter().take(1);
        settings.listen = first.map(ToString::to_string).collect();
    }
    if loaded.origin_of("statsd").is_none() {
        settings.statsd = vec!["unix:auto".to_owned()];
    }
    Ok(settings)
}

/// Prints the startup messages of TAU's proxy and creates the symlink to the socket.
fn announce(node: &RunningAgent, is_quiet: bool) -> Option<SocketLink> {
    let print = |text: &str| {
        if !is_quiet {
            output::print_message(text);
        }
    };
    if let Some(address) = node.http_addresses().first() {
        print(&format!(
            "INFO (tau_metric_exporter_init:483): now listening on {address}"
        ));
    }
    let socket = node.socket_path()?;
    let link = SocketLink::new(socket);
    let shown = link.as_ref().map_or(socket, |link| &link.path);
    print(&format!(
        "INFO (__bind_unix_socket:212): UNIX push gateway running on {}",
        shown.display()
    ));
    link.map_err(|error| print(&format!("WARNING: {error:#}")))
        .ok()
}

/// Returns the path at which TAU's clients expect the socket.
pub(crate) fn default_socket() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/{NAME}.{uid}.unix"))
}

/// The symlink to the agent's socket, removed on drop.
#[derive(Debug)]
struct SocketLink {
    path: PathBuf,
    socket: PathBuf,
}

impl SocketLink {
    fn new(socket: &Path) -> anyhow::Result<SocketLink> {
        let path = default_socket();
        if links_to(&path, socket) {
            return Ok(SocketLink::to(socket, path));
        }
        if let Ok(found) = fs::symlink_metadata(&path) {
            let shown = path.display();
            let is_own = found.uid() == rustix::process::geteuid().as_raw();
            if !is_own || !found.is_symlink() {
                bail!(
                    "{shown} is not our symlink (owned by user {}); leaving it in place: \
                     remove it, or pass the socket above with -u",
                    found.uid()
                );
            }
            if UnixStream::connect(&path).is_ok() {
                bail!(
                    "{shown} points to another running proxy; \
                     to reach this one, pass the socket above with -u"
                );
            }
            // Stale symlink of a proxy that was killed.
            fs::remove_file(&path).with_context(|| format!("cannot replace {shown}"))?;
        }
        symlink(socket, &path)
            .with_context(|| format!("cannot create symlink {}", path.display()))?;
        Ok(SocketLink::to(socket, path))
    }

    fn to(socket: &Path, path: PathBuf) -> SocketLink {
        let socket = socket.to_owned();
        SocketLink { path, socket }
    }
}

impl Drop for SocketLink {
    fn drop(&mut self) {
        // Another proxy may have replaced it.
        if links_to(&self.path, &self.socket) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn links_to(link: &Path, socket: &Path) -> bool {
    fs::read_link(link).is_ok_and(|found| found == socket)
}
