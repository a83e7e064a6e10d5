//! The nodes below this agent: its children with their connections, and the nodes below children
//! that are parents themselves, with the child through which they are reached.
//!
//! A name belongs to one instance of an agent. Of two places of one node, the one with the higher
//! epoch is valid: a node that moved is dropped at its old place.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pegel_metric::Millis;
use pegel_tree_protocol::{
    Hello, NodeOverview, NodeStatus, NodeUpdate, NodeUpdates, node_update::State, refusal::Reason,
};
use tokio::sync::mpsc;

use super::child_link::ChildLink;
use crate::overview::unknown_overview;

/// How long a name belongs to an instance that is not connected.
const NAME_HELD: Millis = 60 * 1000;
/// How long a lost node stays listed.
const LOST_LISTED: Millis = 3600 * 1000;
/// The most nodes below all children. Others are not listed.
const NODES_LISTED_MAX: usize = 100_000;
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
    next_key: u32,
    pub(crate) children: BTreeMap<String, ChildNode>,
    pub(crate) nodes: BTreeMap<String, SubtreeNode>,
}

/// A child that was admitted.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) link: Arc<ChildLink>,
    /// The earlier connection of the same child, to be closed.
    pub(crate) replaced: Option<Arc<ChildLink>>,
    /// The time from which the values of the node are missing. `None`: it was not known.
    pub(crate) missing_since: Option<Millis>,
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
    ) -> Registry {
        Registry {
            node: node.to_owned(),
            instance,
            children_max,
            interval,
            next_key: OWN_KEY,
            children: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    fn take_key(&mut self) -> u32 {
        // 2^32 children later, the keys of the first ones are free.
        self.next_key = self.next_key.wrapping_add(1).max(1);
        self.next_key
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
            let is_held = child.lost.is_none_or(|lost| now - lost < NAME_HELD);
            if child.instance != hello.instance && is_held {
                return refuse(Reason::Duplicate, duplicate);
            }
            if child.link.is_some() && hello.epoch <= child.epoch {
                return refuse(Reason::Duplicate, "a newer connection of this node exists");
            }
        }
        let mut missing_since = known.map(|child| {
            let last_tick = child.last_tick.unwrap_or(child.last_arrival);
            last_tick.min(now)
        });
        if let Some(below) = self.nodes.get(name) {
            let is_up = below.missing_since.is_none();
            if is_up && below.update.instance != hello.instance {
                return refuse(Reason::Duplicate, duplicate);
            }
            if is_up && below.update.epoch > hello.epoch {
                return refuse(Reason::Duplicate, "a newer connection of this node exists");
            }
            missing_since = Some(below.missing_since.unwrap_or(now - LOSS_MARGIN));
        }
        let is_connected = known.is_some_and(|child| child.link.is_some());
        if !is_connected && self.connected().count() >= self.children_max {
            let max = self.children_max;
            return refuse(Reason::Full, format!("the parent accepts {max} children"));
        }
        self.nodes.remove(name);
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
            last_tick: None,
            last_arrival: now,
            lag_ms: None,
            clock_offset_ms: None,
            lost: None,
        };
        self.children.insert(name.clone(), child);
        Ok(Admitted {
            link,
            replaced: earlier.and_then(|child| child.link),
            missing_since,
        })
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
        for below in self.nodes.values_mut() {
            if below.route == link.node {
                below.missing_since.get_or_insert(since);
            }
        }
    }

    /// Returns the entry of a connection, unless a newer one replaced it.
    pub(crate) fn child_mut(&mut self, link: &Arc<ChildLink>) -> Option<&mut ChildNode> {
        let child = self.children.get_mut(&link.node)?;
        let is_current = { child.link.as_ref() }.is_some_and(|held| Arc::ptr_eq(held, link));
        is_current.then_some(child)
    }

    /// Takes the report of a child about the nodes below it. Returns the earliest time from which
    /// values of nodes that moved here are missing.
    pub(crate) fn update_nodes(
        &mut self,
        route: &str,
        updates: NodeUpdates,
        path: &[String],
        now: Millis,
    ) -> Result<Option<Millis>, LoopFound> {
        let mut missing: Option<Millis> = None;
        if updates.is_complete {
            let listed: std::collections::HashSet<&str> =
                updates.nodes.iter().map(|update| &*update.node).collect();
            self.nodes
                .retain(|name, below| below.route != route || listed.contains(&**name));
        }
        for update in updates.nodes {
            let name = update.node.clone();
            if name == self.node || path.contains(&name) {
                return Err(LoopFound(name));
            }
            if name == route {
                continue;
            }
            if update.state() == State::Gone {
                if self
                    .nodes
                    .get(&name)
                    .is_some_and(|below| below.route == route)
                {
                    self.nodes.remove(&name);
                }
                continue;
            }
            let is_up = update.state() == State::Up;
            let since = (!is_up).then_some(now - LOSS_MARGIN);
            if let Some(child) = self.children.get(&name) {
                if child.link.is_some() || !is_up || child.epoch >= update.epoch {
                    continue;
                }
                // It moved from here to a place below another child.
                let lost = child.last_tick.unwrap_or(child.last_arrival);
                missing = Some(missing.unwrap_or(Millis::MAX).min(lost));
                self.children.remove(&name);
            }
            let has_room = self.nodes.len() < NODES_LISTED_MAX;
            match self.nodes.get_mut(&name) {
                Some(below) if below.route == route => {
                    below.missing_since = since.map(|since| below.missing_since.unwrap_or(since));
                    below.update = update;
                }
                Some(below) => {
                    if update.epoch < below.update.epoch
                        || (!is_up && below.missing_since.is_none())
                    {
                        continue;
                    }
                    if is_up {
                        let lost = below.missing_since.unwrap_or(now - LOSS_MARGIN);
                        missing = Some(missing.unwrap_or(Millis::MAX).min(lost));
                    }
                    below.missing_since = since.map(|since| below.missing_since.unwrap_or(since));
                    route.clone_into(&mut below.route);
                    below.update = update;
                }
                None if !has_room => {}
                None => {
                    let key = self.take_key();
                    let below = SubtreeNode {
                        key,
                        route: route.to_owned(),
                        update,
                        missing_since: since,
                    };
                    self.nodes.insert(name, below);
                }
            }
        }
        Ok(missing)
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

    /// Returns the nodes whose values of the time `since` or later exist but cannot be requested
    /// now.
    pub(crate) fn unreachable_since(&self, since: Millis) -> Vec<String> {
        let children = self.children.iter().filter(|(_, child)| {
            child.link.is_none() && child.last_tick.is_some_and(|tick| tick >= since)
        });
        let lost = children.map(|(name, _)| name.clone()).collect::<Vec<_>>();
        // Those below connected children are named in the children's responses.
        let below = self.nodes.iter().filter(|(_, below)| {
            lost.contains(&below.route) && below.missing_since.is_some_and(|lost| lost >= since)
        });
        let below: Vec<String> = below.map(|(name, _)| name.clone()).collect();
        lost.into_iter().chain(below).collect()
    }

    /// Returns the number of levels, this agent included.
    pub(crate) fn levels(&self) -> usize {
        let mut levels = 1 + usize::from(!self.children.is_empty());
        for (name, below) in &self.nodes {
            let mut depth = 3;
            let mut parent = &below.update.parent;
            while *parent != below.route && depth < pegel_tree_protocol::limits::LEVELS_MAX {
                let Some(next) = self.nodes.get(parent).filter(|_| parent != name) else {
                    break;
                };
                depth += 1;
                parent = &next.update.parent;
            }
            levels = levels.max(depth);
        }
        levels
    }
}

#[cfg(test)]
mod tests;
