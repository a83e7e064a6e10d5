//! Selects series by pattern: `--match` on the command line, `match=` over HTTP.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use regex_lite::{Regex, RegexBuilder};

use crate::glob::{SEARCHED_CHARS_MAX, glob_matches, is_linear};
use crate::prometheus_names::metric_name;
use crate::selector_patterns::LabelCondition;
use crate::series::{LABELS_MAX, TEXT_BYTES_MAX, parse_quoted};
use crate::{Family, Input, MetricKind, Series, SeriesError};

/// The memory limit of one compiled expression, which also bounds its matching time: enough for
/// thousands of characters, not for `(.{1000}){1000}`.
const EXPRESSION_BYTES_MAX: usize = 64 << 10;

/// What surrounds an expression, so that it matches the whole value.
pub(crate) const ANCHOR_START: &str = "^(?s:";
pub(crate) const ANCHOR_END: &str = ")$";

/// A pattern over series.
///
/// - `node_load1`, `node_cpu*`: a glob, matched against the name and against the whole text of a
///   series.
/// - `node_cpu_seconds_total{mode!="idle",cpu=~"[0-3]"}`: a glob for the name, then matchers as in
///   Prometheus (`=`, `!=`, `=~`, `!~`; an expression must match the whole value; a missing label
///   has the empty value).
/// - `*{*mode="idle"*}`: braces that contain no matchers are part of a glob over the whole text.
///
/// Series of remote write match only if [`Selector::including_remote`] was called: a reader of this
/// node's series does not see those of other systems, whatever their names.
#[derive(Debug, Clone)]
pub struct Selector {
    pub(crate) kind: SelectorKind,
    pub(crate) includes_remote: bool,
    pub(crate) label_condition: Option<LabelCondition>,
}

#[derive(Debug, Clone)]
pub(crate) enum SelectorKind {
    /// Matches the name or the whole text.
    Glob(String),
    /// A glob for the name, and matchers for the labels.
    Matchers(String, Vec<Matcher>),
    /// Exactly this name, even if it contains glob characters.
    Name(Box<str>),
    /// Exactly these names and texts, looked up by hash.
    Listed {
        names: HashSet<Box<str>>,
        texts: HashSet<Box<str>>,
    },
    /// Exactly this name, filtered by a predicate of the caller.
    Predicate(Box<str>, SeriesPredicate),
    /// The names that become this one in Prometheus, filtered by a predicate.
    PrometheusName(Box<str>, SeriesPredicate),
    /// Any name, filtered by a predicate.
    Filter(SeriesPredicate),
    Any(Vec<Selector>),
}

/// A filter given as a function.
#[derive(Clone)]
pub(crate) struct SeriesPredicate(Arc<dyn Fn(&Series) -> bool + Send + Sync>);

impl fmt::Debug for SeriesPredicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeriesPredicate")
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    pub(crate) key: String,
    pub(crate) op: MatchOp,
}

#[derive(Debug, Clone)]
pub(crate) enum MatchOp {
    Equal(String),
    NotEqual(String),
    RegexMatch(Regex),
    RegexNoMatch(Regex),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("the pattern is empty")]
    Empty,
    #[error("the pattern has {0} bytes; at most {TEXT_BYTES_MAX} are accepted")]
    TooLong(usize),
    #[error("the pattern has {0} matchers; at most {LABELS_MAX} are accepted")]
    TooManyMatchers(usize),
    #[error(
        "a part of the pattern between two * that contains a ? exceeds {SEARCHED_CHARS_MAX} characters; replace a run of ? by *"
    )]
    WildcardPartTooLong,
    #[error("invalid regular expression {0:?}: {1}")]
    InvalidRegex(String, String),
}

impl Selector {
    fn of_kind(kind: SelectorKind) -> Selector {
        Selector {
            kind,
            includes_remote: false,
            label_condition: None,
        }
    }

    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        if text.is_empty() {
            return Err(SelectorError::Empty);
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(SelectorError::TooLong(text.len()));
        }
        let split = split_matchers(text);
        if !is_linear(split.as_ref().map_or(text, |(name, _)| name)) {
            return Err(SelectorError::WildcardPartTooLong);
        }
        if let Some((name, matchers)) = split {
            if matchers.len() > LABELS_MAX {
                return Err(SelectorError::TooManyMatchers(matchers.len()));
            }
            let matchers = matchers
                .into_iter()
                .map(|(key, op, value)| {
                    let test = match op {
                        "=" => MatchOp::Equal(value),
                        "!=" => MatchOp::NotEqual(value),
                        "=~" => MatchOp::RegexMatch(compile_anchored(&value)?),
                        _ => MatchOp::RegexNoMatch(compile_anchored(&value)?),
                    };
                    Ok(Matcher {
                        key: key.to_owned(),
                        op: test,
                    })
                })
                .collect::<Result<_, _>>()?;
            let pattern = if name.is_empty() { "*" } else { name };
            return Ok(Selector::of_kind(SelectorKind::Matchers(
                pattern.to_owned(),
                matchers,
            )));
        }
        Ok(Selector::of_kind(SelectorKind::Glob(text.to_owned())))
    }

    /// Matches every series.
    pub fn all() -> Selector {
        Selector::of_kind(SelectorKind::Glob("*".to_owned()))
    }

    /// Matches all series of exactly this name.
    pub fn name(name: &str) -> Selector {
        Selector::of_kind(SelectorKind::Name(name.into()))
    }

    /// Matches the series of exactly this name that `test` accepts. `test` is called several times
    /// for each series and must be deterministic.
    pub fn with_predicate(
        name: &str,
        test: impl Fn(&Series) -> bool + Send + Sync + 'static,
    ) -> Selector {
        Selector::of_kind(SelectorKind::Predicate(
            name.into(),
            SeriesPredicate(Arc::new(test)),
        ))
    }

    /// Matches the series that `test` accepts and whose name becomes `name` in Prometheus, see
    /// [`prometheus_names`](crate::prometheus_names).
    pub fn prometheus_name(
        name: &str,
        test: impl Fn(&Series) -> bool + Send + Sync + 'static,
    ) -> Selector {
        Selector::of_kind(SelectorKind::PrometheusName(
            name.into(),
            SeriesPredicate(Arc::new(test)),
        ))
    }

    /// Matches the series that `test` accepts. It is called for every series.
    pub fn filter(test: impl Fn(&Series) -> bool + Send + Sync + 'static) -> Selector {
        Selector::of_kind(SelectorKind::Filter(SeriesPredicate(Arc::new(test))))
    }

    /// Matches exactly these series: an entry with labels is one series, with its labels in any
    /// order; a bare name is all series of that name. The error carries the malformed entry.
    pub fn from_list<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<Selector, (&'a str, SeriesError)> {
        let (mut names, mut texts) = (HashSet::new(), HashSet::new());
        for entry in entries {
            if entry.contains('{') {
                texts.insert(canonical_text(entry).map_err(|error| (entry, error))?);
            } else {
                names.insert(entry.into());
            }
        }
        Ok(Selector::of_kind(SelectorKind::Listed { names, texts }))
    }

    /// Matches what at least one of the selectors matches; nothing if the list is empty.
    pub fn any(mut selectors: Vec<Selector>) -> Selector {
        match selectors.len() {
            1 => selectors.remove(0),
            _ => Selector::of_kind(SelectorKind::Any(selectors)),
        }
    }

    /// Matches series of remote write, too.
    pub fn including_remote(mut self) -> Selector {
        self.includes_remote = true;
        self
    }

    pub fn matches(&self, series: &Series) -> bool {
        self.kind.matches(series) && (self.includes_remote || !series.is_remote())
    }
}

impl SelectorKind {
    pub(crate) fn matches(&self, series: &Series) -> bool {
        match self {
            SelectorKind::Glob(pattern) => {
                pattern == "*"
                    || glob_matches(pattern, series.name())
                    || glob_matches(pattern, series.text())
            }
            SelectorKind::Matchers(pattern, matchers) => {
                glob_matches(pattern, series.name())
                    && matchers.iter().all(|matcher| matcher.matches(series))
            }
            SelectorKind::Name(name) => **name == *series.name(),
            SelectorKind::Listed { names, texts } => {
                (!names.is_empty() && names.contains(series.name()))
                    || (!texts.is_empty() && texts.contains(series.text()))
            }
            SelectorKind::Predicate(name, choice) => **name == *series.name() && (choice.0)(series),
            SelectorKind::PrometheusName(name, choice) => {
                let found = series.name();
                let is_equal = found.len() == name.len() && found == &**name;
                (is_equal || *metric_name(found) == **name) && (choice.0)(series)
            }
            SelectorKind::Filter(choice) => (choice.0)(series),
            SelectorKind::Any(selectors) => {
                let mut kinds = selectors.iter().map(|selector| &selector.kind);
                kinds.any(|kind| kind.matches(series))
            }
        }
    }
}

impl Selector {
    /// Returns the number of regular expressions, which dominate the cost in memory and time.
    pub fn expression_count(&self) -> usize {
        match &self.kind {
            SelectorKind::Matchers(_, matchers) => matchers
                .iter()
                .filter(|matcher| {
                    matches!(
                        matcher.op,
                        MatchOp::RegexMatch(_) | MatchOp::RegexNoMatch(_)
                    )
                })
                .count(),
            SelectorKind::Any(selectors) => selectors.iter().map(Selector::expression_count).sum(),
            SelectorKind::Glob(_)
            | SelectorKind::Name(_)
            | SelectorKind::Listed { .. }
            | SelectorKind::Predicate(..)
            | SelectorKind::PrometheusName(..)
            | SelectorKind::Filter(_) => 0,
        }
    }

    /// Returns the names that can match, if the pattern has no wildcard, so that an index can skip
    /// the others. Where [`includes_foreign_names`](Selector::includes_foreign_names) is true,
    /// names that Prometheus does not accept can match, too.
    pub fn exact_names(&self) -> Option<BTreeSet<&str>> {
        match &self.kind {
            SelectorKind::Glob(pattern) | SelectorKind::Matchers(pattern, _) => {
                let plain = !pattern.contains(['*', '?', '{']);
                plain.then(|| BTreeSet::from([pattern.as_str()]))
            }
            SelectorKind::Name(name)
            | SelectorKind::Predicate(name, _)
            | SelectorKind::PrometheusName(name, _) => Some(BTreeSet::from([&**name])),
            SelectorKind::Filter(_) => None,
            SelectorKind::Listed { names, texts } => {
                let names_of_texts = texts.iter().filter_map(|text| text.split('{').next());
                Some(
                    names
                        .iter()
                        .map(|name| &**name)
                        .chain(names_of_texts)
                        .collect(),
                )
            }
            SelectorKind::Any(selectors) => {
                let mut names = BTreeSet::new();
                for selector in selectors {
                    names.append(&mut selector.exact_names()?);
                }
                Some(names)
            }
        }
    }

    /// Returns whether names that Prometheus does not accept can match in addition to
    /// [`exact_names`](Selector::exact_names).
    pub fn includes_foreign_names(&self) -> bool {
        match &self.kind {
            SelectorKind::PrometheusName(..) => true,
            SelectorKind::Any(selectors) => selectors.iter().any(Selector::includes_foreign_names),
            _ => false,
        }
    }
}

impl Matcher {
    fn matches(&self, series: &Series) -> bool {
        self.accepts(&series.label(&self.key).unwrap_or_default())
    }

    pub(crate) fn accepts(&self, value: &str) -> bool {
        match &self.op {
            MatchOp::Equal(wanted) => value == wanted.as_str(),
            MatchOp::NotEqual(unwanted) => value != unwanted.as_str(),
            MatchOp::RegexMatch(expression) => expression.is_match(value),
            MatchOp::RegexNoMatch(expression) => !expression.is_match(value),
        }
    }
}

/// Returns the text with sorted keys, as in [`Series::text`].
fn canonical_text(text: &str) -> Result<Box<str>, SeriesError> {
    let unknown = |name: &str| {
        Arc::new(Family {
            name: Cow::Owned(name.to_owned()),
            kind: MetricKind::Unknown,
            help: "".into(),
            unit: "".into(),
            level: 0,
            input: Input::Collect,
        })
    };
    Ok(Series::parse(text, unknown)?.text().into())
}

fn compile_anchored(expression: &str) -> Result<Regex, SelectorError> {
    let build = |text: &str| {
        RegexBuilder::new(text)
            .size_limit(EXPRESSION_BYTES_MAX)
            .build()
            .map_err(|error| SelectorError::InvalidRegex(expression.to_owned(), error.to_string()))
    };
    // Compile it alone first: `a)|(b` would close the surrounding group and escape the anchors.
    build(expression)?;
    build(&format!("{ANCHOR_START}{expression}{ANCHOR_END}"))
}

/// Key, operator and value.
type RawMatcher<'a> = (&'a str, &'a str, String);

/// Parses `name{key op "value",…}`; `None` if the text has another form.
fn split_matchers(text: &str) -> Option<(&str, Vec<RawMatcher<'_>>)> {
    let (name, body) = text.split_once('{')?;
    let mut rest = body.strip_suffix('}')?.trim();
    let mut matchers = Vec::new();
    while !rest.is_empty() {
        let key_end = rest.find(['=', '!'])?;
        let key = rest[..key_end].trim();
        rest = &rest[key_end..];
        let op = ["=~", "!~", "!=", "="]
            .into_iter()
            .find(|op| rest.starts_with(op))?;
        let (value, after) = parse_quoted(rest[op.len()..].trim_start()).ok()?;
        if key.is_empty() || key.contains(['*', '?', '"', ',']) {
            return None;
        }
        matchers.push((key, op, value.into_owned()));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some((name, matchers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::test_family;

    fn series(text: &str) -> Series {
        Series::parse(text, test_family).expect("a valid series")
    }

    #[test]
    fn matches_names_texts_and_labels() {
        let idle = series(r#"node_cpu_seconds_total{cpu="0",mode="idle"}"#);
        for (pattern, expected) in [
            ("node_cpu_seconds_total", true),
            ("node_cpu*", true),
            ("*idle*", true),
            ("node_load1", false),
            (r#"node_cpu_seconds_total{mode="idle"}"#, true),
            (
                r#"node_cpu_seconds_total{ mode = "idle" , cpu =~ "0|1" }"#,
                true,
            ),
            (r#"node_cpu_seconds_total{mode=~"id"}"#, false),
            (r#"node_*{mode!="idle"}"#, false),
            (r#"{mode!~"u.*"}"#, true),
            (r#"{device=""}"#, true),
            (r#"*{*mode="idle"*}"#, true),
            (r#"*{cpu="0",*}"#, true),
        ] {
            let selector = Selector::parse(pattern).expect("a valid pattern");
            assert_eq!(selector.matches(&idle), expected, "{pattern}");
        }
    }

    #[test]
    fn knows_when_only_one_name_can_match() {
        let exact = |text: &str| {
            Selector::parse(text)
                .expect("valid")
                .exact_names()
                .map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(exact("node_load1"), Some("node_load1".into()));
        assert_eq!(exact(r#"m{a="*"}"#), Some("m".into()));
        assert_eq!(exact("node_*"), None);
    }

    #[test]
    fn a_test_of_the_callers_chooses_among_one_name() {
        let selector = Selector::with_predicate("m", |series| series.label("a").is_some());
        assert!(selector.matches(&series(r#"m{a="1"}"#)));
        assert!(!selector.matches(&series("m")));
        assert!(!selector.matches(&series(r#"n{a="1"}"#)));
        assert_eq!(selector.exact_names(), Some(BTreeSet::from(["m"])));
    }

    #[test]
    fn one_series_is_told_from_others_of_its_name() {
        let selector = Selector::from_list([r#"m{b="2",a="1"}"#]).expect("valid");
        assert!(selector.matches(&series(r#"m{a="1",b="2"}"#)));
        assert!(!selector.matches(&series(r#"m{a="1",b="2",c="3"}"#)));
        assert_eq!(selector.exact_names(), Some(BTreeSet::from(["m"])));
        let wrong = Selector::from_list(["n", "m{a=1}"]);
        assert_eq!(wrong.map_err(|(entry, _)| entry).err(), Some("m{a=1}"));
    }

    #[test]
    fn a_list_matches_names_and_texts_and_nothing_else() {
        let selector = Selector::from_list(["n", r#"m{a="1"}"#, "o*"]).expect("valid");
        for (text, expected) in [
            ("n", true),
            (r#"n{b="2"}"#, true),
            (r#"m{a="1"}"#, true),
            ("m", false),
            ("o*", true),
            ("oo", false),
        ] {
            assert_eq!(selector.matches(&series(text)), expected, "{text}");
        }
        assert_eq!(
            selector.exact_names(),
            Some(BTreeSet::from(["m", "n", "o*"]))
        );
        let nothing = Selector::from_list([]).expect("valid");
        assert!(!nothing.matches(&series("m")));
    }

    #[test]
    fn patterns_are_bounded() {
        let error = |pattern: &str| Selector::parse(pattern).err();
        let long = "a".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(error(&long), Some(SelectorError::TooLong(long.len())));
        assert_eq!(error(&long[1..]), None);
        let matchers = format!("m{{{}}}", r#"a="1","#.repeat(65));
        assert_eq!(error(&matchers), Some(SelectorError::TooManyMatchers(65)));
        let marks = format!("*{}*", "?".repeat(65));
        assert_eq!(error(&marks), Some(SelectorError::WildcardPartTooLong));
    }

    #[test]
    fn any_is_the_union() {
        let selector = Selector::any(vec![Selector::name("m"), Selector::name("n")]);
        assert!(selector.matches(&series("m")) && selector.matches(&series("n")));
        assert!(!selector.matches(&series("o")));
        assert!(!Selector::any(Vec::new()).matches(&series("m")));
        assert_eq!(
            Selector::any(vec![Selector::name("m"), Selector::name("n")]).exact_names(),
            Some(BTreeSet::from(["m", "n"]))
        );
    }

    #[test]
    fn expressions_are_bounded_and_counted() {
        let names: Vec<String> = (0..100).map(|n| format!("device-{n:03}")).collect();
        let long = format!("m{{a=~\"{}\",b=\"1\"}}", names.join("|"));
        let long = Selector::parse(&long).expect("a thousand characters are fine");
        assert!(long.matches(&series(r#"m{a="device-042",b="1"}"#)));
        let both = vec![long, Selector::parse(r#"{a=~"1",b!~"2"}"#).expect("valid")];
        assert_eq!(Selector::any(both).expression_count(), 3);
        for expression in [".{100000}", "(.{100}){100}", "(((a{9}){9}){9}){9}"] {
            let parsed = Selector::parse(&format!("m{{a=~\"{expression}\"}}"));
            assert!(
                matches!(parsed, Err(SelectorError::InvalidRegex(..))),
                "{expression}"
            );
        }
    }

    #[test]
    fn an_expression_cannot_escape_from_its_anchors() {
        let escaping = Selector::parse(r#"m{a=~"x)|(?s:y"}"#);
        assert!(matches!(escaping, Err(SelectorError::InvalidRegex(..))));
        let selector = Selector::parse(r#"m{a=~"x|y"}"#).expect("valid");
        assert!(selector.matches(&series(r#"m{a="y"}"#)));
        assert!(!selector.matches(&series(r#"m{a="xz"}"#)));
    }

    #[test]
    fn says_what_is_wrong_with_an_expression() {
        assert!(matches!(
            Selector::parse(r#"m{a=~"("}"#),
            Err(SelectorError::InvalidRegex(..))
        ));
        assert!(matches!(Selector::parse(""), Err(SelectorError::Empty)));
    }
}
