//! A parent sends the series that it stores to receivers of remote write: its own and the reduced
//! ones, but not those of its nodes, which send for themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use pegel_testkit::{WriteReceiver, eventually_within};

use crate::tree_agent::{TreeAgent, loopback_address};

/// Values that do not change are sent with the next row of their group, up to a minute later.
const BOUND: Duration = Duration::from_secs(120);

#[test]
fn a_parent_sends_reduced_series() {
    let receiver = WriteReceiver::start();
    let address = loopback_address();
    let target = format!("{{url: '{}', interval: 200ms}}", receiver.url);
    let yaml = format!("tree: {{accept: \"{address}\"}}\nremote_write: [{target}]\n");
    let mut head = TreeAgent::with("head", &yaml);
    head.start();
    let nodes = [("a", 10), ("b", 3)].map(|(name, count)| {
        let node = TreeAgent::child(name, &[address]);
        let counter = node.counter("hits_total");
        counter.add(count);
        (node, counter)
    });
    head.reduces("hits_total:sum", 13.0);
    let stored = head.stored("hits_total:sum");
    let (newest, _) = *stored.last().expect("stored");
    let sent: BTreeMap<i64, f64> = eventually_within(BOUND, "the sums are sent", || {
        let samples = receiver.samples();
        let series = { samples.iter() }.find(|(labels, _)| labels.starts_with("hits_total:sum{"));
        let list = series.map_or(&[][..], |(_, list)| list.as_slice());
        match list.iter().any(|(time, _)| *time >= newest) {
            true => {
                let values = list.iter();
                Ok(values
                    .map(|(time, bits)| (*time, f64::from_bits(*bits)))
                    .collect())
            }
            false => Err(samples.keys().cloned().collect::<Vec<_>>()),
        }
    });
    for (time, value) in stored {
        assert_eq!(sent.get(&time), Some(&value), "at {time}");
    }
    let samples = receiver.samples();
    assert!(
        samples
            .keys()
            .any(|labels| labels.starts_with("node_load1{"))
    );
    let of_node = |labels: &&String| labels.starts_with("hits_total{");
    assert_eq!(samples.keys().find(of_node), None);
    drop(nodes);
}
