//! One connection: requests in, answers out, within the limits.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, header, request};
use axum::response::IntoResponse;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use pegel_metric::Input;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tower_service::Service;

use crate::bodies::Unread;
use crate::failure::Failure;
use crate::guard::{Guard, Rights, Visit};
use crate::lines::{self, Begun, Rewound};
use crate::refusals::{Refusal, Refusals};
use crate::routes::{self, Site};
use crate::settings::Settings;
use crate::watched::{Progress, Watched};

/// How far the server is on its way down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Serving,
    /// Finish what is under way, begin nothing.
    Stopping,
    /// Drop everything.
    Ended,
}

/// Our answers are for our own pages, and are what they say they are.
const FOR_BROWSERS: [(HeaderName, HeaderValue); 2] = [
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
];

/// What all connections share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub settings: Arc<Settings>,
    pub refusals: Arc<Refusals>,
    pub guard: Arc<Guard>,
    pub site: Arc<Site>,
    pub router: Router,
    pub stage: watch::Receiver<Stage>,
}

/// Serves a connection to its end, whatever it speaks. `pid` is the client's where the kernel tells.
pub(crate) async fn serve<S>(mut stream: S, visit: Visit, pid: Option<u32>, shared: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let since = Instant::now();
    match lines::begin(&mut stream, visit.local.is_none(), since, &shared).await {
        Begun::Http(begun) => http(Rewound::new(begun, stream), since, visit, shared).await,
        // Rare, and larger than the rest.
        Begun::Lines(dialect, begun) => {
            Box::pin(lines::serve(stream, begun, dialect, visit, pid, shared)).await;
        }
        Begun::Late => shared.refusals.count(Refusal::HeadTime),
        Begun::Over => {}
    }
}

async fn http<S>(stream: Rewound<S>, since: Instant, visit: Visit, shared: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let progress = Progress::new(since);
    let io = TokioIo::new(Watched::new(stream, progress.clone()));
    let service = {
        let (shared, progress) = (shared.clone(), progress.clone());
        service_fn(move |request| {
            progress.request_begins();
            let (shared, progress) = (shared.clone(), progress.clone());
            let visit = visit.clone();
            async move {
                let mut answer = answer(request, visit, shared).await;
                answer.headers_mut().extend(FOR_BROWSERS);
                Ok::<_, Infallible>(answer.map(|body| Ending {
                    body,
                    _end: OnDrop(progress),
                }))
            }
        })
    };
    // No timer: time limits are ours, because hyper's would end idle connections with the head limit.
    let connection = http1::Builder::new()
        .max_buf_size(shared.settings.head_bytes_max.max(8 << 10))
        .serve_connection(io, service);
    match watch_over(connection, &progress, &shared).await {
        Ok(()) => {}
        Err(Closed::Error(error)) if error.is_parse_too_large() => {
            shared.refusals.count(Refusal::HeadSize)
        }
        Err(Closed::Error(error)) if error.is_parse() => shared.refusals.count(Refusal::Malformed),
        // The client went away in the middle: nobody is left to be told.
        Err(Closed::Error(_)) => {}
        Err(Closed::Refused(refusal)) => shared.refusals.count(refusal),
    }
}

enum Closed {
    Error(hyper::Error),
    Refused(Refusal),
}

/// Drives a connection until it ends, runs into a time limit, or the server ends.
async fn watch_over<I, V, B>(
    connection: http1::Connection<I, V>,
    progress: &Progress,
    shared: &Shared,
) -> Result<(), Closed>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    V: hyper::service::HttpService<Incoming, ResBody = B>,
    V::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: HttpBody + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connection = pin!(connection);
    let mut stage = shared.stage.clone();
    let mut told = false;
    loop {
        let reached = *stage.borrow_and_update();
        if reached == Stage::Ended {
            return Ok(());
        }
        if reached == Stage::Stopping && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        let next = match progress.check(Instant::now(), &shared.settings) {
            Ok(next) => next,
            Err(None) => return Ok(()),
            Err(Some(refusal)) => return Err(Closed::Refused(refusal)),
        };
        let mut pause = pin!(sleep_until(next));
        let mut changed = pin!(stage.changed());
        let ended = poll_fn(|cx| {
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            let woken = pause.as_mut().poll(cx).is_ready() || changed.as_mut().poll(cx).is_ready();
            if woken {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        });
        if let Some(result) = ended.await {
            return result.map_err(Closed::Error);
        }
    }
}

/// Answers one request, or says why not.
async fn answer(request: Request<Incoming>, visit: Visit, shared: Shared) -> Response<Body> {
    let Shared {
        settings,
        refusals,
        guard,
        site,
        mut router,
        ..
    } = shared;
    let uri_bytes = request
        .uri()
        .path_and_query()
        .map_or(0, |uri| uri.as_str().len());
    if uri_bytes > settings.uri_bytes_max {
        refusals.count(Refusal::UriLength);
        return Failure::uri_long(settings.uri_bytes_max).into_response();
    }
    let (mut head, body) = request.into_parts();
    let caller = match guard.admit(&visit, &head, routes::first_access(head.uri.path())) {
        Ok(caller) => caller,
        Err(denied) => return denied.into_response(),
    };
    if caller.rights > Rights::None {
        visit.standing.admit();
    }
    let mut coming = Coming {
        unread: Some(Unread::Gone),
        input: routes::input_of(head.uri.path()).filter(|_| head.method == Method::POST),
        who: caller.peer.account(),
        site: site.clone(),
    };
    head.extensions.insert(caller);
    let answered = timeout(settings.request_time, async {
        let announced = announced(&head).filter(|bytes| *bytes > settings.body_bytes_max as u64);
        let body = match (announced, &head.method) {
            (Some(_), _) => Err(Unread::TooLarge),
            (None, &Method::POST | &Method::PUT | &Method::DELETE) => site.bodies.read(body).await,
            (None, _) => read_past(body, settings.body_bytes_max).await,
        };
        coming.unread = body.as_ref().err().copied();
        drop(coming);
        match body {
            Ok(body) => {
                router
                    .call(Request::from_parts(head, Body::from(body)))
                    .await
            }
            Err(unread) => Ok(unread.failure(&site.bodies).into_response()),
        }
    })
    .await;
    match answered {
        Ok(Ok(response)) => response,
        Err(_) => {
            refusals.count(Refusal::RequestTime);
            Failure::late().into_response()
        }
    }
}

/// A body on its way. One that does not arrive, for whatever reason, is in the books: hyper drops what works on
/// a request whose client is gone.
struct Coming {
    unread: Option<Unread>,
    input: Option<Input>,
    who: String,
    site: Arc<Site>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        let Some(unread) = self.unread else {
            return;
        };
        if let Some(refusal) = unread.refusal() {
            self.site.refusals.count(refusal);
            self.site.limited.count(&self.who, refusal);
        }
        if let Some(input) = self.input {
            let intake = &self.site.app.intake;
            intake.count_refused(&intake.sender(input, &self.who), unread.reason());
        }
    }
}

/// How large the client says that the body is.
fn announced(head: &request::Parts) -> Option<u64> {
    let length = head.headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

/// Reads a body to its end and keeps nothing, so that the connection can go on behind it. One that breaks off has
/// ended, too: hyper closes the connection.
async fn read_past(mut body: Incoming, bytes_max: usize) -> Result<Bytes, Unread> {
    let mut bytes = 0;
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > bytes_max {
            return Err(Unread::TooLarge);
        }
    }
    Ok(Bytes::new())
}

/// An answer's body that tells when hyper is done with it.
struct Ending {
    body: Body,
    _end: OnDrop,
}

struct OnDrop(Progress);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.answer_ends();
    }
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
