//! Linux distribution of the node, from `/etc/os-release` or `/usr/lib/os-release`.

use std::path::PathBuf;

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::attribute::attribute_text;
use crate::info_series::InfoSeries;
use crate::proc_parse::{ProcParseError, parse_decimal};
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static INFO: Family = Family::new(
    "node_os_info",
    MetricKind::Gauge,
    "",
    2,
    "Distribution and its version; always 1.",
);
static VERSION: Family = Family::new(
    "node_os_version",
    MetricKind::Gauge,
    "",
    2,
    "Major and minor version of the distribution, as a number.",
);

const LABELS: [&str; 12] = [
    "build_id",
    "id",
    "id_like",
    "image_id",
    "image_version",
    "name",
    "pretty_name",
    "variant",
    "variant_id",
    "version",
    "version_codename",
    "version_id",
];
const PATHS: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "os",
    tier: Tier::Minute,
    execution: Execution::Inline,
    level: 2,
    families: &[&INFO, &VERSION],
    open,
};

#[derive(Debug)]
struct Os {
    path: PathBuf,
    info: InfoSeries,
    version: InfoSeries,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let paths = PATHS.map(|path| context.host.root.join(path));
    let Some(path) = paths.iter().find(|path| path.exists()) else {
        let [looked_for, _] = paths;
        return Ok(OpenOutcome::Absent { looked_for });
    };
    Ok(OpenOutcome::Active(Box::new(Os {
        path: path.clone(),
        info: InfoSeries::new(&INFO),
        version: InfoSeries::new(&VERSION),
    })))
}

impl Collector for Os {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let values = parse(&attribute_text(&self.path).unwrap_or_default());
        let set = self.set(&values, out);
        set.map_err(|fault| fault.at_path(&self.path))
    }
}

impl Os {
    fn set(
        &mut self,
        values: &[String; LABELS.len()],
        out: &mut SampleGroup,
    ) -> Result<(), ProcParseError> {
        let labels = |wanted: &[&str]| {
            let all = LABELS.into_iter().zip(values.iter().cloned());
            all.filter(|(key, _)| wanted.contains(key)).collect()
        };
        self.info.set(out, labels(&LABELS), 1.0)?;
        if let Some(version) = version(&values[LABELS.len() - 1]) {
            let labels = labels(&["id", "id_like", "name"]);
            self.version.set(out, labels, version)?;
        }
        Ok(())
    }
}

/// Returns the value of each label's variable, from lines `KEY=value` with or without quotes.
fn parse(text: &str) -> [String; LABELS.len()] {
    LABELS.map(|label| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let mut of_label = lines.filter(|(key, _)| key.trim().eq_ignore_ascii_case(label));
        of_label
            .next_back()
            .map_or_else(String::new, |(_, value)| unquote(value.trim()))
    })
}

fn unquote(value: &str) -> String {
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(literal) = inside('\'') {
        return literal.to_owned();
    }
    let value = inside('"').unwrap_or(value);
    let mut characters = value.chars();
    let mut text = String::with_capacity(value.len());
    while let Some(character) = characters.next() {
        match character {
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    text
}

/// Returns the version as a number: `22.04.1` is 22.04. `None` if it does not start with a number.
fn version(id: &str) -> Option<f64> {
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let end = id.find(|c| !is_number(c)).unwrap_or(id.len());
    let mut parts = id[..end].split('.').filter(|part| !part.is_empty());
    let major = parts.next()?;
    match parts.next() {
        Some(minor) => parse_decimal(format!("{major}.{minor}").as_bytes()),
        None => parse_decimal(major.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_are_removed() {
        let values = parse(
            "# a comment\nID=rocky\nNAME=\"Rocky \\\"Linux\\\"\"\nVERSION_ID='9.4'\nVERSION_IDX=7\nbroken\n",
        );
        assert_eq!(values[1], "rocky");
        assert_eq!(values[5], "Rocky \"Linux\"");
        assert_eq!(values[11], "9.4");
        assert_eq!(values[0], "");
    }

    #[test]
    fn versions_that_start_with_a_number_are_numbers() {
        for (id, expected) in [
            ("12", Some(12.0)),
            ("22.04", Some(22.04)),
            ("15.6.1", Some(15.6)),
            ("9.4-rc1", Some(9.4)),
            ("9.", Some(9.0)),
            ("rolling", None),
            ("", None),
            (".", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(version(id), expected, "{id}");
        }
    }
}
