//! The routes. One file each; this one holds what they share.

mod list;
mod metrics;
mod range;
mod status;
mod stream;
mod values;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;

use crate::answers::Answers;
use crate::app::App;
use crate::connection::Stage;
use crate::failure::Failure;
use crate::refusals::Refusals;
use crate::server::Seats;

/// What handlers work with.
#[derive(Debug)]
pub(crate) struct Site {
    pub app: App,
    pub answers: Answers,
    pub refusals: Arc<Refusals>,
    pub seats: Seats,
    pub stage: watch::Receiver<Stage>,
    /// Series that the last `/metrics` had to leave out.
    pub collisions: AtomicUsize,
}

type Shared = State<Arc<Site>>;
type Answer = Result<Response, Failure>;

const INDEX: &str = "pegel: what this node and its programs do\n
/metrics                 current values, Prometheus text or OpenMetrics
/status                  the agent itself, as JSON
/healthz                 200 while all is well
/api/v1/list             series:         ?match=
/api/v1/values           current values: ?match=&names=
/api/v1/range            the past:       ?match=&start=-5m&end=now&step=10s&agg=avg
/api/v1/stream           changes, as server-sent events: ?match=&names=&rate=2
";

pub(crate) fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(async || INDEX))
        .route("/metrics", get(metrics::metrics))
        .route("/metrics/", get(metrics::metrics))
        .route("/status", get(status::status))
        .route("/healthz", get(status::healthz))
        .route("/api/v1/list", get(list::list))
        .route("/api/v1/values", get(values::values))
        .route("/api/v1/range", get(range::range))
        .route("/api/v1/stream", get(stream::stream))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(site)
}

async fn unknown_path(uri: Uri) -> Failure {
    let message = format!("there is nothing at {}", uri.path());
    Failure::new(StatusCode::NOT_FOUND, message).hint("GET / lists what there is")
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} cannot be used with {method}", uri.path());
    let failure = Failure::new(StatusCode::METHOD_NOT_ALLOWED, message).hint("use GET");
    ([("allow", "GET, HEAD")], failure).into_response()
}
