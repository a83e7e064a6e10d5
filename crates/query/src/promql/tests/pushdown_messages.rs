//! The requests and responses of aggregations that are pushed down.

use std::cell::Cell;

use pegel_tree_protocol::SelectEnd;

use super::*;
use crate::promql::pushdown::{
    PushedAggregation, PushedMerger, PushedRequest, PushedSeries, decode_pushed_request,
    decode_pushed_series, encode_pushed_request, encode_pushed_series, evaluate_pushed,
};

/// A source that keeps the request that it is offered.
struct OfferedSource(Cell<Option<PushedRequest>>);

impl SeriesSource for OfferedSource {
    fn select(
        &self,
        _: &Selection<'_>,
        _: &mut SeriesSampleVisitor<'_>,
    ) -> Result<(), PromqlError> {
        Ok(())
    }

    fn takes_aggregations(&self) -> bool {
        true
    }

    fn aggregate(
        &self,
        pushed: &PushedAggregation<'_>,
    ) -> Option<Result<Vec<PushedSeries>, PromqlError>> {
        self.0.set(Some(pushed.request.clone()));
        None
    }
}

fn offered(expression: &str) -> Option<PushedRequest> {
    let source = OfferedSource(Cell::new(None));
    let limits = PromqlLimits::default();
    range(&source, expression, (5_000, 65_000), 1_000, &limits).expect(expression);
    source.0.take()
}

#[test]
fn operands_are_written_without_hosts_and_with_absolute_times() {
    for (expression, expected) in [
        ("sum(m)", "{\"__name__\"=\"m\",}"),
        (
            "sum(rate(m{a=~\"x|\\\"\\\\\\\\\",host=\"h\"}[5m] @ start() offset -61d))",
            "rate({\"__name__\"=\"m\",\"a\"=~\"x|\\\"\\\\\\\\\",}[300s] @ 5.000 offset -61d)",
        ),
        ("sum({host=\"h\"})", "{\"__name__\"!=\"\",}"),
        (
            "sum({\"odd.name\",\"é ü\"!=\"\\n\"})",
            "{\"__name__\"=\"odd.name\",\"é ü\"!=\"\\n\",}",
        ),
        (
            "sum(-m * -1.5 > bool (end() - 2 * start()) ^ -Inf)",
            "(((-{\"__name__\"=\"m\",}) * (-1.5)) > bool 0.0)",
        ),
        (
            "sum(max_over_time(m[50d1ms:] @ 1700000000.123))",
            "max_over_time(({\"__name__\"=\"m\",})[50d1ms:60s] @ 1700000000.123)",
        ),
        ("sum(m * time())", "({\"__name__\"=\"m\",} * time())"),
    ] {
        let request = offered(expression).expect(expression);
        assert_eq!(request.expression, expected);
    }
    // The parser does not read a number of days that exceeds 32 bits.
    assert_eq!(offered("sum(m offset 20000000y)"), None);
}

#[test]
fn malformed_messages_are_refused() {
    let request = offered("topk(3, m)").expect("offered");
    let body = encode_pushed_request(&request);
    assert_eq!(decode_pushed_request(&body), Ok(request.clone()));
    assert!(decode_pushed_request(b"").is_err());
    assert!(decode_pushed_request(&body[..body.len() - 1]).is_err());
    assert!(decode_pushed_request(&vec![0; 5 << 20]).is_err());
    let refused = |change: fn(&mut PushedRequest)| {
        let mut request = request.clone();
        change(&mut request);
        decode_pushed_request(&encode_pushed_request(&request)).is_err()
    };
    assert!(!refused(|_| ()));
    assert!(refused(|request| request.steps.step = 0));
    assert!(refused(|request| request.steps.end = 0));
    assert!(refused(|request| request.steps.end = Millis::MAX));
    assert!(refused(|request| request.steps.end = 200_000_000));
    assert!(refused(|request| request.lookback = -1));

    let limits = PromqlLimits::default();
    let source = series(&[("m{a=\"1\"}", "1x9")]);
    for expression in [
        "m{host=\"x\"}",
        "vector(1)",
        "m + m",
        "m[5m]",
        "1",
        "m{",
        "",
    ] {
        let mut request = request.clone();
        request.expression = expression.to_owned();
        let result = evaluate_pushed(&source, &request, None, &limits);
        assert!(result.is_err(), "{expression}");
    }

    let whole = evaluate_pushed(&source, &request, None, &limits).expect("valid");
    assert_eq!(whole.len(), 1);
    let body = encode_pushed_series(whole.clone(), SelectEnd::default());
    let decode = |body: &[u8]| decode_pushed_series(body, &request);
    let (read, _) = decode(&body).expect("as encoded");
    assert!(
        read[0]
            .values
            .iter()
            .zip(&whole[0].values)
            .all(|(a, b)| a.to_bits() == b.to_bits())
    );
    for length in 0..body.len() {
        assert!(decode(&body[..length]).is_err(), "{length}");
    }
    assert!(decode(&[&body[..], &body[..]].concat()).is_err());
    assert!(decode(&[255; 64]).is_err());
    let mut small = request.clone();
    small.bytes_max = 200;
    assert!(decode_pushed_series(&body, &small).is_err());
    for change in [
        (|series| series.values.clear()) as fn(&mut PushedSeries),
        |series| series.counts.push(1),
        |series| series.compensations = series.values.clone(),
        |series| series.are_means = true,
    ] {
        let mut series = whole.clone();
        change(&mut series[0]);
        let mut merger = PushedMerger::new(&request, &limits).expect("valid");
        assert!(merger.add(series.clone()).is_err());
        let body = encode_pushed_series(series, SelectEnd::default());
        assert!(decode(&body).is_err());
    }
}

#[test]
fn an_aggregation_is_bounded_by_memory_and_time() {
    let request = offered("sum by (a) (m)").expect("offered");
    let source = series(&[("m{a=\"1\"}", "1x9"), ("m{a=\"2\"}", "1x9")]);
    let evaluate = |limits: &PromqlLimits| {
        let part = evaluate_pushed(&source, &request, None, limits)?;
        Ok::<usize, PromqlError>(part.len())
    };
    let limits = PromqlLimits::default();
    assert_eq!(evaluate(&limits), Ok(2));
    let small = PromqlLimits {
        bytes_max: 1_000,
        ..limits.clone()
    };
    assert!(evaluate(&small).is_err());
    let late = PromqlLimits {
        time_max: std::time::Duration::ZERO,
        ..limits.clone()
    };
    assert!(evaluate(&late).is_err());
    let part = evaluate_pushed(&source, &request, None, &limits).expect("valid");
    let mut merger = PushedMerger::new(&request, &small).expect("valid");
    assert!(merger.add(part).is_err());
}
