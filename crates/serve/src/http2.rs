//! Serves HTTP/2 connections, for gRPC only: OpenTelemetry clients send metrics to the same
//! addresses as all others.
//!
//! Requests pass the same checks as those over HTTP/1.1 ([`connection::respond`]): access, sizes of
//! heads and bodies, the memory of all bodies, the time of a request. A connection counts as one,
//! regardless of how many requests it multiplexes, so its concurrent requests and its unread bytes
//! are limited. A request and its response must end within the sum of both time limits, because a
//! client can also stall a response by its flow-control window, which a timeout of writes to the
//! connection does not detect.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};

use crate::api_error::ApiError;
use crate::connection::{self, ResponseEndGuard, StoppableConnection};
use crate::grpc;
use crate::guard::ConnectionInfo;
use crate::refusals::ClientRefusal;
use crate::request_progress::{ProgressStream, RequestProgress};
use crate::server_context::ServerContext;

/// The most concurrent requests of one connection.
const STREAMS_MAX: u32 = 8;
/// The bytes that a client may send before they are read, for each request and for the connection.
const WINDOW_BYTES: u32 = 64 << 10;
const FRAME_BYTES_MAX: u32 = 16 << 10;
/// The most requests that a client may cancel before they are processed; beyond it, the connection
/// ends.
const RESETS_MAX: usize = 16;
const SEND_BUFFER_BYTES: usize = 16 << 10;

/// Serves a connection to its end.
pub(crate) async fn serve<S>(
    stream: S,
    prefix: Vec<u8>,
    since: Instant,
    info: ConnectionInfo,
    context: Arc<ServerContext>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let progress = RequestProgress::multiplexed(since);
    let io = TokioIo::new(ProgressStream::new(prefix, stream, progress.clone()));
    let settings = &context.settings;
    let time = settings.request_time + settings.write_time;
    let head_bytes = u32::try_from(settings.head_bytes_max).unwrap_or(u32::MAX);
    let service = {
        let (context, progress) = (context.clone(), progress.clone());
        service_fn(move |request| {
            progress.request_begins();
            let end = ResponseEndGuard(progress.clone());
            let (context, info) = (context.clone(), info.clone());
            async move {
                let answer = respond(request, info, context).await;
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
    let connection = http2::Builder::new(LimitedTasks(time))
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(head_bytes)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .serve_connection(io, service);
    let result = connection::drive_connection(connection, &progress, &context).await;
    connection::count_end(result, &context);
}

/// Runs the requests of a connection. A request that exceeds the time is dropped, which resets its
/// stream.
#[derive(Debug, Clone)]
struct LimitedTasks(Duration);

impl<F> Executor<F> for LimitedTasks
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(timeout(self.0, task));
    }
}

impl<I, V, B, E> StoppableConnection for http2::Connection<I, V, E>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    V: hyper::service::HttpService<Incoming, ResBody = B>,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    E: hyper::rt::bounds::Http2ServerConnExec<V::Future, B>,
{
    fn stop_gracefully(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Responds to a gRPC request. Other requests are refused.
async fn respond(
    mut request: Request<Incoming>,
    info: ConnectionInfo,
    context: Arc<ServerContext>,
) -> Response<Body> {
    if !grpc::is_grpc(request.headers()) {
        context.refusals.count(ClientRefusal::Malformed);
        let message = "HTTP/2 is served for gRPC only";
        return ApiError::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, message)
            .hint("use HTTP/1.1")
            .into_response();
    }
    add_host(&mut request);
    grpc::grpc_response(connection::respond(request, info, context).await).await
}

/// Adds the header `Host` for the checks of the guard: HTTP/2 has the host in the target. If the
/// request has the header as well, the guard checks both.
fn add_host(request: &mut Request<Incoming>) {
    let authority = request.uri().authority().map(|name| name.as_str());
    let host = authority.and_then(|name| HeaderValue::from_str(name).ok());
    if let (Some(host), false) = (host, request.headers().contains_key(header::HOST)) {
        request.headers_mut().insert(header::HOST, host);
    }
}
