//! Selects series by what the user typed: names, globs and matchers as arguments, patterns with
//! `--match`. The agent selects first, to keep responses small; [`SeriesQuery::matches`] decides.

use pegel_metric::{Selector, Series, split_series_list};

use crate::agent_query::name_only_family;
use crate::command_error::CommandError;

/// The largest number of patterns and of regular expressions in one request. More are matched by
/// this process alone.
const PATTERNS_MAX: usize = 64;
const EXPRESSIONS_MAX: usize = 16;

/// The length of a request's parameters up to which the agent selects. A longer URI is refused.
const PARAMETER_BYTES_MAX: usize = 16 << 10;

/// One entry of a query: its text as the user typed it, and what it selects.
#[derive(Debug, Clone)]
struct QueryEntry {
    text: String,
    selector: Selector,
    /// The parameter of a request that selects the same series, and its value.
    parameter: (&'static str, String),
}

/// The series that a command shows: those of any name that also match any pattern.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeriesQuery {
    names: Vec<QueryEntry>,
    patterns: Vec<QueryEntry>,
}

impl SeriesQuery {
    /// Parses comma-separated names, globs and matchers, and the patterns of `--match`.
    pub(crate) fn parse(names: &[String], patterns: &[String]) -> anyhow::Result<SeriesQuery> {
        let split: Vec<&str> = names
            .iter()
            .flat_map(|list| split_series_list(list))
            .collect();
        if split.is_empty() && !names.is_empty() {
            return Err(CommandError::usage("no name given"));
        }
        let names = split.into_iter().map(parse_name);
        let patterns = patterns.iter().map(|pattern| parse_pattern(pattern));
        Ok(SeriesQuery {
            names: names.collect::<anyhow::Result<_>>()?,
            patterns: patterns.collect::<anyhow::Result<_>>()?,
        })
    }

    /// Selects series by exact names and exact texts, as the client of TAU does.
    pub(crate) fn exact(names: &[String]) -> anyhow::Result<SeriesQuery> {
        let entry = |name: &String| {
            let selector = Selector::from_list([name.as_str()])
                .map_err(|(name, error)| CommandError::usage(format!("{name}: {error}")))?;
            Ok(QueryEntry {
                text: name.clone(),
                selector,
                parameter: ("names", name.clone()),
            })
        };
        Ok(SeriesQuery {
            names: names.iter().map(entry).collect::<anyhow::Result<_>>()?,
            patterns: Vec::new(),
        })
    }

    pub(crate) fn selects_everything(&self) -> bool {
        self.names.is_empty() && self.patterns.is_empty()
    }

    /// Returns whether a series such as `name{k="v"}` is selected.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let is_matched = |entries: &[QueryEntry]| {
            entries.is_empty() || entries.iter().any(|entry| entry.matches(text))
        };
        is_matched(&self.names) && is_matched(&self.patterns)
    }

    /// Returns the parameters of a request for at least the selected series. `accepts_names` is
    /// whether the route has the parameter `names`.
    pub(crate) fn parameters(&self, accepts_names: bool) -> Vec<(&'static str, &str)> {
        // The agent combines names and patterns with OR: send the narrower ones alone.
        let entries = match self.names.as_slice() {
            [] => &self.patterns,
            _ => &self.names,
        };
        let key_of = |entry: &QueryEntry| match entry.parameter.0 {
            "names" if !accepts_names => "match",
            key => key,
        };
        let patterns = entries.iter().filter(|entry| key_of(entry) == "match");
        let expressions: usize = entries
            .iter()
            .map(|entry| entry.selector.expression_count())
            .sum();
        let bytes: usize = entries.iter().map(|entry| entry.parameter.1.len()).sum();
        if patterns.count() > PATTERNS_MAX
            || expressions > EXPRESSIONS_MAX
            || bytes > PARAMETER_BYTES_MAX
        {
            return Vec::new();
        }
        entries
            .iter()
            .map(|entry| (key_of(entry), entry.parameter.1.as_str()))
            .collect()
    }

    /// Returns the names and patterns that match none of the series, as the user typed them.
    pub(crate) fn unmatched<'a>(&self, series: impl Iterator<Item = &'a str>) -> Vec<Unmatched> {
        let names = self.names.iter().map(|entry| (entry, false));
        let patterns = self.patterns.iter().map(|entry| (entry, true));
        let mut missing: Vec<(&QueryEntry, bool)> = names.chain(patterns).collect();
        for text in series {
            if missing.is_empty() {
                break;
            }
            missing.retain(|(entry, _)| !entry.matches(text));
        }
        missing
            .into_iter()
            .map(|(entry, is_pattern)| Unmatched {
                text: entry.text.clone(),
                is_pattern,
            })
            .collect()
    }
}

/// A name or a pattern without a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unmatched {
    pub text: String,
    /// Given with `--match`.
    pub is_pattern: bool,
}

impl QueryEntry {
    fn matches(&self, text: &str) -> bool {
        // A name may contain the characters of a glob.
        self.text == text || series_matches(&self.selector, text)
    }
}

fn parse_name(text: &str) -> anyhow::Result<QueryEntry> {
    let selector = Selector::parse(text)
        .map_err(|error| CommandError::usage(format!("\"{text}\": {error}")))?;
    let key = if has_wildcard(text) { "match" } else { "names" };
    Ok(QueryEntry {
        text: text.to_owned(),
        selector,
        parameter: (key, text.to_owned()),
    })
}

fn parse_pattern(text: &str) -> anyhow::Result<QueryEntry> {
    Ok(QueryEntry {
        text: text.to_owned(),
        selector: pattern_selector(text)?,
        parameter: ("match", pattern_glob(text)),
    })
}

/// Parses a pattern of `--match`. Text without wildcards and braces is searched for.
pub(crate) fn pattern_selector(text: &str) -> anyhow::Result<Selector> {
    Selector::parse(&pattern_glob(text))
        .map_err(|error| CommandError::usage(format!("--match \"{text}\": {error}")))
}

fn pattern_glob(text: &str) -> String {
    match has_wildcard(text) || text.is_empty() {
        true => text.to_owned(),
        false => format!("*{text}*"),
    }
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '{'])
}

/// Returns whether a series such as `name{k="v"}` matches.
fn series_matches(selector: &Selector, text: &str) -> bool {
    Series::parse(text, name_only_family).is_ok_and(|series| selector.matches(&series))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 4] = [
        "node_load1",
        "node_load15",
        r#"node_cpu_seconds_total{cpu="0",mode="idle"}"#,
        r#"node_cpu_seconds_total{cpu="0",mode="user"}"#,
    ];

    fn query(names: &[&str], patterns: &[&str]) -> SeriesQuery {
        let owned = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        SeriesQuery::parse(&owned(names), &owned(patterns)).expect("valid")
    }

    fn selected(names: &[&str], patterns: &[&str]) -> Vec<&'static str> {
        let query = query(names, patterns);
        ALL.into_iter().filter(|text| query.matches(text)).collect()
    }

    #[test]
    fn names_are_exact_globs_or_matchers() {
        assert_eq!(selected(&[], &[]), ALL);
        assert_eq!(selected(&["node_load1"], &[]), ALL[..1]);
        assert_eq!(selected(&["node_load1,node_load15"], &[]), ALL[..2]);
        assert_eq!(selected(&["node_load*"], &[]), ALL[..2]);
        assert_eq!(selected(&[r#"node_cpu*{mode="idle"}"#], &[]), ALL[2..3]);
        assert_eq!(selected(&[r#"{mode=~"id.*|user"}"#], &[]), ALL[2..]);
        assert_eq!(selected(&["load"], &[]), [""; 0]);
    }

    #[test]
    fn patterns_find_substrings_and_add_up() {
        assert_eq!(selected(&[], &["load"]), ALL[..2]);
        assert_eq!(selected(&[], &["idle", "load15"]), ALL[1..3]);
        assert_eq!(selected(&[], &["node_load?"]), ALL[..1]);
        assert_eq!(selected(&["node_cpu*"], &["user"]), ALL[3..]);
        assert_eq!(selected(&["node_cpu*"], &["load"]), [""; 0]);
    }

    #[test]
    fn the_agent_selects_by_the_narrower_parameters() {
        let query = query(&["a,b*"], &["c"]);
        assert_eq!(query.parameters(true), [("names", "a"), ("match", "b*")]);
        assert_eq!(query.parameters(false), [("match", "a"), ("match", "b*")]);
        assert_eq!(
            self::query(&[], &["c"]).parameters(true),
            [("match", "*c*")]
        );
        let many: Vec<String> = (0..65).map(|n| format!("a{n}*")).collect();
        let many = SeriesQuery::parse(&many, &[]).expect("valid");
        assert_eq!(many.parameters(true), [("", ""); 0]);
    }

    #[test]
    fn entries_without_series_are_named() {
        let query = query(&["node_load1,nope"], &["load", "x"]);
        let missing = query.unmatched(ALL.into_iter());
        let texts: Vec<(&str, bool)> = missing
            .iter()
            .map(|missing| (missing.text.as_str(), missing.is_pattern))
            .collect();
        assert_eq!(texts, [("nope", false), ("x", true)]);
    }

    #[test]
    fn malformed_entries_are_usage_errors() {
        for (names, patterns) in [
            (vec![","], vec![]),
            (vec![], vec![""]),
            (vec![r#"a{b=~"("}"#], vec![]),
        ] {
            let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
            assert!(SeriesQuery::parse(&owned(names), &owned(patterns)).is_err());
        }
    }
}
