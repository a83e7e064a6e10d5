//! Routes whose requests an input handles: the agent registers them with the server.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use axum::extract::Extension;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;
use pegel_wire::{
    BodyEncoding, InputError, InputReply, InputRequest, RequestHandler, RequestMethods,
};

use super::{HandlerResult, ServerContext, SharedContext};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::guard::{Access, Caller};
use crate::json_response::{JSON, json_response};

/// A route with the access that it requires.
#[derive(Clone)]
pub struct InputRoute {
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) handler: Arc<dyn RequestHandler>,
}

impl InputRoute {
    pub fn new(
        path: &'static str,
        access: Access,
        handler: impl RequestHandler + 'static,
    ) -> InputRoute {
        let handler = Arc::new(handler);
        InputRoute {
            path,
            access,
            handler,
        }
    }
}

impl fmt::Debug for InputRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputRoute")
            .field("path", &self.path)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

pub(super) fn method_router(handler: &Arc<dyn RequestHandler>) -> MethodRouter {
    let handler = handler.clone();
    let methods = match handler.methods() {
        RequestMethods::Post => MethodFilter::POST,
        RequestMethods::PostPutDelete => MethodFilter::POST
            .or(MethodFilter::PUT)
            .or(MethodFilter::DELETE),
    };
    on(
        methods,
        async move |Extension(context): SharedContext,
                    Extension(caller): Extension<Caller>,
                    method: Method,
                    uri: Uri,
                    headers: HeaderMap,
                    body: Bytes|
                    -> HandlerResult {
            let (app, rights) = (context.clone(), caller.rights);
            let work = move || {
                handle(
                    &context,
                    &*handler,
                    &caller,
                    (&method, &uri, &headers),
                    body,
                )
            };
            let (reply, response) = app.executor.write(rights, work).await?;
            let (status, headers) = (status_code(reply.status), header_map(reply.headers));
            Ok(if response.is_empty() {
                (status, headers).into_response()
            } else {
                (headers, json_response(status, JSON, response.into_bytes())).into_response()
            })
        },
    )
}

/// What a handler returns: a reply with the body that it wrote.
type HandledRequest = (InputReply, ResponseBuffer);

/// Runs on a blocking thread. A body that cannot be decompressed is counted by the input.
fn handle(
    context: &ServerContext,
    handler: &dyn RequestHandler,
    caller: &Caller,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    body: Bytes,
) -> Result<HandledRequest, ApiError> {
    let sender = caller.peer.sender_name();
    let bodies = &context.body_memory;
    let body: Result<Box<dyn Deref<Target = [u8]>>, _> = match handler.body_encoding() {
        BodyEncoding::ByHeader => match bodies.decompress(headers, body, caller.rights) {
            Ok(body) => Ok(Box::new(body)),
            Err(refused) => Err(refused),
        },
        BodyEncoding::Grpc => match bodies.unframe_grpc(headers, body, caller.rights) {
            Ok(body) => Ok(Box::new(body)),
            Err(refused) => Err(refused),
        },
        BodyEncoding::Snappy => match bodies.decompress_snappy(headers, &body, caller.rights) {
            Ok(body) => Ok(Box::new(body)),
            Err(refused) => Err(refused),
        },
    };
    let body = body.map_err(|(failure, reason)| {
        handler.count_refused(&sender, reason);
        failure
    })?;
    let mut response = context.executor.response_buffer(caller.rights);
    let content_type = headers.get(header::CONTENT_TYPE);
    let request = InputRequest {
        sender: &sender,
        method: method.as_str(),
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        content_type: content_type.map_or("", |value| value.to_str().unwrap_or("?")),
        node_instance: &context.promql.node_labels().instance,
        body: &body,
    };
    let reply = handler
        .handle(request, &mut response)
        .map_err(|error| match error {
            InputError::Write(error) => response.write_error(&error),
            InputError::Refused {
                status,
                message,
                hint,
                headers,
            } => ApiError::new(status_code(status), message)
                .hint(hint)
                .headers(header_map(headers)),
        })?;
    Ok((reply, response))
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Leaves out values that a header cannot have.
fn header_map(headers: Vec<(&'static str, String)>) -> HeaderMap {
    let headers = headers.into_iter().filter_map(|(name, value)| {
        let value = HeaderValue::try_from(value).ok()?;
        Some((HeaderName::from_static(name), value))
    });
    headers.collect()
}
