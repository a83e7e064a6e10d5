//! Serves one connection from its first byte to its end. The listeners call [`serve`], which
//! detects the protocol and then runs HTTP or a line protocol. Time limits, access checks and body
//! limits are enforced here, before a request reaches the router. Every refusal is counted; nothing
//! here blocks an async worker.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, header, request};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use pegel_wire::RequestHandler;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tower_service::Service;

use crate::api_error::ApiError;
use crate::body_memory::BodyReadError;
use crate::guard::{AccessRights, ConnectionInfo};
use crate::http2;
use crate::line_protocol::{self, DetectedProtocol};
use crate::refusals::ClientRefusal;
use crate::request_progress::{ProgressStream, RequestProgress};
use crate::routes;
use crate::server_context::{ServerContext, ShutdownStage};

/// Headers that restrict browsers: responses are for same-origin pages only, and content types are
/// not guessed.
const BROWSER_HEADERS: [(HeaderName, HeaderValue); 2] = [
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
];

/// Serves a connection to its end, whatever its protocol. `pid` is the client's process, if the
/// kernel reports it.
pub(crate) async fn serve<S>(
    mut stream: S,
    info: ConnectionInfo,
    pid: Option<u32>,
    context: Arc<ServerContext>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let since = Instant::now();
    match line_protocol::detect_protocol(&mut stream, info.local.is_none(), since, &context).await {
        DetectedProtocol::Http(prefix) => serve_http(stream, prefix, since, info, context).await,
        // Boxed: rare, and larger than the HTTP future.
        DetectedProtocol::Http2(prefix) => {
            Box::pin(http2::serve(stream, prefix, since, info, context)).await;
        }
        DetectedProtocol::Lines(dialect, prefix) => {
            Box::pin(line_protocol::serve(
                stream, prefix, dialect, info, pid, context,
            ))
            .await;
        }
        DetectedProtocol::TimedOut => context.refusals.count(ClientRefusal::HeadTime),
        DetectedProtocol::Closed => {}
    }
}

async fn serve_http<S>(
    stream: S,
    prefix: Vec<u8>,
    since: Instant,
    info: ConnectionInfo,
    context: Arc<ServerContext>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let progress = RequestProgress::new(since);
    let io = TokioIo::new(ProgressStream::new(prefix, stream, progress.clone()));
    let service = {
        let (context, progress) = (context.clone(), progress.clone());
        service_fn(move |request| {
            progress.request_begins();
            let (context, progress) = (context.clone(), progress.clone());
            let info = info.clone();
            async move {
                let mut answer = respond(request, info, context).await;
                answer.headers_mut().extend(BROWSER_HEADERS);
                let end = ResponseEndGuard(progress);
                Ok::<_, Infallible>(answer.map(|body| {
                    body.map_err(move |error| {
                        // Moves the guard into the body: hyper drops it when it has finished.
                        let _held = &end;
                        error
                    })
                }))
            }
        })
    };
    // No hyper timer: it would apply the head limit to idle connections. `RequestProgress` enforces
    // the time limits.
    let connection = http1::Builder::new()
        .max_buf_size(context.settings.head_bytes_max.max(8 << 10))
        .serve_connection(io, service);
    let result = drive_connection(connection, &progress, &context).await;
    count_end(result, &context);
}

/// Counts why a connection was closed, if its client is the cause.
pub(crate) fn count_end(result: Result<(), CloseReason>, context: &ServerContext) {
    match result {
        Ok(()) => {}
        Err(CloseReason::Error(error)) if error.is_parse_too_large() => {
            context.refusals.count(ClientRefusal::HeadSize)
        }
        Err(CloseReason::Error(error)) if error.is_parse() => {
            context.refusals.count(ClientRefusal::Malformed)
        }
        // The client closed the connection within a request: there is no one to respond to.
        Err(CloseReason::Error(_)) => {}
        Err(CloseReason::Refused(refusal)) => context.refusals.count(refusal),
    }
}

pub(crate) enum CloseReason {
    Error(hyper::Error),
    Refused(ClientRefusal),
}

/// A connection of either version of HTTP.
pub(crate) trait StoppableConnection: Future<Output = hyper::Result<()>> {
    /// Lets requests that have begun finish, and accepts no others.
    fn stop_gracefully(self: Pin<&mut Self>);
}

impl<I, V, B> StoppableConnection for http1::Connection<I, V>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    V: hyper::service::HttpService<Incoming, ResBody = B>,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: HttpBody + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn stop_gracefully(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Drives a connection until it ends, exceeds a time limit, or the server stops.
pub(crate) async fn drive_connection(
    connection: impl StoppableConnection,
    progress: &RequestProgress,
    context: &ServerContext,
) -> Result<(), CloseReason> {
    let mut connection = pin!(connection);
    let mut stage = context.stage.clone();
    let mut is_shutting_down = false;
    loop {
        let reached = *stage.borrow_and_update();
        if reached == ShutdownStage::Ended {
            return Ok(());
        }
        if reached == ShutdownStage::Stopping && !is_shutting_down {
            is_shutting_down = true;
            connection.as_mut().stop_gracefully();
        }
        let next = match progress.next_deadline(Instant::now(), &context.settings) {
            Ok(next) => next,
            Err(None) => return Ok(()),
            Err(Some(refusal)) => return Err(CloseReason::Refused(refusal)),
        };
        tokio::select! {
            biased;
            result = connection.as_mut() => return result.map_err(CloseReason::Error),
            () = sleep_until(next) => {}
            _ = stage.changed() => {}
        }
    }
}

/// Responds to one request, with an error response if it is refused.
pub(crate) async fn respond(
    request: Request<Incoming>,
    info: ConnectionInfo,
    context: Arc<ServerContext>,
) -> Response<Body> {
    let settings = &context.settings;
    let uri_bytes = request
        .uri()
        .path_and_query()
        .map_or(0, |uri| uri.as_str().len());
    if uri_bytes > settings.uri_bytes_max {
        context.refusals.count(ClientRefusal::UriLength);
        return ApiError::uri_too_long(settings.uri_bytes_max).into_response();
    }
    let (mut head, body) = request.into_parts();
    let access = routes::access_before_routing(head.uri.path());
    let caller = match context.guard.admit(&info, &head, access) {
        Ok(caller) => caller,
        Err(denied) => {
            let offers_login = context.guard.offers_login(&info);
            return routes::denied_response(denied, &head, offers_login);
        }
    };
    let rights = caller.rights;
    if rights > AccessRights::None {
        info.standing.admit();
    }
    let body_bytes_max = context.body_memory.bytes_max(rights);
    let mut pending = PendingBody {
        error: Some(BodyReadError::Aborted),
        input: context.input_for(&head.method, head.uri.path()),
        sender_name: caller.peer.sender_name(),
        context: context.clone(),
    };
    head.extensions.insert(caller);
    head.extensions.insert(context.clone());
    let response_result = timeout(settings.request_time, async {
        let announced = content_length(&head).filter(|bytes| *bytes > body_bytes_max as u64);
        let body = match (announced, &head.method) {
            (Some(_), _) => Err(BodyReadError::TooLarge),
            (None, &Method::POST | &Method::PUT | &Method::DELETE) => {
                context.body_memory.read(body, rights).await
            }
            (None, _) => drain_body(body, body_bytes_max).await,
        };
        pending.error = body.as_ref().err().copied();
        drop(pending);
        match body {
            Ok(body) => {
                let mut router = context.router.clone();
                router
                    .call(Request::from_parts(head, Body::from(body)))
                    .await
            }
            Err(error) => Ok(error.failure(body_bytes_max).into_response()),
        }
    })
    .await;
    match response_result {
        Ok(Ok(response)) => response,
        Err(_) => {
            context.refusals.count(ClientRefusal::RequestTime);
            ApiError::timed_out().into_response()
        }
    }
}

/// A request body that is being read. If it does not arrive in full, for whatever reason, dropping
/// this counts the loss: hyper drops the future of a request whose client closed the connection.
struct PendingBody {
    error: Option<BodyReadError>,
    input: Option<Arc<dyn RequestHandler>>,
    sender_name: String,
    context: Arc<ServerContext>,
}

impl Drop for PendingBody {
    fn drop(&mut self) {
        let Some(error) = self.error else {
            return;
        };
        if let Some(refusal) = error.refusal() {
            self.context.count_refusal(&self.sender_name, refusal);
        }
        if let Some(input) = &self.input {
            input.count_refused(&self.sender_name, error.drop_reason());
        }
    }
}

/// The length of the body that the client announces.
fn content_length(head: &request::Parts) -> Option<u64> {
    let length = head.headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Reads and discards a body, so that the connection can be reused. A truncated body also counts as
/// read: hyper closes the connection.
async fn drain_body(mut body: Incoming, bytes_max: usize) -> Result<Bytes, BodyReadError> {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > bytes_max {
            return Err(BodyReadError::TooLarge);
        }
    }
    Ok(Bytes::new())
}

/// Marks the response as ended when dropped.
pub(crate) struct ResponseEndGuard(pub RequestProgress);

impl Drop for ResponseEndGuard {
    fn drop(&mut self) {
        self.0.response_ends();
    }
}
