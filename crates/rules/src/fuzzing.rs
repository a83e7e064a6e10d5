//! Entry points for `fuzz/`.

use std::path::Path;

use pegel_query::promql::{LabelSet, VectorSample};

use crate::rule_file::RuleFile;
use crate::template::{Template, TemplateData};
use crate::unit_test::series_notation;

/// Parses a rule file. Returns the number of its rules.
pub fn rule_file(text: &str) -> Option<usize> {
    let file = RuleFile::parse(Path::new("rules.yml"), text).ok()?;
    Some(file.rule_count() + file.duplicate_rules().len())
}

/// Parses a template and expands it; `None` if it is refused.
pub fn template(text: &str) -> Option<String> {
    let template = Template::parse(text).ok()?;
    let labels = LabelSet::new([("__name__", "up"), ("instance", "n1:9100")]);
    let samples: Vec<VectorSample> = [1.5, f64::NAN, -1e300]
        .map(|value| VectorSample {
            labels: labels.clone(),
            value,
        })
        .into();
    Some(template.expand(&TemplateData {
        labels: &labels,
        value: 1234.5,
        external_labels: &labels,
        external_url: "http://n1:1337/",
        time: 1_700_000_000_000,
        query: &|expression| match expression {
            "" => Err("empty".to_owned()),
            _ => Ok(samples.clone()),
        },
    }))
}

/// Parses the values of a series in a test file. Returns their number.
pub fn series_values(text: &str) -> Option<usize> {
    let values = series_notation::parse_values(text).ok()?;
    Some(values.len())
}
