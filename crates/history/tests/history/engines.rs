//! Real engines that hold all samples.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use pegel_testkit::{
    AgentAddress, ChildProcess, PrometheusProcess, TempDir, eventually, get, need, post,
};
use pegel_wire::prompb::{Label, Message, Sample, TimeSeries, WriteRequest};

use crate::data::TestData;

/// Writes all samples to an engine by remote write, in the order of their times: Prometheus refuses
/// those that are an hour older than others.
pub(crate) fn write_all(address: &AgentAddress, data: &TestData, path: &str) {
    let mut from = data.start;
    while from <= data.now {
        let until = from + 600_000;
        let series = data.series.iter().map(|series| TimeSeries {
            labels: { series.engine_labels().into_iter() }
                .map(|(name, value)| Label { name, value })
                .collect(),
            samples: { series.samples.iter() }
                .filter(|(time, _)| (from..until).contains(time))
                .map(|(timestamp, value)| Sample {
                    timestamp: *timestamp,
                    value: *value,
                })
                .collect(),
            ..TimeSeries::default()
        });
        let request = WriteRequest {
            timeseries: series.filter(|one| !one.samples.is_empty()).collect(),
            ..WriteRequest::default()
        };
        let body = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
        let headers = [
            ("Content-Encoding", "snappy"),
            ("Content-Type", "application/x-protobuf"),
            ("X-Prometheus-Remote-Write-Version", "0.1.0"),
        ];
        let sent = post(address, path, &headers, &body.expect("compressed")).expect("sent");
        assert_eq!(sent.status, 204, "{}", sent.text());
        from = until;
    }
}

/// Starts Debian's Prometheus with all samples.
#[track_caller]
pub(crate) fn prometheus(data: &TestData) -> Option<PrometheusProcess> {
    let program = need("prometheus")?;
    let process = PrometheusProcess::start(&program, |home| {
        std::fs::write(home.join("prometheus.yml"), "global: {}\n").expect("written");
        vec![
            "--config.file=prometheus.yml".to_owned(),
            "--storage.tsdb.path=data".to_owned(),
            "--web.enable-remote-write-receiver".to_owned(),
        ]
    });
    let process = process.until_ready();
    write_all(&process.address, data, "/api/v1/write");
    Some(process)
}

/// A VictoriaMetrics process of the Debian package.
pub(crate) struct VictoriaEngine {
    _process: ChildProcess,
    pub(crate) address: AgentAddress,
    _home: TempDir,
}

/// Starts VictoriaMetrics with all samples.
#[track_caller]
pub(crate) fn victoria_metrics(data: &TestData) -> Option<VictoriaEngine> {
    let program = need("victoria-metrics")?;
    let home = TempDir::new();
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address: SocketAddr = free.local_addr().expect("bound");
    drop(free);
    let mut command = Command::new(program);
    command
        .arg(format!("-httpListenAddr={address}"))
        .arg(format!("-storageDataPath={}", home.join("data").display()))
        .arg("-retentionPeriod=100y")
        .current_dir(home.path());
    let process = ChildProcess::start(&mut command);
    let address = AgentAddress::Tcp(address);
    eventually("VictoriaMetrics answers", || {
        let answer = get(&address, "/health").map_err(|error| error.to_string())?;
        (answer.status == 200).then_some(()).ok_or(process.output())
    });
    write_all(&address, data, "/api/v1/write");
    let flushed = get(&address, "/internal/force_flush").expect("flushed");
    assert_eq!(flushed.status, 200);
    Some(VictoriaEngine {
        _process: process,
        address,
        _home: home,
    })
}
