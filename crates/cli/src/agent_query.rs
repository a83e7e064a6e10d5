//! Options and requests shared by the commands that query an agent: `list`, `values`, `get`,
//! `track`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pegel_metric::{Family, Input, MetricKind, Series};

use crate::agent_client::AgentClient;
use crate::api_values::{SeriesInfo, SeriesValue, parse_series_list, parse_values};
use crate::command_error::{CommandError, PARTLY_MATCHED};
use crate::format::{DisplayContext, OutputFormat};
use crate::node_access::NodeArgs;
use crate::series_query::{SeriesQuery, Unmatched};
use crate::{output, suggestions};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AgentQueryArgs {
    /// The agent's socket [default: $PEGEL_SOCKET, the user's, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    pub socket: Option<PathBuf>,
    /// Output format [default: by the extension of FILE, else md]
    #[arg(short, long, value_enum)]
    pub format: Option<OutputFormat>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show only series that contain TEXT, or match a glob or matchers: `cpu`, `node_*_bytes`,
    /// `{mode="idle"}`; may be repeated, any may match
    #[arg(long = "match", value_name = "TEXT")]
    pub patterns: Vec<String>,
    #[command(flatten)]
    pub node: NodeArgs,
}

impl AgentQueryArgs {
    /// Finds the agent or the node below it. Missing nodes are printed to standard error.
    pub(crate) fn client(&self) -> anyhow::Result<AgentClient> {
        let client = self.node.client(self.socket.as_deref())?;
        Ok(client.with_missing_node_messages())
    }

    pub(crate) fn format(&self) -> OutputFormat {
        OutputFormat::choose(self.format, self.output.as_deref(), OutputFormat::Md)
    }

    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        output::write(self.output.as_deref(), text)
    }

    pub(crate) fn display_context(&self) -> DisplayContext {
        display_context(self.output.as_deref())
    }

    /// Parses the names of a command and the patterns. Errors exit with 2.
    pub(crate) fn series(&self, names: &[String]) -> anyhow::Result<SeriesQuery> {
        SeriesQuery::parse(names, &self.patterns)
    }
}

pub(crate) fn display_context(output: Option<&Path>) -> DisplayContext {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let width = if output.is_none() {
        output::terminal_width()
    } else {
        None
    };
    DisplayContext {
        now: now.as_secs_f64(),
        width,
    }
}

/// Fetches all series of the agent, sorted by name.
pub(crate) fn fetch_series_list(client: &AgentClient) -> anyhow::Result<Vec<SeriesInfo>> {
    let mut all = parse_series_list(&client.get("/api/v1/list", &[])?)?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Fetches the values that match the query, sorted by name.
pub(crate) fn fetch_values(
    client: &AgentClient,
    query: &[(&str, &str)],
) -> anyhow::Result<Vec<SeriesValue>> {
    let mut all = parse_values(&client.get("/api/v1/values", query)?)?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Formats name and labels as the agent does: `name{k="v"}`.
pub(crate) fn series_text(name: &str, labels: &[(&str, &str)]) -> Option<String> {
    let series = Series::new(name_only_family(name), labels).ok()?;
    Some(series.text().to_owned())
}

/// Returns a family for series of which only name and labels are used.
pub(crate) fn name_only_family(name: &str) -> Arc<Family> {
    Arc::new(Family {
        name: name.to_owned().into(),
        kind: MetricKind::Unknown,
        help: "".into(),
        unit: "".into(),
        level: 0,
        input: Input::Collect,
    })
}

/// Returns the error for a query that matches no series: one line for each name and pattern.
pub(crate) fn no_match_error(
    client: &AgentClient,
    query: &SeriesQuery,
    missing: &[Unmatched],
) -> anyhow::Error {
    let lines = explain_all(client, query, missing);
    CommandError::nothing_matched(match lines.as_slice() {
        [] => "no series matches both the names and --match".to_owned(),
        lines => lines.join("\npegel: "),
    })
}

/// Returns an error if some names or patterns have no series. The command printed what it found.
pub(crate) fn partial_match(
    client: &AgentClient,
    query: &SeriesQuery,
    missing: &[Unmatched],
) -> anyhow::Result<()> {
    match explain_all(client, query, missing).as_slice() {
        [] => Ok(()),
        lines => Err(CommandError::with_code(
            PARTLY_MATCHED,
            lines.join("\npegel: "),
        )),
    }
}

/// Explains each name and pattern without series. Best effort: without the list of series there
/// are no suggestions.
pub(crate) fn explain_all(
    client: &AgentClient,
    query: &SeriesQuery,
    missing: &[Unmatched],
) -> Vec<String> {
    if missing.is_empty() {
        return Vec::new();
    }
    let all = fetch_series_list(client).unwrap_or_default();
    let texts = || all.iter().map(|item| item.name.as_str());
    let missing_everywhere = query.unmatched(texts());
    let explain = |entry: &Unmatched| {
        if missing_everywhere.contains(entry) {
            suggestions::explain(entry, texts())
        } else {
            format!("no series of these names matches {}", entry.text)
        }
    };
    missing.iter().map(explain).collect()
}
