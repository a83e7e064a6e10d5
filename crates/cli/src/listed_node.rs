//! A node of the tree, as `/api/v1/nodes` lists it: parsing, order, and what stands out.

use std::cmp::Ordering;

use anyhow::Context;
use serde_json::Value;

pub(crate) const NODES_PATH: &str = "/api/v1/nodes";
/// A clock that differs by more than this is reported: samples of the node are misplaced in time.
pub(crate) const CLOCK_OFFSET_MS_MAX: f64 = 1000.0;

/// One entry of `/api/v1/nodes`. Unknown figures are `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ListedNode {
    pub node: String,
    pub parent: String,
    /// `up`, `late`, `lost` or `refused`.
    pub state: String,
    pub lag_ms: Option<f64>,
    pub clock_offset_ms: Option<f64>,
    pub version: String,
    pub is_parent: bool,
    /// Percent, as memory, pressure and gpu.
    pub busy: Option<f64>,
    pub memory: Option<f64>,
    pub pressure: Option<f64>,
    pub gpu: Option<f64>,
    /// Bytes per second.
    pub network: Option<f64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    pub load: Option<f64>,
    pub outliers: Vec<OutlierFigure>,
    /// Why the node is not up; otherwise empty.
    pub problem: String,
}

/// A figure of a node that is far from the median of all nodes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutlierFigure {
    pub figure: String,
    pub value: f64,
    pub median: f64,
}

/// The agent's name, and the nodes at and below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NodeListing {
    pub own: String,
    pub nodes: Vec<ListedNode>,
}

impl NodeListing {
    pub(crate) fn parse(json: &Value) -> anyhow::Result<NodeListing> {
        let nodes = json["nodes"]
            .as_array()
            .context("malformed response: no list of nodes")?;
        Ok(NodeListing {
            own: json["node"].as_str().unwrap_or_default().to_owned(),
            nodes: nodes.iter().map(ListedNode::parse).collect(),
        })
    }

    /// Returns whether the agent neither has nor accepts nodes below it.
    pub(crate) fn is_single(&self) -> bool {
        self.nodes.len() <= 1 && !self.nodes.iter().any(|node| node.is_parent)
    }
}

impl ListedNode {
    fn parse(json: &Value) -> ListedNode {
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| json[key].as_f64();
        let outliers = json["outliers"].as_array().into_iter().flatten();
        let outliers = outliers.filter_map(|item| {
            Some(OutlierFigure {
                figure: item["figure"].as_str()?.to_owned(),
                value: item["value"].as_f64()?,
                median: item["median"].as_f64()?,
            })
        });
        ListedNode {
            node: text("node"),
            parent: text("parent"),
            state: text("state"),
            lag_ms: number("lag_ms"),
            clock_offset_ms: number("clock_offset_ms"),
            version: text("version"),
            is_parent: json["is_parent"].as_bool().unwrap_or_default(),
            busy: number("busy"),
            memory: number("memory"),
            pressure: number("pressure"),
            gpu: number("gpu"),
            network: number("network"),
            temperature: number("temperature"),
            load: number("load"),
            outliers: outliers.collect(),
            problem: text("problem"),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state == "up"
    }

    pub(crate) fn has_wrong_clock(&self) -> bool {
        self.clock_offset_ms
            .is_some_and(|offset| offset.abs() > CLOCK_OFFSET_MS_MAX)
    }

    /// Returns the order of problems: refused, lost, late, outliers, the others.
    fn rank(&self) -> u8 {
        match self.state.as_str() {
            "refused" => 0,
            "lost" => 1,
            "late" => 2,
            "up" if self.has_wrong_clock() => 3,
            "up" if !self.outliers.is_empty() => 4,
            "up" => 5,
            _ => 2,
        }
    }

    /// Compares by problems, then by name.
    pub(crate) fn problems_first(&self, other: &ListedNode) -> Ordering {
        let by_rank = self.rank().cmp(&other.rank());
        by_rank.then_with(|| natural_order(&self.node, &other.node))
    }

    /// Describes what stands out: why the node is not up, its clock, its outliers.
    pub(crate) fn note(&self) -> String {
        let mut notes = Vec::new();
        if !self.problem.is_empty() {
            notes.push(
                self.problem
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        }
        // The parent may have described the clock as the problem.
        let is_described = self.problem.contains("clock");
        let offset = self.clock_offset_ms.filter(|_| self.has_wrong_clock());
        if let Some(offset) = offset.filter(|_| !is_described) {
            let direction = if offset > 0.0 { "ahead" } else { "behind" };
            notes.push(format!("clock {} {direction}", milliseconds(offset.abs())));
        }
        notes.extend(self.outliers.iter().map(|outlier| {
            let text = |value| figure_text(&outlier.figure, value);
            format!(
                "{} {} (median {})",
                outlier.figure,
                text(outlier.value),
                text(outlier.median)
            )
        }));
        notes.join("; ")
    }
}

/// Compares names with numbers by the numbers: n2 is before n10.
pub(crate) fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (first, second) = (next_part(&mut a), next_part(&mut b));
        let (Some(first), Some(second)) = (first, second) else {
            return first.is_some().cmp(&second.is_some());
        };
        let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
        let order = if is_number(first) && is_number(second) {
            let (x, y) = (
                first.trim_start_matches('0'),
                second.trim_start_matches('0'),
            );
            let by_value = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
            by_value.then_with(|| first.len().cmp(&second.len()))
        } else {
            first.cmp(second)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Removes the digits or the other characters at the start of a name and returns them.
fn next_part<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let first = rest.chars().next()?;
    let is_digit = first.is_ascii_digit();
    let end = rest
        .find(|c: char| c.is_ascii_digit() != is_digit)
        .unwrap_or(rest.len());
    let (part, after) = rest.split_at(end);
    *rest = after;
    Some(part)
}

/// Formats a figure in its unit.
pub(crate) fn figure_text(figure: &str, value: f64) -> String {
    match figure {
        "network" => format!("{}/s", pegel_metric::quantity::steady_bytes(value)),
        "temperature" => format!("{value:.0} °C"),
        "load" => format!("{value:.1}"),
        _ => percent_text(value),
    }
}

pub(crate) fn percent_text(value: f64) -> String {
    format!("{value:.0} %")
}

/// Formats milliseconds: `12 ms`, `1.5 s`, `20 min`, `3.4 h`.
pub(crate) fn milliseconds(millis: f64) -> String {
    match millis.abs() {
        m if m < 1000.0 => format!("{millis:.0} ms"),
        m if m < 120_000.0 => format!("{:.1} s", millis / 1000.0),
        m if m < 7_200_000.0 => format!("{:.0} min", millis / 60_000.0),
        _ => format!("{:.1} h", millis / 3_600_000.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn problems_come_first_and_numbers_count() {
        let node = |name: &str, state: &str| ListedNode {
            node: name.to_owned(),
            state: state.to_owned(),
            ..ListedNode::default()
        };
        let outlier = OutlierFigure {
            figure: "busy".to_owned(),
            value: 97.0,
            median: 12.0,
        };
        let mut nodes = [
            node("n10", "up"),
            node("n2", "up"),
            ListedNode {
                outliers: vec![outlier],
                ..node("n99", "up")
            },
            node("n1", "late"),
            node("n7", "lost"),
            ListedNode {
                clock_offset_ms: Some(-2500.0),
                ..node("n98", "up")
            },
        ];
        nodes.sort_by(ListedNode::problems_first);
        let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        assert_eq!(names, ["n7", "n1", "n98", "n99", "n2", "n10"]);
        assert_eq!(nodes[2].note(), "clock 2.5 s behind");
        assert_eq!(nodes[3].note(), "busy 97 % (median 12 %)");
        for (less, more) in [
            ("n2", "n10"),
            ("a", "b"),
            ("n1", "n1a"),
            ("n9-2", "n09-10"),
            ("", "a"),
        ] {
            assert_eq!(natural_order(less, more), Ordering::Less, "{less} {more}");
            assert_eq!(
                natural_order(more, less),
                Ordering::Greater,
                "{less} {more}"
            );
        }
        assert_eq!(natural_order("x1y", "x1y"), Ordering::Equal);
    }

    #[test]
    fn unknown_figures_are_none_and_a_malformed_list_is_an_error() {
        let json = json!({"node": "h", "nodes": [
            {"node": "n1", "parent": "h", "state": "up", "lag_ms": 12, "gpu": null,
             "outliers": [{"figure": "network", "value": 2048.0, "median": 0.0}, {"figure": 1}],
             "problem": "two\nlines"}]});
        let listing = NodeListing::parse(&json).expect("valid");
        assert!(listing.is_single() && listing.own == "h");
        let node = &listing.nodes[0];
        assert_eq!((node.lag_ms, node.gpu, node.busy), (Some(12.0), None, None));
        assert_eq!(node.note(), "two lines; network 2.00 KiB/s (median 0 B/s)");
        assert!(NodeListing::parse(&json!({"nodes": 1})).is_err());
    }

    #[test]
    fn times_have_one_unit() {
        let texts = [0.0, 999.0, -1500.0, 1_200_000.0, 7_200_000.0].map(milliseconds);
        assert_eq!(texts, ["0 ms", "999 ms", "-1.5 s", "20 min", "2.0 h"]);
    }
}
