//! Comparison with Debian's node_exporter: equal values on one fixture tree; live counters between
//! two of its readings; and its default metrics are present or documented as omitted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pegel_collect::{DIVERGENT_METRICS, OMITTED_METRICS};
use pegel_metric::{Clock, SystemClock};
use pegel_testkit::{
    AgentProcess, ExporterReadings, MetricType, PrometheusProcess, eventually, fixture, need,
};

use crate::PEGEL;

const PROGRAM: &str = "prometheus-node-exporter";

/// Its collectors that read a fixture tree. The others query the kernel or read the machine's own
/// files.
const COLLECTORS: &[&str] = &[
    "arp",
    "bonding",
    "buddyinfo",
    "conntrack",
    "cpu",
    "diskstats",
    "dmi",
    "edac",
    "entropy",
    "filefd",
    "hwmon",
    "loadavg",
    "mdadm",
    "meminfo",
    "meminfo_numa",
    "netclass",
    "netdev",
    "netstat",
    "nfs",
    "nfsd",
    "nvme",
    "os",
    "powersupplyclass",
    "pressure",
    "schedstat",
    "sockstat",
    "softnet",
    "stat",
    "thermal_zone",
    "udp_queues",
    "vmstat",
];

/// The collectors whose counters are compared live.
const LIVE: &[&str] = &[
    "conntrack",
    "cpu",
    "diskstats",
    "loadavg",
    "meminfo",
    "netdev",
    "netstat",
    "pressure",
    "softnet",
    "stat",
    "vmstat",
];

/// Prefixes of its metrics about itself.
const ITS_OWN: [&str; 3] = ["node_exporter_", "node_scrape_collector_", "promhttp_"];

fn start_node_exporter(program: &Path, root: &Path, collectors: &[&str]) -> PrometheusProcess {
    PrometheusProcess::start(program, |_| {
        let mut args = vec![
            "--collector.disable-defaults".to_owned(),
            "--web.disable-exporter-metrics".to_owned(),
            // A fixture tree has no netlink.
            "--no-collector.netdev.netlink".to_owned(),
            // Debian's build leaves out `lo`, unlike the original.
            "--collector.netdev.device-exclude=^$".to_owned(),
            format!("--path.procfs={}", root.join("proc").display()),
            format!("--path.sysfs={}", root.join("sys").display()),
            format!("--path.udev.data={}", root.join("run/udev/data").display()),
            format!("--path.rootfs={}", root.display()),
        ];
        args.extend(collectors.iter().map(|name| format!("--collector.{name}")));
        args
    })
}

fn read_theirs(node_exporter: &PrometheusProcess) -> ExporterReadings {
    let mut theirs = ExporterReadings::parse_prometheus(node_exporter.get("/metrics").text());
    let is_its_own = |name: &str| ITS_OWN.iter().any(|beginning| name.starts_with(beginning));
    for (series, value) in &theirs.values {
        if series.starts_with("node_scrape_collector_success") {
            assert_eq!(*value, 1.0, "{series}: the neighbour itself failed");
        }
    }
    theirs.values.retain(|series, _| !is_its_own(series));
    theirs.types.retain(|name, _| !is_its_own(name));
    theirs
}

fn read_ours(agent: &AgentProcess) -> ExporterReadings {
    ExporterReadings::parse_prometheus(agent.get("/metrics").text())
}

/// Reads our metrics when they include all names of node_exporter that are not explained.
/// Collectors with threads of their own, such as that of file systems, have values a little later.
fn read_all(
    agent: &AgentProcess,
    theirs: &ExporterReadings,
    is_explained: impl Fn(&str) -> bool,
) -> ExporterReadings {
    eventually("all metrics are there or explained", || {
        let ours = read_ours(agent);
        let (names, our_names) = (theirs.names(), ours.names());
        let missing = names.difference(&our_names).copied();
        let missing: Vec<&str> = missing.filter(|name| !is_explained(name)).collect();
        if missing.is_empty() {
            return Ok(ours);
        }
        Err(format!("neither there nor explained: {missing:?}"))
    })
}

#[test]
fn both_report_the_same_on_one_fixture_tree() {
    let Some(program) = need(PROGRAM) else { return };
    let node_exporter = start_node_exporter(&program, &fixture("basic"), COLLECTORS);
    let agent = PEGEL
        .agent()
        .env("PEGEL_ROOT", fixture("basic"))
        .config("level: 4\n")
        .start();
    let theirs = read_theirs(&node_exporter);
    let ours = read_all(&agent, &theirs, |_| false);

    let shared: BTreeSet<&str> = theirs
        .names()
        .intersection(&ours.names())
        .copied()
        .collect();
    assert!(shared.len() > 250, "only {} names are shared", shared.len());
    let mut differences = Vec::new();
    for name in shared {
        let (our_type, their_type) = (ours.types.get(name), theirs.types.get(name));
        if our_type != their_type {
            differences.push(format!("{name}: type {our_type:?}, theirs {their_type:?}"));
        }
        let (our_series, their_series) = (series_of(&ours, name), series_of(&theirs, name));
        let all: BTreeSet<&String> = our_series.keys().chain(their_series.keys()).collect();
        for series in all {
            if begins_with_one_of(series, DIVERGENT_METRICS) {
                continue;
            }
            let (our_value, their_value) = (our_series.get(series), their_series.get(series));
            let is_same = match (our_value, their_value) {
                (Some(ours), Some(theirs)) => is_same(*ours, *theirs),
                _ => false,
            };
            if !is_same {
                differences.push(format!("{series}: {our_value:?}, theirs {their_value:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    agent.assert_conserved();
}

fn begins_with_one_of(text: &str, table: &[(&str, &str)]) -> bool {
    table.iter().any(|(start, _)| text.starts_with(start))
}

fn series_of(readings: &ExporterReadings, name: &str) -> BTreeMap<String, f64> {
    let is_of = |series: &str| series.split('{').next() == Some(name);
    let of_name = readings.values.iter().filter(|(series, _)| is_of(series));
    of_name
        .map(|(series, value)| (series.clone(), *value))
        .collect()
}

/// Compares up to the last bit: node_exporter multiplies by 0.001, the agent divides by 1000, which
/// gives the nearest double (2.941, not 2.9410000000000003).
fn is_same(ours: f64, theirs: f64) -> bool {
    ours == theirs || (ours - theirs).abs() <= f64::EPSILON * ours.abs()
}

/// Counters of which the kernel does not guarantee that they only increase.
fn may_shrink(series: &str) -> bool {
    series.starts_with("node_cpu_seconds_total")
        && (series.contains("mode=\"iowait\"") || series.contains("mode=\"idle\""))
}

/// The agent's slower collectors among `LIVE`.
const SLOWER: [&str; 4] = ["conntrack", "netstat", "softnet", "vmstat"];

fn hastened(name: &str) -> String {
    format!("{name}: {{rate: 100ms}}")
}

#[test]
fn live_counters_lie_between_two_readings() {
    let Some(program) = need(PROGRAM) else { return };
    let agent = PEGEL
        .agent()
        .config(&format!(
            "rate: 100ms\ncollectors: {{{}}}\n",
            SLOWER.map(hastened).join(", ")
        ))
        .start();
    let node_exporter = start_node_exporter(&program, Path::new("/"), LIVE);

    let before = read_theirs(&node_exporter);
    let read_at = SystemClock.utc();
    // A collector of each kind has sampled since.
    for name in [
        "node_load1",
        "node_vmstat_pgfault",
        "node_netstat_Tcp_InSegs",
    ] {
        eventually("a sample after the first reading", || {
            let newest = agent.samples(name).times().max();
            if newest > Some(read_at + 100) {
                Ok(())
            } else {
                Err(format!("{name}: {newest:?}"))
            }
        });
    }
    let ours = read_ours(&agent);
    let after = read_theirs(&node_exporter);

    let mut checked = 0;
    let mut outside = Vec::new();
    for (series, ours) in &ours.values {
        let (Some(low), Some(high)) = (before.values.get(series), after.values.get(series)) else {
            continue;
        };
        let name = series.split('{').next().unwrap_or(series);
        let is_counter = before.types.get(name) == Some(&MetricType::Counter)
            // They are counters of the kernel without a type in node_exporter.
            || name.starts_with("node_vmstat_")
            || name.starts_with("node_netstat_") && !name.ends_with("_CurrEstab");
        if is_counter && !may_shrink(series) {
            checked += 1;
            let is_between = low <= ours && ours <= high;
            if !is_between && !is_same(*ours, *low) && !is_same(*ours, *high) {
                outside.push(format!("{series}: {low} ≤ {ours} ≤ {high} does not hold"));
            }
        }
    }
    assert!(checked > 30, "only {checked} counters were compared");
    assert!(outside.is_empty(), "{}", outside.join("\n"));
    agent.assert_conserved();
}

#[test]
fn omitted_default_metrics_are_documented() {
    let Some(program) = need(PROGRAM) else { return };
    let node_exporter = PrometheusProcess::start(&program, |_| Vec::new());
    let agent = PEGEL.agent().config("level: 4\n").start();
    let theirs = ExporterReadings::parse_prometheus(node_exporter.get("/metrics").text());
    let ours = read_all(&agent, &theirs, |name| {
        begins_with_one_of(name, OMITTED_METRICS) || begins_with_one_of(name, DIVERGENT_METRICS)
    });
    let shared = theirs.names().intersection(&ours.names()).count();
    assert!(shared > 150, "only {shared} names are shared");
    // The types are equal, or it has none.
    for (name, their_type) in &theirs.types {
        if let Some(our_type) = ours.types.get(name) {
            assert_eq!(our_type, their_type, "{name}");
        }
    }
    agent.assert_conserved();
}
