//! The routes, one file each, and the table of routes with the access that each requires. The guard
//! checks every request before its handler runs.

mod columns;
mod dragon;
mod export;
mod filters;
mod followed_nodes;
mod input;
mod jobs;
mod list;
mod login;
mod marks;
mod metrics;
mod mpi;
mod node_proxy;
mod node_values;
mod nodes;
mod nodes_parameter;
mod opentsdb;
mod page;
mod participants;
mod processes;
mod prometheus;
mod query_http_request;
mod range;
mod reduced_list;
mod sessions;
mod snapshot;
mod status;
mod stream;
mod tree_aggregate;
mod tree_jobs;
mod tree_select;
mod tree_texts;
mod values;

pub(crate) use login::denied_response;
pub(crate) use range::parse_range_query as range_question;

pub use input::InputRoute;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use pegel_tree_protocol::NodeTree;

use crate::api_error::ApiError;
use crate::content_negotiation;
use crate::finished_response::{FinishedResponse, ResponseBuffer};
use crate::guard::{Access, Caller, Guard, PeerIdentity};
use crate::json_response::JSON;
use crate::request_history::{HISTORY_HEADER, RequestHistory};
use crate::server_context::ServerContext;
use crate::tree::{
    AGGREGATE_TARGET, ANNOTATIONS_TARGET, JOBS_TARGET, MPI_TARGET, NODES_HEADER, NodeRecord,
    SELECT_TARGET, TEXTS_TARGET, node_record_header,
};

type SharedContext = Extension<Arc<ServerContext>>;
type HandlerResult = Result<Response, ApiError>;

const INDEX_TEXT: &str = "pegel: metrics of this node and its programs\n
/metrics                 current values, Prometheus text or OpenMetrics
/status                  the agent itself, as JSON
/healthz                 200 while the agent is healthy
/api/v1/list             series:         ?match=
/api/v1/values           current values: ?match=&names=
/api/v1/range            stored samples: ?match=&start=-5m&end=now&step=10s&agg=avg
/api/v1/export           all stored samples as one file: ?format=parquet&match=&start=-1h&end=now
/api/v1/marks            marks and phases of programs: ?start=-1h&end=now
/api/v1/rules            recording and alerting rules, as Prometheus: ?type=alert
/api/v1/alerts           pending and firing alerts, as Prometheus
/api/v1/stream           changes, as server-sent events: ?match=&names=&rate=2
/api/v1/nodes            the nodes of a tree: ?metric=node_load1
/api/v1/tree             the shape of the tree, and its problems
/nodes/NAME/…            the same routes of another node, to read
/api/v1/config           the configuration in force
/api/v1/snapshot         a description of this machine
/api/v1/processes        the top processes: ?by=process&sort=cpu&limit=50
/api/v1/jobs             jobs on this node: ?since=-7d&user=&limit=; job=ID restricts queries to a job
/api/v1/mpi              ranks of MPI programs, and which the others wait for: ?job=&after=10
/api/v1/sessions         records of tasks; POST to /start, /stop, /credentials below it
/api/v1/filters          filters of all answers; PUT and DELETE /api/v1/filters/NAME
/api/v1/query            PromQL, as Prometheus answers it: ?query=node_load1&time=
/api/v1/query_range      PromQL: ?query=&start=&end=&step=
/api/v1/series           series for PromQL: ?match[]=; also /api/v1/labels, /api/v1/label/NAME/values
/api/query               OpenTSDB queries: ?start=1h-ago&m=sum:10s-avg:node_load1
/api/suggest             OpenTSDB name suggestions: ?type=metrics&q=node_
POST /api/put            write points in OpenTSDB's format: ?summary&details
POST /api/v1/write       Prometheus' remote write, 1.0 and 2.0
POST /api/v1/read        Prometheus' remote read
POST /v1/metrics         metrics of OpenTelemetry: OTLP over HTTP; over gRPC at the same addresses
POST /api/metrics        write points in the format of Dragon's telemetry
POST /api/tsdb_cleanup   hide older points of /api/metrics
POST /write              write InfluxDB's line protocol: ?precision=s; also /api/v2/write
PUT /metrics/job/JOB     replace a group of metrics, as Pushgateway does; also POST and DELETE
POST /api/v1/inputs      switch an input on or off
POST /login              exchange the token for a browser's session; POST /logout ends it
/                        the page, in a browser
";

type Route = (&'static str, Access, fn() -> MethodRouter);

/// The routes of the server itself, with the access that each requires. The agent adds those of the
/// inputs ([`InputRoute`]).
const ROUTES: &[Route] = &[
    ("/", Access::Read, || get(page::index)),
    ("/page/{file}", Access::Read, || get(page::file)),
    ("/metrics", Access::Read, || get(metrics::metrics)),
    ("/metrics/", Access::Read, || get(metrics::metrics)),
    ("/status", Access::Read, || get(status::status)),
    ("/healthz", Access::Open, || get(status::healthz)),
    ("/-/healthy", Access::Open, || get(status::healthz)),
    ("/-/ready", Access::Open, || get(status::healthz)),
    ("/api/v1/list", Access::Read, || get(list::list)),
    ("/api/v1/values", Access::Read, || get(values::values)),
    ("/api/v1/range", Access::Read, || get(range::range)),
    ("/api/v1/export", Access::Read, || get(export::export)),
    ("/api/v1/marks", Access::Read, || get(marks::marks)),
    ("/api/v1/stream", Access::Read, || get(stream::changes)),
    ("/api/v1/config", Access::Read, || get(status::config)),
    ("/api/v1/snapshot", Access::Read, || get(snapshot::snapshot)),
    ("/api/v1/processes", Access::Read, || {
        get(processes::processes)
    }),
    ("/api/v1/jobs", Access::Read, || {
        get(jobs::list).post(jobs::report)
    }),
    ("/api/v1/mpi", Access::Read, || get(mpi::mpi)),
    ("/api/v1/participants", Access::Owner, || {
        get(participants::counts).post(participants::update)
    }),
    ("/api/v1/sessions", Access::Read, || get(sessions::list)),
    ("/api/v1/sessions/start", Access::Change, || {
        post(sessions::start)
    }),
    ("/api/v1/sessions/stop", Access::Change, || {
        post(sessions::stop)
    }),
    ("/api/v1/sessions/credentials", Access::Change, || {
        post(sessions::credentials)
    }),
    ("/api/v1/agent/version", Access::Read, || {
        get(sessions::agent_version)
    }),
    ("/api/v1/agent/flush", Access::Owner, || {
        post(sessions::agent_flush)
    }),
    ("/api/v1/agent/stop", Access::Owner, || {
        post(sessions::agent_stop)
    }),
    ("/api/v1/nodes", Access::Read, || get(nodes::nodes)),
    ("/api/v1/tree", Access::Read, || get(nodes::tree)),
    ("/nodes/{node}", Access::Read, || get(node_proxy::redirect)),
    ("/nodes/{node}/", Access::Read, || any(node_proxy::pass)),
    ("/nodes/{node}/{*path}", Access::Read, || {
        any(node_proxy::pass)
    }),
    (SELECT_TARGET, Access::Read, || post(tree_select::select)),
    (AGGREGATE_TARGET, Access::Read, || {
        post(tree_aggregate::aggregate)
    }),
    (JOBS_TARGET, Access::Read, || post(tree_jobs::jobs)),
    (TEXTS_TARGET, Access::Read, || post(tree_texts::texts)),
    (MPI_TARGET, Access::Read, || post(mpi::ranks)),
    (ANNOTATIONS_TARGET, Access::Read, || {
        post(tree_select::annotations)
    }),
    ("/api/v1/filters", Access::Read, || get(filters::all)),
    ("/api/v1/filters/{name}", Access::Owner, || {
        get(filters::one).put(filters::set).delete(filters::remove)
    }),
    ("/login", Access::Open, || {
        get(login::login_form).post(login::log_in)
    }),
    ("/logout", Access::Open, || post(login::log_out)),
    ("/api/token", Access::Open, || post(dragon::token)),
    ("/api/ready", Access::Open, || get(dragon::ready)),
    ("/api/set_shutdown", Access::Owner, || {
        get(dragon::set_shutdown)
    }),
    ("/api/telemetry_shutdown", Access::Owner, || {
        get(dragon::shutdown)
    }),
    ("/api/set_telemetry_shutdown", Access::Owner, || {
        get(dragon::shutdown).post(dragon::shutdown)
    }),
];

pub(crate) fn router(guard: &Arc<Guard>, inputs: &[InputRoute]) -> Router {
    let mut router = Router::new();
    for (path, access, route) in ROUTES {
        router = router.route(path, guarded(guard, *access, route()));
    }
    for (path, route) in opentsdb::ROUTES {
        router = router.route(path, guarded(guard, Access::Read, route()));
    }
    for (path, route) in prometheus::ROUTES {
        router = router.route(path, guarded(guard, Access::Read, route()));
    }
    for input in inputs {
        let route = input::method_router(&input.handler);
        router = router.route(input.path, guarded(guard, input.access, route));
    }
    router
        // Bodies are limited before they reach the router.
        .layer(DefaultBodyLimit::disable())
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
}

/// The access that a request requires before its route is known. Only exact paths are open: one
/// that the router would merely normalise to an open route is not.
pub(crate) fn access_before_routing(path: &str) -> Access {
    let open = ROUTES
        .iter()
        .any(|(known, access, _)| *known == path && *access == Access::Open);
    if open { Access::Open } else { Access::Read }
}

impl ServerContext {
    /// Responds with the JSON that `write` builds, on a blocking thread, from current values.
    async fn respond_latest(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        write: impl FnOnce(&mut ResponseBuffer) -> Result<(), ApiError> + Send + 'static,
    ) -> HandlerResult {
        let work = self.json_work(caller, headers, write);
        let finished = self.executor.read_latest(caller.rights, work);
        Ok(finished.await?.into_response())
    }

    /// Responds with the JSON that `write` builds on a query thread.
    async fn respond_query(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        write: impl FnOnce(&mut ResponseBuffer) -> Result<(), ApiError> + Send + 'static,
    ) -> HandlerResult {
        let work = self.json_work(caller, headers, write);
        let finished = self.executor.query(caller.rights, work);
        Ok(finished.await?.into_response())
    }

    /// Returns the work that builds a response with JSON.
    fn json_work(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        write: impl FnOnce(&mut ResponseBuffer) -> Result<(), ApiError> + Send + 'static,
    ) -> impl FnOnce() -> Result<FinishedResponse, ApiError> + Send + 'static {
        let gzip = content_negotiation::accepts_gzip(headers);
        let mut buffer = self.executor.response_buffer(caller.rights);
        move || {
            write(&mut buffer)?;
            buffer.finish(JSON, gzip)
        }
    }
}

/// Wraps a route in the guard.
fn guarded(guard: &Arc<Guard>, access: Access, route: MethodRouter) -> MethodRouter {
    let state = (guard.clone(), access);
    route.layer(middleware::from_fn_with_state(state, require_access))
}

async fn require_access(
    State((guard, access)): State<(Arc<Guard>, Access)>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let Some(caller) = head.extensions.get::<Caller>() else {
        // Unreachable: every request is admitted by the guard first.
        return ApiError::internal().into_response();
    };
    let is_through_tree = matches!(caller.peer, PeerIdentity::ThroughTree | PeerIdentity::Tree);
    if is_through_tree && matches!(access, Access::Change | Access::Owner) {
        return ApiError::only_reads().into_response();
    }
    match guard.require(caller, &head, access) {
        Ok(()) => run_recorded(Request::from_parts(head, body), next).await,
        Err(denied) => denied.into_response(),
    }
}

/// Runs a request. The response states which part of it came from the history and, on a parent,
/// which nodes contributed to it.
async fn run_recorded(mut request: Request<Body>, next: Next) -> Response {
    let context = request.extensions().get::<Arc<ServerContext>>();
    let reads_nodes = reads_nodes(request.uri().path());
    let Some(context) = context.filter(|_| reads_nodes).cloned() else {
        return next.run(request).await;
    };
    let history = RequestHistory::of(&context);
    if let Some(history) = &history {
        request.extensions_mut().insert(history.clone());
    }
    let mut response = match context.agent.tree.clone() {
        Some(tree) => run_with_nodes(tree, request, next).await,
        None => next.run(request).await,
    };
    if let Some(header) = history.and_then(|history| history.header()) {
        response.headers_mut().insert(HISTORY_HEADER, header);
    }
    response
}

async fn run_with_nodes(
    tree: Arc<dyn NodeTree>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    let record = Arc::new(NodeRecord::default());
    request.extensions_mut().insert(record.clone());
    let mut response = next.run(request).await;
    let mut report = record.report();
    if record.is_empty() {
        // The request failed before it reached a node.
        report.expected = tree.nodes().len() as u32;
    }
    let headers = response.headers_mut();
    headers.insert(NODES_HEADER, node_record_header(&report));
    response
}

/// Routes under `/api/v1` that do not read nodes.
const OWN_ROUTES: [&str; 15] = [
    "agent/",
    "alerts",
    "config",
    "export",
    "filters",
    "format_query",
    "inputs",
    "parse_query",
    "participants",
    "processes",
    "rules",
    "sessions",
    "snapshot",
    "status/",
    "targets",
];

/// Returns whether a route reads the nodes of a tree.
fn reads_nodes(path: &str) -> bool {
    if let Some(rest) = path.strip_prefix("/api/v1/") {
        return !OWN_ROUTES.iter().any(|own| rest.starts_with(own));
    }
    path.trim_end_matches('/') == "/metrics"
        || path.starts_with("/tree/")
        || [
            "/api/query",
            "/api/suggest",
            "/api/search/",
            "/api/annotation",
        ]
        .iter()
        .any(|known| path.starts_with(known))
}

/// The routes that read with POST.
const READING_POSTS: [&str; 19] = [
    "/api/aggregators",
    "/api/config",
    "/api/config/filters",
    "/api/query",
    "/api/query/exp",
    "/api/query/last",
    "/api/search/lookup",
    "/api/serializers",
    "/api/stats",
    "/api/suggest",
    "/api/v1/format_query",
    "/api/v1/labels",
    "/api/v1/parse_query",
    "/api/v1/query",
    "/api/v1/query_exemplars",
    "/api/v1/query_range",
    "/api/v1/read",
    "/api/v1/series",
    "/api/version",
];

/// Returns whether a path names a node, whose own path follows.
pub(crate) fn names_node(path: &str) -> bool {
    path.trim_start_matches('/').starts_with("nodes/")
}

/// Returns whether a request may travel through the tree on behalf of a client: it only reads, and
/// its path names no further node. Each such name would be another pass through the router, in a
/// stack that a client makes as deep as its path is long.
pub(crate) fn is_read_request(method: &Method, path: &str) -> bool {
    if path.trim_start_matches('/').starts_with("tree/") || names_node(path) {
        return false;
    }
    match *method {
        Method::GET | Method::HEAD => {
            let mut routes = ROUTES.iter();
            let changes = |access: &Access| matches!(access, Access::Change | Access::Owner);
            !routes.any(|(known, access, _)| *known == path && changes(access))
        }
        Method::POST => READING_POSTS.contains(&path),
        _ => false,
    }
}

async fn unknown_path(uri: Uri) -> ApiError {
    let message = format!("no such path: {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, message).hint("GET / lists the routes")
}

async fn wrong_method(method: Method, uri: Uri) -> Response {
    let message = format!("{} does not support {method}", uri.path());
    // Every route that does not support GET supports POST.
    let (allow, hint) = match method {
        Method::GET | Method::HEAD => ("POST", "use POST"),
        _ => ("GET, HEAD", "use GET"),
    };
    let failure = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).hint(hint);
    ([("allow", allow)], failure).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::request::Parts;
    use axum::routing::post;
    use tower_service::Service;

    use super::*;
    use crate::guard::AccessRights;
    use crate::settings::ServeSettings;

    /// The status that a caller gets from a route that requires this access.
    async fn status(access: Access, rights: AccessRights, change: fn(&mut Parts)) -> u16 {
        let guard =
            Guard::new(&ServeSettings::default(), "nid0001", Arc::default()).expect("a guard");
        let route = guarded(&Arc::new(guard), access, post(async || "done"));
        let mut router: Router = Router::new().route("/stop", route);
        let mut head = Request::post("/stop")
            .header("host", "localhost")
            .body(())
            .expect("a request")
            .into_parts()
            .0;
        head.extensions.insert(Caller {
            peer: PeerIdentity::User(4001),
            rights,
            is_tls: false,
        });
        change(&mut head);
        let request = Request::from_parts(head, Body::empty());
        let Ok(answer) = router.call(request).await;
        answer.status().as_u16()
    }

    #[test]
    fn a_route_is_guarded_by_what_it_declares() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(async {
            let as_is = |_: &mut Parts| {};
            assert_eq!(status(Access::Owner, AccessRights::Owner, as_is).await, 200);
            assert_eq!(status(Access::Owner, AccessRights::User, as_is).await, 403);
            assert_eq!(status(Access::Owner, AccessRights::None, as_is).await, 401);
            assert_eq!(status(Access::Change, AccessRights::User, as_is).await, 200);
            assert_eq!(status(Access::Change, AccessRights::None, as_is).await, 401);
            let foreign = |head: &mut Parts| {
                let origin = "http://evil.example".parse().expect("a header");
                head.headers.insert("origin", origin);
            };
            assert_eq!(
                status(Access::Owner, AccessRights::Owner, foreign).await,
                403
            );
            let unseen = |head: &mut Parts| head.extensions.clear();
            assert_eq!(
                status(Access::Open, AccessRights::Owner, unseen).await,
                500,
                "no route is reachable without the guard"
            );
        });
    }

    #[test]
    fn only_what_is_open_by_name_is_open() {
        assert_eq!(access_before_routing("/healthz"), Access::Open);
        for path in [
            "/",
            "/status",
            "/healthz/",
            "//healthz",
            "/HEALTHZ",
            "/%68ealthz",
            "*",
            "",
        ] {
            assert_eq!(access_before_routing(path), Access::Read, "{path}");
        }
    }
}
