//! Aggregations of PromQL that the nodes evaluate themselves (`promql/pushdown` of `pegel-query`).

use std::time::Instant;

use pegel_query::promql::{
    LabelMatcher, PromqlError, PromqlErrorKind, PromqlLimits, PushedAggregation, PushedMerger,
    PushedRequest, PushedSeries, Selection, SeriesSampleVisitor, SeriesSource, StoreSource,
    decode_pushed_series, encode_pushed_request, evaluate_pushed_with_hosts, set_host,
};
use pegel_tree_protocol::ChildAnswer;

use super::chosen_nodes::{ChosenNodes, FanOutLimits};
use super::host_label::{EXPORTED_HOST, HOST, own_labels_with_host};
use super::promql_source::{PromqlTree, promql_error};

/// The request for an aggregation; only through the tree.
pub(crate) const AGGREGATE_TARGET: &str = "/tree/aggregate";

/// The own series as clients of this agent see them, if they match.
struct OwnSeries<'a> {
    own: &'a StoreSource,
    nodes: &'a ChosenNodes,
    host_matchers: &'a [&'a LabelMatcher],
}

impl SeriesSource for OwnSeries<'_> {
    fn select(
        &self,
        selection: &Selection<'_>,
        visit: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        self.own.select(selection, &mut |labels, samples| {
            let index = &self.nodes.index;
            let labels = own_labels_with_host(labels, samples.is_of_rule, index);
            let mut matchers = self.host_matchers.iter();
            match matchers.all(|matcher| matcher.matches(&labels)) {
                true => visit(labels, samples),
                false => Ok(()),
            }
        })
    }
}

impl PromqlTree {
    pub(super) fn aggregate(
        &self,
        pushed: &PushedAggregation<'_>,
    ) -> Option<Result<Vec<PushedSeries>, PromqlError>> {
        // A node has this label under another name.
        if pushed.request.expression.contains(EXPORTED_HOST) {
            return None;
        }
        let own = OwnSeries {
            own: &self.own,
            nodes: &self.nodes,
            host_matchers: &pushed.host_matchers,
        };
        let evaluate_own =
            |limits: &PromqlLimits| evaluate_pushed_with_hosts(&own, &pushed.request, limits);
        let accepts = |host: &str| pushed.accepts_host(host);
        let limits = pushed.limits();
        aggregate_nodes(
            &self.nodes,
            &pushed.request,
            &accepts,
            &limits,
            evaluate_own,
        )
        .transpose()
    }
}

/// Returns the merged result of this agent, if it is chosen, and of the chosen nodes below it.
/// `None` if a child does not know the request. Blocks.
pub(crate) fn aggregate_nodes(
    nodes: &ChosenNodes,
    request: &PushedRequest,
    accepts: &dyn Fn(&str) -> bool,
    limits: &PromqlLimits,
    evaluate_own: impl FnOnce(&PromqlLimits) -> Result<Vec<PushedSeries>, PromqlError>,
) -> Result<Option<Vec<PushedSeries>>, PromqlError> {
    let deadline = Instant::now() + limits.time_max;
    let fan_out = FanOutLimits {
        deadline,
        bytes_max: limits.bytes_max,
        cancellation: limits.cancellation.clone(),
    };
    let asked = nodes.ask_unchecked(accepts, &fan_out, |names| {
        let request = PushedRequest {
            nodes: names.to_vec(),
            ..request.clone()
        };
        let body = encode_pushed_request(&request);
        (AGGREGATE_TARGET.to_owned(), body.into())
    });
    let asked = asked.map_err(promql_error)?;
    for answer in &asked.responses.answers {
        match answer.status {
            404 => return Ok(None),
            400 | 422 => return Err(node_error(answer)),
            _ => {}
        }
    }
    let answers = nodes.check_answers(asked, fan_out.bytes_max);
    let answers = answers.map_err(promql_error)?;
    let left = PromqlLimits {
        time_max: deadline.saturating_duration_since(Instant::now()),
        ..limits.clone()
    };
    let mut merger = PushedMerger::new(request, &left)?;
    if nodes.includes_own() {
        merger.add(evaluate_own(&left)?)?;
    }
    for answer in answers {
        match decode_pushed_series(&answer.body, request) {
            Ok((mut series, end)) => {
                nodes.miss(&answer.child, end.late.iter().map(String::as_str), accepts);
                match answer.is_parent {
                    false => set_host(&mut series, request, &answer.child),
                    true => series.retain(|series| {
                        let host = series.labels.get(HOST);
                        let host = host.to_owned();
                        host.is_empty() || nodes.checked_host(&answer, host, accepts).is_some()
                    }),
                }
                merger.add(series)?;
            }
            Err(error) => {
                tracing::warn!(child = answer.child, %error, "response of a node refused");
                nodes.miss_child(&answer.child, accepts);
            }
        }
    }
    merger.finish().map(Some)
}

/// Returns the error of an expression that a node refused.
fn node_error(answer: &ChildAnswer) -> PromqlError {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let message = body["error"]["message"]
        .as_str()
        .unwrap_or("a node refused the expression");
    let kind = match answer.status {
        400 => PromqlErrorKind::BadData,
        _ => PromqlErrorKind::Execution,
    };
    PromqlError::new(kind, message)
}
