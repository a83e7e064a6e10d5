//! Query parameters of the HTTP API: names, patterns and single values.
use axum::extract::Query;
use axum::http::Uri;
use pegel_metric::{Selector, split_series_list};

use crate::api_error::ApiError;

/// Maximum number of regular expressions in one request.
const EXPRESSIONS_MAX: usize = 16;
/// Maximum number of patterns in one request: each is matched against every series. Names are
/// looked up by hash, and the length of the URI bounds them.
const PATTERNS_MAX: usize = 64;

/// The query string, with every parameter name checked against those that the route accepts.
#[derive(Debug)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    pub(crate) fn parse(uri: &Uri, accepted: &[&str]) -> Result<QueryParameters, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| ApiError::bad_request(format!("malformed query string: {error}")))?;
        for (key, _) in &pairs {
            if !accepted.contains(&key.as_str()) {
                let hint = format!("accepted parameters: {}", accepted.join(", "));
                return Err(ApiError::bad_request(format!("unknown parameter {key:?}")).hint(hint));
            }
        }
        Ok(QueryParameters(pairs))
    }

    /// All non-empty values of a parameter; an empty `match=` is ignored.
    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self
            .0
            .iter()
            .filter(move |(known, value)| known == key && !value.is_empty());
        values.map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that may occur once; a duplicate is an error.
    pub(crate) fn single<'a>(&'a self, key: &'a str) -> Result<Option<&'a str>, ApiError> {
        let mut values = self.values(key);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(ApiError::bad_request(format!(
                "{key} is given more than once"
            ))),
            (value, None) => Ok(value),
        }
    }

    /// Selects the union of all `match=` patterns and all entries of `names=`; all series if there
    /// is neither.
    pub(crate) fn selector(&self) -> Result<Selector, ApiError> {
        let mut selectors = Vec::new();
        let mut expressions = 0;
        for pattern in self.values("match") {
            let selector = Selector::parse(pattern)
                .map_err(|error| ApiError::bad_request(format!("match={pattern}: {error}")))?;
            expressions += selector.expression_count();
            if expressions > EXPRESSIONS_MAX {
                let message = format!("more than {EXPRESSIONS_MAX} regular expressions");
                return Err(ApiError::bad_request(message).hint("join them with |, or use globs"));
            }
            if selectors.len() == PATTERNS_MAX {
                return Err(ApiError::bad_request(format!(
                    "more than {PATTERNS_MAX} patterns"
                )));
            }
            selectors.push(selector);
        }
        let is_selective = !selectors.is_empty() || self.values("names").next().is_some();
        let names: Vec<&str> = self.values("names").flat_map(split_series_list).collect();
        if !names.is_empty() {
            selectors.push(Selector::from_list(names).map_err(|(entry, error)| {
                ApiError::bad_request(format!("names: {entry}: {error}"))
                    .hint("a series is written name{key=\"value\",…}; use match= for patterns")
            })?);
        }
        Ok(if is_selective {
            Selector::any(selectors)
        } else {
            Selector::all()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pegel_metric::{Family, Input, MetricKind, Series};

    use super::*;

    fn parameters(query: &str) -> Result<QueryParameters, ApiError> {
        let uri: Uri = format!("/x?{query}").parse().expect("a valid URI");
        QueryParameters::parse(&uri, &["match", "names", "step"])
    }

    fn matching(query: &str) -> Vec<&'static str> {
        let selector = parameters(query).and_then(|p| p.selector()).expect("valid");
        let family = |name: &str| {
            let name = name.to_owned().into();
            Arc::new(Family {
                name,
                kind: MetricKind::Gauge,
                help: "".into(),
                unit: "".into(),
                level: 1,
                input: Input::Collect,
            })
        };
        let all = ["a", r#"b{x="1",y="2"}"#, r#"b{x="1"}"#, "c*"];
        let fits = |text: &&str| selector.matches(&Series::parse(text, family).expect("valid"));
        all.into_iter().filter(fits).collect()
    }

    #[test]
    fn patterns_and_names_add_up() {
        assert_eq!(matching("").len(), 4);
        assert_eq!(matching("match=&names=").len(), 4);
        assert_eq!(matching("match=a&match=c*"), ["a", "c*"]);
        assert_eq!(
            matching("names=a,b"),
            ["a", r#"b{x="1",y="2"}"#, r#"b{x="1"}"#]
        );
        assert_eq!(
            matching("names=b%7By=%222%22,x=%221%22%7D,a"),
            ["a", r#"b{x="1",y="2"}"#]
        );
        assert_eq!(matching("names=c*"), ["c*"]);
        assert_eq!(matching("names=*"), [""; 0]);
        assert_eq!(matching("names=,"), [""; 0]);
        assert_eq!(matching("match=c*&names=a"), ["a", "c*"]);
    }

    #[test]
    fn mistakes_are_named() {
        let message = |query: &str| match parameters(query) {
            Ok(parameters) => match (parameters.selector(), parameters.single("step")) {
                (Err(failure), _) | (_, Err(failure)) => failure.message().to_owned(),
                _ => panic!("{query} is valid"),
            },
            Err(failure) => failure.message().to_owned(),
        };
        assert_eq!(message("form=1"), "unknown parameter \"form\"");
        assert_eq!(message("step=1&step=2"), "step is given more than once");
        assert!(
            message("match=a%7Bb=~%22(%22%7D")
                .starts_with("match=a{b=~\"(\"}: invalid regular expression")
        );
        let expressions = "match=%7Ba=~%22x%22%7D&".repeat(17);
        assert_eq!(message(&expressions), "more than 16 regular expressions");
        assert_eq!(message(&"match=a&".repeat(65)), "more than 64 patterns");
        assert_eq!(
            message("names=a%7Bb%7D"),
            "names: a{b}: not a series: a label without '='"
        );
    }
}
