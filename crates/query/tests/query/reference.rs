//! A slow and simple reference implementation: every step works on all samples at once.

use std::collections::{BTreeMap, BTreeSet};

use pegel_metric::Millis;

pub(crate) type ReferencePoints = Vec<(Millis, f64)>;
pub(crate) type ReferenceTags = BTreeMap<String, String>;

pub(crate) struct ReferenceQuery {
    pub start: Millis,
    pub end: Millis,
    pub aggregator: &'static str,
    /// Interval, function, fill.
    pub downsample: Option<(Millis, &'static str, &'static str)>,
    /// `counter`, `counterMax`, `resetValue`, `dropResets`.
    pub rate: Option<(bool, f64, f64, bool)>,
    pub group_by: Vec<&'static str>,
    /// Without `msResolution`: a series has one value per second, its last one.
    pub in_seconds: bool,
}

pub(crate) fn evaluate(
    all: &[(ReferenceTags, ReferencePoints)],
    question: &ReferenceQuery,
) -> BTreeMap<Vec<Option<String>>, ReferencePoints> {
    let mut groups: BTreeMap<Vec<Option<String>>, Vec<ReferencePoints>> = BTreeMap::new();
    for (tags, samples) in all {
        let Some(points) = transform(samples, question) else {
            continue;
        };
        let key = question.group_by.iter().map(|key| tags.get(*key).cloned());
        groups.entry(key.collect()).or_default().push(points);
    }
    let finish = |tracks: Vec<ReferencePoints>| merge(&tracks, question.aggregator);
    groups
        .into_iter()
        .map(|(key, tracks)| (key, finish(tracks)))
        .collect()
}

/// Returns `None` if the series has no samples in the range.
fn transform(samples: &ReferencePoints, question: &ReferenceQuery) -> Option<ReferencePoints> {
    let (start, end) = (question.start, question.end);
    let mut points: ReferencePoints = match question.downsample {
        None if question.in_seconds => {
            let mut seconds = BTreeMap::new();
            for (time, value) in samples {
                seconds.insert(time - time % 1_000, *value);
            }
            seconds.retain(|second, _| (start..=end).contains(second));
            seconds.into_iter().collect()
        }
        None => samples
            .iter()
            .copied()
            .filter(|(time, _)| (start..=end).contains(time))
            .collect(),
        Some((interval, function, _)) => {
            let mut buckets: BTreeMap<Millis, Vec<f64>> = BTreeMap::new();
            for (time, value) in samples {
                buckets
                    .entry(time - time % interval)
                    .or_default()
                    .push(*value);
            }
            let asked = buckets
                .into_iter()
                .filter(|(stamp, _)| (start..=end).contains(stamp));
            asked
                .map(|(stamp, values)| (stamp, value(function, &values)))
                .collect()
        }
    };
    if points.is_empty() {
        return None;
    }
    if let Some((interval, _, fill @ ("nan" | "zero" | "null"))) = question.downsample {
        let given: BTreeMap<Millis, f64> = points.into_iter().collect();
        let empty = if fill == "zero" { 0.0 } else { f64::NAN };
        let stamps = (start..=end).filter(|time| time % interval == 0);
        points = stamps
            .map(|stamp| (stamp, given.get(&stamp).copied().unwrap_or(empty)))
            .collect();
    }
    if let Some((counter, max, reset, drop)) = question.rate {
        let mut rates = Vec::new();
        for at in 1..points.len() {
            let seconds = (points[at].0 - points[at - 1].0) as f64 / 1_000.0;
            let step = points[at].1 - points[at - 1].1;
            let mut rate = step / seconds;
            if counter && step < 0.0 {
                if drop {
                    continue;
                }
                rate = (max - points[at - 1].1 + points[at].1) / seconds;
                if reset > 0.0 && rate > reset {
                    rate = 0.0;
                }
            }
            rates.push((points[at].0, rate));
        }
        points = rates;
    }
    Some(points)
}

fn merge(tracks: &[ReferencePoints], aggregator: &str) -> ReferencePoints {
    let times: BTreeSet<Millis> = tracks.iter().flatten().map(|point| point.0).collect();
    let at = |time: Millis| {
        let values = tracks
            .iter()
            .filter_map(|track| value_at(track, time, aggregator));
        (time, value(aggregator, &values.collect::<Vec<f64>>()))
    };
    times.into_iter().map(at).collect()
}

fn value_at(track: &ReferencePoints, time: Millis, aggregator: &str) -> Option<f64> {
    if let Some(exact) = track.iter().find(|point| point.0 == time) {
        return Some(exact.1);
    }
    let before = track.iter().rev().find(|point| point.0 < time)?;
    let after = track.iter().find(|point| point.0 > time)?;
    Some(match aggregator {
        // The manual's table: zero if missing.
        "zimsum" | "count" => 0.0,
        "mimmin" => f64::MAX,
        "mimmax" => f64::MIN,
        "pfsum" => before.1,
        _ => {
            let slope = (after.1 - before.1) / (after.0 - before.0) as f64;
            before.1 + slope * (time - before.0) as f64
        }
    })
}

fn value(function: &str, values: &[f64]) -> f64 {
    let values: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| !value.is_nan())
        .collect();
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return f64::NAN;
    };
    let count = values.len() as f64;
    let sum: f64 = values.iter().sum();
    match function {
        "sum" | "zimsum" | "pfsum" => sum,
        "avg" => sum / count,
        "min" | "mimmin" => sorted[0],
        "max" | "mimmax" => sorted[sorted.len() - 1],
        "count" => count,
        "first" => *first,
        "last" => *last,
        "diff" => last - first,
        "mult" => values.iter().product(),
        "squareSum" => values.iter().map(|value| value * value).sum(),
        "dev" => {
            let mean = sum / count;
            (values
                .iter()
                .map(|value| (value - mean).powi(2))
                .sum::<f64>()
                / count)
                .sqrt()
        }
        "median" => sorted[sorted.len() / 2],
        name => {
            let digits: String = name.chars().filter(char::is_ascii_digit).collect();
            let (digits, way) = if name.starts_with("ep") {
                (&digits[..digits.len() - 1], &name[name.len() - 2..])
            } else {
                (&digits[..], "")
            };
            let part: f64 = format!("0.{digits}").parse().expect("digits");
            let position = match way {
                "r3" => (part * count).round_ties_even(),
                "r7" => 1.0 + part * (count - 1.0),
                _ => part * (count + 1.0),
            };
            let below = (position.floor().clamp(1.0, count)) as usize - 1;
            let above = (position.ceil().clamp(1.0, count)) as usize - 1;
            sorted[below] + (sorted[above] - sorted[below]) * (position - position.floor())
        }
    }
}
