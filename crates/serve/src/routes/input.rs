//! Routes whose requests an input handles: the agent registers them with the server.

use std::fmt;
use std::sync::Arc;

use axum::extract::Extension;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use pegel_wire::{InputError, InputRequest, RequestHandler};

use super::{HandlerResult, ServerContext, SharedContext};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::guard::{Access, Caller};
use crate::json_response::{JSON, json_response};

/// A route for POST, with the access that it requires.
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
    post(
        async move |Extension(context): SharedContext,
                    Extension(caller): Extension<Caller>,
                    uri: Uri,
                    headers: HeaderMap,
                    body: Bytes|
                    -> HandlerResult {
            let app = context.clone();
            let work = move || handle(&context, &*handler, &caller, &uri, &headers, body);
            let (status, response) = app.executor.write(work).await?;
            Ok(if response.is_empty() {
                status.into_response()
            } else {
                json_response(status, JSON, response.into_bytes())
            })
        },
    )
}

/// Runs on a blocking thread. A body that cannot be decompressed is counted by the input.
fn handle(
    context: &ServerContext,
    handler: &dyn RequestHandler,
    caller: &Caller,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, ResponseBuffer), ApiError> {
    let sender = caller.peer.sender_name();
    let body = context.body_memory.decompress(headers, body, caller.rights);
    let body = body.map_err(|(failure, reason)| {
        handler.count_refused(&sender, reason);
        failure
    })?;
    let mut response = context.executor.response_buffer(caller.rights);
    let request = InputRequest {
        sender: &sender,
        query: uri.query().unwrap_or_default(),
        body: &body,
    };
    let status = handler
        .handle(request, &mut response)
        .map_err(|error| match error {
            InputError::Write(error) => response.write_error(&error),
            InputError::Refused {
                status,
                message,
                hint,
            } => ApiError::new(status_code(status), message).hint(hint),
        })?;
    Ok((status_code(status), response))
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
