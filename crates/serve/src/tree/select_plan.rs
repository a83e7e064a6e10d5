//! Parses requests for series that a parent sends.

use pegel_metric::Selector;
use pegel_query::promql::LabelMatcher;
use pegel_store::{QueryStep, StepAggregation};
use pegel_tree_protocol::{
    SelectRequest, check_select, select_request::Content, series_matcher::Kind,
};
use prost::Message;

use crate::api_error::ApiError;

/// The most regular expressions in the selectors of one request: each is matched against every
/// series.
const EXPRESSIONS_MAX: usize = 16;

/// Which series are meant, and the names that the response has.
#[derive(Debug)]
pub(crate) enum SelectView {
    /// As PromQL shows them.
    Promql(Vec<LabelMatcher>),
    /// As they are stored.
    Stored(Selector),
}

/// A request, ready to be answered.
#[derive(Debug)]
pub(crate) struct SelectPlan {
    /// The request as it is passed on to the nodes below.
    pub request: SelectRequest,
    pub content: Content,
    pub view: SelectView,
    pub step: Option<QueryStep>,
}

impl SelectPlan {
    pub(crate) fn parse(body: &[u8]) -> Result<SelectPlan, ApiError> {
        let bad = |problem: &dyn std::fmt::Display| {
            ApiError::bad_request(format!("malformed request: {problem}"))
        };
        let request = SelectRequest::decode(body).map_err(|error| bad(&error))?;
        check_select(&request).map_err(|fault| bad(&fault))?;
        let content = Content::try_from(request.content).map_err(|error| bad(&error))?;
        if content == Content::Partials {
            return Err(bad(&"partial results are not computed here"));
        }
        let step = match request.step_ms {
            0 => None,
            millis => Some(QueryStep {
                millis,
                aggregation: parse_aggregation(&request.aggregation)?,
            }),
        };
        // PromQL completes ticks, also if it has no matcher.
        let view = match request.completes_ticks || !request.matchers.is_empty() {
            true => SelectView::Promql(parse_matchers(&request)?),
            false => SelectView::Stored(parse_selectors(&request.selectors)?),
        };
        Ok(SelectPlan {
            request,
            content,
            view,
            step,
        })
    }
}

fn parse_aggregation(text: &str) -> Result<Option<StepAggregation>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    let known = StepAggregation::parse(text).map(Some);
    known.ok_or_else(|| ApiError::bad_request(format!("unknown aggregation {text:?}")))
}

fn parse_matchers(request: &SelectRequest) -> Result<Vec<LabelMatcher>, ApiError> {
    let conditions = request.matchers.iter().map(|matcher| {
        let operator = match matcher.kind() {
            Kind::Equal => "=",
            Kind::NotEqual => "!=",
            Kind::Regex => "=~",
            Kind::NotRegex => "!~",
        };
        (&*matcher.label, operator, &*matcher.value)
    });
    LabelMatcher::list(&conditions.collect::<Vec<_>>())
        .map_err(|error| ApiError::bad_request(error.to_string()))
}

fn parse_selectors(patterns: &[String]) -> Result<Selector, ApiError> {
    if patterns.is_empty() {
        return Ok(Selector::all());
    }
    let parse = |pattern: &String| {
        let selector = Selector::parse(pattern);
        selector.map_err(|error| ApiError::bad_request(format!("{pattern}: {error}")))
    };
    let selectors = patterns.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let expressions: usize = selectors.iter().map(Selector::expression_count).sum();
    if expressions > EXPRESSIONS_MAX {
        let message = format!("more than {EXPRESSIONS_MAX} regular expressions");
        return Err(ApiError::bad_request(message));
    }
    Ok(Selector::any(selectors))
}

#[cfg(test)]
mod tests {
    use pegel_tree_protocol::SeriesMatcher;

    use super::*;

    fn parse(request: SelectRequest) -> Result<SelectPlan, ApiError> {
        SelectPlan::parse(&request.encode_to_vec())
    }

    #[test]
    fn matchers_and_completed_ticks_are_of_promql() {
        let matcher = SeriesMatcher {
            kind: Kind::Regex as i32,
            label: "__name__".into(),
            value: "node_.*".into(),
        };
        let plan = parse(SelectRequest {
            matchers: vec![matcher],
            ..SelectRequest::default()
        });
        assert!(matches!(plan.expect("valid").view, SelectView::Promql(list) if list.len() == 1));
        let plan = parse(SelectRequest {
            completes_ticks: true,
            ..SelectRequest::default()
        });
        assert!(matches!(plan.expect("valid").view, SelectView::Promql(list) if list.is_empty()));
        let plan = parse(SelectRequest {
            selectors: vec!["node_*".into(), "cpu{a=\"1\"}".into()],
            step_ms: 10,
            aggregation: "max".into(),
            ..SelectRequest::default()
        });
        let plan = plan.expect("valid");
        assert!(matches!(plan.view, SelectView::Stored(_)));
        let step = plan.step.expect("a step");
        assert_eq!(
            (step.millis, step.aggregation),
            (10, Some(StepAggregation::Max))
        );
    }

    #[test]
    fn mistakes_are_refused() {
        assert!(SelectPlan::parse(&[0xff]).is_err());
        let wrong = |change: fn(&mut SelectRequest)| {
            let mut request = SelectRequest::default();
            change(&mut request);
            parse(request).expect_err("wrong").message().to_owned()
        };
        let partials = wrong(|request| (request.content, request.step_ms) = (3, 1));
        assert!(partials.contains("partial results"), "{partials}");
        assert!(wrong(|request| request.content = 9).starts_with("malformed request"));
        let median = wrong(|request| {
            request.step_ms = 1;
            request.aggregation = "median".into();
        });
        assert_eq!(median, "unknown aggregation \"median\"");
        let expressions = wrong(|request| {
            request.selectors = vec!["{a=~\"x\"}".into(); 17];
        });
        assert_eq!(expressions, "more than 16 regular expressions");
    }
}
