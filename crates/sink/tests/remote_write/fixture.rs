//! A store with a simulated clock, and an output to one receiver.

use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, Family, Input, MetricKind, Millis, Point, SampleGroup, Series, Tick};
use pegel_query::promql::{NodeLabels, Selection, SeriesSource, StoreSource, parse_selector};
use pegel_sink::remote_write::{
    RemoteWriteCounts, RemoteWriteOptions, RemoteWriteOutput, RemoteWriteTargets,
};
use pegel_store::{QueryCancellation, Store, StoreOptions};
use pegel_testkit::{
    ArrivedSamples, FakeClock, FaultyFiles, TempDir, WriteReceiver, eventually_within,
};

pub(crate) const START: Millis = 1_700_006_400_000;
/// The interval of ticks of programs.
const INTERVAL: Millis = 10_000;
/// On a busy machine.
const BOUND: Duration = Duration::from_secs(60);

pub(crate) static OF_NODE: Family = Family::new("node_disk", MetricKind::Gauge, "", 1, "Disks.");
pub(crate) static OF_PROGRAM: Family =
    Family::new("steps", MetricKind::Counter, "", 1, "").of_input(Input::Lane);

pub(crate) struct RemoteWriteFixture {
    dir: TempDir,
    clock: Arc<FakeClock>,
    pub receiver: WriteReceiver,
}

impl RemoteWriteFixture {
    pub(crate) fn new() -> RemoteWriteFixture {
        RemoteWriteFixture {
            dir: TempDir::new(),
            clock: Arc::new(FakeClock::new(START)),
            receiver: WriteReceiver::start(),
        }
    }

    pub(crate) fn open(&self) -> Store {
        Store::open(self.options()).expect("the store opens")
    }

    fn options(&self) -> StoreOptions {
        let mut options = StoreOptions::new(self.dir.join("store"));
        options.clock = self.clock.clone();
        options.keep_log = true;
        options
    }

    /// Like [`RemoteWriteFixture::open`], on files whose operations can fail.
    pub(crate) fn open_on(&self, files: &FaultyFiles) -> Store {
        let mut options = self.options();
        options.files = Arc::new(files.clone());
        Store::open(options).expect("the store opens")
    }

    /// Removes everything that a closed store has on disk, but for the positions of targets.
    pub(crate) fn remove_samples(&self) {
        for name in ["log", "blocks", "outgoing"] {
            let removed = std::fs::remove_dir_all(self.dir.join("store").join(name));
            if let Err(error) = removed {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{name}");
            }
        }
    }

    /// Starts an output with more keys of the target.
    pub(crate) fn start(&self, store: &Store, keys: &str) -> RemoteWriteOutput {
        self.start_at(store, &self.receiver.url, keys)
    }

    /// Starts an output to another URL.
    pub(crate) fn start_at(&self, store: &Store, url: &str, keys: &str) -> RemoteWriteOutput {
        let interval = if keys.contains("interval") {
            ""
        } else {
            ", interval: 100ms"
        };
        self.start_targets(store, &format!("{{url: '{url}', name: t{interval}{keys}}}"))
    }

    /// Starts an output to the receivers of a list in YAML.
    pub(crate) fn start_targets(&self, store: &Store, targets: &str) -> RemoteWriteOutput {
        let text = format!("targets: [{targets}]\n");
        let tree = pegel_config::parse("pegel.yaml".as_ref(), &text).expect("YAML");
        let entry = &tree.value.entries()[0].value;
        let targets: RemoteWriteTargets = pegel_config::read(entry).expect("valid");
        let output = RemoteWriteOutput::start(RemoteWriteOptions {
            targets: targets.0,
            node: node(),
            interval: INTERVAL,
            dir: self.dir.join("store/remote_write"),
            store: store.clone(),
            supervisor: store.supervisor().clone(),
        });
        output.expect("started")
    }

    pub(crate) fn set_clock(&self, seconds: i64) {
        let by = START + seconds * 1_000 - self.clock.utc();
        match u64::try_from(by) {
            Ok(by) => self.clock.advance(Duration::from_millis(by)),
            Err(_) => self.clock.step(by),
        }
    }

    /// Stores a row of a group, which holds these series and no others.
    pub(crate) fn row(
        &self,
        store: &Store,
        seconds: i64,
        (group, family): (&str, &Family),
        values: &[(&str, f64)],
    ) {
        let mut rows = SampleGroup::new(group, 3, 5_000);
        let family = Arc::new(family.clone());
        for (device, value) in values {
            let slot = rows.declare(&family, &[("device", device)]);
            rows.set(slot.expect("valid"), *value);
        }
        let mut tick = Tick::new(family.input);
        tick.reset(START + seconds * 1_000);
        rows.append_to(&mut tick);
        self.set_clock(seconds);
        assert!(store.tick(&mut tick));
        // A push is acknowledged after everything queued before it.
        let _ = store.push(Input::Push, Vec::new());
    }

    /// Stores points: seconds after the start, and values.
    pub(crate) fn push(&self, store: &Store, name: &str, points: &[(i64, f64)]) {
        let family = Family::new("", MetricKind::Gauge, "", 1, "").of_input(Input::Put);
        let series = Series::named(Arc::new(family), name, &[]).expect("valid");
        let series = Arc::new(series);
        let point = |&(seconds, value): &(i64, f64)| Point {
            series: series.clone(),
            time: START + seconds * 1_000,
            value,
        };
        let points = points.iter().map(point).collect();
        store.push(Input::Put, points).expect("accepted");
    }

    /// Waits until a condition on the counts holds.
    #[track_caller]
    pub(crate) fn until(
        &self,
        output: &RemoteWriteOutput,
        what: &str,
        is_met: impl Fn(&RemoteWriteCounts) -> bool,
    ) -> RemoteWriteCounts {
        eventually_within(BOUND, what, || {
            let counts = output.counts().remove(0);
            if is_met(&counts) {
                Ok(counts)
            } else {
                Err(format!("{counts:?}"))
            }
        })
    }

    /// Waits until everything is confirmed.
    #[track_caller]
    pub(crate) fn until_sent(
        &self,
        store: &Store,
        output: &RemoteWriteOutput,
    ) -> RemoteWriteCounts {
        let end = store.log_end();
        self.until(output, "everything is sent", |counts| {
            // Whatever is written meanwhile.
            counts.pending == 0 && counts.pending_bytes == 0 && store.log_end() == end
        })
    }

    /// Returns all samples as PromQL sees them, in the form of the receiver.
    pub(crate) fn promql(&self, store: &Store) -> ArrivedSamples {
        let interval = Duration::from_millis(INTERVAL as u64);
        let source = StoreSource::new(store.clone(), node(), interval);
        let matchers = parse_selector("{__name__!=\"\"}").expect("valid");
        let selection = Selection {
            matchers: &matchers,
            input: None,
            start: START - 86_400_000,
            end: START + 86_400_000,
            bytes_max: 1 << 30,
            deadline: std::time::Instant::now() + BOUND,
            cancellation: QueryCancellation::default(),
        };
        let mut found = ArrivedSamples::new();
        let mut visit =
            |labels: pegel_query::promql::LabelSet,
             samples: pegel_query::promql::SelectedSamples<'_>| {
                let texts = labels.iter().filter(|(name, _)| *name != "__name__");
                let texts: Vec<String> = texts
                    .map(|(name, value)| format!("{name}={value:?}"))
                    .collect();
                let text = format!("{}{{{}}}", labels.metric_name(), texts.join(","));
                let list = samples.times.iter().zip(samples.values);
                let list = list.map(|(time, value)| (*time, value.to_bits())).collect();
                assert!(found.insert(text, list).is_none());
                Ok(())
            };
        source.select(&selection, &mut visit).expect("selected");
        found
    }
}

fn node() -> NodeLabels {
    NodeLabels {
        job: "node".into(),
        instance: "n1:1337".into(),
    }
}

/// Returns the samples of a series, whose name the text begins with, as `seconds=value`.
pub(crate) fn values(samples: &ArrivedSamples, series: &str) -> Vec<String> {
    let found = samples
        .iter()
        .filter(|(labels, _)| labels.starts_with(series));
    let list = found.flat_map(|(_, list)| list);
    list.map(|(time, bits)| {
        let (seconds, value) = ((time - START) / 1_000, f64::from_bits(*bits));
        match pegel_metric::is_stale(value) {
            true => format!("{seconds}=stale"),
            false => format!("{seconds}={value}"),
        }
    })
    .collect()
}

/// Fails if a series has a sample that is not newer than the one before.
#[track_caller]
pub(crate) fn assert_in_order(samples: &ArrivedSamples) {
    for (labels, list) in samples {
        let is_ordered = list.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(is_ordered, "{labels}: {list:?}");
    }
}

/// Fails at the first difference. Stale markers of series that have ended already mean nothing;
/// where a group is in several blocks, PromQL has more of them.
#[track_caller]
pub(crate) fn assert_same(sent: &ArrivedSamples, shown: &ArrivedSamples) {
    let is_stale = |bits: u64| pegel_metric::is_stale(f64::from_bits(bits));
    let meaningful = |list: &[(Millis, u64)]| {
        let mut kept: Vec<(Millis, u64)> = Vec::new();
        for &(time, bits) in list {
            let has_ended = kept.last().is_none_or(|last| is_stale(last.1));
            if !(has_ended && is_stale(bits)) {
                kept.push((time, bits));
            }
        }
        kept
    };
    let names = |samples: &ArrivedSamples| samples.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(sent), names(shown));
    for (labels, list) in sent {
        let (sent, shown) = (meaningful(list), meaningful(&shown[labels]));
        let differ = sent
            .iter()
            .zip(&shown)
            .position(|(one, other)| one != other);
        let differ = differ.or((sent.len() != shown.len()).then_some(sent.len().min(shown.len())));
        if let Some(at) = differ {
            let from = at.saturating_sub(2);
            let part = |list: &[(Millis, u64)]| {
                let part = list[from.min(list.len())..].iter().take(5);
                let part = part.map(|(time, bits)| ((time - START) / 1000, f64::from_bits(*bits)));
                part.collect::<Vec<_>>()
            };
            panic!("{labels}: sent {:?}, shown {:?}", part(&sent), part(&shown));
        }
    }
}
