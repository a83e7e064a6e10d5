//! Measures the cost of one pass of each collector and prints JSON for docs/metrics-cost.json.
//! Measures on this machine if the collector is active here, else on the recorded machine in
//! `tests/fixtures/basic`.
#![allow(clippy::print_stdout)] // The result is printed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pegel_bench::median;
use pegel_collect::{
    CollectSettings, CollectorSet, CollectorSettings, CollectorState, CollectorStatus, Execution,
    Host, REGISTRY,
};
use pegel_metric::{Input, Ledger, SystemClock, Tick};

/// The highest level, which includes all metrics.
const LEVEL: u8 = 4;
const PASSES: u32 = 16;
/// Passes of collectors with a thread of their own, which are awaited each time.
const PASSES_THREADED: u32 = 4;
/// Number of rounds; their median is robust against other load on the machine.
const ROUNDS: usize = 21;

fn main() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/basic");
    let mut lines = Vec::new();
    for entry in REGISTRY {
        let passes = match entry.execution {
            Execution::Inline => PASSES,
            Execution::Threaded => PASSES_THREADED,
        };
        let live = measure(entry.name, Host::local(), passes);
        let (on, status) = match live {
            Some(status) => ("this", status),
            None => match measure(entry.name, Host::at(Path::new(fixture)), passes) {
                Some(status) => ("recorded", status),
                None => continue,
            },
        };
        lines.push(format!(
            "  \"{}\": {{\"machine\": \"{on}\", \"microseconds\": {:.1}, \"series\": {}}}",
            entry.name,
            status.cost * 1e6,
            status.series
        ));
    }
    println!("{{\n{}\n}}", lines.join(",\n"));
}

/// Returns the status after many passes of this collector alone; `None` if it is inactive or has no
/// series.
fn measure(name: &str, host: Host, passes: u32) -> Option<CollectorStatus> {
    let others = REGISTRY.iter().filter(|entry| entry.name != name);
    let off = CollectorSettings {
        enabled: Some(false),
        rate: None,
    };
    let settings = CollectSettings {
        collectors: others
            .map(|entry| (entry.name.to_owned(), off.clone()))
            .collect(),
        ..CollectSettings::default()
    };
    let (ledger, clock) = (Arc::new(Ledger::default()), Arc::new(SystemClock));
    let set = CollectorSet::open(&settings, host, LEVEL, Vec::new(), ledger, clock);
    let mut set = set.expect("valid settings");
    let mut tick = Tick::new(Input::Collect);
    let mut costs = Vec::new();
    let mut last = None;
    for _ in 0..ROUNDS {
        for _ in 0..passes {
            set.wait_for_threaded(Duration::from_secs(1));
            set.sample_all(0, &mut tick);
        }
        last = set.status().into_iter().find(|status| status.name == name);
        costs.extend(last.iter().map(|status| status.cost));
    }
    last.filter(|status| status.state == CollectorState::Active && status.series > 0)
        .map(|status| CollectorStatus {
            cost: median(&mut costs),
            ..status
        })
}
