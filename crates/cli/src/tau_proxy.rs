//! `tau_metric_proxy`: the agent under the name that its users' scripts have. It takes no options but `-h`, prints where it
//! really listens, and puts a link where its clients look for its socket.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Parser;
use pegel_agent::{Node, StartError};

use crate::agent::{self, ConfigFlags};
use crate::command_error::CommandError;
use crate::output;

pub const NAME: &str = "tau_metric_proxy";

const HELP: &str = "\
tau_metric_proxy [-h]

Takes in the metrics of programs on this node and serves them to Prometheus.

-h: show this help
";

#[derive(Debug, Parser)]
#[command(name = NAME, disable_help_flag = true)]
struct TauProxyArgs {
    #[arg(short = 'h', long = "help")]
    help: bool,
}

pub fn run(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let args = TauProxyArgs::try_parse_from(arguments).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        let line = line.strip_prefix("error: ").unwrap_or(line);
        CommandError::usage(format!("{NAME}: {line}\n\n{HELP}"))
    })?;
    if args.help {
        return output::write(None, HELP);
    }
    let mut args = agent::AgentArgs::default();
    args.config_flags = default_flags()?;
    let mut link = None;
    agent::run_with(&args, |node, is_quiet| link = announce(node, is_quiet)).map_err(|error| {
        // What the agent says speaks of options, which this name does not take.
        let hint = match error.is::<StartError>() {
            true => "\nhint: under this name, PEGEL_LISTEN, PEGEL_SOCKET and PEGEL_DIR take the place of options",
            false => "",
        };
        anyhow::anyhow!("{NAME}: {error:#}{hint}")
    })
}

/// That program has a port for Prometheus and a socket. The agent's other ports, which its user knows nothing of and
/// cannot turn off, are for those who name them in a configuration.
fn default_flags() -> anyhow::Result<ConfigFlags> {
    let mut settings = ConfigFlags::default();
    let loaded = settings.load()?;
    if loaded.place_of("listen").is_none() {
        let first = loaded.config.places.listen.iter().take(1);
        settings.listen = first.map(ToString::to_string).collect();
    }
    if loaded.place_of("statsd").is_none() {
        settings.statsd = vec!["unix:auto".to_owned()];
    }
    Ok(settings)
}

/// The first lines, and the link that they speak of.
fn announce(node: &Node, is_quiet: bool) -> Option<SocketLink> {
    let say = |text: &str| {
        if !is_quiet {
            output::print_message(text);
        }
    };
    if let Some(address) = node.http_addresses().first() {
        say(&format!(
            "INFO (tau_metric_exporter_init:483): now listening on {address}"
        ));
    }
    let socket = node.socket_path()?;
    let link = SocketLink::new(socket);
    let shown = link.as_ref().map_or(socket, |link| &link.path);
    say(&format!(
        "INFO (__bind_unix_socket:212): UNIX push gateway running on {}",
        shown.display()
    ));
    link.map_err(|error| say(&format!("WARNING: {error:#}")))
        .ok()
}

/// Where that program's clients look for its socket.
pub fn default_socket() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/{NAME}.{uid}.unix"))
}

/// The link to the agent's socket; gone with the agent.
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
                    "{shown} is no link of ours (user {} owns it), so it stays as it is: \
                     remove it, or use -u with the socket above",
                    found.uid()
                );
            }
            if UnixStream::connect(&path).is_ok() {
                bail!(
                    "{shown} leads to another proxy, which is running: \
                     use -u with the socket above to reach this one"
                );
            }
            // One that was killed left it.
            fs::remove_file(&path).with_context(|| format!("cannot replace {shown}"))?;
        }
        symlink(socket, &path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(SocketLink::to(socket, path))
    }

    fn to(socket: &Path, path: PathBuf) -> SocketLink {
        let socket = socket.to_owned();
        SocketLink { path, socket }
    }
}

impl Drop for SocketLink {
    fn drop(&mut self) {
        // Another proxy may have taken its place.
        if links_to(&self.path, &self.socket) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn links_to(link: &Path, socket: &Path) -> bool {
    fs::read_link(link).is_ok_and(|found| found == socket)
}
