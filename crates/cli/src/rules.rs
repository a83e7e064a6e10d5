//! `pegel rules`: checks and tests rule files, and shows the rules of the agent.

use std::fmt::Write as _;
use std::path::PathBuf;

use pegel_rules::RuleFile;
use serde_json::Value;

use crate::agent_client::AgentClient;
use crate::command_error::{CommandError, FAILED, USAGE};
use crate::format::text_table;
use crate::output;

/// Check, test or show recording and alerting rules
#[derive(Debug, clap::Args)]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    action: RulesAction,
}

#[derive(Debug, clap::Subcommand)]
enum RulesAction {
    /// Check rule files and report all errors; requires no agent
    Check {
        /// Rule files in Prometheus' format
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Run unit tests of rules in promtool's format; requires no agent
    Test {
        /// Test files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Show the rules of the agent with their health
    List {
        /// Output format
        #[arg(short, long, value_enum, default_value_t = ListFormat::Table)]
        format: ListFormat,
        /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
        #[arg(short = 'u', value_name = "SOCKET")]
        socket: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ListFormat {
    Table,
    Json,
}

pub(crate) fn run(args: &RulesArgs) -> anyhow::Result<()> {
    match &args.action {
        RulesAction::Check { files } => check(files),
        RulesAction::Test { files } => test(files),
        RulesAction::List { format, socket } => {
            let client = AgentClient::find(socket.as_deref(), &[])?;
            let groups = client.get("/api/v1/rules", &[])?["data"]["groups"].take();
            match format {
                ListFormat::Json => output::write(None, &format!("{groups:#}\n")),
                ListFormat::Table => output::write(None, &rules_table(&groups)),
            }
        }
    }
}

/// Checks every file before it fails.
fn check(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut errors = Vec::new();
    for path in files {
        match RuleFile::load(path) {
            Ok(file) => {
                let count = file.rule_count();
                let plural = if count == 1 { "" } else { "s" };
                let line = format!("{}: {count} rule{plural}, no errors\n", path.display());
                output::write(None, &line)?;
                for duplicate in file.duplicate_rules() {
                    output::print_message(&format!("warning: {duplicate}"));
                }
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(CommandError::with_code(USAGE, errors.join("\n")))
}

fn test(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut failed = 0;
    for path in files {
        let mut text = format!("Unit Testing:  {}\n", path.display());
        let failures = match pegel_rules::run_test_file(path) {
            Ok(failures) => failures,
            Err(error) => vec![format!("    {error}")],
        };
        if failures.is_empty() {
            text.push_str("  SUCCESS\n\n");
        } else {
            failed += 1;
            // Writing to a String cannot fail.
            let _ = write!(text, "  FAILED:\n{}\n\n", failures.join("\n"));
        }
        output::write(None, &text)?;
    }
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} test files failed", files.len());
    Err(CommandError::with_code(FAILED, message))
}

fn rules_table(groups: &Value) -> String {
    let mut rows = Vec::new();
    for group in groups.as_array().into_iter().flatten() {
        for rule in group["rules"].as_array().into_iter().flatten() {
            let text = |key: &str| rule[key].as_str().unwrap_or_default();
            let state = match text("type") {
                "alerting" => text("state"),
                _ => "recording",
            };
            let query: Vec<&str> = text("query").split_whitespace().collect();
            let detail = match text("lastError") {
                "" => query.join(" "),
                error => error.to_owned(),
            };
            rows.push(vec![
                group["name"].as_str().unwrap_or_default().to_owned(),
                text("name").to_owned(),
                state.to_owned(),
                text("health").to_owned(),
                detail,
            ]);
        }
    }
    if rows.is_empty() {
        return "the agent has no rules; name rule files under `rules` in its configuration\n"
            .to_owned();
    }
    text_table(&["GROUP", "RULE", "STATE", "HEALTH", "EXPRESSION"], &rows)
}
