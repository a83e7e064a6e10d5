//! Options and requests shared by the commands that query an agent: `list`, `values`, `get`,
//! `track`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pegel_metric::{Family, Input, MetricKind, Selector, Series, split_series_list};

use crate::agent_client::AgentClient;
use crate::api_values::{SeriesInfo, SeriesValue, parse_series_list, parse_values};
use crate::command_error::CommandError;
use crate::format::{DisplayContext, OutputFormat};
use crate::output;

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
    /// Show only matching series: `node_cpu*`, `*{mode="idle"}`
    #[arg(long = "match", value_name = "GLOB")]
    pub pattern: Option<String>,
}

impl AgentQueryArgs {
    pub(crate) fn client(&self) -> anyhow::Result<AgentClient> {
        AgentClient::find(self.socket.as_deref(), &[])
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

    pub(crate) fn selector(&self) -> anyhow::Result<Option<Selector>> {
        self.pattern.as_deref().map(parse_selector).transpose()
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

pub(crate) fn parse_selector(pattern: &str) -> anyhow::Result<Selector> {
    Selector::parse(pattern)
        .map_err(|error| CommandError::usage(format!("--match \"{pattern}\": {error}")))
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

/// Returns whether a series such as `name{k="v"}` matches.
pub(crate) fn series_matches(selector: &Selector, text: &str) -> bool {
    Series::parse(text, name_only_family).is_ok_and(|series| selector.matches(&series))
}

/// Formats name and labels as the agent does: `name{k="v"}`.
pub(crate) fn series_text(name: &str, labels: &[(&str, &str)]) -> Option<String> {
    let series = Series::new(name_only_family(name), labels).ok()?;
    Some(series.text().to_owned())
}

/// Returns a family for series of which only name and labels are used.
fn name_only_family(name: &str) -> Arc<Family> {
    Arc::new(Family {
        name: name.to_owned().into(),
        kind: MetricKind::Unknown,
        help: "".into(),
        unit: "".into(),
        level: 0,
        input: Input::Collect,
    })
}

/// Splits arguments, each a comma-separated list, into names.
pub(crate) fn parse_names(arguments: &[String]) -> anyhow::Result<Vec<String>> {
    let names: Vec<String> = arguments
        .iter()
        .flat_map(|list| split_series_list(list))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Err(CommandError::usage("no name given"));
    }
    Ok(names)
}

/// Returns the names that match none of the values.
pub(crate) fn unmatched_names<'a>(names: &'a [String], readings: &[SeriesValue]) -> Vec<&'a str> {
    let is_matched = |name: &str| {
        let Ok(selector) = Selector::parse(name) else {
            return false;
        };
        readings
            .iter()
            .any(|reading| reading.name == name || series_matches(&selector, &reading.name))
    };
    names
        .iter()
        .map(String::as_str)
        .filter(|name| !is_matched(name))
        .collect()
}
