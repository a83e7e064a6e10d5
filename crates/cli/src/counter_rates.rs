//! Rates of counters: how fast they grew during the last seconds, from the agent's stored samples.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::agent_client::AgentClient;
use crate::agent_query::series_text;
use crate::api_values::{SeriesValue, parse_series_list};
use crate::format::table::HOST_LABEL;
use crate::series_query::SeriesQuery;

/// Up to this many series, the window is long enough for the slowest collectors.
const LONG_WINDOW_SERIES_MAX: usize = 200;
const LONG_WINDOW: &str = "-65s";
const SHORT_WINDOW: &str = "-10s";

/// Above this many series, the stored samples are not fetched: the response would be hundreds of
/// MB.
const SERIES_MAX: usize = 20_000;

/// Rates per second, by the text of the series.
pub(crate) type CounterRates = HashMap<String, f64>;

/// Fetches the rates of the counters among the values. Best effort: a counter without two samples
/// in the window has none, and none has one if the agent refuses the request.
pub(crate) fn fetch(
    client: &AgentClient,
    query: &SeriesQuery,
    readings: &[SeriesValue],
) -> CounterRates {
    try_fetch(client, query, readings).unwrap_or_default()
}

fn try_fetch(
    client: &AgentClient,
    query: &SeriesQuery,
    readings: &[SeriesValue],
) -> anyhow::Result<CounterRates> {
    // The values of a parent are sums over nodes; their samples are fetched from each node.
    let nodes = usize::try_from(client.expected_nodes()).unwrap_or(usize::MAX);
    if readings.len().saturating_mul(nodes.max(1)) > SERIES_MAX {
        return Ok(CounterRates::new());
    }
    let mut parameters = query.parameters(false);
    let listed = parse_series_list(&client.get("/api/v1/list", &parameters)?)?;
    let counters: HashSet<&str> = listed
        .iter()
        .filter(|item| item.kind == "counter")
        .map(|item| item.name.as_str())
        .collect();
    if !readings
        .iter()
        .any(|reading| counters.contains(reading.name.as_str()))
    {
        return Ok(CounterRates::new());
    }
    let window = if readings.len() <= LONG_WINDOW_SERIES_MAX {
        LONG_WINDOW
    } else {
        SHORT_WINDOW
    };
    parameters.push(("start", window));
    let stored = client.get("/api/v1/range", &parameters)?;
    let stored = stored.as_array().into_iter().flatten();
    let mut rates = CounterRates::new();
    for series in stored {
        let Some(rate) = rate(&points_of(series)) else {
            continue;
        };
        let text = [true, false].map(|has_host| text_of(series, has_host));
        let name = { text.into_iter().flatten() }.find(|text| counters.contains(text.as_str()));
        if let Some(name) = name {
            *rates.entry(name).or_default() += rate;
        }
    }
    Ok(rates)
}

/// Returns the text of a series, with or without the label that names its node.
fn text_of(series: &Value, has_host: bool) -> Option<String> {
    let labels: Vec<(&str, &str)> = series["labels"]
        .as_object()?
        .iter()
        .filter(|(key, _)| has_host || *key != HOST_LABEL)
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    series_text(series["name"].as_str()?, &labels)
}

/// Returns times in milliseconds and values.
fn points_of(series: &Value) -> Vec<(f64, f64)> {
    let points = series["points"].as_array().into_iter().flatten();
    points
        .filter_map(|point| Some((point[0].as_f64()?, point[1].as_f64()?)))
        .collect()
}

/// Returns the growth per second from the first to the last point. A value below the one before it
/// is a restart of the counter from zero.
fn rate(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let seconds = (last.0 - first.0) / 1000.0;
    if seconds <= 0.0 {
        return None;
    }
    let growth: f64 = points
        .windows(2)
        .map(|pair| match pair[1].1 - pair[0].1 {
            difference if difference < 0.0 => pair[1].1,
            difference => difference,
        })
        .sum();
    Some(growth / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_growth_over_the_window() {
        assert_eq!(
            rate(&[(0.0, 10.0), (500.0, 11.0), (2000.0, 14.0)]),
            Some(2.0)
        );
        assert_eq!(rate(&[(0.0, 10.0), (1000.0, 3.0)]), Some(3.0), "a restart");
        assert_eq!(rate(&[(0.0, 10.0), (1000.0, 10.0)]), Some(0.0));
        assert_eq!(rate(&[(0.0, 10.0)]), None);
        assert_eq!(rate(&[]), None);
    }
}
