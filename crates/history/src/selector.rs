//! Selects the series of this agent among those of the engine, and checks that answers have no
//! others.

use std::collections::BTreeMap;

use pegel_metric::Millis;
use pegel_query::HistoryRequest;
use pegel_query::promql::{LabelMatcher, LabelSet, MatchKind};
use pegel_wire::prompb::{LabelMatcher as SentMatcher, Query, ReadRequest, label_matcher};

/// The matchers of a request to the engine, with those that restrict it to this agent.
#[derive(Debug)]
pub(crate) struct EngineSelector<'a> {
    matchers: Vec<LabelMatcher>,
    external_labels: &'a BTreeMap<String, String>,
}

impl<'a> EngineSelector<'a> {
    /// Returns `None` if no series can match: this agent's series have no external labels, and a
    /// matcher requires one.
    pub(crate) fn new(
        request: &HistoryRequest<'_>,
        external_labels: &'a BTreeMap<String, String>,
    ) -> Option<EngineSelector<'a>> {
        let is_external = |matcher: &&LabelMatcher| external_labels.contains_key(&matcher.name);
        let mut on_external = request.matchers.iter().filter(is_external);
        if !on_external.all(|matcher| matcher.accepts("")) {
            return None;
        }
        let requested = request.matchers.iter();
        let mut matchers: Vec<LabelMatcher> =
            requested.filter(|one| !is_external(one)).cloned().collect();
        let equal = |name: &str, value: &str| LabelMatcher {
            name: name.to_owned(),
            value: value.to_owned(),
            kind: MatchKind::Equal,
        };
        match external_labels.is_empty() {
            true => matchers.push(equal("instance", &request.node.instance)),
            false => matchers.extend(
                external_labels
                    .iter()
                    .map(|(name, value)| equal(name, value)),
            ),
        }
        Some(EngineSelector {
            matchers,
            external_labels,
        })
    }

    /// Returns the selector in PromQL.
    pub(crate) fn text(&self) -> String {
        let matchers = self.matchers.iter().map(|matcher| {
            let operator = match matcher.kind {
                MatchKind::Equal => "=",
                MatchKind::NotEqual => "!=",
                MatchKind::Regex(_) => "=~",
                MatchKind::NotRegex(_) => "!~",
            };
            format!("{}{operator}{}", matcher.name, quoted(&matcher.value))
        });
        format!("{{{}}}", matchers.collect::<Vec<_>>().join(","))
    }

    /// Returns a request of remote read; both ends are included.
    pub(crate) fn read_request(&self, start: Millis, end: Millis) -> ReadRequest {
        let matchers = self.matchers.iter().map(|matcher| SentMatcher {
            r#type: match matcher.kind {
                MatchKind::Equal => label_matcher::Type::Eq,
                MatchKind::NotEqual => label_matcher::Type::Neq,
                MatchKind::Regex(_) => label_matcher::Type::Re,
                MatchKind::NotRegex(_) => label_matcher::Type::Nre,
            } as i32,
            name: matcher.name.clone(),
            value: matcher.value.clone(),
        });
        let query = Query {
            start_timestamp_ms: start,
            end_timestamp_ms: end,
            matchers: matchers.collect(),
        };
        ReadRequest {
            queries: vec![query],
            ..ReadRequest::default()
        }
    }

    /// Returns the labels of a series without external ones; `None` if the engine returned a series
    /// that was not requested.
    pub(crate) fn own_labels(&self, labels: LabelSet) -> Option<LabelSet> {
        let is_requested = self.matchers.iter().all(|one| one.matches(&labels));
        if !is_requested || labels.metric_name().is_empty() {
            return None;
        }
        if self.external_labels.is_empty() {
            return Some(labels);
        }
        let own = { labels.iter() }.filter(|(name, _)| !self.external_labels.contains_key(*name));
        Some(LabelSet::new(own))
    }
}

/// Returns a text in the quotes of PromQL.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for next in text.chars() {
        match next {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            next if next.is_control() => quoted.push_str(&format!("\\u{:04x}", next as u32)),
            next => quoted.push(next),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use pegel_query::promql::{NodeLabels, QueryCancellation, parse_selector};

    use super::*;

    fn with_selector<T>(
        selector: &str,
        external: &[(&str, &str)],
        check: impl FnOnce(Option<EngineSelector<'_>>) -> T,
    ) -> T {
        let external = external.iter();
        let external = external.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let external = external.collect();
        let matchers = parse_selector(selector).expect("valid");
        check(EngineSelector::new(
            &HistoryRequest {
                matchers: &matchers,
                node: &NodeLabels {
                    job: "node".into(),
                    instance: "n1:1337".into(),
                },
                start: 0,
                end: 1,
                now: 1,
                bytes_max: 1,
                deadline: Instant::now(),
                cancellation: &QueryCancellation::default(),
            },
            &external,
        ))
    }

    #[test]
    fn series_are_restricted_to_this_agent() {
        with_selector("m{a=\"x\\\"\\\\y\",b!~\"1|2\"}", &[], |selector| {
            let selector = selector.expect("can match");
            let text = selector.text();
            assert!(text.contains(r#"a="x\"\\y""#), "{text}");
            assert!(text.contains(r#"b!~"1|2""#), "{text}");
            assert!(text.ends_with(r#",instance="n1:1337"}"#), "{text}");
            parse_selector(&text).expect("PromQL");
        });
    }

    #[test]
    fn external_labels_replace_the_instance_and_are_not_shown() {
        let external = [("agent", "n1"), ("site", "north")];
        with_selector("m", &external, |selector| {
            let selector = selector.expect("can match");
            let text = selector.text();
            assert!(text.ends_with(r#",agent="n1",site="north"}"#), "{text}");
            let labels = |agent| {
                LabelSet::new([
                    ("__name__", "m"),
                    ("agent", agent),
                    ("site", "north"),
                    ("x", "1"),
                ])
            };
            let own = selector.own_labels(labels("n1")).expect("requested");
            assert_eq!(own, LabelSet::new([("__name__", "m"), ("x", "1")]));
            assert_eq!(selector.own_labels(labels("n2")), None);
        });
        with_selector("m{site=\"north\"}", &external, |selector| {
            assert!(selector.is_none());
        });
        with_selector("m{site!=\"south\"}", &external, |selector| {
            assert!(!selector.expect("can match").text().contains("south"));
        });
    }
}
