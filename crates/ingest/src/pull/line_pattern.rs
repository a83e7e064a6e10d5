//! Patterns that extract values and labels from lines of a log.

use std::fmt;
use std::str::FromStr;

use pegel_metric::MetricKind;
use pegel_wire::PointBatch;
use regex_lite::Regex;

/// The prefix of groups that are labels.
const LABEL_PREFIX: &str = "label_";
/// The longest pattern.
const PATTERN_BYTES_MAX: usize = 4096;

/// A regular expression with named groups. A group whose name begins with `label_` is a label;
/// each other named group is a metric with that name.
#[derive(Debug, Clone)]
pub(super) struct LinePattern {
    regex: Regex,
    /// Names of metrics, and of labels without their prefix.
    metrics: Vec<String>,
    labels: Vec<String>,
}

impl FromStr for LinePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<LinePattern, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "the pattern is longer than {PATTERN_BYTES_MAX} bytes"
            ));
        }
        let regex = Regex::new(text).map_err(|error| error.to_string())?;
        let names: Vec<String> = regex.capture_names().flatten().map(str::to_owned).collect();
        let label = |name: &String| name.strip_prefix(LABEL_PREFIX).map(str::to_owned);
        let labels: Vec<String> = names.iter().filter_map(label).collect();
        let metrics: Vec<String> = names
            .into_iter()
            .filter(|name| label(name).is_none())
            .collect();
        if metrics.is_empty() {
            return Err(
                "the pattern has no named group for a value, such as (?P<took_seconds>[0-9.]+)"
                    .to_owned(),
            );
        }
        if labels.iter().any(String::is_empty) {
            return Err("a group is named label_ without the name of a label".to_owned());
        }
        Ok(LinePattern {
            regex,
            metrics,
            labels,
        })
    }
}

impl fmt::Display for LinePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.regex.as_str())
    }
}

pegel_config::text_setting!(
    LinePattern,
    "a regular expression with named groups: (?P<NAME>…) is a value, (?P<label_KEY>…) a label"
);

impl LinePattern {
    /// Adds the values of a line. Groups that did not take part in the match, or did not match a
    /// number, give none.
    pub(crate) fn add_samples<'a>(&'a self, line: &'a str, batch: &mut PointBatch<'a>) {
        let Some(found) = self.regex.captures(line) else {
            return;
        };
        let labels: Vec<(&str, &str)> = self
            .labels
            .iter()
            .filter_map(|key| {
                let group = found.name(&format!("{LABEL_PREFIX}{key}"))?;
                Some((key.as_str(), group.as_str()))
            })
            .collect();
        for name in &self.metrics {
            let value = found
                .name(name)
                .and_then(|group| group.as_str().parse().ok());
            if let Some(value) = value {
                let metric = (name.as_str(), MetricKind::Unknown, "");
                batch.add_sample(metric, value, &labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_values_and_labels() {
        let pattern: LinePattern =
            r"step (?P<step>\d+) took (?P<step_seconds>[0-9.]+) s(?: on (?P<label_gpu>\w+))?"
                .parse()
                .expect("valid");
        let show = |line: &str| {
            let mut batch = PointBatch::default();
            pattern.add_samples(line, &mut batch);
            let shown = batch.points.iter().flatten().map(|point| {
                let labels = &batch.labels()[batch.labels_of(point)];
                format!("{} {} {labels:?}", point.name, point.value)
            });
            shown.collect::<Vec<_>>()
        };
        assert_eq!(
            show("12:00 step 7 took 0.25 s on gpu3"),
            [
                r#"step 7 [("gpu", "gpu3")]"#,
                r#"step_seconds 0.25 [("gpu", "gpu3")]"#
            ]
        );
        assert_eq!(show("step 8 took 1.2.3 s"), ["step 8 []"]);
        assert_eq!(show("nothing"), [""; 0]);
        for wrong in [
            "(",
            "no group",
            r"(?P<label_a>\w)",
            r"(?P<label_>\w)(?P<a>\d)",
        ] {
            assert!(wrong.parse::<LinePattern>().is_err(), "{wrong}");
        }
    }
}
