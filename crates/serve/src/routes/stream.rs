//! Changes as they happen, as server-sent events.
//!
//! Nothing is prepared in advance: the next event is built when the connection can take it, so that
//! a slow reader gets fewer, later events and costs no memory. A series that changed several times
//! in between is sent once, with its current value.
//!
//! There are two forms: values with full names, and columns, where a name is sent once and is a
//! number from then on. The page uses columns.
//!
//! On a parent, the parameter `nodes` selects nodes instead of this agent.
//!
//! When the filters of readers change, the next event has all values again: those that a filter no
//! longer hides may not have changed since.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Extension;
use axum::http::{Uri, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use pegel_metric::Selector;
use pegel_store::ReadFilter;
use tokio::time::{Instant, timeout_at};

use super::columns::ColumnEncoder;
use super::followed_nodes::{FollowedNodes, POLL_PERIOD_MIN};
use super::nodes_parameter::NodesParameter;
use super::values::{current_values, write_current};
use super::{HandlerResult, ServerContext, SharedContext};
use crate::api_error::ApiError;
use crate::guard::{AccessRights, Caller};
use crate::query_parameters::QueryParameters;
use crate::server_context::ShutdownStage;
use crate::tree::RequestTree;

const RATE_DEFAULT: f64 = 2.0;
const RATE_MAX: f64 = 1000.0;
/// Maximum interval between two messages, so that both ends notice when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

pub(super) async fn changes(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    RequestTree(tree): RequestTree,
    uri: Uri,
) -> HandlerResult {
    let accepted = ["match", "names", "rate", "form", "nodes"];
    let parameters = QueryParameters::parse(&uri, &accepted)?;
    let nodes = NodesParameter::parse(&parameters)?;
    if tree.is_none() {
        nodes.check_single(&context.agent.node)?;
    }
    let nodes = FollowedNodes::new(tree, &nodes);
    let period_min = nodes.as_ref().map_or(0.0, |_| POLL_PERIOD_MIN);
    let mut follower = ChangeFollower {
        context,
        rights: caller.rights,
        selector: Arc::new(parameters.selector()?),
        period: parameters
            .single("rate")?
            .map_or(Ok(1.0 / RATE_DEFAULT), parse_period)?
            .max(period_min),
        columns: parameters.single("form")?.map_or(Ok(None), parse_form)?,
        nodes,
        after: 0,
        filters: Arc::default(),
        next: Instant::now(),
        last_sent: Instant::now(),
    };
    // The first event is part of the response: if it cannot be built, the client gets an error.
    let first = follower.make_event(true).await?.unwrap_or_default();
    let later = stream::unfold(follower, |mut follower| async move {
        follower.next().await.map(|event| (event, follower))
    });
    let events = stream::once(std::future::ready(first)).chain(later);
    let body = Body::from_stream(events.map(Ok::<_, Infallible>));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, body).into_response())
}

fn parse_form(text: &str) -> Result<Option<ColumnEncoder>, ApiError> {
    match text {
        "values" => Ok(None),
        "columns" => Ok(Some(ColumnEncoder::default())),
        _ => {
            Err(ApiError::bad_request(format!("unknown form={text}")).hint("use values or columns"))
        }
    }
}

/// Parses a rate into the seconds between two events.
fn parse_period(rate: &str) -> Result<f64, ApiError> {
    match rate.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(f64::max(1.0 / rate, 1.0 / RATE_MAX)),
        _ => Err(
            ApiError::bad_request(format!("rate={rate}: not a valid rate")).hint(format!(
                "use events per second, greater than 0 and at most {RATE_MAX}"
            )),
        ),
    }
}

/// One client's position in the sequence of changes.
struct ChangeFollower {
    context: Arc<ServerContext>,
    rights: AccessRights,
    selector: Arc<Selector>,
    period: f64,
    /// The series numbers that this client knows, if it uses columns.
    columns: Option<ColumnEncoder>,
    /// The nodes of a parent that it follows instead of this agent.
    nodes: Option<FollowedNodes>,
    after: u64,
    /// The filters in force when the last event was built.
    filters: Arc<Vec<ReadFilter>>,
    /// When the next event is due.
    next: Instant,
    /// When something was last sent.
    last_sent: Instant,
}

impl ChangeFollower {
    /// Returns the next message to send; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // Deadlines are absolute, so that the rate holds even if timers fire late; missed
            // events are not made up for.
            let now = Instant::now();
            let period = Duration::from_secs_f64(self.period.min(86_400.0));
            self.next = (self.next + period).max(now.checked_sub(period).unwrap_or(now));
            let due = self.next.min(self.last_sent + KEEP_ALIVE);
            let early = due < self.next;
            let mut stage = self.context.stage.clone();
            let stopping = timeout_at(due, stage.wait_for(|stage| *stage > ShutdownStage::Serving))
                .await
                .is_ok();
            if stopping {
                return None;
            }
            if early {
                self.next -= period;
                return Some(self.keep_alive());
            }
            match self.make_event(false).await {
                Ok(Some(event)) => return Some(event),
                Ok(None) if self.last_sent.elapsed() >= KEEP_ALIVE => {
                    return Some(self.keep_alive());
                }
                Ok(None) => {}
                Err(failure) => {
                    tracing::debug!(reason = failure.message(), "stream ended");
                    return None;
                }
            }
        }
    }

    fn keep_alive(&mut self) -> Bytes {
        self.last_sent = Instant::now();
        Bytes::from_static(b": nothing new\n\n")
    }

    /// Builds an event with the changes; `None` if there are none, unless `always`.
    async fn make_event(&mut self, always: bool) -> Result<Option<Bytes>, ApiError> {
        let (event, count) = match self.nodes.take() {
            Some(nodes) => self.node_event(nodes).await?,
            None => self.own_event().await?,
        };
        if count == 0 && !always {
            return Ok(None);
        }
        self.last_sent = Instant::now();
        Ok(Some(event))
    }

    /// Builds an event of nodes; returns it and the number of values.
    async fn node_event(&mut self, mut nodes: FollowedNodes) -> Result<(Bytes, usize), ApiError> {
        let selector = self.selector.clone();
        let mut buffer = self.context.executor.response_buffer(self.rights);
        let mut columns = self.columns.take();
        let read = self.context.executor.query(self.rights, move || {
            let found = nodes.poll(&selector)?;
            buffer.text("data: ")?;
            match &mut columns {
                None => buffer.json(&current_values(&found))?,
                Some(columns) => columns.write_values(&mut buffer, &found)?,
            }
            buffer.text("\n\n")?;
            Ok((nodes, columns, buffer.into_bytes(), found.len()))
        });
        let (nodes, columns, event, count) = read.await?;
        (self.nodes, self.columns) = (Some(nodes), columns);
        Ok((event, count))
    }

    /// Builds an event of this agent; returns it and the number of values.
    async fn own_event(&mut self) -> Result<(Bytes, usize), ApiError> {
        let (store, selector) = (self.context.agent.store.clone(), self.selector.clone());
        let filters = store.read_filters();
        if !Arc::ptr_eq(&filters, &self.filters) {
            (self.filters, self.after) = (filters, 0);
        }
        let after = self.after;
        let mut buffer = self.context.executor.response_buffer(self.rights);
        let mut columns = self.columns.take();
        let read = self.context.executor.read_latest(self.rights, move || {
            buffer.text("data: ")?;
            let seen = match &mut columns {
                None => write_current(&mut buffer, &store, &selector, after)?,
                Some(columns) => columns.write(&mut buffer, &store, &selector, after)?,
            };
            buffer.text("\n\n")?;
            Ok((seen, buffer.into_bytes(), columns))
        });
        let (seen, event, columns) = read.await?;
        self.columns = columns;
        self.after = seen.change;
        Ok((event, seen.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_known_or_named() {
        assert!(parse_form("values").expect("known").is_none());
        assert!(parse_form("columns").expect("known").is_some());
        let failure = parse_form("rows").expect_err("not known");
        assert_eq!(failure.message(), "unknown form=rows");
    }

    #[test]
    fn a_rate_is_a_number_of_events_per_second() {
        assert_eq!(parse_period("2"), Ok(0.5));
        assert_eq!(parse_period("1000"), Ok(0.001));
        assert_eq!(parse_period("0.1"), Ok(10.0));
        for rate in ["0", "-1", "1001", "nan", "inf", "fast", ""] {
            assert!(parse_period(rate).is_err(), "{rate}");
        }
    }
}
