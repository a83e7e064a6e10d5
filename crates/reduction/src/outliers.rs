//! Finds the nodes that stand out among the nodes of a parent.
//!
//! The rule: **a node stands out in a figure if its distance from the median of all nodes is
//! greater than 6 × 1.4826 × MAD, and greater than the smallest distance that counts, in three
//! consecutive ticks.** MAD is the median of the distances of all nodes from the median; 1.4826 ×
//! MAD estimates the standard deviation, and a few outliers do not change it. The smallest distance
//! is 15 points for percentages and degrees. For the other figures it is half the median, but at
//! least 1 for the load and 1 MB/s for the network, so that an idle machine does not stand out for
//! a little work. With fewer than 5 nodes with a known value, no node stands out.
//!
//! If more than a fifth of the nodes (and more than one) would stand out at a tick, none does: that
//! is a second group of nodes, such as the nodes of one job beside idle ones.
//!
//! What the rule cannot see:
//! - Peers are all nodes of the parent, not those of one job. A job on a few of many idle nodes
//!   stands out as a whole. A node that hangs in a job on half of the nodes looks like an idle one.
//! - A fault of more than a fifth of the nodes, and slow changes that all nodes share.
//! - Nodes whose values scatter widely: an outlier must exceed the scatter six times.
//! - Faults that none of the figures show.

use std::collections::HashMap;

use crate::series_table::AssignedKeyHash;

/// The standard deviation of a normal distribution, in units of its MAD.
const DEVIATION_PER_MAD: f64 = 1.4826;
/// At most one of so many nodes stands out, but at least one.
const NODES_PER_OUTLIER: usize = 5;
/// The smallest distance of figures without a scale, as a share of the median.
const MEDIAN_SHARE_MIN: f64 = 0.5;
const LOAD_MIN: f64 = 1.0;
/// Bytes per second.
const NETWORK_MIN: f64 = 1e6;

/// A figure of the overview of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Figure {
    Busy,
    Memory,
    Pressure,
    Gpu,
    Network,
    Temperature,
    Load,
}

impl Figure {
    pub const ALL: [Figure; 7] = [
        Figure::Busy,
        Figure::Memory,
        Figure::Pressure,
        Figure::Gpu,
        Figure::Network,
        Figure::Temperature,
        Figure::Load,
    ];

    /// Returns the name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Figure::Busy => "busy",
            Figure::Memory => "memory",
            Figure::Pressure => "pressure",
            Figure::Gpu => "gpu",
            Figure::Network => "network",
            Figure::Temperature => "temperature",
            Figure::Load => "load",
        }
    }

    /// Returns the smallest distance that counts.
    fn distance_min(self, rule: &OutlierRule, median: f64) -> f64 {
        let half_median = MEDIAN_SHARE_MIN * median.abs();
        match self {
            Figure::Network => half_median.max(NETWORK_MIN),
            Figure::Load => half_median.max(LOAD_MIN),
            _ => rule.points_min,
        }
    }
}

/// The numbers of the rule.
#[derive(Debug, Clone, PartialEq)]
pub struct OutlierRule {
    /// With fewer nodes, none stands out.
    pub nodes_min: usize,
    /// The distance in estimated standard deviations.
    pub deviations: f64,
    /// The smallest distance of percentages and degrees.
    pub points_min: f64,
    /// The number of consecutive ticks.
    pub ticks_min: u32,
}

impl Default for OutlierRule {
    fn default() -> OutlierRule {
        OutlierRule {
            nodes_min: 5,
            deviations: 6.0,
            points_min: 15.0,
            ticks_min: 3,
        }
    }
}

/// A figure in which a node stands out.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlier {
    pub figure: Figure,
    pub value: f64,
    /// The median of all nodes.
    pub median: f64,
}

/// Applies the rule at each tick. Its time is linear in the number of nodes, and it keeps only the
/// few nodes that stand out.
#[derive(Debug)]
pub struct OutlierFinder {
    rule: OutlierRule,
    /// By figure, in the order of `Figure::ALL`, and node.
    streaks: [HashMap<u32, OutlierStreak, AssignedKeyHash>; 7],
    /// Scratch memory for the selection of medians.
    numbers: Vec<f64>,
}

/// The consecutive ticks in which a node exceeded the distance, up to now.
#[derive(Debug, Clone, Copy)]
struct OutlierStreak {
    ticks: u32,
    value: f64,
    median: f64,
}

impl OutlierFinder {
    pub fn new(rule: OutlierRule) -> OutlierFinder {
        OutlierFinder {
            rule,
            streaks: Default::default(),
            numbers: Vec::new(),
        }
    }

    /// Takes the values of all nodes at one tick: (node, value). NaN is unknown.
    pub fn update(&mut self, figure: Figure, values: &[(u32, f32)]) {
        let streaks = &mut self.streaks[figure as usize];
        let before = std::mem::take(streaks);
        let known = || {
            let values = values
                .iter()
                .map(|(node, value)| (*node, f64::from(*value)));
            values.filter(|(_, value)| value.is_finite())
        };
        self.numbers.clear();
        self.numbers.extend(known().map(|(_, value)| value));
        let count = self.numbers.len();
        if count < self.rule.nodes_min.max(1) {
            return;
        }
        let median = median_of(&mut self.numbers);
        for number in &mut self.numbers {
            *number = (*number - median).abs();
        }
        let scatter = DEVIATION_PER_MAD * median_of(&mut self.numbers);
        let distance_min = figure.distance_min(&self.rule, median);
        let threshold = distance_min.max(self.rule.deviations * scatter);
        let is_far = |number: &f64| *number > threshold;
        let far_count = self.numbers.iter().filter(|number| is_far(number)).count();
        if far_count > (count / NODES_PER_OUTLIER).max(1) {
            return;
        }
        for (node, value) in known().filter(|(_, value)| is_far(&(value - median).abs())) {
            let ticks = before.get(&node).map_or(0, |streak| streak.ticks);
            let ticks = ticks.saturating_add(1);
            streaks.insert(
                node,
                OutlierStreak {
                    ticks,
                    value,
                    median,
                },
            );
        }
    }

    /// Returns the figures in which a node stands out.
    pub fn outliers(&self, node: u32) -> Vec<Outlier> {
        let streaks = Figure::ALL.into_iter().zip(&self.streaks);
        let found = streaks.filter_map(|(figure, by_node)| Some((figure, by_node.get(&node)?)));
        found
            .filter(|(_, streak)| streak.ticks >= self.rule.ticks_min)
            .map(|(figure, streak)| Outlier {
                figure,
                value: streak.value,
                median: streak.median,
            })
            .collect()
    }

    /// Forgets a node that was removed.
    pub fn forget(&mut self, node: u32) {
        for by_node in &mut self.streaks {
            by_node.remove(&node);
        }
    }
}

/// Returns the median in linear time; of an even number of values, the mean of the middle two.
fn median_of(numbers: &mut [f64]) -> f64 {
    let middle = numbers.len() / 2;
    let is_even = numbers.len().is_multiple_of(2);
    let (below, &mut high, _) = numbers.select_nth_unstable_by(middle, f64::total_cmp);
    if !is_even {
        return high;
    }
    let low = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    low + (high - low) / 2.0
}

#[cfg(test)]
mod tests {
    use pegel_testkit::Rng;

    use super::*;

    const NONE: [u32; 0] = [];

    /// Returns the nodes that stand out after `ticks` ticks with the same values.
    fn found(figure: Figure, values: &[f32], ticks: usize) -> Vec<u32> {
        let mut finder = OutlierFinder::new(OutlierRule::default());
        let values: Vec<(u32, f32)> = (0..).zip(values.iter().copied()).collect();
        for _ in 0..ticks {
            finder.update(figure, &values);
        }
        let nodes = values.iter().map(|(node, _)| *node);
        nodes
            .filter(|node| !finder.outliers(*node).is_empty())
            .collect()
    }

    #[test]
    fn one_busy_node_stands_out_after_three_ticks() {
        let values = [10.0, 12.0, 11.0, 13.0, 97.0];
        assert_eq!(found(Figure::Busy, &values, 2), NONE);
        assert_eq!(found(Figure::Busy, &values, 3), [4]);
        let idle = [99.0, 98.0, 1.0, 97.0, 99.0, 99.0];
        assert_eq!(found(Figure::Busy, &idle, 3), [2], "below the median too");
        assert_eq!(
            found(Figure::Busy, &values[1..], 3),
            NONE,
            "four nodes are too few"
        );
        let unknown = [10.0, 12.0, f32::NAN, 13.0, 97.0, f32::INFINITY];
        assert_eq!(
            found(Figure::Busy, &unknown, 3),
            NONE,
            "unknown nodes do not count"
        );
    }

    #[test]
    fn the_ticks_are_consecutive() {
        let far = [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 90.0)];
        let near = [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0)];
        let mut finder = OutlierFinder::new(OutlierRule::default());
        for values in [far, far, near, far, far] {
            finder.update(Figure::Memory, &values);
            finder.update(Figure::Busy, &near);
            assert_eq!(finder.outliers(4), []);
        }
        finder.update(Figure::Memory, &far);
        let outlier = Outlier {
            figure: Figure::Memory,
            value: 90.0,
            median: 1.0,
        };
        assert_eq!(finder.outliers(4), [outlier]);
        finder.forget(4);
        assert_eq!(finder.outliers(4), []);
        finder.update(Figure::Memory, &far);
        assert_eq!(finder.outliers(4), [], "the count starts again");
    }

    #[test]
    fn small_distances_do_not_count() {
        let mut percent = [5.0; 20];
        percent[3] = 19.9;
        assert_eq!(found(Figure::Busy, &percent, 3), NONE);
        percent[3] = 20.1;
        assert_eq!(found(Figure::Busy, &percent, 3), [3]);
        let mut network = [0.0; 20];
        network[3] = 900e3;
        assert_eq!(
            found(Figure::Network, &network, 3),
            NONE,
            "an idle machine with a login"
        );
        network[3] = 2e6;
        assert_eq!(found(Figure::Network, &network, 3), [3]);
        let mut load = [64.0; 20];
        (load[3], load[4]) = (90.0, 100.0);
        assert_eq!(found(Figure::Load, &load, 3), [4], "half of the median");
    }

    #[test]
    fn two_groups_of_nodes_have_no_outliers() {
        let mut rng = Rng::new(1);
        for busy_nodes in [21, 40, 49, 50, 51, 60, 79] {
            let values: Vec<f32> = (0..100)
                .map(|node| if node < busy_nodes { 97.0 } else { 1.0 } + rng.unit() as f32)
                .collect();
            assert_eq!(found(Figure::Busy, &values, 3), NONE, "{busy_nodes}");
        }
    }

    #[test]
    fn normal_scatter_has_no_outliers() {
        let mut rng = Rng::new(2);
        let values: Vec<f32> = (0..10_000)
            .map(|_| (0..12).map(|_| rng.unit()).sum::<f64>() as f32 * 8.0)
            .collect();
        assert_eq!(found(Figure::Busy, &values, 3), NONE);
        let mut values = values;
        values[17] = 150.0;
        assert_eq!(found(Figure::Busy, &values, 3), [17]);
    }

    #[test]
    fn figures_are_stored_in_their_order() {
        for (index, figure) in Figure::ALL.into_iter().enumerate() {
            assert_eq!(figure as usize, index, "{}", figure.as_str());
        }
    }
}
