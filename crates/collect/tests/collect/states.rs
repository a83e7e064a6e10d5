//! Collectors fail, recover, appear and disappear independently of each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{TestClock, machine, open};
use pegel_collect::{
    CollectSettings, CollectorSet, CollectorSettings, CollectorState, CollectorStatus,
};
use pegel_metric::{GroupRow, Input, Tick};

/// A machine whose files the test changes; removed on drop.
struct StatesNode {
    root: PathBuf,
    clock: Arc<TestClock>,
    set: CollectorSet,
    tick: Tick,
}

impl StatesNode {
    fn new(
        name: &str,
        settings: &CollectSettings,
        level: u8,
        prepare: impl FnOnce(&Path),
    ) -> StatesNode {
        let root = std::env::temp_dir().join(format!("pegel-states-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("proc/net")).expect("create");
        prepare(&root.join("proc"));
        let clock = TestClock::at(1_000_000);
        let set = open(settings, machine(&root), level, &clock);
        StatesNode {
            root,
            clock,
            set,
            tick: Tick::new(Input::Collect),
        }
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.root.join("proc").join(file), text).expect("write");
    }

    fn pass(&mut self, after: Duration) {
        self.clock.advance(after);
        self.set.sample_all(0, &mut self.tick);
    }

    fn status(&self, name: &str) -> CollectorStatus {
        self.set
            .status()
            .into_iter()
            .find(|status| status.name == name)
            .expect("known")
    }

    fn row(&self, name: &str) -> Option<&GroupRow> {
        self.tick
            .rows()
            .iter()
            .find(|row| *row.members.group == *name)
    }

    fn value(&self, group: &str, series: &str) -> Option<f64> {
        let row = self.row(group)?;
        let index = row.members.series.iter().position(|s| s.text() == series)?;
        row.is_present(index).then(|| row.values[index])
    }
}

impl Drop for StatesNode {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

const HALF: Duration = Duration::from_millis(500);

fn write_loadavg(proc: &Path) {
    fs::write(proc.join("loadavg"), "0.50 0.40 0.30 1/2 3\n").expect("write");
}

#[test]
fn a_failed_collector_recovers_by_itself_and_disturbs_no_other() {
    let mut node = StatesNode::new("recovers", &CollectSettings::default(), 3, |proc| {
        write_loadavg(proc);
        fs::write(proc.join("meminfo"), "MemTotal: 10 kB\n").expect("write");
    });
    node.pass(HALF);
    assert_eq!(node.status("load").state, CollectorState::Active);
    assert_eq!(node.value("load", "node_load1"), Some(0.5));

    node.write("loadavg", "rubbish\n");
    node.pass(HALF);
    let status = node.status("load");
    assert_eq!(
        (status.state, status.failures, status.since),
        (CollectorState::Failed, 1, 1_001_000)
    );
    let expected = format!(
        "{}, line 1: too few numbers",
        node.root.join("proc/loadavg").display()
    );
    assert_eq!(status.error, Some(expected));
    assert_eq!(
        node.row("load").map(GroupRow::present_count),
        Some(0),
        "old values are not shown"
    );
    assert_eq!(
        node.value("memory", "node_memory_MemTotal_bytes"),
        Some(10240.0)
    );
    let failed =
        |node: &StatesNode| node.value("agent", "pegel_collector_failed{collector=\"load\"}");
    assert_eq!(failed(&node), Some(1.0));

    node.write("loadavg", "");
    node.pass(HALF);
    let status = node.status("load");
    assert!(
        status
            .error
            .is_some_and(|error| error.ends_with("empty file"))
    );
    assert_eq!(
        (status.failures, status.since),
        (1, 1_001_000),
        "still the same failure"
    );

    node.write("loadavg", "0.75 0.40 0.30 1/2 3\n");
    node.pass(HALF);
    let status = node.status("load");
    assert_eq!(
        (status.state, status.error, status.failures),
        (CollectorState::Active, None, 1)
    );
    assert_eq!(node.value("load", "node_load1"), Some(0.75));
    assert_eq!(failed(&node), Some(0.0));
}

#[test]
fn a_failed_collector_opens_its_file_again_after_five_seconds() {
    let mut node = StatesNode::new("reopens", &CollectSettings::default(), 3, |proc| {
        fs::create_dir(proc.join("loadavg")).expect("create");
    });
    node.pass(HALF);
    assert_eq!(
        node.status("load").state,
        CollectorState::Failed,
        "a directory is not a file"
    );
    fs::remove_dir(node.root.join("proc/loadavg")).expect("remove");
    write_loadavg(&node.root.join("proc"));
    node.pass(Duration::from_secs(4));
    assert_eq!(
        node.status("load").state,
        CollectorState::Failed,
        "the directory is still open"
    );
    node.pass(HALF);
    assert_eq!(node.status("load").state, CollectorState::Active);
    assert_eq!(node.value("load", "node_load1"), Some(0.5));
    let series = node.row("load").map(|row| row.members.series.len());
    assert_eq!(series, Some(5), "declared once");
}

#[test]
fn an_absent_source_is_retried_after_a_minute() {
    let mut node = StatesNode::new("absent", &CollectSettings::default(), 3, |_| {});
    node.pass(HALF);
    let status = node.status("load");
    assert_eq!((status.state, status.error), (CollectorState::Absent, None));
    assert_eq!(
        status.looked_for,
        Some(node.root.join("proc/loadavg").display().to_string())
    );
    assert!(node.row("load").is_none());

    write_loadavg(&node.root.join("proc"));
    node.pass(Duration::from_secs(59));
    assert_eq!(node.status("load").state, CollectorState::Absent);
    node.pass(HALF);
    assert_eq!(node.status("load").state, CollectorState::Active);
    assert_eq!(node.value("load", "node_load15"), Some(0.3));
}

#[test]
fn collectors_switched_off_or_above_the_level_are_disabled() {
    let mut settings = CollectSettings::default();
    let off = CollectorSettings {
        enabled: Some(false),
        rate: None,
    };
    settings.collectors.insert("load".into(), off);
    let mut node = StatesNode::new("disabled", &settings, 3, write_loadavg);
    node.pass(HALF);
    assert_eq!(node.status("load").state, CollectorState::Disabled);
    assert!(node.row("load").is_none());
    assert_eq!(
        node.value("agent", "pegel_collector_failed{collector=\"load\"}"),
        None
    );

    let mut low = StatesNode::new("level", &CollectSettings::default(), 1, write_loadavg);
    low.pass(HALF);
    let active: Vec<&str> = low
        .set
        .status()
        .iter()
        .filter(|status| status.state != CollectorState::Disabled)
        .map(|status| status.name)
        .collect();
    assert_eq!(
        active,
        ["agent"],
        "the agent's own figures are kept at every level"
    );
    assert!(low.value("agent", "pegel_samples_late_total").is_some());
}

#[test]
fn a_state_reads_as_one_word() {
    let text = |state| format!("{state:?}").to_lowercase();
    for state in [
        CollectorState::Active,
        CollectorState::Absent,
        CollectorState::Disabled,
        CollectorState::Failed,
    ] {
        assert_eq!(serde_json::to_value(state).expect("json"), text(state));
    }
}
