//! The samples of a record as OpenMetrics 1.0 with timestamps.
//!
//! The format requires all samples of a series, and all series of a family, to be adjacent. A
//! record has them in the order of time. A first pass therefore counts the samples of each series;
//! each further pass decodes the record again and collects as many series as fit into
//! [`BATCH_SAMPLES`], so that memory is bounded however long the record is.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, bail};
use pegel_metric::prometheus_names::{label_key, metric_name};
use pegel_metric::{MetricKind, Millis, Series, format_value};
use pegel_record::{BlockContent, RecordEvent, RecordReader, RecordSamples};

use super::cat::{cannot_write, report_problem};
use super::sample_filter::SampleFilter;
use super::sample_lines::seconds;
use super::source::LoadedRecord;
use crate::agent_query::name_only_family;
use crate::output;

/// The most samples in memory, 64 MB.
const BATCH_SAMPLES: u64 = 4 << 20;
/// The most series of a record.
const SERIES_MAX: usize = 1 << 20;

/// A series as the format names it.
#[derive(Debug)]
struct ExportedSeries {
    family: String,
    /// The name and labels with the characters that the format accepts.
    text: String,
    /// The series in the record. Several may have the same exported text.
    sources: Vec<Arc<str>>,
    samples: u64,
}

/// The series to write.
#[derive(Debug, Default)]
struct SeriesCatalogue {
    /// By family and text.
    series: BTreeMap<(String, String), ExportedSeries>,
    /// The kind of a family; `Unknown` if its series differ.
    kinds: HashMap<String, MetricKind>,
}

/// Writes the selected samples. Returns their number.
pub(super) fn write(
    record: &LoadedRecord,
    filter: &mut SampleFilter,
    out: &mut dyn Write,
) -> anyhow::Result<u64> {
    let catalogue = SeriesCatalogue::read(record, filter)?;
    let mut export = SampleExport {
        record,
        filter,
        out,
        catalogue: &catalogue,
        family: "",
        written: 0,
        out_of_order: 0,
    };
    for batch in catalogue.batches(BATCH_SAMPLES) {
        export.write_batch(&batch)?;
    }
    export.write_text("# EOF\n")?;
    if export.out_of_order > 0 {
        output::print_message(&format!(
            "pegel: {}: {} samples are not later than the one before and were left out",
            record.location, export.out_of_order
        ));
    }
    Ok(export.written)
}

impl SeriesCatalogue {
    /// Counts the selected samples of each series, and reports damage.
    fn read(record: &LoadedRecord, filter: &mut SampleFilter) -> anyhow::Result<SeriesCatalogue> {
        let mut counts: HashMap<Arc<str>, (MetricKind, u64)> = HashMap::new();
        for event in RecordReader::new(&record.bytes) {
            report_problem(&event, record);
            for samples in samples_of(&event) {
                if !filter.selects(&samples.series) {
                    continue;
                }
                let count = filter.samples(samples).count() as u64;
                let known = counts.entry(samples.series.clone());
                let (kind, total) = known.or_insert((samples.kind, 0));
                if *kind != samples.kind {
                    *kind = MetricKind::Unknown;
                }
                *total += count;
            }
            if counts.len() > SERIES_MAX {
                bail!("more than {SERIES_MAX} series; select some with --match");
            }
        }
        let mut catalogue = SeriesCatalogue::default();
        for (source, (kind, samples)) in counts {
            if samples > 0 {
                catalogue.add(source, kind, samples);
            }
        }
        Ok(catalogue)
    }

    fn add(&mut self, source: Arc<str>, kind: MetricKind, samples: u64) {
        let Some((family, text)) = exported_names(&source) else {
            // A record has only series that this program accepted.
            return;
        };
        let known = self.kinds.entry(family.clone()).or_insert(kind);
        if *known != kind {
            *known = MetricKind::Unknown;
        }
        let series = self.series.entry((family.clone(), text.clone()));
        let series = series.or_insert_with(|| ExportedSeries {
            family,
            text,
            sources: Vec::new(),
            samples: 0,
        });
        series.sources.push(source);
        // The order must not depend on that of a hash map, which differs between runs.
        series.sources.sort();
        series.samples += samples;
    }

    /// Divides the series into batches of at most this many samples; a series with more is a batch
    /// of its own.
    fn batches(&self, samples_max: u64) -> Vec<Vec<&ExportedSeries>> {
        let mut batches: Vec<Vec<&ExportedSeries>> = Vec::new();
        let mut samples = u64::MAX;
        for series in self.series.values() {
            samples = samples.saturating_add(series.samples);
            match batches.last_mut() {
                Some(batch) if samples <= samples_max => batch.push(series),
                _ => {
                    batches.push(vec![series]);
                    samples = series.samples;
                }
            }
        }
        batches
    }

    /// Returns the line that declares a family. A counter is declared without `_total`; if it has
    /// no such name, or another family has the name, it is of an unknown type.
    fn type_line(&self, family: &str) -> String {
        let kind = self.kinds.get(family).copied();
        let counter = family
            .strip_suffix("_total")
            .filter(|name| kind == Some(MetricKind::Counter) && !name.is_empty());
        let is_free = |name: &str| {
            !self.kinds.contains_key(name) && !self.kinds.contains_key(&format!("{name}_created"))
        };
        match (counter.filter(|name| is_free(name)), kind) {
            (Some(name), _) => format!("# TYPE {name} counter\n"),
            (None, Some(MetricKind::Gauge)) => format!("# TYPE {family} gauge\n"),
            _ => format!("# TYPE {family} unknown\n"),
        }
    }
}

/// Writes batches of series.
struct SampleExport<'a> {
    record: &'a LoadedRecord,
    filter: &'a mut SampleFilter,
    out: &'a mut dyn Write,
    catalogue: &'a SeriesCatalogue,
    /// The family that was declared last.
    family: &'a str,
    written: u64,
    out_of_order: u64,
}

impl<'a> SampleExport<'a> {
    fn write_batch(&mut self, batch: &[&'a ExportedSeries]) -> anyhow::Result<()> {
        let sources = batch.iter().enumerate().flat_map(|(at, series)| {
            let sources = series.sources.iter();
            sources.map(move |source| (source.clone(), at))
        });
        let positions: HashMap<Arc<str>, usize> = sources.collect();
        // A series of its own may exceed the memory, and is written as it is decoded.
        let is_single = batch.len() == 1;
        let mut collected: Vec<Vec<(Millis, f64)>> = vec![Vec::new(); batch.len()];
        let mut last = Millis::MIN;
        for event in RecordReader::new(&self.record.bytes) {
            for samples in samples_of(&event) {
                let Some(at) = positions.get(&samples.series) else {
                    continue;
                };
                collected[*at].extend(self.filter.samples(samples));
            }
            if is_single {
                last = self.write_series(batch[0], &collected[0], last)?;
                collected[0].clear();
            }
        }
        for (series, samples) in batch.iter().zip(&collected) {
            self.write_series(series, samples, last)?;
        }
        Ok(())
    }

    /// Writes samples later than `last`. Returns the time of the last one.
    fn write_series(
        &mut self,
        series: &'a ExportedSeries,
        samples: &[(Millis, f64)],
        mut last: Millis,
    ) -> anyhow::Result<Millis> {
        if samples.is_empty() {
            return Ok(last);
        }
        let mut text = String::new();
        if self.family != series.family {
            self.family = &series.family;
            text.push_str(&self.catalogue.type_line(self.family));
        }
        for (time, value) in samples {
            if *time <= last {
                self.out_of_order += 1;
                continue;
            }
            last = *time;
            text.push_str(&series.text);
            text.push(' ');
            format_value(&mut text, *value);
            text.push(' ');
            text.push_str(&seconds(*time));
            text.push('\n');
            self.written += 1;
        }
        self.write_text(&text)?;
        Ok(last)
    }

    fn write_text(&mut self, text: &str) -> anyhow::Result<()> {
        let written = self.out.write_all(text.as_bytes());
        written.with_context(cannot_write)
    }
}

fn samples_of(event: &RecordEvent) -> &[RecordSamples] {
    match event {
        RecordEvent::Block {
            content: BlockContent::Samples(samples),
            ..
        } => samples,
        _ => &[],
    }
}

/// Returns the family and the text of a series in the characters that the format accepts.
fn exported_names(text: &str) -> Option<(String, String)> {
    let series = Series::parse(text, name_only_family).ok()?;
    let family = metric_name(series.name()).into_owned();
    let mut keys = HashSet::new();
    let mut labels = Vec::new();
    for (key, value) in series.labels() {
        let key = label_key(key).into_owned();
        // Two keys may become the same; the first is kept.
        if keys.insert(key.clone()) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            labels.push(format!("{key}=\"{}\"", value.replace('\n', "\\n")));
        }
    }
    let labels = match labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", labels.join(",")),
    };
    let text = format!("{family}{labels}");
    Some((family, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_characters_of_the_format() {
        let (family, text) = exported_names(r#"a.b{c.d="x\"y",c_d="z"}"#).expect("a series");
        assert_eq!(family, "a_b");
        assert_eq!(text, r#"a_b{c_d="x\"y"}"#);
    }

    #[test]
    fn batches_are_bounded_and_a_large_series_stands_alone() {
        let mut catalogue = SeriesCatalogue::default();
        for (name, samples) in [("a", 3), ("b", 3), ("c", 9), ("d", 5), ("e", 0)] {
            catalogue.add(name.into(), MetricKind::Gauge, samples);
        }
        let batches = catalogue.batches(6);
        let names: Vec<Vec<&str>> = batches
            .iter()
            .map(|batch| batch.iter().map(|series| series.text.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["a", "b"], vec!["c"], vec!["d", "e"]]);
    }

    #[test]
    fn counters_are_declared_without_total_where_the_name_is_free() {
        let mut catalogue = SeriesCatalogue::default();
        for name in ["a_total", "b_total", "c"] {
            catalogue.add(name.into(), MetricKind::Counter, 1);
        }
        catalogue.add("b".into(), MetricKind::Gauge, 1);
        assert_eq!(catalogue.type_line("a_total"), "# TYPE a counter\n");
        assert_eq!(catalogue.type_line("b_total"), "# TYPE b_total unknown\n");
        assert_eq!(catalogue.type_line("b"), "# TYPE b gauge\n");
        assert_eq!(catalogue.type_line("c"), "# TYPE c unknown\n");
    }
}
