//! What each collector costs, in CPU time: `PEGEL_COST=FILE cargo test --release -p pegel-collect
//! cost` writes a line per collector, for this machine and for the large one. Without that variable
//! there is nothing to do.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::big::BigMachine;
use crate::support::machine;
use pegel_collect::{CollectorSet, CollectorSettings, Host, REGISTRY, Settings, State};
use pegel_metric::{Input, Ledger, SystemClock, Tick};

const ROUNDS: u32 = 100;

/// Only one collector.
fn only(name: &str) -> Settings {
    let off = |other: &str| {
        let settings = CollectorSettings {
            enabled: Some(other == name),
            rate: None,
        };
        (other.to_owned(), settings)
    };
    let collectors: BTreeMap<_, _> = REGISTRY.iter().map(|entry| off(entry.name)).collect();
    Settings {
        collectors,
        ..Settings::default()
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Microseconds of CPU time per pass, and how many series there are.
fn measure(name: &str, host: Host) -> Option<(f64, u64)> {
    let (ledger, clock) = (Arc::new(Ledger::default()), Arc::new(SystemClock));
    let mut set =
        CollectorSet::open(&only(name), host, 4, Vec::new(), ledger, clock).expect("valid");
    let mut tick = Tick::new(Input::Collect);
    let mut pass = |count: u32| {
        for time in 0..count {
            set.settle(Duration::from_secs(60));
            set.sample_all(i64::from(time), &mut tick);
        }
        set.status()
    };
    let status = pass(2).into_iter().find(|status| status.name == name)?;
    if status.state != State::Active {
        return None;
    }
    let before = cpu_time();
    pass(ROUNDS);
    let cost = (cpu_time() - before).as_secs_f64() / f64::from(ROUNDS) * 1e6;
    Some((cost, status.series))
}

#[test]
fn cost_of_each_collector() {
    let Some(path) = std::env::var_os("PEGEL_COST") else {
        return;
    };
    let big = BigMachine::make("cost");
    let mut text = String::from("collector this_us this_series big_us big_series\n");
    for entry in REGISTRY {
        let here = measure(entry.name, Host::local());
        let large = measure(entry.name, machine(&big.root));
        let show = |found: Option<(f64, u64)>| match found {
            Some((cost, series)) => format!("{cost:.1} {series}"),
            None => "- -".to_owned(),
        };
        let _ = writeln!(text, "{} {} {}", entry.name, show(here), show(large));
    }
    std::fs::write(path, text).expect("write");
}
