//! The requests: scrapes of 10,000 series, in bodies of 2,000 samples.

use std::collections::HashMap;

use pegel_metric::Millis;
use pegel_wire::prompb::{Label, Message, Sample, TimeSeries, WriteRequest, write_v2};

pub(crate) const SERIES: usize = 10_000;
const SAMPLES_PER_REQUEST: usize = 2_000;

#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestVersion {
    V1,
    V2,
}

impl RequestVersion {
    pub(crate) fn name(self) -> &'static str {
        match self {
            RequestVersion::V1 => "1.0",
            RequestVersion::V2 => "2.0",
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            RequestVersion::V1 => "application/x-protobuf",
            RequestVersion::V2 => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        }
    }
}

/// Consecutive scrapes, one second apart.
pub(crate) struct Scrapes {
    version: RequestVersion,
    labels: Vec<Vec<(String, String)>>,
    time: Millis,
    round: usize,
}

impl Scrapes {
    pub(crate) fn new(version: RequestVersion, time: Millis) -> Scrapes {
        Scrapes {
            version,
            labels: (0..SERIES).map(|number| labels(version, number)).collect(),
            time,
            round: 0,
        }
    }

    /// Returns the compressed bodies of the next scrapes.
    pub(crate) fn bodies(&mut self, scrapes: usize) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        for _ in 0..scrapes {
            for (number, labels) in self.labels.chunks(SAMPLES_PER_REQUEST).enumerate() {
                let first = number * SAMPLES_PER_REQUEST;
                let message = match self.version {
                    RequestVersion::V1 => self.message_v1(labels, first),
                    RequestVersion::V2 => self.message_v2(labels, first),
                };
                let packed = snap::raw::Encoder::new().compress_vec(&message);
                bodies.push(packed.expect("compressed"));
            }
            self.time += 1_000;
            self.round += 1;
        }
        bodies
    }

    /// A third are counters, a third are gauges, the rest does not change.
    fn value(&self, number: usize) -> f64 {
        match number % 3 {
            0 => (number * 17 + self.round * (number % 100)) as f64,
            1 => ((number * 31 + self.round * 7) % 1000) as f64 / 8.0,
            _ => number as f64,
        }
    }

    fn message_v1(&self, labels: &[Vec<(String, String)>], first: usize) -> Vec<u8> {
        let label = |(name, value): &(String, String)| Label {
            name: name.clone(),
            value: value.clone(),
        };
        let series = labels.iter().enumerate().map(|(at, labels)| TimeSeries {
            labels: labels.iter().map(label).collect(),
            samples: vec![Sample {
                timestamp: self.time,
                value: self.value(first + at),
            }],
            ..TimeSeries::default()
        });
        let request = WriteRequest {
            timeseries: series.collect(),
            metadata: Vec::new(),
        };
        request.encode_to_vec()
    }

    fn message_v2(&self, labels: &[Vec<(String, String)>], first: usize) -> Vec<u8> {
        let mut symbols = vec![String::new()];
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut timeseries = Vec::new();
        for (at, labels) in labels.iter().enumerate() {
            let texts = labels.iter().flat_map(|(name, value)| [name, value]);
            let references = texts.map(|text| {
                *numbers.entry(text).or_insert_with(|| {
                    symbols.push(text.clone());
                    symbols.len() as u32 - 1
                })
            });
            timeseries.push(write_v2::TimeSeries {
                labels_refs: references.collect(),
                samples: vec![write_v2::Sample {
                    timestamp: self.time,
                    value: self.value(first + at),
                }],
                ..write_v2::TimeSeries::default()
            });
        }
        let request = write_v2::Request {
            symbols,
            timeseries,
        };
        request.encode_to_vec()
    }
}

/// Labels like those of a container in a cluster, ten with the name.
fn labels(version: RequestVersion, number: usize) -> Vec<(String, String)> {
    let host = number / 100;
    let metric = number % 100;
    let label = |name: &str, value: String| (name.to_owned(), value);
    vec![
        label(
            "__name__",
            format!("container_resource_usage_{metric}_seconds_total"),
        ),
        label("cluster", format!("production-eu-{}", version.name())),
        label("container", format!("worker-{}", number % 7)),
        label("cpu", format!("cpu{:02}", number % 64)),
        label("datacenter", "frankfurt-2".to_owned()),
        label(
            "image",
            "registry.example.org/team/service:1.42.3".to_owned(),
        ),
        label(
            "instance",
            format!("10.12.{}.{}:9100", host / 256, host % 256),
        ),
        label("job", "kubernetes-cadvisor".to_owned()),
        label("namespace", format!("tenant-{}", number % 23)),
        label(
            "pod",
            format!("service-{host}-7c9f8d6b5-{:05}", number * 7919 % 100_000),
        ),
    ]
}
