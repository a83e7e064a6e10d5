//! Reserved names: those that programs may not use.
//!
//! A program's series must not appear in a family of the node or of the agent, in any output. `/metrics` maps many
//! names to one (`node.load1` is shown as `node_load1`), so names are compared in the form that `/metrics` shows.
//! Called by [`crate::gate`] for every new series, after the rules.

use std::collections::HashSet;

use pegel_wire::metric_name;

/// Families of collectors and of the agent begin with the first two. Prometheus adds series with the third when it scrapes.
const PREFIXES: [&str; 3] = ["node_", "pegel_", "scrape_"];
const SCRAPED: &str = "up";
/// Suffixes that exposition formats append to a family's name.
const SUFFIXES: [&str; 6] = ["_total", "_sum", "_count", "_bucket", "_created", "_info"];

/// The names of the node and of the agent.
#[derive(Debug, Default)]
pub struct ReservedNames {
    /// Families without one of the prefixes.
    families: HashSet<&'static str>,
}

impl ReservedNames {
    pub fn new(families: impl IntoIterator<Item = &'static str>) -> ReservedNames {
        let families = families.into_iter();
        ReservedNames {
            families: families.filter(|name| !has_prefix(name)).collect(),
        }
    }

    /// Returns whether a series of this name would be shown in a family of the node, of the agent or of a scrape.
    pub fn contains(&self, name: &str) -> bool {
        let shown = metric_name(name);
        let is_family = |name: &str| name == SCRAPED || self.families.contains(name);
        let mut stems = SUFFIXES.iter().filter_map(|end| shown.strip_suffix(end));
        has_prefix(&shown) || is_family(&shown) || stems.any(is_family)
    }
}

fn has_prefix(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_reserved_name_is_reserved() {
        let reserved = ReservedNames::new(["node_load1", "load_average"]);
        for name in [
            "node_load1",
            "node.load1",
            "node-load1",
            "node load1",
            "node\u{e4}load1",
            "node.filesystem.avail.bytes",
            "node_not_known_yet",
            "pegel.received.total",
            "up",
            "up_total",
            "scrape.duration.seconds",
            "load_average",
            "load.average",
            "load.average.sum",
            "load_average_bucket",
        ] {
            assert!(reserved.contains(name), "{name}");
        }
        for name in [
            "nodes",
            "node",
            "nodejs.heap",
            "my.node_load1",
            "node:load1",
            "pegelstand",
            "uptime",
            "upload",
            "load_averages",
            "total",
            "_total",
        ] {
            assert!(!reserved.contains(name), "{name}");
        }
    }
}
