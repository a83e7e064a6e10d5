//! Series texts, selectors, and lists of series.

use std::sync::Arc;

use pegel_metric::{
    Family, Input, LABELS_MAX, MetricKind, Selector, Series, TEXT_BYTES_MAX, glob_matches,
    split_series_list,
};

use super::Target;

const DICTIONARY: &[&[u8]] = &[
    b"=~\"", b"!~\"", b"!=\"", b"=\"", b"\",", b"\"}", b"{}", b"*", b"?", b".*", b"(?s:", b")|(",
    b"a{9}",
];

pub(super) const SERIES: Target = Target {
    name: "series",
    run: series,
    dictionary: DICTIONARY,
    seeds: || {
        [
            "m",
            "m{}",
            r#"m{a="1"}"#,
            r#"queue.depth{b="{,}",a="\\\"\n",}"#,
            "ü{ß=\"€\"}",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

pub(super) const SELECTOR: Target = Target {
    name: "selector",
    run: selector,
    dictionary: DICTIONARY,
    seeds: || {
        [
            "node_cpu*\nnode_cpu_seconds_total{cpu=\"0\",mode=\"idle\"}",
            "{mode!~\"u.*\",cpu=~\"0|1\"}\nm{cpu=\"1\"}",
            "*{*mode=\"idle\"*}\nm{mode=\"idle\"}",
            "m{ a = \"1\" , b != \"\" }\nm{a=\"1\",b=\"2\"}",
            "m{b=\"2\",a=\"1\"}\nm{a=\"1\",b=\"2\"}",
            "*a?c*\nxabc",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

pub(super) const NAMES: Target = Target {
    name: "names",
    run: names,
    dictionary: DICTIONARY,
    seeds: || {
        [
            "a, b ,c",
            r#"a{x="},{"},b{y="\",\\"}"#,
            " , ,",
            "a},b{",
            "ü,ß",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    },
};

fn family(name: &str) -> Arc<Family> {
    Arc::new(Family {
        name: name.to_owned().into(),
        kind: MetricKind::Gauge,
        help: "".into(),
        unit: "".into(),
        level: 1,
        input: Input::Collect,
    })
}

/// A parsed series is within the limits, and is equal to the series parsed from its text and built
/// from its labels.
fn series(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(series) = Series::parse(&text, family) else {
        return;
    };
    assert!(series.text().len() <= TEXT_BYTES_MAX);
    assert!(series.labels().count() <= LABELS_MAX);
    let again = Series::parse(series.text(), family).expect("its own text");
    assert_eq!(again.text(), series.text());
    let labels: Vec<(&str, String)> = series
        .labels()
        .map(|(key, value)| (key, value.into_owned()))
        .collect();
    assert!(labels.is_sorted_by(|a, b| a.0 < b.0), "{labels:?}");
    let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (*key, &**value)).collect();
    let again = Series::new(family(series.name()), &labels).expect("its own labels");
    assert_eq!(again.text(), series.text());
    let exact = Selector::from_list([series.text()]).expect("its own text");
    assert!(exact.matches(&series), "{series}");
    assert!(Selector::name(series.name()).matches(&series), "{series}");
}

/// A pattern, a newline, a series.
fn selector(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (pattern, rest) = text.split_once('\n').unwrap_or((&text, "m{a=\"1\"}"));
    let Ok(selector) = Selector::parse(pattern) else {
        return;
    };
    let Ok(series) = Series::parse(rest, family) else {
        return;
    };
    let matches = selector.matches(&series);
    if matches && let Some(names) = selector.exact_names() {
        assert!(
            names.contains(series.name()),
            "{pattern:?} matches another name than it says"
        );
    }
    if pattern.len() < 64 && rest.len() < 64 {
        let [a, b] = [pattern, rest].map(|text| text.chars().collect::<Vec<char>>());
        assert_eq!(
            glob_matches(pattern, rest),
            glob_slowly(&a, &b),
            "{pattern:?} on {rest:?}"
        );
    }
    // A matcher and its negation never agree.
    let value = series.label("a").unwrap_or_default();
    let quoted = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    let equal = Selector::parse(&format!("{{a=\"{quoted}\"}}")).expect("a matcher");
    let differ = Selector::parse(&format!("{{a!=\"{quoted}\"}}")).expect("a matcher");
    assert!(
        equal.matches(&series) && !differ.matches(&series),
        "{series}"
    );
    // An expression must match the whole value, so a longer text never matches as well.
    let expression = pattern
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    if let Ok(fits) = Selector::parse(&format!("{{a=~\"{expression}\"}}")) {
        let unfit = Selector::parse(&format!("{{a!~\"{expression}\"}}")).expect("the same one");
        assert_ne!(
            fits.matches(&series),
            unfit.matches(&series),
            "{expression:?}"
        );
        if !pattern.contains(['.', '*', '+', '?', '[', '\\', '{', '|', '^', '$', '(', '#']) {
            assert_eq!(fits.matches(&series), value == *pattern, "{expression:?}");
        }
    }
}

/// A naive glob matcher.
fn glob_slowly(pattern: &[char], text: &[char]) -> bool {
    // Dynamic programming, row by row: the prefixes of the text that the pattern so far matches.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for p in pattern {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
            match p {
                '*' => next[at] = reached[at] || (at > 0 && next[at - 1]),
                p => next[at] = at > 0 && reached[at - 1] && (*p == '?' || *p == text[at - 1]),
            }
        }
        reached = next;
    }
    reached[text.len()]
}

/// Entries are trimmed parts of the list in their order, and splitting is idempotent.
fn names(input: &[u8]) {
    let list = String::from_utf8_lossy(input);
    let entries = split_series_list(&list);
    let mut rest = &*list;
    for entry in &entries {
        assert!(!entry.is_empty() && entry.trim() == *entry, "{entry:?}");
        let at = rest.find(entry).expect("in order");
        rest = &rest[at + entry.len()..];
    }
    // An entry with an unclosed brace or quote would absorb the next one.
    let is_closed = |entry: &&&str| split_series_list(&format!("{entry},x")).len() == 2;
    let closed: Vec<&str> = entries.iter().filter(is_closed).copied().collect();
    assert_eq!(split_series_list(&closed.join(" , ")), closed);
}
