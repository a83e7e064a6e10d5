//! The nodes below this agent: its children with their connections, and the nodes below children
//! that are parents themselves, with the child through which they are reached.
//!
//! A name belongs to one instance of an agent. Of two places of one node, the one with the higher
//! epoch is valid: a node that moved is dropped at its old place.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use pegel_metric::Millis;
use pegel_tree_protocol::limits::LEVELS_MAX;
use pegel_tree_protocol::{
    Hello, NodeMoved, NodeOverview, NodeStatus, NodeUpdate, NodeUpdates, node_update::State,
    parent_message, refusal::Reason,
};
use tokio::sync::mpsc;

use super::backfill_file::KnownNode;
use super::changed_ticks_budget::ChangedTicksBudget;
use super::child_link::ChildLink;
use crate::messages::encode_to_child;
use crate::overview::unknown_overview;

/// How long a name belongs to an instance that is not connected.
const NAME_HELD: Millis = 60 * 1000;
/// How long a lost node stays listed.
const LOST_LISTED: Millis = 3600 * 1000;
/// The most nodes below all children, and below one of them. Others are not listed.
const NODES_LISTED_MAX: usize = 100_000;
const NODES_OF_CHILD_MAX: usize = pegel_tree_protocol::limits::NODES_MAX;
/// The most children that are listed without being connected, besides as many as may be connected.
const LOST_MAX: usize = 1000;
/// The key of the agent itself among the keys of nodes.
pub(crate) const OWN_KEY: u32 = 0;
/// A node is late after this number of intervals without a tick, but at least three seconds.
const LATE_INTERVALS: i64 = 5;
const LATE_MIN: Millis = 3000;
/// How long before a loss is noticed values may already be missing.
const LOSS_MARGIN: Millis = 45 * 1000;

/// A direct child.
#[derive(Debug)]
pub(crate) struct ChildNode {
    pub(crate) link: Option<Arc<ChildLink>>,
    pub(crate) instance: Bytes,
    pub(crate) epoch: u64,
    pub(crate) key: u32,
    pub(crate) version: String,
    pub(crate) is_parent: bool,
    pub(crate) overview: NodeOverview,
    /// The time of the newest tick.
    pub(crate) last_tick: Option<Millis>,
    /// When the newest tick, or the connection, arrived.
    pub(crate) last_arrival: Millis,
    pub(crate) lag_ms: Option<i32>,
    pub(crate) clock_offset_ms: Option<i32>,
    pub(crate) lost: Option<Millis>,
    /// The time from which its values are missing, until the first tick of its next connection.
    pub(crate) missing_since: Option<Millis>,
    /// How many past ticks it may have computed again.
    pub(crate) changed_ticks: ChangedTicksBudget,
}

impl ChildNode {
    /// Returns whether the name still belongs to the instance.
    fn is_held(&self, now: Millis) -> bool {
        self.lost.is_none_or(|lost| now - lost < NAME_HELD)
    }

    fn is_other_than(&self, instance: &Bytes) -> bool {
        // The instance of a node that is known from before a restart is empty.
        self.instance != *instance && !self.instance.is_empty()
    }
}

/// A node below a child.
#[derive(Debug)]
pub(crate) struct SubtreeNode {
    pub(crate) key: u32,
    /// The child through which it is reached.
    pub(crate) route: String,
    /// As the child reported it.
    pub(crate) update: NodeUpdate,
    /// Since when its values may be missing.
    pub(crate) missing_since: Option<Millis>,
}

#[derive(Debug)]
pub(crate) struct Registry {
    node: String,
    instance: Bytes,
    children_max: usize,
    interval: Millis,
    backfill_time: Millis,
    next_key: u32,
    /// Until the first time, a node that is not known is missing since the second.
    unknown_missing: Option<(Millis, Millis)>,
    pub(crate) children: BTreeMap<String, ChildNode>,
    pub(crate) nodes: BTreeMap<String, SubtreeNode>,
    /// The number of levels; `None` since the nodes changed.
    levels: Option<usize>,
}

/// A child that was admitted.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) link: Arc<ChildLink>,
    /// The earlier connection of the same child, to be closed.
    pub(crate) replaced: Option<Arc<ChildLink>>,
}

/// What a report about nodes changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeChanges {
    /// The earliest time from which values of nodes that came back, or moved here, are missing.
    pub(crate) missing_since: Option<Millis>,
    /// Nodes that another agent of their name has the place of.
    pub(crate) duplicates: Vec<String>,
    /// The number of nodes beyond the limits.
    pub(crate) unlisted: usize,
}

impl NodeChanges {
    fn came_back(&mut self, missing_since: Millis) {
        let since = self.missing_since.get_or_insert(missing_since);
        *since = missing_since.min(*since);
    }
}

/// Why a child is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChildRefusal {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

fn refuse<T>(reason: Reason, message: impl Into<String>) -> Result<T, ChildRefusal> {
    let message = message.into();
    Err(ChildRefusal { reason, message })
}

/// A node that is the agent itself, or above it, was reported below it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {0} is above or at this agent: the tree has a loop")]
pub(crate) struct LoopFound(pub(crate) String);

impl Registry {
    pub(crate) fn new(
        node: &str,
        instance: Bytes,
        children_max: usize,
        interval: Millis,
        backfill_time: Millis,
    ) -> Registry {
        Registry {
            node: node.to_owned(),
            instance,
            children_max,
            interval,
            backfill_time,
            next_key: OWN_KEY,
            unknown_missing: None,
            children: BTreeMap::new(),
            nodes: BTreeMap::new(),
            levels: None,
        }
    }

    fn take_key(&mut self) -> u32 {
        // 2^32 children later, the keys of the first ones are free.
        self.next_key = self.next_key.wrapping_add(1).max(1);
        self.next_key
    }

    fn new_budget(&self, now: Millis) -> ChangedTicksBudget {
        ChangedTicksBudget::new(self.backfill_time, self.interval, now)
    }

    pub(crate) fn connected(&self) -> impl Iterator<Item = &Arc<ChildLink>> {
        self.children
            .values()
            .filter_map(|child| child.link.as_ref())
    }

    /// Admits a child, or returns why it is refused. `path` has the nodes above this agent.
    pub(crate) fn attach(
        &mut self,
        hello: &Hello,
        path: &[String],
        outgoing: mpsc::Sender<Bytes>,
        now: Millis,
    ) -> Result<Admitted, ChildRefusal> {
        let name = &hello.node;
        if *name == self.node {
            if hello.instance == self.instance {
                return refuse(Reason::Loop, "an agent cannot be its own parent");
            }
            return refuse(Reason::Duplicate, "the parent itself has this name");
        }
        if path.contains(name) {
            return refuse(Reason::Loop, "the node is above its parent");
        }
        let duplicate = format!("another agent with the name {name} is connected");
        let known = self.children.get(name);
        if let Some(child) = known {
            if child.is_held(now) && child.is_other_than(&hello.instance) {
                return refuse(Reason::Duplicate, duplicate);
            }
            if child.link.is_some() && hello.epoch <= child.epoch {
                return refuse(Reason::Duplicate, "a newer connection of this node exists");
            }
        }
        let mut missing_since = known.map(|child| {
            let last_tick = child.last_tick.unwrap_or(child.last_arrival);
            child.missing_since.unwrap_or(last_tick).min(now)
        });
        if let Some(below) = self.nodes.get(name) {
            let is_up = below.missing_since.is_none();
            if is_up && below.update.instance != hello.instance {
                return refuse(Reason::Duplicate, duplicate);
            }
            if is_up && below.update.epoch > hello.epoch {
                return refuse(Reason::Duplicate, "a newer connection of this node exists");
            }
            let since = below.missing_since.unwrap_or(now - LOSS_MARGIN);
            missing_since = Some(missing_since.map_or(since, |other| other.min(since)));
        }
        let is_connected = known.is_some_and(|child| child.link.is_some());
        if !is_connected && self.connected().count() >= self.children_max {
            let max = self.children_max;
            return refuse(Reason::Full, format!("the parent accepts {max} children"));
        }
        if let Some(below) = self.nodes.remove(name) {
            self.report_moved(&below.route, name, hello.epoch);
        }
        let missing_since = missing_since.unwrap_or_else(|| self.unknown_missing_since(now));
        let earlier = self.children.remove(name);
        let key = match &earlier {
            Some(child) => child.key,
            None => self.take_key(),
        };
        let link = Arc::new(ChildLink::new(
            name.clone(),
            hello.epoch,
            key,
            hello.is_parent,
            outgoing,
        ));
        let child = ChildNode {
            link: Some(link.clone()),
            instance: hello.instance.clone(),
            epoch: hello.epoch,
            key,
            version: hello.version.clone(),
            is_parent: hello.is_parent,
            overview: unknown_overview(),
            last_tick: earlier.as_ref().and_then(|child| child.last_tick),
            last_arrival: now,
            lag_ms: None,
            clock_offset_ms: None,
            lost: None,
            missing_since: Some(missing_since),
            changed_ticks: { earlier.as_ref() }
                .map_or_else(|| self.new_budget(now), |child| child.changed_ticks),
        };
        self.children.insert(name.clone(), child);
        self.levels = None;
        Ok(Admitted {
            link,
            replaced: earlier.and_then(|child| child.link),
        })
    }

    /// Until `until`, treats nodes that are not known as missing since `since`.
    pub(crate) fn set_unknown_missing(&mut self, until: Millis, since: Millis) {
        self.unknown_missing = Some((until, since));
    }

    fn unknown_missing_since(&self, now: Millis) -> Millis {
        match self.unknown_missing {
            Some((until, since)) if now < until => since,
            _ => now,
        }
    }

    /// Informs the child that reported a node about a newer connection of the node elsewhere.
    fn report_moved(&self, route: &str, node: &str, epoch: u64) {
        let child = self.children.get(route);
        if let Some(link) = child.and_then(|child| child.link.as_ref()) {
            let node = node.to_owned();
            // The child repeats its report, and so is this message.
            link.send(encode_to_child(parent_message::Kind::Moved(NodeMoved {
                node,
                epoch,
            })));
        }
    }

    /// Drops a node that has a connection with a newer epoch elsewhere, and passes the message on.
    pub(crate) fn drop_moved(&mut self, node: &str, epoch: u64) {
        if let Some(child) = self.children.get(node) {
            if child.epoch < epoch {
                self.drop_child(node);
            }
        } else if let Some(below) = self.nodes.get(node)
            && below.update.epoch < epoch
        {
            self.report_moved(&below.route, node, epoch);
            self.nodes.remove(node);
            self.levels = None;
        }
    }

    fn drop_child(&mut self, node: &str) -> Option<ChildNode> {
        let child = self.children.remove(node)?;
        self.levels = None;
        if let Some(link) = &child.link {
            link.close();
            link.fail_all();
        }
        Some(child)
    }

    /// Notes that a connection ended, unless a newer one replaced it.
    pub(crate) fn detach(&mut self, link: &Arc<ChildLink>, now: Millis) {
        let Some(child) = self.children.get_mut(&link.node) else {
            return;
        };
        let is_current = |held: &Arc<ChildLink>| Arc::ptr_eq(held, link);
        if !child.link.as_ref().is_some_and(is_current) {
            return;
        }
        child.link = None;
        child.lost = Some(now);
        let since = child.last_tick.unwrap_or(now).min(now);
        let since = *child.missing_since.get_or_insert(since);
        for below in self.nodes.values_mut() {
            if below.route == link.node {
                below.missing_since.get_or_insert(since - LOSS_MARGIN);
            }
        }
        self.limit_lost();
    }

    /// Forgets lost children beyond the limit: those that never sent a value first, then those that
    /// are lost for the longest time.
    fn limit_lost(&mut self) {
        let lost = { self.children.iter() }.filter_map(|(name, child)| {
            let lost = child.lost?;
            // Nodes that are known from before a restart have no instance.
            let had_values = child.last_tick.is_some() || child.instance.is_empty();
            Some((had_values, lost, name))
        });
        if lost.clone().count() <= self.children_max + LOST_MAX {
            return;
        }
        if let Some(name) = lost.min().map(|(_, _, name)| name.clone()) {
            self.children.remove(&name);
            self.levels = None;
        }
    }

    /// Returns the entry of a connection, unless a newer one replaced it.
    pub(crate) fn child_mut(&mut self, link: &Arc<ChildLink>) -> Option<&mut ChildNode> {
        let child = self.children.get_mut(&link.node)?;
        let is_current = { child.link.as_ref() }.is_some_and(|held| Arc::ptr_eq(held, link));
        is_current.then_some(child)
    }

    /// Takes the report of a child about the nodes below it.
    pub(crate) fn update_nodes(
        &mut self,
        route: &str,
        updates: NodeUpdates,
        path: &[String],
        now: Millis,
    ) -> Result<NodeChanges, LoopFound> {
        let mut changes = NodeChanges::default();
        self.levels = None;
        let mut count = { self.nodes.values() }
            .filter(|below| below.route == route)
            .count();
        if updates.is_complete {
            self.miss_unlisted(route, &updates.nodes, now);
        }
        for update in updates.nodes {
            let name = &update.node;
            if *name == self.node || path.contains(name) {
                return Err(LoopFound(name.clone()));
            }
            if name == route {
                continue;
            }
            if update.state() == State::Gone {
                let is_here = |below: &SubtreeNode| below.route == route;
                if self.nodes.get(name).is_some_and(is_here) {
                    self.nodes.remove(name);
                }
                continue;
            }
            let is_child = self.children.contains_key(name);
            if is_child && !self.take_child(route, &update, now, &mut changes) {
                continue;
            }
            if !self.nodes.contains_key(name) {
                if count >= NODES_OF_CHILD_MAX || self.nodes.len() >= NODES_LISTED_MAX {
                    changes.unlisted += 1;
                    continue;
                }
                count += 1;
            }
            self.update_node(route, update, now, &mut changes);
        }
        Ok(changes)
    }

    /// Marks the nodes of a child that its complete report does not list, such as one after a
    /// restart of the child. They may come back elsewhere.
    fn miss_unlisted(&mut self, route: &str, listed: &[NodeUpdate], now: Millis) {
        let listed: HashSet<&str> = listed.iter().map(|update| &*update.node).collect();
        for (name, below) in &mut self.nodes {
            if below.route == route && !listed.contains(&**name) {
                below.missing_since.get_or_insert(now - LOSS_MARGIN);
                below.update.set_state(State::Lost);
            }
        }
    }

    /// Drops a child of this agent that moved to a place below another child. Returns false if it
    /// did not, so that the report is not used.
    fn take_child(
        &mut self,
        route: &str,
        update: &NodeUpdate,
        now: Millis,
        changes: &mut NodeChanges,
    ) -> bool {
        let Some(child) = self.children.get(&update.node) else {
            return true;
        };
        if child.epoch > update.epoch {
            self.report_moved(route, &update.node, child.epoch);
            return false;
        }
        if update.state() != State::Up {
            return false;
        }
        // A child is dropped only for the instance that it is itself, as long as it has its name.
        if child.is_held(now) && child.is_other_than(&update.instance) {
            changes.duplicates.push(update.node.clone());
            return false;
        }
        let last_tick = child.last_tick.unwrap_or(child.last_arrival);
        changes.came_back(child.missing_since.unwrap_or(last_tick));
        self.drop_child(&update.node);
        true
    }

    fn update_node(
        &mut self,
        route: &str,
        update: NodeUpdate,
        now: Millis,
        changes: &mut NodeChanges,
    ) {
        let is_up = update.state() == State::Up;
        let lost = (!is_up).then_some(now - LOSS_MARGIN);
        let Some(below) = self.nodes.get(&update.node) else {
            let since = self.unknown_missing_since(now);
            if is_up && since < now {
                changes.came_back(since);
            }
            let below = SubtreeNode {
                key: self.take_key(),
                route: route.to_owned(),
                missing_since: lost,
                update,
            };
            self.nodes.insert(below.update.node.clone(), below);
            return;
        };
        if below.route != route {
            if update.epoch < below.update.epoch {
                self.report_moved(route, &update.node, below.update.epoch);
                return;
            }
            let was_up = below.missing_since.is_none();
            if was_up && !is_up {
                return;
            }
            let held_until = below
                .missing_since
                .map(|since| since + LOSS_MARGIN + NAME_HELD);
            let is_held = held_until.is_none_or(|until| now < until);
            let is_other = below.update.instance != update.instance;
            if is_held && is_other && !below.update.instance.is_empty() {
                changes.duplicates.push(update.node);
                return;
            }
            self.report_moved(&below.route, &update.node, update.epoch);
        }
        let Some(below) = self.nodes.get_mut(&update.node) else {
            return;
        };
        let moved = below.route != route;
        if is_up && (moved || below.missing_since.is_some()) {
            changes.came_back(below.missing_since.unwrap_or(now - LOSS_MARGIN));
        }
        below.missing_since = lost.map(|lost| below.missing_since.unwrap_or(lost));
        route.clone_into(&mut below.route);
        below.update = update;
    }

    /// Removes nodes that were lost long ago, and returns their keys.
    pub(crate) fn expire(&mut self, now: Millis) -> Vec<u32> {
        let mut removed = Vec::new();
        self.children.retain(|_, child| {
            let keep = child.lost.is_none_or(|lost| now - lost < LOST_LISTED);
            if !keep {
                removed.push(child.key);
            }
            keep
        });
        self.nodes.retain(|_, below| {
            let keep = { below.missing_since }.is_none_or(|since| now - since < LOST_LISTED);
            if !keep {
                removed.push(below.key);
            }
            keep
        });
        removed
    }

    fn is_late(&self, child: &ChildNode, now: Millis) -> bool {
        now - child.last_arrival > (LATE_INTERVALS * self.interval).max(LATE_MIN)
    }

    /// Returns the keys of the children for whose values a tick waits.
    pub(crate) fn expected(&self, now: Millis) -> Vec<u32> {
        let children = self.children.values().filter(|child| child.link.is_some());
        let on_time = children.filter(|child| !self.is_late(child, now));
        let mut keys = vec![OWN_KEY];
        keys.extend(on_time.map(|child| child.key));
        keys
    }

    pub(crate) fn child_status(&self, child: &ChildNode, now: Millis) -> NodeStatus {
        if child.link.is_none() {
            NodeStatus::Lost
        } else if self.is_late(child, now) {
            NodeStatus::Late
        } else {
            NodeStatus::Up
        }
    }

    pub(crate) fn subtree_status(&self, below: &SubtreeNode, now: Millis) -> NodeStatus {
        let route = self.children.get(&below.route);
        match route.map(|route| self.child_status(route, now)) {
            None | Some(NodeStatus::Lost) => NodeStatus::Lost,
            Some(NodeStatus::Late) => NodeStatus::Late,
            _ => match below.update.state() {
                State::Up | State::Unknown => NodeStatus::Up,
                State::Late => NodeStatus::Late,
                State::Lost | State::Gone => NodeStatus::Lost,
            },
        }
    }

    /// Returns the child through which a node is reached.
    pub(crate) fn route(&self, node: &str) -> Option<(&str, &ChildNode)> {
        if let Some((name, child)) = self.children.get_key_value(node) {
            return Some((name, child));
        }
        let below = self.nodes.get(node)?;
        let (name, child) = self.children.get_key_value(&below.route)?;
        Some((name, child))
    }

    /// Returns a child and the nodes below it.
    pub(crate) fn nodes_of(&self, child: &str) -> Vec<String> {
        let below = self.nodes.iter().filter(|(_, below)| below.route == child);
        let mut nodes = vec![child.to_owned()];
        nodes.extend(below.map(|(name, _)| name.clone()));
        nodes
    }

    /// Returns the nodes that are away, with the time from which their values are missing.
    fn away(&self) -> impl Iterator<Item = (&String, Millis)> {
        let children = self
            .children
            .iter()
            .filter(|(_, child)| child.link.is_none());
        let children = children.filter_map(|(name, child)| Some((name, child.missing_since?)));
        let below = self.nodes.iter();
        children.chain(below.filter_map(|(name, below)| Some((name, below.missing_since?))))
    }

    /// Returns the time up to which values of nodes that are away are included in reduced values.
    pub(crate) fn away_until(&self) -> Millis {
        self.away()
            .map(|(_, since)| since)
            .max()
            .unwrap_or(Millis::MIN)
    }

    /// Returns the nodes that have values of the time `since` or later and are away.
    pub(crate) fn away_since(&self, since: Millis) -> Vec<String> {
        let away = self.away().filter(|(_, missing)| *missing >= since);
        away.map(|(name, _)| name.clone()).collect()
    }

    /// Returns whether a node is away since before `time`: its values are computed when it is back.
    pub(crate) fn is_away_before(&self, node: &str, time: Millis) -> bool {
        let since = match self.children.get(node) {
            Some(child) if child.link.is_none() => child.missing_since,
            Some(_) => None,
            None => self.nodes.get(node).and_then(|below| below.missing_since),
        };
        since.is_some_and(|since| since < time)
    }

    /// Notes that reduced values from `since` on lack a node, so that they are computed again when
    /// it answers.
    pub(crate) fn lacks(&mut self, node: &str, since: Millis) {
        let noted = match self.children.get_mut(node) {
            Some(child) => Some(&mut child.missing_since),
            None => self
                .nodes
                .get_mut(node)
                .map(|below| &mut below.missing_since),
        };
        if let Some(noted) = noted {
            *noted = Some(noted.map_or(since, |other| other.min(since)));
        }
    }

    /// Returns all nodes, for the time after a restart.
    pub(crate) fn known_nodes(&self, now: Millis) -> BTreeMap<String, KnownNode> {
        let children = self.children.iter().map(|(name, child)| {
            let last_tick = child.last_tick.unwrap_or(child.last_arrival);
            let late = self.is_late(child, now).then_some(last_tick);
            let node = KnownNode {
                route: name.clone(),
                missing_since: child.missing_since.or(late),
            };
            (name.clone(), node)
        });
        let below = self.nodes.iter().map(|(name, below)| {
            let node = KnownNode {
                route: below.route.clone(),
                missing_since: below.missing_since,
            };
            (name.clone(), node)
        });
        below.chain(children).collect()
    }

    /// Adds the nodes that were known before a restart, as lost. Those of which nothing was missing
    /// are missing since `reduced_until`.
    pub(crate) fn restore(&mut self, nodes: BTreeMap<String, KnownNode>, reduced_until: Millis) {
        for (name, node) in nodes {
            if name == self.node {
                continue;
            }
            let since = node
                .missing_since
                .unwrap_or(reduced_until)
                .min(reduced_until);
            let key = self.take_key();
            if node.route == name {
                let child = ChildNode {
                    link: None,
                    instance: Bytes::new(),
                    epoch: 0,
                    key,
                    version: String::new(),
                    is_parent: false,
                    overview: unknown_overview(),
                    last_tick: None,
                    last_arrival: since,
                    lag_ms: None,
                    clock_offset_ms: None,
                    lost: Some(since),
                    missing_since: Some(since),
                    changed_ticks: self.new_budget(since),
                };
                self.children.insert(name, child);
            } else {
                let update = NodeUpdate {
                    node: name.clone(),
                    parent: node.route.clone(),
                    state: State::Lost as i32,
                    ..NodeUpdate::default()
                };
                let below = SubtreeNode {
                    key,
                    route: node.route,
                    update,
                    missing_since: Some(since),
                };
                self.nodes.insert(name, below);
            }
        }
    }

    /// Returns the number of levels, this agent included. Called for every tick: only the first
    /// call after a change reads the nodes, each of them once.
    pub(crate) fn levels(&mut self) -> usize {
        if let Some(levels) = self.levels {
            return levels;
        }
        let mut depths: HashMap<&str, usize> = HashMap::new();
        let mut path: Vec<&str> = Vec::new();
        let mut levels = 1 + usize::from(!self.children.is_empty());
        for name in self.nodes.keys() {
            // Up to an agent whose level is known: a child, or a node on an earlier path.
            let mut at = name.as_str();
            let mut depth = loop {
                if let Some(depth) = depths.get(at) {
                    break *depth;
                }
                let Some(below) = self.nodes.get(at).filter(|_| path.len() < LEVELS_MAX) else {
                    break 2;
                };
                path.push(at);
                at = below.update.parent.as_str();
            };
            for node in path.drain(..).rev() {
                depth = (depth + 1).min(LEVELS_MAX);
                depths.insert(node, depth);
                levels = levels.max(depth);
            }
        }
        self.levels = Some(levels);
        levels
    }
}

#[cfg(test)]
mod tests;
