//! Suggests series for a name or a pattern that matches none: names with few typing errors, names
//! with the same words, and for matchers the label values that exist.

use std::collections::{BTreeMap, BTreeSet};

use pegel_metric::Series;

use crate::agent_query::name_only_family;
use crate::series_query::Unmatched;

/// The number of suggested names.
const NAMES_MAX: usize = 3;
/// The number of label values that a message lists.
const VALUES_MAX: usize = 8;

/// Describes an entry without series in one line. `series` are the texts of all series.
pub(crate) fn explain<'a>(entry: &Unmatched, series: impl Iterator<Item = &'a str>) -> String {
    let text = &entry.text;
    let series: Vec<&str> = series.collect();
    let names: BTreeSet<&str> = series.iter().map(|text| name_of(text)).collect();
    let subject = if entry.is_pattern || text.contains(['*', '?', '{']) {
        format!("no series matches {text}")
    } else {
        format!("no series named {text}")
    };
    if let Some(labels) = label_hint(text, &series) {
        return format!("{subject}; {labels}");
    }
    let wanted = name_of(text).replace(['*', '?'], "");
    match did_you_mean(&similar_names(&wanted, &names)) {
        Some(question) => format!("{subject}; {question}"),
        None => format!("{subject}; `pegel list` lists all"),
    }
}

/// Suggests the names that are similar to another one; `None` if there are none.
pub(crate) fn similar(wanted: &str, names: &[&str]) -> Option<String> {
    did_you_mean(&similar_names(wanted, &names.iter().copied().collect()))
}

fn did_you_mean(names: &[&str]) -> Option<String> {
    match names {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [others @ .., last] => Some(format!("did you mean {} or {last}?", others.join(", "))),
    }
}

fn name_of(text: &str) -> &str {
    text.split('{').next().unwrap_or(text)
}

/// Lists the labels of a metric that exists, if the entry's matchers exclude all its series.
fn label_hint(text: &str, series: &[&str]) -> Option<String> {
    let (name, matchers) = text.split_once('{')?;
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut is_known = false;
    for text in series.iter().filter(|text| name_of(text) == name) {
        is_known = true;
        if let Ok(parsed) = Series::parse(text, name_only_family) {
            for (key, value) in parsed.labels() {
                labels
                    .entry(key.to_owned())
                    .or_default()
                    .insert(value.into_owned());
            }
        }
    }
    if !is_known {
        return None;
    }
    if labels.is_empty() {
        return Some(format!("{name} has no labels"));
    }
    if matchers.contains('=') && !matchers.contains('"') {
        let quoted =
            matchers
                .trim_end_matches('}')
                .split(',')
                .map(|part| match part.split_once('=') {
                    Some((key, value)) => {
                        let (operator, value) = match value.strip_prefix('~') {
                            Some(value) => ("=~", value),
                            None => ("=", value),
                        };
                        format!("{key}{operator}\"{value}\"")
                    }
                    None => part.to_owned(),
                });
        let quoted: Vec<String> = quoted.collect();
        return Some(format!(
            "label values have quotes, which the shell keeps inside others: '{name}{{{}}}'",
            quoted.join(",")
        ));
    }
    // Values only of the labels that the entry names: others do not explain the miss.
    let named: Vec<&str> = matchers
        .split(['{', ',', '}'])
        .filter_map(|part| Some(part.split(['=', '!']).next()?.trim()))
        .collect();
    let shown: Vec<String> = labels
        .iter()
        .filter(|(key, _)| named.contains(&key.as_str()))
        .map(|(key, values)| format!("{key} is {}", list_values(values)))
        .collect();
    if shown.is_empty() {
        let keys: Vec<&str> = labels.keys().map(String::as_str).collect();
        return Some(format!("its labels are {}", keys.join(", ")));
    }
    Some(shown.join("; "))
}

fn list_values(values: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = values.iter().take(VALUES_MAX).map(String::as_str).collect();
    match values.len().saturating_sub(VALUES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns the names most similar to `wanted`, the best first.
fn similar_names<'a>(wanted: &str, names: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    if wanted.chars().count() < 2 {
        return Vec::new();
    }
    let mut ranked: Vec<(f64, &str)> = names
        .iter()
        .filter_map(|name| Some((similarity(&wanted, &name.to_lowercase())?, *name)))
        .collect();
    ranked.sort_by(|(a, first), (b, second)| b.total_cmp(a).then_with(|| first.cmp(second)));
    // A clear winner stands alone: others would distract.
    let best = ranked.first().map_or(0.0, |(score, _)| *score);
    ranked
        .into_iter()
        .filter(|(score, _)| *score >= best - 0.07)
        .take(NAMES_MAX)
        .map(|(_, name)| name)
        .collect()
}

/// Returns how similar two names are, up to 1; `None` if a suggestion would be arbitrary.
fn similarity(wanted: &str, name: &str) -> Option<f64> {
    let typing = strsim::normalized_damerau_levenshtein(wanted, name);
    let is_typing_error =
        strsim::osa_distance(wanted, name) <= (wanted.chars().count() / 6).max(1) + 1;
    if is_typing_error {
        return Some(typing);
    }
    let words = |text: &str| -> Vec<String> {
        let words = text.split(['_', '.', ':', '-', '/', ' ']);
        words
            .filter(|word| word.len() > 1)
            .map(str::to_owned)
            .collect()
    };
    let (wanted_words, name_words) = (words(wanted), words(name));
    if wanted_words.is_empty() || name_words.is_empty() {
        return None;
    }
    // A word counts as found if a word of the name contains it or is one error away.
    let is_found = |word: &String| {
        name_words.iter().any(|other| {
            other.contains(word.as_str())
                || (word.len() > 4 && strsim::osa_distance(word, other) <= 1)
        })
    };
    let found = wanted_words.iter().filter(|word| is_found(word)).count();
    let share = found as f64 / wanted_words.len() as f64;
    // All words of a short name, or all but one of a longer one.
    let is_enough = found == wanted_words.len() || (found >= 2 && found + 1 == wanted_words.len());
    let coverage = found as f64 / name_words.len().max(wanted_words.len()) as f64;
    is_enough.then_some(0.6 * share + 0.2 * coverage + 0.2 * typing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: [&str; 9] = [
        r#"node_cpu_seconds_total{cpu="0",mode="idle"}"#,
        r#"node_cpu_seconds_total{cpu="0",mode="user"}"#,
        "node_load1",
        "node_load15",
        "node_load5",
        "node_memory_MemAvailable_bytes",
        "node_memory_MemFree_bytes",
        r#"node_network_receive_bytes_total{device="lo"}"#,
        "node_context_switches_total",
    ];

    fn explained(text: &str) -> String {
        let entry = Unmatched {
            text: text.to_owned(),
            is_pattern: false,
        };
        explain(&entry, SERIES.into_iter())
    }

    #[test]
    fn typing_errors_and_words_lead_to_names() {
        for (text, expected) in [
            (
                "node_lod15",
                "no series named node_lod15; did you mean node_load15?",
            ),
            (
                "nodecpu_seconds_total",
                "no series named nodecpu_seconds_total; did you mean node_cpu_seconds_total?",
            ),
            (
                "node_memory_memfree_bytes",
                "no series named node_memory_memfree_bytes; did you mean node_memory_MemFree_bytes?",
            ),
            (
                "node_cpu_seconds_total{cpu=0,mode=~idle}",
                "no series matches node_cpu_seconds_total{cpu=0,mode=~idle}; label values have quotes, \
                 which the shell keeps inside others: 'node_cpu_seconds_total{cpu=\"0\",mode=~\"idle\"}'",
            ),
            (
                "context_switches",
                "no series named context_switches; did you mean node_context_switches_total?",
            ),
            (
                "node_network_rx_bytes_total",
                "no series named node_network_rx_bytes_total; did you mean node_network_receive_bytes_total?",
            ),
            (
                "node_memry_*",
                "no series matches node_memry_*; did you mean node_memory_MemFree_bytes or node_memory_MemAvailable_bytes?",
            ),
            (
                "gpu_temperature",
                "no series named gpu_temperature; `pegel list` lists all",
            ),
            ("x", "no series named x; `pegel list` lists all"),
        ] {
            assert_eq!(explained(text), expected);
        }
    }

    #[test]
    fn matchers_that_exclude_everything_lead_to_labels() {
        for (text, expected) in [
            (
                r#"node_cpu_seconds_total{mode="idel"}"#,
                r#"no series matches node_cpu_seconds_total{mode="idel"}; mode is idle, user"#,
            ),
            (
                r#"node_cpu_seconds_total{core="0"}"#,
                r#"no series matches node_cpu_seconds_total{core="0"}; its labels are cpu, mode"#,
            ),
            (
                r#"node_load1{mode="idle"}"#,
                r#"no series matches node_load1{mode="idle"}; node_load1 has no labels"#,
            ),
            (
                r#"node_lod1{mode="idle"}"#,
                r#"no series matches node_lod1{mode="idle"}; did you mean node_load1?"#,
            ),
        ] {
            assert_eq!(explained(text), expected);
        }
    }
}
