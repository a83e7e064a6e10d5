//! Translates a selector over stored names into matchers for an engine, which has the names of
//! Prometheus. The matchers may accept more series than the selector, never fewer.

use std::collections::BTreeSet;

use pegel_metric::Selector;
use pegel_metric::prometheus_names::metric_name;

use crate::promql::{LabelMatcher, NodeLabels, PromqlError};

/// The most names in one request. A selector of more names is sent as one for all names.
const NAMES_MAX: usize = 64;

/// Returns matchers such that every series of this node that the selector accepts matches them,
/// under the name that Prometheus accepts. The selector is applied again to the answer.
pub(super) fn covering_matchers(
    selector: &Selector,
    node: &NodeLabels,
) -> Result<Vec<LabelMatcher>, PromqlError> {
    let instance = ("instance", "=", node.instance.as_str());
    let names = selector.exact_names();
    let names: Option<BTreeSet<String>> =
        names.map(|names| names.into_iter().map(escaped_name).collect());
    let names = names.or_else(|| {
        let patterns = selector.covering_patterns(&[])?;
        let name = |pattern: &String| glob_expression(pattern.split('{').next().unwrap_or(""));
        Some(patterns.iter().map(name).collect())
    });
    match names.filter(|names| names.len() <= NAMES_MAX) {
        Some(names) => {
            let names = names.into_iter().collect::<Vec<_>>().join("|");
            LabelMatcher::list(&[("__name__", "=~", &names), instance])
        }
        None => LabelMatcher::list(&[("__name__", "!=", ""), instance]),
    }
}

fn escaped_name(name: &str) -> String {
    regex_lite::escape(&metric_name(name))
}

/// Returns an expression for the names of the series that a glob matches. A glob may match the text
/// of a series, too, so that everything from its first wildcard on may be in the labels.
fn glob_expression(glob: &str) -> String {
    let plain = glob.find(['*', '?']).unwrap_or(glob.len());
    let name = escaped_name(&glob[..plain]);
    match plain == glob.len() && !name.is_empty() {
        true => name,
        false => name + ".*",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matchers(pattern: &str) -> String {
        let node = NodeLabels {
            job: "node".into(),
            instance: "n1:1337".into(),
        };
        let selector = Selector::parse(pattern).expect("valid");
        let matchers = covering_matchers(&selector, &node).expect("valid");
        assert_eq!(
            (&*matchers[1].name, &*matchers[1].value),
            ("instance", "n1:1337")
        );
        matchers[0].value.clone()
    }

    #[test]
    fn names_and_globs_become_expressions_over_names_of_prometheus() {
        assert_eq!(matchers("node_load1"), "node_load1");
        assert_eq!(matchers("a.b{x=\"1\"}"), "a_b");
        assert_eq!(matchers("node_cpu*{mode=\"idle\"}"), "node_cpu.*");
        assert_eq!(matchers("a.?b*"), "a_.*");
        assert_eq!(matchers("*idle*"), ".*");
        assert_eq!(matchers("*"), "");
    }
}
