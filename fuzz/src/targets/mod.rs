//! The list of targets.

mod archive;
mod codec;
mod collect;
mod config;
mod exposition;
mod history;
mod ingest;
mod jobs;
mod lane;
mod machine;
mod metric;
mod mpi_state;
mod node;
mod opentsdb;
mod otlp;
mod points;
mod promql;
mod pull_formats;
mod range;
mod record;
mod remote_write;
mod remote_write_out;
mod rules;
mod run;
mod snapshot;
mod statsd;
mod store;
mod task;
mod tree;
mod tree_samples;

/// A fuzz target.
#[derive(Debug)]
pub struct Target {
    pub name: &'static str,
    /// Panics if a property is violated.
    pub run: fn(&[u8]),
    /// Tokens of the format, which random mutations would hardly find.
    pub dictionary: &'static [&'static [u8]],
    /// The seed inputs of its corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub static TARGETS: &[Target] = &[
    archive::FILES,
    exposition::ENCODE,
    statsd::STATSD,
    metric::SERIES,
    metric::SELECTOR,
    metric::NAMES,
    config::CONFIG,
    rules::RULE_FILE,
    rules::RULE_TEMPLATE,
    rules::RULE_TEST_VALUES,
    range::RANGE,
    run::WATCH,
    run::TYPES,
    opentsdb::JSON,
    opentsdb::URI,
    points::PUT,
    points::PUT_LINE,
    points::DRAGON,
    history::HISTORY,
    remote_write::V1,
    remote_write_out::RETRY_AFTER,
    remote_write_out::POSITION,
    remote_write::V2,
    otlp::PROTOBUF,
    otlp::JSON,
    pull_formats::INFLUX,
    pull_formats::EXPOSITION,
    pull_formats::JSON_VALUES,
    promql::EXPRESSION,
    promql::EVALUATION,
    collect::CPU,
    collect::STAT,
    collect::MEMORY,
    collect::LOAD,
    collect::UPTIME,
    collect::PRESSURE,
    collect::DISK,
    collect::UDEV,
    collect::NETWORK,
    collect::VMSTAT,
    collect::PROCESS,
    jobs::JOB_FILE,
    jobs::JOB_PATH,
    ingest::JOURNAL,
    ingest::PATTERN,
    lane::LANE,
    lane::LANE_FILE,
    mpi_state::MPI_STATE,
    mpi_state::MPI_RANKS,
    machine::MACHINE,
    snapshot::SMBIOS,
    snapshot::AZURE_BATCH,
    snapshot::METADATA,
    snapshot::SNAPSHOT,
    codec::VALUES,
    codec::VALUES_BYTES,
    codec::TIMES,
    codec::TIMES_BYTES,
    codec::ROW,
    codec::ROW_BYTES,
    codec::UNPACK,
    store::LOG,
    store::LOG_FRAMES,
    store::LOG_ROUND_TRIP,
    store::BLOCK,
    store::BLOCK_INDEX,
    store::FORMAT,
    record::RECORD,
    record::RECORD_BODIES,
    record::RECORD_ROUND_TRIP,
    task::TASK,
    tree::BACKFILL_FILE,
    tree::CHILD_MESSAGE,
    tree::PARENT_MESSAGE,
    tree::SELECT_REQUEST,
    tree_samples::VALUE_TICKS,
    tree_samples::PARTIAL_TICKS,
    tree_samples::SELECT_RESPONSE,
];

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
