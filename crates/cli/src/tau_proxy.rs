//! `tau_metric_proxy`: the agent under the name that its users' scripts have. It takes no options but `-h`, prints where it
//! really listens, and puts a link where its clients look for its socket.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;

use crate::failure::Failure;
use crate::{agent, output};

pub const NAME: &str = "tau_metric_proxy";

const HELP: &str = "\
tau_metric_proxy [-h]

Takes in the metrics of programs on this node and serves them to Prometheus.

-h: show this help
";

#[derive(Debug, Parser)]
#[command(name = NAME, disable_help_flag = true)]
struct Args {
    #[arg(short = 'h', long = "help")]
    help: bool,
}

pub fn run(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let args = Args::try_parse_from(arguments).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        let line = line.strip_prefix("error: ").unwrap_or(line);
        Failure::usage(format!("{NAME}: {line}\n\n{HELP}"))
    })?;
    if args.help {
        return output::write(None, HELP);
    }
    let mut link = None;
    agent::run_with(&agent::Args::default(), |node| {
        if let Some(address) = node.http_addresses().first() {
            output::note(&format!(
                "INFO (tau_metric_exporter_init:483): now listening on {address}"
            ));
        }
        let Some(socket) = node.socket_path() else {
            return;
        };
        let shown = match Link::new(socket) {
            Ok(made) => link.insert(made).path.clone(),
            Err(error) => {
                output::note(&format!("WARNING: {error:#}"));
                socket.to_owned()
            }
        };
        output::note(&format!(
            "INFO (__bind_unix_socket:212): UNIX push gateway running on {}",
            shown.display()
        ));
    })
}

/// The link to the agent's socket; gone with the agent.
#[derive(Debug)]
struct Link {
    path: PathBuf,
}

impl Link {
    fn new(socket: &Path) -> anyhow::Result<Link> {
        let uid = rustix::process::geteuid().as_raw();
        let path = PathBuf::from(format!("/tmp/{NAME}.{uid}.unix"));
        // An agent that was killed leaves its link. What is not ours is left alone.
        let is_ours = fs::symlink_metadata(&path)
            .is_ok_and(|found| found.file_type().is_symlink() && found.uid() == uid);
        if is_ours {
            fs::remove_file(&path).with_context(|| format!("cannot replace {}", path.display()))?;
        }
        symlink(socket, &path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Link { path })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
