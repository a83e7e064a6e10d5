//! The routes, one file each, and the table of routes with the access that each requires. The guard
//! checks every request before its handler runs.

mod columns;
mod dragon;
mod input;
mod list;
mod metrics;
mod opentsdb;
mod page;
mod processes;
mod prometheus;
mod range;
mod snapshot;
mod status;
mod stream;
mod values;

pub(crate) use range::parse_range_query as range_question;

pub use input::InputRoute;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Extension, State};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};

use crate::api_error::ApiError;
use crate::content_negotiation;
use crate::finished_response::ResponseBuffer;
use crate::guard::{Access, Caller, Guard};
use crate::json_response::JSON;
use crate::server_context::ServerContext;

type SharedContext = Extension<Arc<ServerContext>>;
type HandlerResult = Result<Response, ApiError>;

const INDEX_TEXT: &str = "pegel: metrics of this node and its programs\n
/metrics                 current values, Prometheus text or OpenMetrics
/status                  the agent itself, as JSON
/healthz                 200 while the agent is healthy
/api/v1/list             series:         ?match=
/api/v1/values           current values: ?match=&names=
/api/v1/range            stored samples: ?match=&start=-5m&end=now&step=10s&agg=avg
/api/v1/rules            recording and alerting rules, as Prometheus: ?type=alert
/api/v1/alerts           pending and firing alerts, as Prometheus
/api/v1/stream           changes, as server-sent events: ?match=&names=&rate=2
/api/v1/config           the configuration in force
/api/v1/snapshot         a description of this machine
/api/v1/processes        the top processes: ?by=process&sort=cpu&limit=50
/api/v1/query            PromQL, as Prometheus answers it: ?query=node_load1&time=
/api/v1/query_range      PromQL: ?query=&start=&end=&step=
/api/v1/series           series for PromQL: ?match[]=; also /api/v1/labels, /api/v1/label/NAME/values
/api/query               OpenTSDB queries: ?start=1h-ago&m=sum:10s-avg:node_load1
/api/suggest             OpenTSDB name suggestions: ?type=metrics&q=node_
POST /api/put            write points in OpenTSDB's format: ?summary&details
POST /api/metrics        write points in the format of Dragon's telemetry
POST /api/tsdb_cleanup   hide older points of /api/metrics
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
    ("/api/v1/stream", Access::Read, || get(stream::changes)),
    ("/api/v1/config", Access::Read, || get(status::config)),
    ("/api/v1/snapshot", Access::Read, || get(snapshot::snapshot)),
    ("/api/v1/processes", Access::Read, || {
        get(processes::processes)
    }),
    ("/api/token", Access::Open, || post(dragon::token)),
    ("/api/ready", Access::Open, || get(dragon::ready)),
    ("/api/set_shutdown", Access::Owner, || {
        get(dragon::set_shutdown)
    }),
    ("/api/telemetry_shutdown", Access::Owner, || {
        get(dragon::shutdown)
    }),
    ("/api/set_telemetry_shutdown", Access::Owner, || {
        get(dragon::shutdown)
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
        let gzip = content_negotiation::accepts_gzip(headers);
        let mut buffer = self.executor.response_buffer(caller.rights);
        let finished = self.executor.read_latest(caller.rights, move || {
            write(&mut buffer)?;
            buffer.finish(JSON, gzip)
        });
        Ok(finished.await?.into_response())
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
    match guard.require(caller, &head, access) {
        Ok(()) => next.run(Request::from_parts(head, body)).await,
        Err(denied) => denied.into_response(),
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
    use crate::guard::{AccessRights, PeerIdentity};
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
