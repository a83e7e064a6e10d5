//! A record reaches its storage once and in order, whatever is lost on the way; a task is watched
//! on this machine.

mod azure_storage;
mod file_place;
mod file_storage;
mod google_storage;
mod loopback_server;
mod lossy_storage;
mod peer_servers;
mod s3_express;
mod s3_storage;
mod session_record;
mod storage_problems;
mod stored_record;
mod task_cgroup;
mod task_processes;
mod upload;

use pegel_metric::{MetricKind, Millis};
use pegel_record::{BlockContent, RecordEvent, RecordReader, RecordSamples};

/// One sample of one series, whose value follows from its time.
fn samples(time: Millis) -> Vec<RecordSamples> {
    vec![RecordSamples {
        series: "x".into(),
        kind: MetricKind::Gauge,
        times: [time].into(),
        values: vec![time as f64 * 1.5],
    }]
}

/// Returns the times of all samples, after checking the values. Panics if anything else than
/// blocks is found.
fn sample_times(record: &[u8]) -> Vec<Millis> {
    let mut times = Vec::new();
    for event in RecordReader::new(record) {
        let RecordEvent::Block { content, .. } = event else {
            panic!("{event:?}");
        };
        let BlockContent::Samples(samples) = content else {
            continue;
        };
        for one in samples {
            for (time, value) in one.times.iter().zip(one.values) {
                assert_eq!(value, *time as f64 * 1.5);
                times.push(*time);
            }
        }
    }
    times
}
