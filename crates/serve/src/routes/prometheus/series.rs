//! `/api/v1/series`, `/api/v1/labels` and `/api/v1/label/NAME/values`.

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use axum::response::Response;
use pegel_query::promql::{LabelMatcher, LabelSet, PromqlError};

use super::encode::{MetricLabels, TRUNCATED};
use super::{PrometheusFailure, PrometheusRequest, PrometheusWork, respond};
use crate::tree::{TextKind, TextRequest};

/// Lists the series that match at least one `match[]`.
pub(super) async fn series(request: PrometheusRequest) -> Response {
    let range = request.time_range();
    respond(request, |work| {
        let selectors = work.parameters.selectors()?;
        if selectors.is_empty() {
            return Err(PromqlError::bad_data("no match[] parameter provided").into());
        }
        let limit = work.parameters.limit()?;
        let mut found: HashSet<LabelSet> = HashSet::new();
        let mut bytes_left = work.limits.bytes_max;
        visit_series(work, &selectors, range?, &mut |labels| {
            if !found.contains(&labels) {
                bytes_left = bytes_left
                    .checked_sub(labels.bytes())
                    .ok_or_else(PromqlError::too_many_samples)?;
                found.insert(labels);
            }
            Ok(())
        })?;
        let mut sorted: Vec<LabelSet> = found.into_iter().collect();
        sorted.sort_unstable();
        truncate(work, &mut sorted, limit);
        write_list(work, sorted.iter().map(MetricLabels))
    })
    .await
}

/// Lists the names of labels.
pub(super) async fn labels(request: PrometheusRequest) -> Response {
    let range = request.time_range();
    respond(request, |work| {
        list_texts(work, range?, TextKind::Keys, |labels, found| {
            for (name, _) in labels.iter() {
                add_text(found, name);
            }
        })
    })
    .await
}

/// Lists the values of one label.
pub(super) async fn label_values(request: PrometheusRequest) -> Response {
    let range = request.time_range();
    let name = decode_label_name(&request.request.path_value);
    respond(request, move |work| {
        if name.is_empty() {
            return Err(PromqlError::bad_data(format!("invalid label name: {name:?}")).into());
        }
        let kind = match name.as_str() {
            "__name__" => TextKind::Names,
            _ => TextKind::Values(name.clone()),
        };
        list_texts(work, range?, kind, |labels, found| {
            let value = labels.get(&name);
            if !value.is_empty() {
                add_text(found, value);
            }
        })
    })
    .await
}

fn add_text(found: &mut BTreeSet<String>, text: &str) {
    if !found.contains(text) {
        found.insert(text.to_owned());
    }
}

/// Lists texts that `add` takes from the labels of all matching series.
fn list_texts(
    work: &mut PrometheusWork<'_>,
    range: (i64, i64),
    kind: TextKind,
    mut add: impl FnMut(&LabelSet, &mut BTreeSet<String>),
) -> Result<(), PrometheusFailure> {
    let mut selectors = work.parameters.selectors()?;
    if selectors.is_empty() {
        selectors.push(Vec::new());
    }
    let limit = work.parameters.limit()?;
    let mut found = BTreeSet::new();
    let deadline = Instant::now() + work.limits.time_max;
    let texts = match TextRequest::promql(kind, &selectors, range) {
        Some(request) => work.node_texts(&request, deadline)?,
        None => None,
    };
    match texts {
        Some(texts) => found = texts,
        None => visit_series(work, &selectors, range, &mut |labels| {
            add(&labels, &mut found);
            Ok(())
        })?,
    }
    let mut sorted: Vec<String> = found.into_iter().collect();
    truncate(work, &mut sorted, limit);
    write_list(work, sorted)
}

/// Visits the labels of the series that match at least one of the selectors; a series that matches
/// several may be visited several times.
fn visit_series(
    work: &PrometheusWork<'_>,
    selectors: &[Vec<LabelMatcher>],
    range: (i64, i64),
    visit: &mut dyn FnMut(LabelSet) -> Result<(), PromqlError>,
) -> Result<(), PrometheusFailure> {
    let deadline = Instant::now() + work.limits.time_max;
    for matchers in selectors {
        let selection = work.selection(matchers, range, deadline);
        work.source
            .series(&selection, &mut |labels, _| visit(labels))?;
    }
    Ok(())
}

fn truncate<T>(work: &mut PrometheusWork<'_>, list: &mut Vec<T>, limit: usize) {
    if list.len() > limit {
        list.truncate(limit);
        work.warnings.push(TRUNCATED.into());
    }
}

fn write_list<T: serde::Serialize>(
    work: &mut PrometheusWork<'_>,
    list: impl IntoIterator<Item = T>,
) -> Result<(), PrometheusFailure> {
    work.buffer.text("[")?;
    for (index, item) in list.into_iter().enumerate() {
        if index > 0 {
            work.buffer.text(",")?;
        }
        work.buffer.json(&item)?;
    }
    Ok(work.buffer.text("]")?)
}

/// Decodes the form in which clients write names with other characters in a path: `U__`, then the
/// name with `_HEX_` for each such character and `__` for `_`. Other names stay as they are.
fn decode_label_name(text: &str) -> String {
    let decode = |escaped: &str| -> Option<String> {
        let mut name = String::new();
        let mut rest = escaped;
        while let Some(next) = rest.chars().next() {
            if next != '_' {
                name.push(next);
                rest = &rest[next.len_utf8()..];
            } else if let Some(after) = rest.strip_prefix("__") {
                name.push('_');
                rest = after;
            } else {
                let (digits, after) = rest[1..].split_once('_')?;
                name.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
                rest = after;
            }
        }
        Some(name)
    };
    let escaped = text.strip_prefix("U__");
    escaped.and_then(decode).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_label_names_are_decoded() {
        for (text, expected) in [
            ("job", "job"),
            ("a.b", "a.b"),
            ("U__a_2e_b", "a.b"),
            ("U__a__b", "a_b"),
            ("U__gr_f6__df_e", "größe"),
            ("U__a_zz_b", "U__a_zz_b"),
            ("U__a_2e", "U__a_2e"),
        ] {
            assert_eq!(decode_label_name(text), expected);
        }
    }
}
