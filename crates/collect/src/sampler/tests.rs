//! The sampler on a machine whose clock, load and delays the test controls.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use super::*;
use crate::collectors::testing::SettableClock;
use crate::{CollectorSettings, REGISTRY};

/// One tick of `/proc/stat`.
const JIFFY_MS: Millis = 10;
const RATE_MS: Millis = 500;
const START_MS: Millis = 10_000;
/// How late the sampler wakes up, in milliseconds after a nominal time: on time, late, and longer
/// than an interval.
const DELAYS_MS: [Millis; 12] = [0, 3, 5, 6, 40, 0, 120, 480, 0, 730, 1_290, 260];
/// The modes of the CPU and their shares of its time, in percent.
const SHARES: [Millis; 8] = [57, 3, 20, 13, 2, 1, 1, 3];

/// A node whose CPU counters follow the clock exactly, down to a jiffy per mode.
struct BusyNode {
    root: PathBuf,
    clock: Arc<SettableClock>,
    run: SamplerLoop,
    /// The time of each sample of the CPU, and the total of its modes in seconds.
    samples: Arc<Mutex<Vec<(Millis, f64)>>>,
}

impl BusyNode {
    fn new(name: &str) -> BusyNode {
        let root = format!("pegel-busy-node-{}-{name}", std::process::id());
        let root = std::env::temp_dir().join(root);
        fs::create_dir_all(root.join("proc")).expect("a directory");
        let clock = Arc::new(SettableClock(AtomicI64::new(START_MS)));
        write_stat(&root, START_MS);
        let mut settings = CollectSettings {
            rate: Duration::from_millis(RATE_MS.unsigned_abs()),
            ..CollectSettings::default()
        };
        for entry in REGISTRY.iter().filter(|entry| entry.name != "cpu") {
            let off = CollectorSettings {
                enabled: Some(false),
                rate: None,
            };
            settings.collectors.insert(entry.name.into(), off);
        }
        let host = Host::at(&root);
        let ledger = Arc::new(Ledger::default());
        let set = CollectorSet::open(&settings, host, 3, Vec::new(), ledger, clock.clone());
        let samples: Arc<Mutex<Vec<(Millis, f64)>>> = Arc::default();
        let sink = samples.clone();
        let sink = Box::new(move |tick: &mut Tick| sink.lock().extend(cpu_total(tick)));
        BusyNode {
            run: SamplerLoop::new(set.expect("valid"), sink),
            root,
            clock,
            samples,
        }
    }

    /// Wakes the sampler up at a time.
    fn wake(&mut self, at: Millis) {
        self.clock.0.store(at, Relaxed);
        write_stat(&self.root, at);
        self.run.sample_due();
    }
}

impl Drop for BusyNode {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn write_stat(root: &std::path::Path, at: Millis) {
    let modes = SHARES.map(|share| (at * share / 100 / JIFFY_MS).to_string());
    let modes = modes.join(" ");
    let text = format!("cpu  {modes} 0 0\ncpu0 {modes} 0 0\nintr 0\nctxt 0\nbtime 0\n");
    fs::write(root.join("proc/stat"), text).expect("written");
}

fn cpu_total(tick: &Tick) -> Option<(Millis, f64)> {
    let row = tick.rows().first()?;
    let series = row.members.series.iter().enumerate();
    let modes = series.filter(|(_, series)| series.name() == "node_cpu_seconds_total");
    Some((tick.time, modes.map(|(slot, _)| row.values[slot]).sum()))
}

#[test]
fn the_modes_of_a_cpu_add_up_to_a_cpu_however_late_they_are_read() {
    let mut node = BusyNode::new("modes");
    node.wake(START_MS);
    let mut now = START_MS;
    for delay in DELAYS_MS.into_iter().cycle().take(10 * DELAYS_MS.len()) {
        now = (now / RATE_MS + 1) * RATE_MS + delay;
        node.wake(now);
    }
    let samples = node.samples.lock();
    assert_eq!(samples.len(), 1 + 10 * DELAYS_MS.len());
    for (first, (start, from)) in samples.iter().enumerate() {
        for (end, to) in &samples[first + 1..] {
            let elapsed = (end - start) as f64 / 1_000.0;
            let tolerance = 0.02 * elapsed + SHARES.len() as f64 * JIFFY_MS as f64 / 1_000.0;
            assert!(
                (to - from - elapsed).abs() <= tolerance,
                "{:.3} s of CPU time from {start} to {end} ms",
                to - from
            );
        }
    }
}

#[test]
fn each_nominal_time_has_one_sample_or_is_counted_as_missed() {
    let mut node = BusyNode::new("nominal");
    node.wake(START_MS);
    let mut now = START_MS;
    for delay in DELAYS_MS {
        now = (now / RATE_MS + 1) * RATE_MS + delay;
        node.wake(now);
    }
    let times: Vec<Millis> = node.samples.lock().iter().map(|(time, _)| *time).collect();
    let expected = [
        10_000, 10_500, 11_000, 11_500, 12_006, 12_540, 13_000, 13_620, 14_480, 14_500, 15_730,
        17_290, 17_760,
    ];
    assert_eq!(times, expected);
    let nominal = times.iter().map(|time| time / RATE_MS);
    assert!(nominal.is_sorted_by(|a, b| a < b), "one nominal time twice");
    let absent = now / RATE_MS - START_MS / RATE_MS + 1 - times.len() as i64;
    let counts = node.run.schedule.schedule_counts();
    assert_eq!((counts.missed, absent), (3, 3));
}
