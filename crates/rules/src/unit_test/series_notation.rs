//! The notation of series in tests: `1+2x3` is 1 3 5 7, `_` is no sample, `stale` ends a series.

use pegel_query::promql::{LabelSet, MatchKind, STALE_NAN, parse_selector};

/// The maximum number of samples of one series.
const SAMPLES_MAX: usize = 1_000_000;

/// Parses a series such as `up{job="node"}`.
pub(super) fn parse_series(text: &str) -> Result<LabelSet, String> {
    if matches!(text.trim(), "" | "{}") {
        return Ok(LabelSet::empty());
    }
    let matchers = parse_selector(text).map_err(|error| error.to_string())?;
    if { matchers.iter() }.any(|matcher| !matches!(matcher.kind, MatchKind::Equal)) {
        return Err(format!(
            "{text:?} is not a series: labels must be set with ="
        ));
    }
    Ok(LabelSet::new(
        matchers
            .iter()
            .map(|matcher| (&matcher.name, &matcher.value)),
    ))
}

/// Parses values. `None` is a missing sample.
pub(crate) fn parse_values(text: &str) -> Result<Vec<Option<f64>>, String> {
    if text.contains("{{") {
        return Err("native histograms are not supported".to_owned());
    }
    let mut values = Vec::new();
    for item in text.split_whitespace() {
        parse_item(item, &mut values).ok_or_else(|| format!("malformed values: {item:?}"))?;
        if values.len() > SAMPLES_MAX {
            return Err(format!("more than {SAMPLES_MAX} values"));
        }
    }
    Ok(values)
}

fn parse_item(item: &str, values: &mut Vec<Option<f64>>) -> Option<()> {
    let Some((first, count)) = item.split_once('x') else {
        values.push(match item {
            "_" => None,
            "stale" => Some(STALE_NAN),
            number => Some(parse_number(number)?),
        });
        return Some(());
    };
    let count: usize = count.parse().ok()?;
    let count = count.min(SAMPLES_MAX);
    if first == "_" {
        values.extend(std::iter::repeat_n(None, count));
        return Some(());
    }
    let (mut value, step) = match split_step(first) {
        Some((start, step)) => (parse_number(start)?, parse_number(step)?),
        None => (parse_number(first)?, 0.0),
    };
    for _ in 0..=count {
        values.push(Some(value));
        // Added up, not multiplied: as Prometheus does.
        value += step;
    }
    Some(())
}

/// Splits `1+2` or `1e-3-2` at the sign of the step.
fn split_step(text: &str) -> Option<(&str, &str)> {
    let signs = text.char_indices().skip(1);
    let mut signs =
        signs.filter(|(at, next)| matches!(next, '+' | '-') && !text[..*at].ends_with(['e', 'E']));
    let (at, _) = signs.next()?;
    Some(text.split_at(at))
}

/// Parses a number as PromQL and YAML write it.
pub(super) fn parse_number(text: &str) -> Option<f64> {
    let bare = text.trim_start_matches(['+', '-']).trim_start_matches('.');
    if text.starts_with("+-") || text.starts_with("--") {
        return None;
    }
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    match bare.to_ascii_lowercase().as_str() {
        "inf" => return Some(sign * f64::INFINITY),
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    let is_decimal = |next: char| next.is_ascii_digit() || "+-.eE_".contains(next);
    let plain = text.replace('_', "");
    text.chars().all(is_decimal).then(|| plain.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<Option<f64>> {
        parse_values(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn values_are_expanded() {
        let some = |list: &[f64]| list.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(values("1 2.5 -3"), some(&[1.0, 2.5, -3.0]));
        assert_eq!(values("1+2x3"), some(&[1.0, 3.0, 5.0, 7.0]));
        assert_eq!(values("1-2x2"), some(&[1.0, -1.0, -3.0]));
        assert_eq!(values("-2+4x1"), some(&[-2.0, 2.0]));
        assert_eq!(values("7x2"), some(&[7.0, 7.0, 7.0]));
        assert_eq!(values("1e2+1e1x1 0x1"), some(&[100.0, 110.0, 0.0, 0.0]));
        assert_eq!(values("_ _x2 1"), [None, None, None, Some(1.0)]);
        assert_eq!(
            values("Inf -Inf"),
            some(&[f64::INFINITY, f64::NEG_INFINITY])
        );
        assert!(values("NaN")[0].is_some_and(f64::is_nan));
        assert_eq!(
            values("stale")[0].map(f64::to_bits),
            Some(STALE_NAN.to_bits())
        );
        for wrong in [
            "a",
            "1x",
            "x3",
            "1+x3",
            "1+-2x3",
            "1,2",
            "0x1F",
            "{{schema:1}}",
            "1+1x99999999999999999999",
        ] {
            assert!(parse_values(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn series_have_labels() {
        let labels = parse_series("up{job=\"a\", x='b'}").expect("valid");
        assert_eq!(labels.to_string(), "{__name__=\"up\", job=\"a\", x=\"b\"}");
        assert_eq!(parse_series("{}"), Ok(LabelSet::empty()));
        for wrong in ["up{", "up{a!=\"b\"}", "sum(up)"] {
            assert!(parse_series(wrong).is_err(), "{wrong}");
        }
    }
}
