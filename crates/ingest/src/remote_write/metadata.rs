//! What senders tell about their metrics, for `/api/v1/metadata`. Kept in memory: senders repeat
//! it, every minute (1.0) or with every sample (2.0).

use std::collections::BTreeMap;

use pegel_metric::NAME_BYTES_MAX;
use pegel_wire::remote_write::{
    MetadataV1, MetadataV2, RemoteMetricType, WriteRequestV2, text_start,
};

use crate::admission::HELP_BYTES_MAX;

/// The most memory for metadata; what would exceed it is ignored. A quarter is reserved for the
/// agent's user and root.
const BYTES_MAX: usize = 2 << 20;
/// The memory of an entry besides its texts.
const ENTRY_BYTES: usize = 128;
/// Longer units are cut.
const UNIT_BYTES_MAX: usize = 256;

/// A metric as its sender describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedMetric {
    pub name: String,
    pub metric_type: &'static str,
    pub help: String,
    pub unit: String,
}

/// The metrics by name; the last description of a name is kept.
#[derive(Debug, Default)]
pub(super) struct RemoteMetadata {
    metrics: BTreeMap<Box<str>, Description>,
    bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Description {
    metric_type: RemoteMetricType,
    help: Box<str>,
    unit: Box<str>,
}

impl Description {
    fn bytes(&self, name: &str) -> usize {
        ENTRY_BYTES + name.len() + self.help.len() + self.unit.len()
    }
}

impl RemoteMetadata {
    /// Adds the metadata of a request of version 1.0. Names that no series can have are ignored.
    pub(super) fn add_v1(&mut self, metadata: &MetadataV1<'_>, is_trusted: bool) {
        if metadata.metric.len() > NAME_BYTES_MAX {
            return;
        }
        if let Ok(name) = std::str::from_utf8(metadata.metric) {
            let help = text_start(metadata.help, HELP_BYTES_MAX);
            let unit = text_start(metadata.unit, UNIT_BYTES_MAX);
            self.add(name, (metadata.metric_type, help, unit), is_trusted);
        }
    }

    /// Adds the metadata of a series of version 2.0. That of histograms and summaries is listed
    /// under the name of the whole metric.
    pub(super) fn add_v2(
        &mut self,
        series_name: &str,
        metadata: &MetadataV2,
        request: &WriteRequestV2<'_>,
        is_trusted: bool,
    ) {
        let suffixes: &[&str] = match metadata.metric_type.as_str() {
            "histogram" | "gaugehistogram" => &["_bucket", "_sum", "_count", "_gsum", "_gcount"],
            "summary" => &["_sum", "_count"],
            _ => &[],
        };
        let mut stems = suffixes
            .iter()
            .filter_map(|end| series_name.strip_suffix(end));
        let name = stems.next().unwrap_or(series_name);
        let help = request.text(metadata.help, HELP_BYTES_MAX);
        let unit = request.text(metadata.unit, UNIT_BYTES_MAX);
        self.add(name, (metadata.metric_type, help, unit), is_trusted);
    }

    fn add(
        &mut self,
        name: &str,
        (metric_type, help, unit): (RemoteMetricType, &str, &str),
        is_trusted: bool,
    ) {
        if name.is_empty() {
            return;
        }
        let description = Description {
            metric_type,
            help: help.into(),
            unit: unit.into(),
        };
        let known = self.metrics.get(name);
        if known.is_some_and(|known| *known == description) {
            return;
        }
        let freed = known.map_or(0, |known| known.bytes(name));
        let bytes = self.bytes - freed + description.bytes(name);
        let max = match is_trusted {
            true => BYTES_MAX,
            false => BYTES_MAX - BYTES_MAX / 4,
        };
        if bytes <= max || bytes <= self.bytes {
            self.bytes = bytes;
            self.metrics.insert(name.into(), description);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.metrics.len()
    }

    /// Returns all metrics, sorted by name.
    pub(super) fn all(&self) -> Vec<DescribedMetric> {
        let metrics = self.metrics.iter();
        let metrics = metrics.map(|(name, description)| DescribedMetric {
            name: name.to_string(),
            metric_type: description.metric_type.as_str(),
            help: description.help.to_string(),
            unit: description.unit.to_string(),
        });
        metrics.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::HELP_BYTES_MAX;

    #[test]
    fn the_last_description_is_kept_and_memory_is_bounded() {
        let mut metadata = RemoteMetadata::default();
        let gauge = RemoteMetricType(2);
        metadata.add("a", (RemoteMetricType(1), "old", ""), false);
        let long = "ü".repeat(HELP_BYTES_MAX);
        let described = |help| MetadataV1 {
            metric: b"a",
            metric_type: gauge,
            help,
            unit: b"bytes",
        };
        metadata.add_v1(&described(long.as_bytes()), false);
        let all = metadata.all();
        assert_eq!(
            (all.len(), all[0].metric_type, &*all[0].unit),
            (1, "gauge", "bytes")
        );
        assert_eq!(all[0].help.len(), HELP_BYTES_MAX);
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        let unit = "u".repeat(1 << 20);
        for (metric, count) in [(&*long, 1), ("b", 2)] {
            let (metric, unit) = (metric.as_bytes(), unit.as_bytes());
            let one = MetadataV1 {
                metric,
                unit,
                ..described(b"")
            };
            metadata.add_v1(&one, false);
            assert_eq!(
                metadata.len(),
                count,
                "long names are ignored, long units cut"
            );
        }
        assert_eq!(metadata.all()[1].unit.len(), UNIT_BYTES_MAX);
        let help = "x".repeat(HELP_BYTES_MAX);
        for number in 0..10_000 {
            metadata.add(&format!("m{number}"), (gauge, &*help, ""), false);
        }
        let others = metadata.len();
        assert!(metadata.bytes <= BYTES_MAX / 4 * 3);
        assert!((1_000..2_000).contains(&others), "{others}");
        for number in 0..10_000 {
            metadata.add(&format!("own{number}"), (gauge, &*help, ""), true);
        }
        let own = metadata.len() - others;
        assert!(metadata.bytes <= BYTES_MAX);
        assert!((300..600).contains(&own), "{own}: a quarter is reserved");
        metadata.add("m1", (gauge, "shorter", ""), false);
        assert_eq!(
            metadata
                .all()
                .iter()
                .filter(|one| one.help == "shorter")
                .count(),
            1
        );
    }
}
