//! `pegel grafana provision`: writes data sources and dashboards into Grafana's provisioning
//! directory, and explains how to give Grafana access to the agent.

use std::path::{Path, PathBuf};

use anyhow::bail;
use pegel_agent::{Config, LoadedConfig};
use pegel_config::{Secret, UserRef};

use super::provisioning_dir::{ProvisionedFile, ProvisionedState, ProvisioningDir};
use super::provisioning_yaml::{self, HttpUrl};
use super::source::SourceKind;
use super::{access_advice, dashboard_json, dashboards, token};
use crate::agent_client::AgentClient;
use crate::agent_report::AgentReport;
use crate::command_error::{CommandError, USAGE};
use crate::output;

/// The directory of dashboards below the provisioning directory.
const DASHBOARDS_DIR: &str = "dashboards/pegel";
const OPENTSDB_PORT: u16 = 4242;

/// Write data source and dashboards into Grafana's provisioning directory
///
/// Keeps files that pegel did not write, and its own files that were modified since. Grafana reads
/// data sources at startup, and dashboards continuously.
#[derive(Debug, clap::Args)]
pub(super) struct ProvisionArgs {
    /// Grafana's provisioning directory, such as /etc/grafana/provisioning; created if missing
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// How Grafana queries the agent
    #[arg(long, value_enum, value_name = "KIND", default_value = "prometheus")]
    source: SourceKind,
    /// URL of the agent as seen from Grafana [default: http://localhost with the port of the
    /// running agent, else the configured one]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File with the agent's token [default: $PEGEL_TOKEN, token_file of the configuration]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Add the Prometheus that scrapes the agents as a second data source
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    /// User that the agent should serve without a token; may be repeated [default: grafana,
    /// prometheus]
    #[arg(long = "user", value_name = "NAME")]
    users: Vec<UserRef>,
    /// Path of DIR as seen from Grafana, if it runs in a container
    #[arg(long, value_name = "PATH")]
    seen_as: Option<PathBuf>,
    /// Overwrite pegel's own files even if they were modified
    #[arg(long)]
    force: bool,
    /// Describe an agent with this configuration file [default: the running agent, else an agent
    /// started here]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Socket of the running agent [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET", conflicts_with = "config")]
    socket: Option<PathBuf>,
}

pub(super) fn run(args: &ProvisionArgs) -> anyhow::Result<()> {
    let (agent, loaded) = described_agent(args)?;
    let url = match &args.url {
        Some(url) => HttpUrl::parse(url, "--url")?,
        None => HttpUrl::parse(&default_url(&loaded.config, args.source), "listen")?,
    };
    let prometheus = args.prometheus.as_deref();
    let prometheus = prometheus
        .map(|url| HttpUrl::parse(url, "--prometheus"))
        .transpose()?;
    let configured = loaded.config.serve.token_file.as_deref();
    let token = token::find(args.token_file.as_deref(), configured)?;
    if token.is_some() && !url.is_encrypted && !url.is_loopback {
        return Err(CommandError::usage(format!(
            "{} would send the token unencrypted over the network; use https",
            url.as_str()
        )));
    }
    let mut provisioning_dir = ProvisioningDir::open(&args.dir)?;
    let root = args.seen_as.as_deref().unwrap_or(provisioning_dir.dir());
    if !root.is_absolute() {
        return Err(CommandError::usage("--seen-as must be an absolute path"));
    }
    let wanted = files_to_write(args.source, root, &url, token.as_ref(), prometheus.as_ref());
    let mut report = write_files(&mut provisioning_dir, &wanted, args.force)?;
    report.push_str(&format!(
        "\nThe data source reads {agent} at {}.\n",
        url.as_str()
    ));
    report.push_str(&access_instructions(
        args,
        &loaded,
        &provisioning_dir,
        &url,
        token.as_ref(),
    ));
    report.push_str("Then restart Grafana, for example: systemctl restart grafana-server\n");
    output::write(None, &report)
}

/// Returns the configuration of the agent to describe, and that agent in words.
fn described_agent(args: &ProvisionArgs) -> anyhow::Result<(String, LoadedConfig)> {
    if args.config.is_none() {
        let report = AgentClient::find(args.socket.as_deref(), &[])
            .and_then(|client| AgentReport::fetch(&client));
        match report {
            Ok(report) => {
                if let Some(loaded) = report.loaded_config() {
                    let pid = report.pid().map_or("?".to_owned(), |pid| pid.to_string());
                    return Ok((format!("the running agent (pid {pid})"), loaded));
                }
            }
            Err(error) if args.socket.is_some() => return Err(error),
            // No agent is running: describe one that would be started here.
            Err(_) => {}
        }
    }
    let loaded = pegel_agent::load_config(args.config.clone(), &[], &|name| std::env::var_os(name))
        .map_err(|error| CommandError::with_code(USAGE, error.to_string()))?;
    let agent = match &loaded.file {
        Some(file) => format!("an agent configured by {}", file.display()),
        None => "an agent with the default configuration".to_owned(),
    };
    Ok((agent, loaded))
}

/// Returns the URL of the first loopback address. OpenTSDB has a port of its own, which is
/// preferred if the agent listens on it.
fn default_url(config: &Config, source: SourceKind) -> String {
    let sockets = || {
        let loopback = config
            .serve
            .listen
            .iter()
            .filter(|address| address.is_loopback());
        loopback.map(pegel_config::ListenAddress::socket)
    };
    let chosen = sockets()
        .find(|socket| source == SourceKind::Opentsdb && socket.port() == OPENTSDB_PORT)
        .or_else(|| sockets().next());
    match chosen {
        Some(socket) if socket.ip() == std::net::Ipv4Addr::LOCALHOST => {
            format!("http://localhost:{}", socket.port())
        }
        Some(socket) => format!("http://{socket}"),
        None => format!("http://localhost:{OPENTSDB_PORT}"),
    }
}

/// Returns all files in the order of writing: data sources before the dashboards that use them.
fn files_to_write(
    source: SourceKind,
    root: &Path,
    url: &HttpUrl,
    token: Option<&Secret>,
    prometheus: Option<&HttpUrl>,
) -> Vec<ProvisionedFile> {
    let plain = |path: String, text: String| ProvisionedFile {
        path,
        text,
        is_secret: false,
    };
    let mut wanted = vec![ProvisionedFile {
        is_secret: token.is_some(),
        ..plain(
            "datasources/pegel.yaml".into(),
            match source {
                SourceKind::Prometheus => provisioning_yaml::agent(url, token),
                SourceKind::Opentsdb => provisioning_yaml::opentsdb(url, token),
            },
        )
    }];
    wanted.extend(prometheus.map(|url| {
        let text = provisioning_yaml::prometheus(url);
        plain("datasources/pegel-prometheus.yaml".into(), text)
    }));
    let text = provisioning_yaml::provider(&root.join(DASHBOARDS_DIR));
    wanted.push(plain("dashboards/pegel.yaml".into(), text));
    wanted.extend(dashboards::ALL.map(|dashboard| {
        let path = format!("{DASHBOARDS_DIR}/{}.json", dashboard.name);
        plain(path, dashboard_json::text(dashboard, source))
    }));
    wanted
}

/// Writes all files, or none if a foreign file is in the way. Returns a report with a line per
/// file.
fn write_files(
    provisioning_dir: &mut ProvisioningDir,
    wanted: &[ProvisionedFile],
    is_forced: bool,
) -> anyhow::Result<String> {
    let states = wanted
        .iter()
        .map(|wanted| Ok((wanted, provisioning_dir.file_state(wanted)?)));
    let states = states.collect::<anyhow::Result<Vec<_>>>()?;
    let foreign = states
        .iter()
        .filter(|(_, state)| *state == ProvisionedState::Foreign);
    let foreign: Vec<String> = foreign
        .map(|(wanted, _)| provisioning_dir.path(wanted).display().to_string())
        .collect();
    if !foreign.is_empty() {
        bail!(
            "not written by pegel: {}; no file was changed. Remove it, or pass another directory with --dir",
            foreign.join(", ")
        );
    }
    let mut report = String::new();
    for (wanted, state) in states {
        let path = provisioning_dir.path(wanted);
        let (action, reason) = match state {
            ProvisionedState::UpToDate => {
                provisioning_dir.record(wanted);
                ("unchanged", "")
            }
            ProvisionedState::Modified if !is_forced => {
                ("kept", " (modified; --force overwrites it)")
            }
            _ => {
                provisioning_dir.write(wanted)?;
                ("written", "")
            }
        };
        report.push_str(&format!("{action:9} {}{reason}\n", path.display()));
    }
    provisioning_dir.write_manifest()?;
    Ok(report)
}

/// Explains how Grafana gets access to the agent.
fn access_instructions(
    args: &ProvisionArgs,
    loaded: &LoadedConfig,
    provisioning_dir: &ProvisioningDir,
    url: &HttpUrl,
    token: Option<&Secret>,
) -> String {
    if token.is_some() {
        let readers = match provisioning_dir.reader_group() {
            Some(group) => format!("root and group {group}"),
            None => "its owner".to_owned(),
        };
        return format!(
            "The token is in {}/datasources/pegel.yaml, readable by {readers}: Grafana must run as one of them.\n",
            provisioning_dir.dir().display()
        );
    }
    if !url.is_loopback {
        return format!(
            "An agent on another machine requires a token: pass it with --token-file. ({} was written without one.)\n",
            url.as_str()
        );
    }
    let wanted = if args.users.is_empty() {
        ["grafana", "prometheus"]
            .map(|name| UserRef::Name(name.to_owned()))
            .to_vec()
    } else {
        args.users.clone()
    };
    access_advice::allow_users(
        &loaded.config.serve.allow_users,
        &wanted,
        &access_advice::is_system_user,
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The files can be imported without the program, and show changes in review.
    #[test]
    fn the_dashboards_in_the_repository_are_current() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/grafana/dashboards"
        );
        for source in [SourceKind::Prometheus, SourceKind::Opentsdb] {
            let folder = Path::new(folder).join(source.plugin());
            for dashboard in dashboards::ALL {
                let path = folder.join(format!("{}.json", dashboard.name));
                pegel_testkit::assert_golden(path, &dashboard_json::text(dashboard, source));
            }
            let files = std::fs::read_dir(folder).expect("the folder").count();
            assert_eq!(files, dashboards::ALL.len(), "a file without a dashboard");
        }
    }
}
