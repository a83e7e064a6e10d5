//! The options that all questions to an agent share, and the questions themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pegel_metric::{Family, Input, Kind, Selector, Series, split_names};

use crate::answer::{Listed, Reading, listed, readings};
use crate::client::Client;
use crate::failure::Failure;
use crate::format::{Format, Page};
use crate::output;

#[derive(Debug, Clone, clap::Args)]
pub struct Ask {
    /// The agent's socket [default: $PEGEL_SOCKET, yours, the system's]
    #[arg(short = 'u', value_name = "SOCKET")]
    pub socket: Option<PathBuf>,
    /// The form of the answer [default: by the ending of FILE, else md]
    #[arg(short, long, value_enum)]
    pub format: Option<Format>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only series that fit: `node_cpu*`, `*{mode="idle"}`
    #[arg(long = "match", value_name = "GLOB")]
    pub pattern: Option<String>,
}

impl Ask {
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::find(self.socket.as_deref(), &[])
    }

    pub fn format(&self) -> Format {
        Format::choose(self.format, self.output.as_deref(), Format::Md)
    }

    pub fn write(&self, text: &str) -> anyhow::Result<()> {
        output::write(self.output.as_deref(), text)
    }

    pub fn page(&self) -> Page {
        page(self.output.as_deref())
    }

    pub fn selector(&self) -> anyhow::Result<Option<Selector>> {
        self.pattern.as_deref().map(selector).transpose()
    }
}

pub fn page(output: Option<&Path>) -> Page {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let width = if output.is_none() {
        output::terminal_width()
    } else {
        None
    };
    Page {
        now: now.as_secs_f64(),
        width,
    }
}

pub fn selector(pattern: &str) -> anyhow::Result<Selector> {
    Selector::parse(pattern)
        .map_err(|error| Failure::usage(format!("--match \"{pattern}\": {error}")))
}

/// All series that the agent knows, sorted by name.
pub fn all_listed(client: &Client) -> anyhow::Result<Vec<Listed>> {
    let mut all = listed(&client.get("/api/v1/list", &[])?)?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The values that fit the query, sorted by name.
pub fn values(client: &Client, query: &[(&str, &str)]) -> anyhow::Result<Vec<Reading>> {
    let mut all = readings(&client.get("/api/v1/values", query)?)?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Whether a series text such as `name{k="v"}` fits.
pub fn fits(selector: &Selector, text: &str) -> bool {
    // Only name and labels matter to a selector.
    let family = |name: &str| {
        Arc::new(Family {
            name: name.to_owned().into(),
            kind: Kind::Unknown,
            help: "".into(),
            unit: "".into(),
            level: 0,
            input: Input::Collect,
        })
    };
    Series::parse(text, family).is_ok_and(|series| selector.matches(&series))
}

/// The text of a series from its parts, as the agent writes it.
pub fn series_text(name: &str, labels: &[(&str, &str)]) -> Option<String> {
    let family = Family {
        name: name.to_owned().into(),
        kind: Kind::Unknown,
        help: "".into(),
        unit: "".into(),
        level: 0,
        input: Input::Collect,
    };
    let series = Series::new(Arc::new(family), labels).ok()?;
    Some(series.text().to_owned())
}

/// The names that several arguments hold, each a list with commas.
pub fn names(arguments: &[String]) -> anyhow::Result<Vec<String>> {
    let names: Vec<String> = arguments
        .iter()
        .flat_map(|list| split_names(list))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Err(Failure::usage("no name is given"));
    }
    Ok(names)
}

/// Those of the names that none of the answers belongs to.
pub fn missing<'a>(names: &'a [String], readings: &[Reading]) -> Vec<&'a str> {
    let answers = |name: &str| {
        let Ok(selector) = Selector::parse(name) else {
            return false;
        };
        readings
            .iter()
            .any(|reading| reading.name == name || fits(&selector, &reading.name))
    };
    names
        .iter()
        .map(String::as_str)
        .filter(|name| !answers(name))
        .collect()
}
