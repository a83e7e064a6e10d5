//! The names of reduced families, which follow those of recording rules: `node_load1:p99`.

use pegel_metric::MetricKind;

use crate::Partial;

const GAUGE_SUFFIXES: [&str; 7] = [":sum", ":min", ":max", ":avg", ":count", ":p50", ":p99"];
const RATE_SUFFIXES: [&str; 7] = [
    ":rate:sum",
    ":rate:min",
    ":rate:max",
    ":rate:avg",
    ":rate:count",
    ":rate:p50",
    ":rate:p99",
];

/// Returns the values of the families that the series `name` is reduced to, each with the suffix of
/// its name: those of [`partial_values`], or none if series of this name are not reduced.
pub fn reduced_values(
    name: &str,
    kind: MetricKind,
    partial: &Partial,
) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    let values = is_reducible_name(name).then(|| partial_values(kind, partial));
    values.into_iter().flatten()
}

/// Returns the values of the families that a series is reduced to, each with the suffix of its
/// name. Gauges, and series of unknown kind, have `:sum`, `:min`, `:max`, `:avg`, `:count`, `:p50`
/// and `:p99`. Counters have `:sum`, the sum of totals, and the same seven of their increases per
/// second, from `:rate:sum` to `:rate:p99`. Without values there are no families. The order is
/// always the same.
pub fn partial_values(
    kind: MetricKind,
    partial: &Partial,
) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    let is_counter = kind == MetricKind::Counter;
    let total = is_counter.then_some((":sum", partial.total));
    let suffixes = if is_counter {
        RATE_SUFFIXES
    } else {
        GAUGE_SUFFIXES
    };
    let values = (partial.count > 0).then(|| {
        // Quantiles are estimates; a partial from another node may have inconsistent fields.
        let quantile = |q| {
            if partial.min == partial.max {
                return partial.min;
            }
            let estimate = partial.sketch.quantile(q).unwrap_or(f64::NAN);
            estimate.min(partial.max).max(partial.min)
        };
        let (p50, p99) = (quantile(0.5), quantile(0.99));
        let count = partial.count as f64;
        [
            partial.sum,
            partial.min,
            partial.max,
            partial.avg(),
            count,
            p50,
            p99,
        ]
    });
    let values = values.map(|values| suffixes.into_iter().zip(values));
    total.into_iter().chain(values.into_iter().flatten())
}

/// Returns whether a name is one of a reduced family. Such series are not reduced again and are not
/// sent to parents. The suffix decides, so this includes recording rules with names like
/// `job:requests:sum`.
pub(crate) fn is_reduced_name(name: &str) -> bool {
    GAUGE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// The names of the figures of one agent's tree: most have a series for each of its children.
const TREE_PREFIX: &str = "pegel_tree_";

/// Returns whether series of this name are reduced over nodes.
pub fn is_reducible_name(name: &str) -> bool {
    !is_reduced_name(name) && !name.starts_with(TREE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(parts: &[Partial]) -> Partial {
        let mut all = Partial::default();
        parts.iter().for_each(|part| all.merge(part));
        all
    }

    #[test]
    fn a_gauge_has_seven_families() {
        let partial = merged(&[1.0, 2.0, 9.0].map(Partial::of_gauge));
        let values: Vec<_> = reduced_values("load", MetricKind::Gauge, &partial).collect();
        assert_eq!(
            values[..5],
            [
                (":sum", 12.0),
                (":min", 1.0),
                (":max", 9.0),
                (":avg", 4.0),
                (":count", 3.0)
            ]
        );
        assert_eq!(
            (values[5].0, values[6].0, values.len()),
            (":p50", ":p99", 7)
        );
        assert!((values[5].1 - 2.0).abs() <= 0.02);
        let one = Partial::of_gauge(3.3);
        let values = reduced_values("load", MetricKind::Unknown, &one);
        assert!(
            values
                .filter(|(suffix, _)| *suffix != ":count")
                .all(|(_, value)| value == 3.3)
        );
    }

    #[test]
    fn a_counter_has_its_total_and_its_rates() {
        let first = Partial::of_counter(None, 1000.0);
        let values: Vec<_> = reduced_values("hits", MetricKind::Counter, &first).collect();
        assert_eq!(values, [(":sum", 1000.0)]);
        let partial = merged(&[first, Partial::of_counter(Some(5.0), 507.0)]);
        let values: Vec<_> = reduced_values("hits", MetricKind::Counter, &partial).collect();
        assert_eq!(values[..2], [(":sum", 1507.0), (":rate:sum", 5.0)]);
        assert_eq!((values[5], values.len()), ((":rate:count", 1.0), 8));
        for (suffix, _) in values {
            assert!(is_reduced_name(&format!("hits{suffix}")));
        }
    }

    #[test]
    fn reduced_series_are_not_reduced_again() {
        let partial = Partial::of_counter(Some(5.0), 507.0);
        assert_eq!(
            reduced_values("hits:sum", MetricKind::Counter, &partial).count(),
            0
        );
        assert_eq!(
            reduced_values("a", MetricKind::Gauge, &Partial::default()).count(),
            0
        );
        assert!(
            ["sum", "a:summary", "a_p99", ":rate", "a:sum:b"]
                .iter()
                .all(|n| !is_reduced_name(n))
        );
    }
}
