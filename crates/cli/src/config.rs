//! `pegel config`: writes the default configuration, checks a file, shows the effective settings.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use pegel_agent::{Config, LoadedConfig};
use pegel_config::{ConfigEntry, ConfigError, ConfigOrigin, Setting};

use crate::agent::ConfigFlags;
use crate::command_error::{CommandError, USAGE};
use crate::output;

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
        /// Output file; must not exist yet [default: standard output]
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
    /// Show the effective configuration and the origin of each value
    Show(Box<ConfigFlags>),
}

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<()> {
    match &args.action {
        ConfigAction::Init { file } => init(file.as_ref()),
        ConfigAction::Check { file, text_only } => check(file.clone(), *text_only),
        ConfigAction::Show(settings) => output::write(None, &show(&settings.load()?)),
    }
}

fn init(file: Option<&PathBuf>) -> anyhow::Result<()> {
    let text = Config::default_file();
    let Some(path) = file else {
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
    if !text_only {
        pegel_agent::check_config(&loaded, &environment).map_err(usage_error)?;
    }
    output::write(None, &format!("{}: no errors\n", file.display()))
}

/// Formats one key per line, followed by the origin of its value.
fn show(loaded: &LoadedConfig) -> String {
    let mut lines = Vec::new();
    for entry in loaded.config.to_value().entries() {
        flatten(loaded, &entry.key, entry, &mut lines);
    }
    let width = lines
        .iter()
        .map(|(text, _)| text.chars().count())
        .max()
        .unwrap_or(0)
        .min(60);
    lines
        .iter()
        .map(|(text, origin)| format!("{text:width$}  # {origin}\n"))
        .collect()
}

/// Writes maps in block style, so that each nested key has its own line and origin.
fn flatten(
    loaded: &LoadedConfig,
    path: &str,
    entry: &ConfigEntry,
    lines: &mut Vec<(String, String)>,
) {
    let depth = path.matches('.').count();
    let indent = "  ".repeat(depth);
    let origin = loaded.origin_of(path).unwrap_or(&ConfigOrigin::Default);
    let (key, value) = (&entry.key, &entry.value.value);
    let text = match value.entries() {
        [] => format!("{indent}{key}: {}", value.to_inline()),
        _ => format!("{indent}{key}:"),
    };
    lines.push((text, origin.to_string()));
    for inner in value.entries() {
        flatten(loaded, &format!("{path}.{}", inner.key), inner, lines);
    }
}
