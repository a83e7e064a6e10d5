//! The inputs that the server hosts: points over HTTP, lines, and the requests of wrappers whose
//! programs the agent counts. Registers them with the server, and reports their state.

use std::sync::Arc;

use pegel_ingest::Ingest;
use pegel_ingest::handlers::{
    CommandSession, DragonCleanup, DragonMetrics, InfluxVersion, InfluxWrite, OtlpGrpc, OtlpHttp,
    OtlpInput, Pushgateway, PutPoints, RemoteWrite, SocketLines, SwitchInputs, TelnetLines,
};
use pegel_ingest::otlp::OtlpWriter;
use pegel_ingest::pull::PullInputs;
use pegel_ingest::push_groups::PushGroups;
use pegel_ingest::statsd::StatsdInput;
use pegel_mpi_state::MpiRank;
use pegel_run::CountingService;
use pegel_serve::{Access, ChargeBytes, InputRoute, RemoteMetric};
use serde_json::{Value, json};

/// The method of gRPC by which OpenTelemetry's metrics arrive.
const OTLP_GRPC_PATH: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

/// The input from programs.
#[derive(Debug, Clone)]
pub(crate) struct HostedInputs {
    pub ingest: Arc<Ingest>,
    pub otlp: Arc<OtlpWriter>,
    pub statsd: Arc<StatsdInput>,
    pub push_groups: Arc<PushGroups>,
    /// Counts system calls for wrappers that lack the privilege to do so themselves.
    pub counting_service: Arc<CountingService>,
}

impl HostedInputs {
    /// The routes by which clients send points, with the access that each requires.
    pub(crate) fn routes(&self, pull: &Arc<PullInputs>) -> Vec<InputRoute> {
        let ingest = || self.ingest.clone();
        let pushgateway = || Pushgateway(self.push_groups.clone());
        let influx = |version| InfluxWrite {
            ingest: ingest(),
            version,
        };
        let otlp = || OtlpInput {
            ingest: ingest(),
            writer: self.otlp.clone(),
        };
        vec![
            InputRoute::new("/v1/metrics", Access::Change, OtlpHttp(otlp())),
            InputRoute::new(OTLP_GRPC_PATH, Access::Change, OtlpGrpc(otlp())),
            InputRoute::new("/api/put", Access::Change, PutPoints(ingest())),
            InputRoute::new("/api/v1/write", Access::Change, RemoteWrite(ingest())),
            InputRoute::new("/api/metrics", Access::Change, DragonMetrics(ingest())),
            InputRoute::new("/api/tsdb_cleanup", Access::Owner, DragonCleanup(ingest())),
            InputRoute::new("/write", Access::Change, influx(InfluxVersion::V1)),
            InputRoute::new("/api/v2/write", Access::Change, influx(InfluxVersion::V2)),
            InputRoute::new("/metrics/job/{*group}", Access::Change, pushgateway()),
            InputRoute::new(
                "/metrics/job@base64/{*group}",
                Access::Change,
                pushgateway(),
            ),
            InputRoute::new("/api/v1/inputs", Access::Owner, SwitchInputs(pull.clone())),
        ]
    }

    pub(crate) fn socket_lines(&self) -> SocketLines {
        let service = self.counting_service.clone();
        SocketLines {
            ingest: self.ingest.clone(),
            statsd: self.statsd.clone(),
            open_commands: Box::new(move |uid| -> CommandSession {
                let (service, mut session) = (service.clone(), None);
                Box::new(move |line| service.answer(line, uid, &mut session))
            }),
        }
    }

    pub(crate) fn telnet_lines(&self, version: &str) -> TelnetLines {
        TelnetLines {
            ingest: self.ingest.clone(),
            version: version.into(),
        }
    }

    /// Stores what programs counted until now. Values that cannot be written are as old as the last
    /// tick; `/status` reports the reason.
    pub(crate) fn refresh_programs(&self) -> Arc<dyn Fn() + Send + Sync> {
        let ingest = self.ingest.clone();
        Arc::new(move || drop(ingest.refresh()))
    }

    /// Charges a sender for bytes to be written.
    pub(crate) fn charge_bytes(&self) -> ChargeBytes {
        let ingest = self.ingest.clone();
        Arc::new(move |sender, bytes| ingest.try_charge(sender, bytes))
    }

    /// The metrics of remote write, as their senders describe them.
    pub(crate) fn remote_metrics(&self) -> Vec<RemoteMetric> {
        let metrics = self.ingest.remote_writer().metadata().into_iter();
        let metrics = metrics.map(|metric| RemoteMetric {
            name: metric.name,
            metric_type: metric.metric_type,
            help: metric.help,
            unit: metric.unit,
        });
        metrics.collect()
    }

    /// The MPI processes of this node, or those of one user.
    pub(crate) fn mpi_ranks(&self, uid: Option<u32>) -> Vec<MpiRank> {
        self.ingest.mpi_processes().ranks(uid, self.ingest.now())
    }

    /// The fields of `/status`.
    pub(crate) fn status_fields(&self) -> [(&'static str, Value); 6] {
        let unavailable = self.counting_service.unavailable_reason();
        let watching = json!({
            "ebpf": unavailable.is_none(),
            "why_not": unavailable,
            "programs": self.counting_service.programs(),
        });
        [
            ("senders", json!(self.ingest.sender_statuses())),
            ("lanes", json!(self.ingest.lanes_status())),
            ("statsd", json!(self.statsd.status())),
            ("remote_write", json!(self.ingest.remote_writer().status())),
            ("otlp", json!(self.otlp.status())),
            ("watching", watching),
        ]
    }
}
