//! The parameters of a request: those of the query string and of a POST form.

use axum::http::Uri;
use pegel_metric::Millis;
use pegel_query::promql::{self, LabelMatcher, PromqlError};

/// The number of selectors in one request.
const SELECTORS_MAX: usize = 64;

/// Parameters in the order in which they apply: those of the form precede those of the query
/// string. Unknown ones are ignored, as Prometheus does.
#[derive(Debug)]
pub(super) struct FormParameters(Vec<(String, String)>);

impl FormParameters {
    pub(super) fn new(form: &[u8], uri: &Uri) -> FormParameters {
        let query = uri.query().unwrap_or_default().as_bytes();
        let pairs = form_urlencoded::parse(form).chain(form_urlencoded::parse(query));
        FormParameters(
            pairs
                .map(|(k, v)| (k.into_owned(), v.into_owned()))
                .collect(),
        )
    }

    /// Returns the first value of a parameter; an empty one counts as missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.0.iter().filter(move |(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<Millis>, PromqlError> {
        self.parsed(name, "timestamp", promql::parse_time)
    }

    /// Returns a duration in milliseconds.
    pub(super) fn duration(&self, name: &str) -> Result<Option<Millis>, PromqlError> {
        self.parsed(name, "duration", promql::parse_duration)
    }

    fn parsed(
        &self,
        name: &str,
        kind: &str,
        parse: fn(&str) -> Option<Millis>,
    ) -> Result<Option<Millis>, PromqlError> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match parse(text) {
            Some(millis) => Ok(Some(millis)),
            None => Err(invalid(
                name,
                &format!("cannot parse {text:?} to a valid {kind}"),
            )),
        }
    }

    /// Returns `limit`: the number of results, where 0 and a missing one mean no limit.
    pub(super) fn limit(&self) -> Result<usize, PromqlError> {
        self.count("limit").map(|limit| limit.unwrap_or(usize::MAX))
    }

    /// Returns a number of results; `None` for 0 and a missing one.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, PromqlError> {
        match self.get(name).map(str::parse::<i64>) {
            None | Some(Ok(0)) => Ok(None),
            Some(Ok(count)) if count > 0 => Ok(Some(usize::try_from(count).unwrap_or(usize::MAX))),
            Some(Ok(_)) => Err(invalid(name, &format!("{name} must be non-negative"))),
            Some(Err(_)) => Err(invalid(name, &format!("{name} must be a number"))),
        }
    }

    /// Returns the matchers of each `match[]`.
    pub(super) fn selectors(&self) -> Result<Vec<Vec<LabelMatcher>>, PromqlError> {
        let mut selectors = Vec::new();
        for text in self.all("match[]") {
            if selectors.len() == SELECTORS_MAX {
                let message = format!("more than {SELECTORS_MAX} selectors");
                return Err(invalid("match[]", &message));
            }
            let matchers = promql::parse_selector(text);
            selectors.push(matchers.map_err(|error| invalid("match[]", &error.to_string()))?);
        }
        Ok(selectors)
    }
}

/// Returns the error of a parameter, in Prometheus' wording.
pub(super) fn invalid(name: &str, message: &str) -> PromqlError {
    PromqlError::bad_data(format!("invalid parameter {name:?}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(form: &str, query: &str) -> FormParameters {
        let uri: Uri = format!("/x?{query}").parse().expect("a valid URI");
        FormParameters::new(form.as_bytes(), &uri)
    }

    #[test]
    fn the_form_precedes_the_query_string() {
        let both = parameters(
            "query=1%2B1&match%5B%5D=a",
            "query=2&match[]=b&time=4&limit=",
        );
        assert_eq!(both.get("query"), Some("1+1"));
        assert_eq!(both.all("match[]").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(both.time("time"), Ok(Some(4_000)));
        assert_eq!(both.limit(), Ok(usize::MAX));
        assert_eq!(both.get("step"), None);
    }

    #[test]
    fn mistakes_have_the_wording_of_prometheus() {
        let wrong = parameters("", "start=x&step=1z&limit=-1&match[]=%7B%7D");
        let message = |error: PromqlError| error.to_string();
        assert_eq!(
            wrong.time("start").map_err(message),
            Err("invalid parameter \"start\": cannot parse \"x\" to a valid timestamp".into())
        );
        assert_eq!(
            wrong.duration("step").map_err(message),
            Err("invalid parameter \"step\": cannot parse \"1z\" to a valid duration".into())
        );
        assert_eq!(
            wrong.limit().map_err(message),
            Err("invalid parameter \"limit\": limit must be non-negative".into())
        );
        let selectors = wrong.selectors().expect_err("matches everything");
        assert!(
            selectors
                .to_string()
                .starts_with("invalid parameter \"match[]\": ")
        );
        let many = parameters(&"match[]=a&".repeat(65), "");
        assert!(many.selectors().is_err());
    }
}
