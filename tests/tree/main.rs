//! Agents in a tree: sums over nodes, queries through the tree, hostile children, and agents and
//! links that fail at random.

mod chaos;
mod counting;
mod export;
mod hostile;
mod hostile_insider;
mod hostile_parent;
mod hostile_peers;
mod hung_child;
mod jobs;
mod queries;
mod refused_children;
mod remote_write;
mod rules;
mod tree_agent;

use pegel_testkit::PegelBinary;

const PEGEL: PegelBinary = PegelBinary::at(env!("CARGO_BIN_EXE_pegel"));
