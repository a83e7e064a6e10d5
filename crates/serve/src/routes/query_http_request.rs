//! The frame of requests to the query APIs, OpenTSDB's and Prometheus': a request is taken apart
//! on an async worker, evaluated on a query thread, and its response is built in a buffer within
//! the memory of all responses. What is specific to an API, its parameters and the form of its
//! errors, remains in its module.

use std::sync::Arc;
use std::time::Instant;

use axum::RequestExt;
use axum::extract::{FromRequest, RawPathParams, Request};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use pegel_metric::Millis;
use pegel_query::QueryEngine;
use pegel_store::QueryError;

use super::ServerContext;
use crate::api_error::ApiError;
use crate::content_negotiation;
use crate::finished_response::{FinishedResponse, ResponseBuffer};
use crate::guard::{AccessRights, Caller, JobVisibility};
use crate::job_query::{JobOnNodes, JobSamples};
use crate::request_history::RequestHistory;
use crate::tree::{RequestTree, TreeSource, all_annotations};

/// A request, ready to be handled off the async workers.
pub(super) struct QueryHttpRequest {
    pub context: Arc<ServerContext>,
    pub rights: AccessRights,
    pub sender: String,
    pub visible_jobs: JobVisibility,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The decoded part of the path that the route leaves open.
    pub path_value: String,
    pub received: Instant,
    pub tree: RequestTree,
    /// `None` on an agent without history.
    pub history: Option<RequestHistory>,
    body: Bytes,
}

impl<S: Send + Sync> FromRequest<S> for QueryHttpRequest {
    type Rejection = Response;

    async fn from_request(mut request: Request, state: &S) -> Result<QueryHttpRequest, Response> {
        let received = Instant::now();
        let extensions = request.extensions();
        let (Some(context), Some(caller)) = (
            extensions.get::<Arc<ServerContext>>(),
            extensions.get::<Caller>(),
        ) else {
            // Unreachable: every request has both.
            return Err(ApiError::internal().into_response());
        };
        let context = context.clone();
        let (rights, sender) = (caller.rights, caller.peer.sender_name());
        let visible_jobs = context.guard.visible_jobs(caller);
        let history = extensions.get::<RequestHistory>().cloned();
        let tree = request.extract_parts::<RequestTree>().await;
        let tree = tree.unwrap_or(RequestTree(None));
        let path = request.extract_parts::<RawPathParams>().await.ok();
        let path_value = path.and_then(|path| path.iter().next().map(|(_, text)| text.to_owned()));
        Ok(QueryHttpRequest {
            context,
            rights,
            sender,
            visible_jobs,
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            path_value: path_value.unwrap_or_default(),
            received,
            tree,
            history,
            body: Bytes::from_request(request, state)
                .await
                .map_err(IntoResponse::into_response)?,
        })
    }
}

impl QueryHttpRequest {
    /// Returns the engine for OpenTSDB's queries: over this agent or, on a parent, over all nodes.
    pub(super) fn engine(&self) -> QueryEngine {
        let engine = &self.context.engine;
        let own = || self.context.promql_for(self.history.as_ref());
        let source = match (&self.tree.0, &self.history) {
            (None, None) => return engine.clone(),
            (None, Some(_)) => own().stored_series(),
            (Some(tree), _) => Arc::new(TreeSource::new(tree.all_nodes(), own().stored_series())),
        };
        engine.over(source, engine.annotations.clone())
    }

    /// Finds a job that the client may see. Blocks.
    pub(super) fn find_job(&self, id: &str) -> Result<JobOnNodes, ApiError> {
        JobOnNodes::find(&self.context, self.tree.0.as_ref(), self.visible_jobs, id)
    }

    /// Returns an engine over what belongs to a job. Blocks.
    pub(super) fn engine_for_job(
        &self,
        engine: &QueryEngine,
        id: &str,
    ) -> Result<QueryEngine, ApiError> {
        let samples = JobSamples {
            source: engine.source.clone(),
            job: Arc::new(self.find_job(id)?),
        };
        Ok(engine.restricted(Arc::new(samples)))
    }

    /// Returns the engine with the annotations of all nodes that overlap a range of time.
    pub(super) fn engine_with_annotations(
        &self,
        range: (Millis, Millis),
    ) -> Result<QueryEngine, QueryError> {
        let engine = self.engine();
        let Some(tree) = &self.tree.0 else {
            return Ok(engine);
        };
        let deadline = Instant::now() + engine.limits.time_max;
        let own = &self.context.engine.annotations;
        let all = all_annotations(own, &tree.all_nodes(), range, deadline)?;
        Ok(engine.over(engine.source.clone(), Arc::new(all)))
    }

    /// Returns whether the query is in the body.
    pub(super) fn has_body(&self) -> bool {
        self.method != Method::GET && self.method != Method::HEAD
    }

    /// Takes the body and decompresses it.
    pub(super) fn plain_body(&mut self) -> Result<Bytes, ApiError> {
        let body = std::mem::take(&mut self.body);
        let memory = &self.context.body_memory;
        let plain = memory.decompress(&self.headers, body, self.rights);
        plain.map_err(|(failure, _)| failure)
    }

    /// Waits for a query thread, runs `write` there and returns what it wrote, compressed if the
    /// client accepts that.
    pub(super) async fn respond<E: Send + 'static>(
        mut self,
        content_type: &'static str,
        write: impl FnOnce(&mut QueryHttpRequest, &mut ResponseBuffer) -> Result<(), QueryFailure<E>>
        + Send
        + 'static,
    ) -> Result<FinishedResponse, QueryFailure<E>> {
        let (context, rights) = (self.context.clone(), self.rights);
        let gzip = content_negotiation::accepts_gzip(&self.headers);
        let mut buffer = context.executor.response_buffer(rights);
        // The executor counts refusals, which are errors of the server, not of the query.
        let work = move || match write(&mut self, &mut buffer) {
            Ok(()) => buffer.finish(content_type, gzip).map(Ok),
            Err(QueryFailure::Query(error)) => Ok(Err(error)),
            Err(QueryFailure::Api(failure)) => Err(failure),
        };
        let finished = context.executor.query(rights, work).await?;
        finished.map_err(QueryFailure::Query)
    }
}

/// Why a request failed: an error of the query, in the form of its API, or one of the server.
#[derive(Debug)]
pub(super) enum QueryFailure<E> {
    Query(E),
    Api(ApiError),
}

impl<E> From<ApiError> for QueryFailure<E> {
    fn from(failure: ApiError) -> QueryFailure<E> {
        QueryFailure::Api(failure)
    }
}
