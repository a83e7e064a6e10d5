//! OpenTSDB's HTTP API: what its clients, Grafana above all, ask. Thin: a request is read, the engine answers.

mod about;
mod annotation;
mod names;
mod query;

use std::io;
use std::sync::Arc;

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Query, Request};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use pegel_query::{OpentsdbError, QueryParams};
use serde_json::json;

use super::{Access, Answer, Route, Site};
use crate::answers::{Bounded, Finished};
use crate::failure::Failure;
use crate::guard::{Caller, Rights};
use crate::negotiate;

pub(super) const ROUTES: &[Route] = &[
    ("/api/query", Access::Read, || {
        get(query::by_uri)
            .post(query::by_body)
            .delete(query::delete)
    }),
    ("/api/query/last", Access::Read, || both(query::last)),
    ("/api/query/gexp", Access::Read, || get(query::gexp)),
    ("/api/query/exp", Access::Read, || {
        axum::routing::post(query::exp)
    }),
    ("/api/suggest", Access::Read, || both(names::suggest)),
    ("/api/search/lookup", Access::Read, || both(names::lookup)),
    ("/api/aggregators", Access::Read, || {
        both(about::aggregators)
    }),
    ("/api/config", Access::Read, || both(about::config)),
    ("/api/config/filters", Access::Read, || both(about::filters)),
    ("/api/version", Access::Read, || both(about::version)),
    ("/api/stats", Access::Read, || both(about::stats)),
    ("/api/serializers", Access::Read, || {
        both(about::serializers)
    }),
    // Whatever is not GET changes something, and needs the rights for that.
    ("/api/annotation", Access::Read, || {
        get(annotation::read)
            .post(annotation::change)
            .put(annotation::change)
            .delete(annotation::delete)
    }),
    ("/api/annotation/bulk", Access::Read, bulk),
    ("/api/annotations", Access::Read, bulk),
];

fn bulk() -> MethodRouter<Arc<Site>> {
    axum::routing::post(annotation::change_many)
        .put(annotation::change_many)
        .delete(annotation::delete_many)
}

/// OpenTSDB answers most questions by GET and by POST.
fn both<H, T>(handler: H) -> MethodRouter<Arc<Site>>
where
    H: axum::handler::Handler<T, Arc<Site>> + Clone,
    T: 'static,
{
    get(handler.clone()).post(handler)
}

/// What follows the `?`. OpenTSDB passes over what it does not know, and so does this.
fn pairs(uri: &Uri) -> Result<QueryParams, OpentsdbError> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|error| {
        OpentsdbError::bad_request(format!("the query cannot be read: {error}"))
    })?;
    Ok(QueryParams::new(pairs))
}

/// What a handler works on, off the async workers.
struct Asked {
    site: Arc<Site>,
    rights: Rights,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl FromRequest<Arc<Site>> for Asked {
    type Rejection = BytesRejection;

    async fn from_request(request: Request, site: &Arc<Site>) -> Result<Asked, BytesRejection> {
        let caller = request.extensions().get::<Caller>();
        Ok(Asked {
            site: site.clone(),
            rights: caller.map_or(Rights::None, |caller| caller.rights),
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            body: Bytes::from_request(request, site).await?,
        })
    }
}

impl Asked {
    /// Whether the question is in the body.
    fn has_body(&self) -> bool {
        self.method != Method::GET && self.method != Method::HEAD
    }

    /// The body as it was before it was compressed.
    fn plain_body(&mut self) -> Result<Bytes, Failure> {
        let body = std::mem::take(&mut self.body);
        let plain = self.site.bodies.plain(&self.headers, body);
        plain.map_err(|(failure, _)| failure)
    }
}

/// Answers with what `write` writes, or with why it could not.
async fn answer(
    asked: Asked,
    write: impl FnOnce(&mut Asked, &mut Bounded) -> Result<(), Refused> + Send + 'static,
) -> Answer {
    let site = asked.site.clone();
    let gzip = negotiate::gzip(&asked.headers);
    let mut room = site.answers.room();
    let (rights, mut asked) = (asked.rights, asked);
    let made = site.answers.query(
        rights,
        move || -> Result<Result<Finished, OpentsdbError>, Failure> {
            match write(&mut asked, &mut room) {
                Ok(()) => room.finish("application/json; charset=UTF-8", gzip).map(Ok),
                Err(Refused::Problem(OpentsdbError::Write(error))) => Err(room.failure(&error)),
                Err(Refused::Problem(problem)) => Ok(Err(problem)),
                Err(Refused::Failure(failure)) => Err(failure),
            }
        },
    );
    Ok(match made.await? {
        Ok(finished) => finished.into_response(),
        Err(problem) => refusal(&problem),
    })
}

/// Why there is no answer: in OpenTSDB's form, or in that of all routes.
enum Refused {
    Problem(OpentsdbError),
    Failure(Failure),
}

impl From<OpentsdbError> for Refused {
    fn from(problem: OpentsdbError) -> Refused {
        Refused::Problem(problem)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Failure(failure)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Problem(OpentsdbError::Write(error))
    }
}

/// `{"error":{"code","message","details"}}`.
fn refusal(problem: &OpentsdbError) -> Response {
    let status =
        StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status.is_server_error() {
        tracing::error!(
            error = problem as &dyn std::error::Error,
            "a question failed"
        );
    }
    let mut error = json!({"code": status.as_u16(), "message": problem.to_string()});
    if let Some(details) = problem.details() {
        error["details"] = json!(details);
    }
    let headers = [(header::CONTENT_TYPE, "application/json; charset=UTF-8")];
    (status, headers, json!({"error": error}).to_string()).into_response()
}
