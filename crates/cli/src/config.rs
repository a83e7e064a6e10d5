//! `pegel config`: writes the default configuration, checks a file, shows the effective settings.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use pegel_agent::Config;
use pegel_config::ConfigError;

use crate::agent::ConfigFlags;
use crate::agent_client::AgentClient;
use crate::agent_report::AgentReport;
use crate::command_error::{CommandError, USAGE};
use crate::{config_rows, output};

/// Create, check or show the configuration
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: ConfigAction,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigAction {
    /// Write the default configuration file with every key explained
    Init {
        /// Output file; must not exist yet [default: -, standard output]
        file: Option<PathBuf>,
    },
    /// Check a configuration file and report all errors
    ///
    /// Also checks access to the files and directories that it names, as an agent of the same user
    /// does at startup.
    Check {
        /// Configuration file [default: $PEGEL_CONFIG, $DRAGON_TELEMETRY_CONFIG]
        file: Option<PathBuf>,
        /// Check the text only, for a file of another machine or another user
        #[arg(long)]
        text_only: bool,
    },
    /// Show the configuration in force and the origin of each value
    ///
    /// Shows that of the running agent. If none is running, with --new or with any flag that sets a
    /// key, shows the configuration that an agent started here would have.
    Show(Box<ShowArgs>),
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    agent_socket: Option<PathBuf>,
    /// Show the configuration of an agent started here, even if one is running
    #[arg(long, conflicts_with = "agent_socket")]
    new: bool,
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<()> {
    match &args.action {
        ConfigAction::Init { file } => init(file.as_ref()),
        ConfigAction::Check { file, text_only } => check(file.clone(), *text_only),
        ConfigAction::Show(args) => show(args),
    }
}

fn init(file: Option<&PathBuf>) -> anyhow::Result<()> {
    let text = Config::default_file();
    let Some(path) = file.filter(|path| path.as_os_str() != "-") else {
        return output::write(None, &text);
    };
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn check(file: Option<PathBuf>, text_only: bool) -> anyhow::Result<()> {
    let environment = |name: &str| std::env::var_os(name);
    let usage_error = |error: ConfigError| CommandError::with_code(USAGE, error.to_string());
    let loaded = pegel_agent::load_config(file, &[], &environment).map_err(usage_error)?;
    let Some(file) = &loaded.file else {
        return Err(CommandError::usage(
            "no file to check: pass FILE or set $PEGEL_CONFIG",
        ));
    };
    for warning in pegel_agent::config_warnings(&loaded) {
        output::print_message(&format!("warning: {warning}"));
    }
    if !text_only {
        pegel_agent::check_config(&loaded, &environment).map_err(usage_error)?;
    }
    output::write(None, &format!("{}: no errors\n", file.display()))
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let is_new = args.new || args.flags.is_given();
    if is_new && args.agent_socket.is_none() {
        return output::write(
            None,
            &config_rows::to_yaml(&config_rows::from_loaded(&args.flags.load()?)),
        );
    }
    let client = match AgentClient::find(args.agent_socket.as_deref(), &[]) {
        Ok(client) => client,
        Err(error) if args.agent_socket.is_some() => return Err(error),
        // No agent, or one of another user: only the own configuration can be shown.
        Err(_) => {
            let loaded = args.flags.load()?;
            let heading = "# no agent is running; the configuration of one started here\n";
            let rows = config_rows::from_loaded(&loaded);
            return output::write(None, &format!("{heading}{}", config_rows::to_yaml(&rows)));
        }
    };
    let report = AgentReport::fetch(&client)?;
    if report.config.is_empty() {
        anyhow::bail!("the agent does not permit this user to read its configuration");
    }
    let pid = report.pid().map_or("?".to_owned(), |pid| pid.to_string());
    let file = match report.config_file() {
        Some(file) => format!("file {}", file.display()),
        None => "no file".to_owned(),
    };
    let heading = format!("# the running agent, pid {pid}, {file}\n");
    output::write(
        None,
        &format!("{heading}{}", config_rows::to_yaml(&report.config)),
    )
}
