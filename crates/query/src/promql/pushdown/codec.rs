//! The messages of `POST /tree/aggregate` (`proto/select.proto` of `pegel-tree-protocol`).

use pegel_metric::Millis;
use pegel_tree_protocol::aggregate_part::Kind;
use pegel_tree_protocol::aggregate_request::Operator as WireOperator;
use pegel_tree_protocol::{
    AggregatePart, AggregateRequest, AggregatedSeries, SelectEnd, decode_values, encode_values,
};
use prost::Message;

use super::super::MILLIS_MAX;
use super::super::error::PromqlError;
use super::super::labels::LabelSet;
use super::super::node::Grouping;
use super::{PushedOperator, PushedRequest, PushedSeries, StepRange};

/// The size of a request: the names of 10,000 nodes and a long expression.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// The size of one series of a response, besides its values.
const LABELS_BYTES_MAX: usize = 1 << 20;

/// The size of a step of a series at most: value, compensation and count.
const STEP_BYTES_MAX: usize = 10 + 10 + 10;

/// The length of a part precedes it.
const LENGTH_BYTES: usize = 4;

/// Encodes the body of a request.
pub fn encode_pushed_request(request: &PushedRequest) -> Vec<u8> {
    let (operator, k) = match request.operator {
        PushedOperator::Sum => (WireOperator::Sum, 0),
        PushedOperator::Count => (WireOperator::Count, 0),
        PushedOperator::Min => (WireOperator::Min, 0),
        PushedOperator::Max => (WireOperator::Max, 0),
        PushedOperator::Avg => (WireOperator::Avg, 0),
        PushedOperator::Group => (WireOperator::Group, 0),
        PushedOperator::TopK(k) => (WireOperator::Topk, k),
        PushedOperator::BottomK(k) => (WireOperator::Bottomk, k),
    };
    let (without, labels) = match &request.grouping {
        Grouping::By(labels) => (false, labels.clone()),
        Grouping::Without(labels) => (true, labels.clone()),
    };
    let message = AggregateRequest {
        expression: request.expression.clone(),
        operator: operator.into(),
        k,
        without,
        labels,
        start_ms: request.steps.start,
        end_ms: request.steps.end,
        step_ms: request.steps.step,
        lookback_ms: request.lookback,
        bytes_max: request.bytes_max as u64,
        nodes: request.nodes.clone(),
    };
    message.encode_to_vec()
}

/// Decodes the body of a request. The expression is checked by
/// [`evaluate_pushed`](super::evaluate_pushed).
pub fn decode_pushed_request(body: &[u8]) -> Result<PushedRequest, PromqlError> {
    let malformed = |what: &str| PromqlError::bad_data(format!("malformed aggregation: {what}"));
    if body.len() > REQUEST_BYTES_MAX {
        return Err(malformed(&format!("exceeds {REQUEST_BYTES_MAX} bytes")));
    }
    let message = AggregateRequest::decode(body).map_err(|error| malformed(&error.to_string()))?;
    let operator = WireOperator::try_from(message.operator);
    let operator = match operator.map_err(|_| malformed("unknown operator"))? {
        WireOperator::Sum => PushedOperator::Sum,
        WireOperator::Count => PushedOperator::Count,
        WireOperator::Min => PushedOperator::Min,
        WireOperator::Max => PushedOperator::Max,
        WireOperator::Avg => PushedOperator::Avg,
        WireOperator::Group => PushedOperator::Group,
        WireOperator::Topk => PushedOperator::TopK(message.k),
        WireOperator::Bottomk => PushedOperator::BottomK(message.k),
        WireOperator::Unspecified => return Err(malformed("no operator")),
    };
    let steps = StepRange {
        start: message.start_ms,
        end: message.end_ms,
        step: message.step_ms,
    };
    steps.steps()?;
    let lookback: Millis = message.lookback_ms;
    if !(0..=MILLIS_MAX).contains(&lookback) {
        return Err(malformed("lookback out of range"));
    }
    Ok(PushedRequest {
        expression: message.expression,
        operator,
        grouping: match message.without {
            true => Grouping::Without(message.labels),
            false => Grouping::By(message.labels),
        },
        steps,
        lookback,
        bytes_max: usize::try_from(message.bytes_max).unwrap_or(usize::MAX),
        nodes: message.nodes,
    })
}

/// Encodes a response: the series, and which nodes contributed.
pub fn encode_pushed_series(series: Vec<PushedSeries>, end: SelectEnd) -> Vec<u8> {
    let mut out = Vec::new();
    for one in series {
        let labels = one.labels.iter();
        let labels = labels.flat_map(|(name, value)| [name.to_owned(), value.to_owned()]);
        let kind = Kind::Series(AggregatedSeries {
            labels: labels.collect(),
            values: encode_values(&one.values).into(),
            compensations: match one.compensations.is_empty() {
                true => Vec::new(),
                false => encode_values(&one.compensations),
            }
            .into(),
            counts: one.counts,
            are_means: one.are_means,
        });
        push_part(&mut out, kind);
    }
    push_part(&mut out, Kind::End(end));
    out
}

fn push_part(out: &mut Vec<u8>, kind: Kind) {
    let part = AggregatePart { kind: Some(kind) };
    // A part has at most a few MiB: its steps and its labels are bounded.
    out.extend_from_slice(&(part.encoded_len() as u32).to_le_bytes());
    out.extend_from_slice(&part.encode_to_vec());
}

/// Decodes the response to a request, up to the memory that the request states.
pub fn decode_pushed_series(
    body: &[u8],
    request: &PushedRequest,
) -> Result<(Vec<PushedSeries>, SelectEnd), PromqlError> {
    let malformed =
        |what: &str| PromqlError::internal(format!("malformed response to an aggregation: {what}"));
    let steps = request.steps.steps()?.count;
    let part_bytes_max = LABELS_BYTES_MAX + steps * STEP_BYTES_MAX;
    let mut bytes_left = request.bytes_max;
    let mut result = Vec::new();
    let mut rest = body;
    while let Some((length, after)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let length = u32::from_le_bytes(*length) as usize;
        if length > part_bytes_max {
            return Err(malformed(&format!("a part exceeds {part_bytes_max} bytes")));
        }
        let (part, after) = after
            .split_at_checked(length)
            .ok_or_else(|| malformed("truncated"))?;
        rest = after;
        let part = AggregatePart::decode(part).map_err(|error| malformed(&error.to_string()))?;
        match part.kind {
            Some(Kind::Series(series)) => {
                let series = series_of(series, steps).ok_or_else(|| malformed("a series"))?;
                series.check(request.operator, steps)?;
                // A few bytes can stand for many equal values.
                bytes_left = bytes_left
                    .checked_sub(series.bytes())
                    .ok_or_else(PromqlError::too_many_samples)?;
                result.push(series);
            }
            Some(Kind::End(end)) if rest.is_empty() => return Ok((result, end)),
            Some(Kind::End(_)) => return Err(malformed("parts after the end")),
            // A part that a later version added.
            None => {}
        }
    }
    Err(malformed("truncated"))
}

fn series_of(message: AggregatedSeries, steps: usize) -> Option<PushedSeries> {
    let (pairs, odd) = message.labels.as_chunks::<2>();
    if !odd.is_empty() || pairs.iter().any(|[name, _]| name.is_empty()) {
        return None;
    }
    Some(PushedSeries {
        labels: LabelSet::new(pairs.iter().map(|[name, value]| (name, value))),
        values: decode_values(&message.values, steps).ok()?,
        compensations: match message.compensations.is_empty() {
            true => Vec::new(),
            false => decode_values(&message.compensations, steps).ok()?,
        },
        counts: message.counts,
        are_means: message.are_means,
    })
}
