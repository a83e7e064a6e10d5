//! The requests of Grafana's OpenTSDB data source, from its browser part and from its backend, and
//! how it parses the responses: every action of the editor, and every error that a client can make.

mod annotations;
mod editor;
mod grafana;
mod mistakes;
mod panels;

use pegel_metric::{MetricKind, Millis};
use pegel_testkit::{AgentAddress, TestResponse, post};

use crate::support::{TestServer, now};

/// A server with the series that the tests query, and a whole second in the recent past at which
/// they have values.
fn server(change: impl FnOnce(&mut pegel_serve::ServeSettings)) -> (TestServer, Millis) {
    let server = TestServer::with(change);
    let at = (now() / 10_000 - 6) * 10_000;
    let mut samples = Vec::new();
    for second in 0..30 {
        let time = at + second * 1_000;
        for (text, base) in [
            ("cpu_percent{host=\"n1\"}", 10.0),
            ("cpu_percent{host=\"n2\"}", 100.0),
            ("DevicePowerUsage{gpu=\"0\"}", 300.0),
            ("DevicePowerUsage{gpu=\"1\"}", 400.0),
        ] {
            samples.push((text, time, base + second as f64));
        }
    }
    server.push(MetricKind::Gauge, &samples);
    (server, at)
}

#[track_caller]
fn ask(server: &TestServer, path: &str, body: &str) -> TestResponse {
    let headers = [("Content-Type", "application/json")];
    let address = AgentAddress::Tcp(server.tcp());
    post(&address, path, &headers, body.as_bytes()).expect("an answer")
}
