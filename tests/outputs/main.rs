//! Output of a real agent to other systems: Prometheus, Grafana, the page in a browser, the
//! snapshot, the processes; rules and the receivers of their alerts.

mod archive;
mod grafana;
mod graphite;
mod history;
mod jobs;
mod node_exporter;
mod opentsdb;
mod otlp;
mod page;
mod processes;
mod prometheus;
mod promql;
mod remote_read;
mod remote_write_out;
mod rules;
mod sessions;
mod snapshot;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
