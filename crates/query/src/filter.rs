//! Tag filters: select the series of a sub-query by the values of their tags.

mod wildcard;

use std::borrow::Cow;

use pegel_metric::Series;
use regex_lite::{Regex, RegexBuilder};

use crate::error::OpentsdbError;
use crate::tags::tag_value;
use wildcard::matches_wildcard;

/// The memory limit of one compiled expression, which also bounds its matching time.
const EXPRESSION_BYTES_MAX: usize = 64 << 10;

/// A test of one tag.
#[derive(Debug, Clone)]
pub struct TagFilter {
    pub tagk: String,
    /// The name of the filter type and its argument, as written.
    pub kind: &'static str,
    pub text: String,
    /// Whether the result has one series per value of the tag.
    pub group_by: bool,
    /// Values are compared in lower case; those in `test` are.
    ignores_case: bool,
    test: TagTest,
}

#[derive(Debug, Clone)]
enum TagTest {
    Any(Vec<String>),
    NotAny(Vec<String>),
    Pattern(String),
    Expression(Regex),
    Absent,
}

/// Name, examples and description, as returned by `/api/config/filters`.
pub(crate) const FILTER_KINDS: [(&str, &str, &str); 8] = [
    (
        "iliteral_or",
        "host=iliteral_or(nid1|nid2)",
        "The value is one of these, ignoring case. Values are separated by |.",
    ),
    (
        "iwildcard",
        "host=iwildcard(nid*)",
        "The value matches a pattern, ignoring case; * matches any text, including none.",
    ),
    (
        "literal_or",
        "host=literal_or(nid1|nid2)",
        "The value is one of these. Values are separated by |.",
    ),
    (
        "not_iliteral_or",
        "host=not_iliteral_or(nid1|nid2)",
        "The value is none of these, ignoring case. Series without the tag match.",
    ),
    (
        "not_key",
        "host=not_key()",
        "The series does not have the tag. The filter takes no value.",
    ),
    (
        "not_literal_or",
        "host=not_literal_or(nid1|nid2)",
        "The value is none of these. Series without the tag match.",
    ),
    (
        "regexp",
        "host=regexp(nid[0-9]+)",
        "A regular expression matches anywhere in the value. Look-around and back-references are not supported.",
    ),
    (
        "wildcard",
        "host=wildcard(nid*)",
        "The value matches a pattern; * matches any text, including none. * alone selects all series that have the tag.",
    ),
];

impl TagFilter {
    pub fn new(
        tagk: &str,
        kind: &str,
        text: &str,
        group_by: bool,
    ) -> Result<TagFilter, OpentsdbError> {
        let known = FILTER_KINDS.iter().find(|(name, _, _)| *name == kind);
        let Some(&(kind, _, _)) = known else {
            let names: Vec<&str> = FILTER_KINDS.iter().map(|(name, _, _)| *name).collect();
            return Err(OpentsdbError::bad_request(format!(
                "Unable to find a filter of type: {kind}"
            ))
            .with_details(format!("one of {}", names.join(", "))));
        };
        if tagk.is_empty() {
            return Err(OpentsdbError::bad_request(
                "Missing or empty tagk in a filter",
            ));
        }
        let wrong = |why: String| {
            OpentsdbError::bad_request(format!("Invalid {kind} filter for {tagk}: {why}"))
        };
        if kind == "not_key" {
            if !text.is_empty() {
                return Err(wrong("it must have no value".into()));
            }
        } else if text.is_empty() {
            return Err(wrong("it must have a value".into()));
        }
        let ignores_case = matches!(kind, "iliteral_or" | "not_iliteral_or" | "iwildcard");
        let wanted = if ignores_case {
            text.to_lowercase()
        } else {
            text.to_owned()
        };
        let values = || wanted.split('|').map(str::to_owned).collect();
        let test = match kind {
            "literal_or" | "iliteral_or" => TagTest::Any(values()),
            "not_literal_or" | "not_iliteral_or" => TagTest::NotAny(values()),
            "not_key" => TagTest::Absent,
            "regexp" => TagTest::Expression(
                RegexBuilder::new(text)
                    .size_limit(EXPRESSION_BYTES_MAX)
                    .build()
                    .map_err(|error| wrong(error.to_string()))?,
            ),
            _ if !text.contains('*') => return Err(wrong("it must have at least one *".into())),
            _ => TagTest::Pattern(wanted),
        };
        Ok(TagFilter {
            tagk: tagk.to_owned(),
            kind,
            text: text.to_owned(),
            group_by,
            ignores_case,
            test,
        })
    }

    /// Parses a value of the `tags` map: `*`, `a`, `a|b`, `va*`, or an explicit filter:
    /// `regexp(a.*)`.
    pub fn from_tag_value(
        tagk: &str,
        value: &str,
        group_by: bool,
    ) -> Result<TagFilter, OpentsdbError> {
        if let Some((kind, rest)) = value.split_once('(')
            && let Some(text) = rest.strip_suffix(')')
        {
            return TagFilter::new(tagk, kind, text, group_by);
        }
        let kind = match value {
            "*" => "wildcard",
            _ if value.contains('|') => "literal_or",
            _ if value.contains('*') => "iwildcard",
            _ => "literal_or",
        };
        TagFilter::new(tagk, kind, value, group_by)
    }

    /// Returns whether the filter requires the tag and accepts every value.
    pub(crate) fn is_any_value(&self) -> bool {
        self.text == "*"
    }

    /// Returns the same filter with grouping. A literal `*` becomes a wildcard.
    pub(crate) fn with_grouping(&self) -> TagFilter {
        TagFilter {
            group_by: true,
            test: TagTest::Pattern("*".into()),
            ..self.clone()
        }
    }

    pub fn is_expression(&self) -> bool {
        matches!(self.test, TagTest::Expression(_))
    }

    pub(crate) fn matches(&self, series: &Series, node: &str) -> bool {
        let Some(value) = tag_value(series, &self.tagk, node) else {
            return matches!(self.test, TagTest::NotAny(_) | TagTest::Absent);
        };
        self.accepts(value)
    }

    /// Returns whether a value of the tag is accepted.
    pub(crate) fn accepts(&self, value: Cow<'_, str>) -> bool {
        let value = if self.ignores_case {
            Cow::Owned(value.to_lowercase())
        } else {
            value
        };
        match &self.test {
            TagTest::Any(values) => values.iter().any(|known| *known == value),
            TagTest::NotAny(values) => values.iter().all(|known| *known != value),
            TagTest::Pattern(pattern) => matches_wildcard(pattern, &value),
            TagTest::Expression(expression) => expression.is_match(&value),
            TagTest::Absent => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::series;

    const ALL: [&str; 5] = [
        "m{host=\"web01\"}",
        "m{host=\"WEB02\"}",
        "m{host=\"db01.lax\"}",
        "m{host=\"\"}",
        "m{dc=\"x\"}",
    ];

    /// Returns the matching series. The node has no name, so the series without a host has none.
    fn matching(kind: &str, text: &str) -> Vec<usize> {
        let filter = TagFilter::new("host", kind, text, false).expect("valid");
        let hit = |text: &&str| filter.matches(&series(text), "");
        (0..ALL.len()).filter(|at| hit(&ALL[*at])).collect()
    }

    #[test]
    fn every_kind_of_filter() {
        for (kind, text, expected) in [
            ("literal_or", "web01", &[0][..]),
            ("literal_or", "web01|db01.lax|none", &[0, 2]),
            ("literal_or", "web02", &[]),
            ("iliteral_or", "WEB01|web02", &[0, 1]),
            // Series without the tag match negated filters.
            ("not_literal_or", "web01|web02", &[1, 2, 3, 4]),
            ("not_iliteral_or", "Web01|web02", &[2, 3, 4]),
            ("wildcard", "*", &[0, 1, 2, 3]),
            ("wildcard", "web*", &[0]),
            ("wildcard", "*01*", &[0, 2]),
            ("wildcard", "*b*1*x", &[2]),
            ("wildcard", "web?1*", &[]),
            ("iwildcard", "wEB*", &[0, 1]),
            // Matches anywhere in the value.
            ("regexp", "b0[12]", &[0, 2]),
            ("regexp", "^b", &[]),
            ("regexp", "(?i)^web", &[0, 1]),
            ("not_key", "", &[4]),
        ] {
            assert_eq!(matching(kind, text), expected, "{kind}({text})");
        }
    }

    #[test]
    fn a_series_without_host_is_on_this_node() {
        let filter = TagFilter::new("host", "literal_or", "nid7", false).expect("valid");
        assert!(filter.matches(&series("m{dc=\"x\"}"), "nid7"));
        assert!(!filter.matches(&series("m{host=\"a\"}"), "nid7"));
        let absent = TagFilter::new("host", "not_key", "", false).expect("valid");
        assert!(!absent.matches(&series("m"), "nid7"));
    }

    #[test]
    fn values_of_the_tags_map_become_filters() {
        for (value, kind, text) in [
            ("*", "wildcard", "*"),
            ("web01", "literal_or", "web01"),
            ("a|b", "literal_or", "a|b"),
            ("va*", "iwildcard", "va*"),
            ("regexp(a(b|c).*)", "regexp", "a(b|c).*"),
            ("not_key()", "not_key", ""),
        ] {
            let filter = TagFilter::from_tag_value("host", value, true).expect(value);
            assert_eq!((filter.kind, &*filter.text), (kind, text));
        }
    }

    #[test]
    fn wrong_filters_are_refused() {
        for (tagk, kind, text, message) in [
            ("host", "like", "x", "Unable to find a filter of type: like"),
            (
                "host",
                "literal_or",
                "",
                "Invalid literal_or filter for host: it must have a value",
            ),
            (
                "host",
                "wildcard",
                "web",
                "Invalid wildcard filter for host: it must have at least one *",
            ),
            (
                "host",
                "not_key",
                "x",
                "Invalid not_key filter for host: it must have no value",
            ),
            ("", "literal_or", "x", "Missing or empty tagk in a filter"),
        ] {
            let problem = TagFilter::new(tagk, kind, text, false).expect_err(message);
            assert_eq!(problem.to_string(), message);
        }
        for text in ["(", "a{1000}{1000}{1000}", "(?=x)"] {
            let problem = TagFilter::new("host", "regexp", text, false).expect_err(text);
            assert!(
                problem
                    .to_string()
                    .starts_with("Invalid regexp filter for host: ")
            );
        }
    }
}
