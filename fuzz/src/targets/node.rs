//! Runs collectors over a machine made of files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pegel_collect::{
    CollectSettings, CollectorEntry, CollectorSet, CollectorSettings, CollectorStatus, Host,
    REGISTRY,
};
use pegel_metric::{Input, Ledger, Tick};
use pegel_testkit::{FakeClock, TempDir};

pub(super) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

thread_local! {
    /// Creates a machine made of files, private to this thread.
    pub(super) static ROOT: TempDir = TempDir::copy_of(fixtures().join("basic"));
}

pub(super) struct Node {
    clock: Arc<FakeClock>,
    set: CollectorSet,
    pub(super) tick: Tick,
}

impl Node {
    /// Opens only the selected collectors.
    pub(super) fn open(root: &Path, is_wanted: impl Fn(&CollectorEntry) -> bool) -> Node {
        let mut settings = CollectSettings::default();
        for entry in REGISTRY.iter().filter(|entry| !is_wanted(entry)) {
            let off = CollectorSettings {
                enabled: Some(false),
                rate: None,
            };
            settings.collectors.insert(entry.name.to_owned(), off);
        }
        let host = Host {
            page_bytes: 4096,
            user_hz: 100,
            ..Host::at(root)
        };
        let clock = Arc::new(FakeClock::new(1_000_000));
        let ledger = Arc::new(Ledger::default());
        let set = CollectorSet::open(&settings, host, 4, Vec::new(), ledger, clock.clone());
        Node {
            clock,
            set: set.expect("valid"),
            tick: Tick::new(Input::Collect),
        }
    }

    /// Runs a pass after enough time for a failed collector to be reopened, and checks that none
    /// panicked.
    pub(super) fn pass(&mut self) -> Vec<CollectorStatus> {
        self.clock.advance(Duration::from_secs(6));
        self.set.sample_all(0, &mut self.tick);
        let all = self.set.status();
        for status in &all {
            let error = status.error.as_deref().unwrap_or_default();
            assert!(!error.contains("panicked"), "{}: {error}", status.name);
        }
        all
    }
}
