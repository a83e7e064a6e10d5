//! The nodes and the shape of the tree, as the HTTP server shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pegel_metric::Millis;
use pegel_tree_protocol::{NodeRow, NodeStatus, NodeUpdate, node_update::State};
use serde_json::{Value, json};

use super::Parent;
use super::registry::{OWN_KEY, Registry};
use crate::figures::NodeFigures;

/// How long a refused node stays listed.
const REFUSED_LISTED: Millis = 5 * 60 * 1000;
/// Clock offsets from here on are reported as problems.
const CLOCK_OFFSET_MS: u32 = 1000;

fn problem_text(status: NodeStatus, offset: Option<i32>) -> String {
    match (status, offset) {
        (NodeStatus::Lost, _) => "not connected".to_owned(),
        (NodeStatus::Late, _) => "connected, and no ticks arrive".to_owned(),
        (_, Some(offset)) if offset.unsigned_abs() >= CLOCK_OFFSET_MS => {
            let direction = if offset > 0 { "ahead of" } else { "behind" };
            let seconds = f64::from(offset.unsigned_abs()) / 1000.0;
            format!("its clock is {seconds:.1} s {direction} its parent's")
        }
        _ => String::new(),
    }
}

impl Parent {
    pub(super) fn node_rows(&self) -> Vec<NodeRow> {
        let context = &self.context;
        let now = context.now();
        let mut rows: BTreeMap<String, NodeRow> = BTreeMap::new();
        let outliers = self.outliers.lock();
        let outliers_of = |key| {
            let found = outliers.outliers(key).into_iter();
            let found = found.map(|one| (one.figure.as_str(), one.value, one.median));
            found.collect::<Vec<_>>()
        };
        rows.insert(
            context.node.clone(),
            NodeRow {
                node: context.node.clone(),
                parent: String::new(),
                status: NodeStatus::Up,
                lag_ms: None,
                clock_offset_ms: None,
                version: context.version.clone(),
                is_parent: true,
                overview: *self.own_overview.lock(),
                outliers: outliers_of(OWN_KEY),
                problem: String::new(),
            },
        );
        let registry = self.registry.lock();
        for (name, child) in &registry.children {
            let status = registry.child_status(child, now);
            let row = NodeRow {
                node: name.clone(),
                parent: context.node.clone(),
                status,
                lag_ms: child.lag_ms,
                clock_offset_ms: child.clock_offset_ms,
                version: child.version.clone(),
                is_parent: child.is_parent,
                overview: child.overview,
                outliers: outliers_of(child.key),
                problem: problem_text(status, child.clock_offset_ms),
            };
            rows.insert(name.clone(), row);
        }
        for (name, below) in &registry.nodes {
            let status = registry.subtree_status(below, now);
            let update = &below.update;
            let offset = Some(update.clock_offset_ms);
            let row = NodeRow {
                node: name.clone(),
                parent: parent_of(&registry, name).to_owned(),
                status,
                lag_ms: Some(update.lag_ms),
                clock_offset_ms: offset,
                version: update.version.clone(),
                is_parent: update.is_parent,
                overview: update
                    .overview
                    .unwrap_or_else(crate::overview::unknown_overview),
                outliers: outliers_of(below.key),
                problem: problem_text(status, offset),
            };
            rows.entry(name.clone()).or_insert(row);
        }
        drop(registry);
        drop(outliers);
        self.add_refused(&mut rows, now);
        rows.into_values().collect()
    }

    /// Adds nodes that are refused, and notes on nodes whose name is claimed twice.
    fn add_refused(&self, rows: &mut BTreeMap<String, NodeRow>, now: Millis) {
        let problems = self.context.problems.lock();
        for (node, reason, message) in problems.refused_nodes(now - REFUSED_LISTED) {
            let problem = format!("{reason}: {message}");
            match rows.get_mut(node) {
                Some(row) if row.status == NodeStatus::Up => {
                    if row.problem.is_empty() && reason == "duplicate" {
                        row.problem = problem;
                    }
                }
                Some(row) => row.problem = problem,
                None => {
                    let row = NodeRow {
                        node: node.to_owned(),
                        parent: self.context.node.clone(),
                        status: NodeStatus::Refused,
                        lag_ms: None,
                        clock_offset_ms: None,
                        version: String::new(),
                        is_parent: false,
                        overview: crate::overview::unknown_overview(),
                        outliers: Vec::new(),
                        problem,
                    };
                    rows.insert(node.to_owned(), row);
                }
            }
        }
    }

    /// Returns the figures of the nodes. They may be a second old.
    pub(crate) fn node_figures(&self) -> Arc<NodeFigures> {
        self.node_figures.lock().clone()
    }

    /// Computes the figures of the nodes.
    pub(crate) fn update_figures(&self) {
        let rows = self.node_rows();
        let below = || rows.iter().filter(|row| !row.parent.is_empty());
        let statuses = [
            NodeStatus::Up,
            NodeStatus::Late,
            NodeStatus::Lost,
            NodeStatus::Refused,
        ];
        let nodes = statuses.into_iter().map(|status| {
            let count = below().filter(|row| row.status == status).count();
            (status.as_str(), count as u64)
        });
        let children = below().filter(|row| row.parent == self.context.node);
        let clock_offsets = children.filter_map(|row| {
            let seconds = f64::from(row.clock_offset_ms?) / 1000.0;
            Some((row.node.clone(), seconds))
        });
        let outliers = rows.iter().filter(|row| !row.outliers.is_empty());
        let figures = NodeFigures {
            children: self.registry.lock().connected().count() as u64,
            nodes: nodes.collect(),
            reduced_series: self.reduction.lock().table.len() as u64,
            clock_offsets: clock_offsets.collect(),
            outliers: outliers
                .map(|row| (row.node.clone(), row.outliers.len() as u64))
                .collect(),
        };
        *self.node_figures.lock() = Arc::new(figures);
    }

    /// Returns the nodes below this agent for its own parent.
    pub(crate) fn node_updates(&self) -> Vec<NodeUpdate> {
        let now = self.context.now();
        let registry = self.registry.lock();
        let state = |status| match status {
            NodeStatus::Up => State::Up,
            NodeStatus::Late => State::Late,
            NodeStatus::Lost | NodeStatus::Refused => State::Lost,
        };
        let children = registry.children.iter().map(|(name, child)| NodeUpdate {
            node: name.clone(),
            parent: self.context.node.clone(),
            state: state(registry.child_status(child, now)) as i32,
            epoch: child.epoch,
            overview: Some(child.overview),
            lag_ms: child.lag_ms.unwrap_or_default(),
            clock_offset_ms: child.clock_offset_ms.unwrap_or_default(),
            version: child.version.clone(),
            is_parent: child.is_parent,
            instance: child.instance.clone(),
        });
        let below = registry.nodes.values().map(|below| NodeUpdate {
            state: state(registry.subtree_status(below, now)) as i32,
            ..below.update.clone()
        });
        children.chain(below).collect()
    }

    pub(super) fn tree_shape(&self) -> Value {
        let rows = self.node_rows();
        let mut by_parent: BTreeMap<&str, Vec<&NodeRow>> = BTreeMap::new();
        for row in rows.iter().filter(|row| !row.parent.is_empty()) {
            by_parent.entry(&row.parent).or_default().push(row);
        }
        let own = rows.iter().find(|row| row.node == self.context.node);
        let mut visited = BTreeSet::new();
        let tree = own.map(|own| branch_json(own, &by_parent, &mut visited));
        let up = rows.iter().filter(|row| row.status == NodeStatus::Up);
        let levels = self.registry.lock().levels();
        let parents = self.uplink.get().map(|uplink| uplink.to_json());
        json!({
            "node": self.context.node,
            "accepts": self.accept_address.to_string(),
            "children_max": self.context.settings.children_max,
            "interval_ms": self.interval,
            "nodes": rows.len(),
            "up": up.count(),
            "levels": levels,
            "tree": tree,
            "problems": self.context.problems.lock().to_json(),
            "parents": parents.unwrap_or_else(|| json!([])),
            "reduced_series": self.reduction.lock().table.len(),
            "dirty_ticks": self.dirty_count(),
        })
    }
}

/// Returns the parent of a node below a child. Reports may be wrong: the route always exists.
fn parent_of<'a>(registry: &'a Registry, node: &str) -> &'a str {
    let Some(below) = registry.nodes.get(node) else {
        return "";
    };
    let mut above = &below.update.parent;
    for _ in 0..pegel_tree_protocol::limits::LEVELS_MAX {
        if *above == below.route {
            return &below.update.parent;
        }
        match registry.nodes.get(above) {
            Some(next) if next.route == below.route => above = &next.update.parent,
            _ => break,
        }
    }
    &below.route
}

fn branch_json<'a>(
    row: &'a NodeRow,
    by_parent: &BTreeMap<&str, Vec<&'a NodeRow>>,
    visited: &mut BTreeSet<&'a str>,
) -> Value {
    visited.insert(&row.node);
    let mut children = Vec::new();
    for child in by_parent.get(&*row.node).into_iter().flatten() {
        if !visited.contains(&*child.node) {
            children.push(branch_json(child, by_parent, visited));
        }
    }
    let mut branch = json!({
        "node": row.node,
        "state": row.status.as_str(),
        "children": children,
    });
    if !row.problem.is_empty() {
        branch["problem"] = json!(row.problem);
    }
    branch
}
