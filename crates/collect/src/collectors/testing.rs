//! Shared helpers for the unit tests of the collectors.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use pegel_metric::{Clock, Input, Ledger, Millis, SampleGroup, Tick, format_value};
use pegel_supervisor::Supervisor;

use crate::proc_file::SharedFile;
use crate::proc_parse::ProcParseError;
use crate::{Context, CurrentOperation, Host, SamplerStats};

/// A clock that returns the time set by the test.
#[derive(Debug)]
pub(crate) struct SettableClock(pub AtomicI64);

impl Clock for SettableClock {
    fn utc(&self) -> Millis {
        self.0.load(Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed).unsigned_abs())
    }
}

/// Returns the context of a node without files and with a single collector, `x`.
pub(crate) fn context_without_files(clock: Arc<SettableClock>) -> Context {
    Context {
        host: Host::at(Path::new("/nonexistent")),
        clock: clock.clone(),
        ledger: Arc::new(Ledger::default()),
        self_metrics: Vec::new(),
        stats: Arc::new(SamplerStats::new(["x"].into_iter())),
        supervisor: Supervisor::default(),
        operation: CurrentOperation::default(),
        proc_stat: Arc::new(SharedFile::new("/nonexistent".into(), clock)),
        live_processes: Arc::default(),
    }
}

/// Returns the present series of a group and their values, as `name{…} value`.
pub(crate) fn present_series(group: &mut SampleGroup) -> Vec<String> {
    let mut tick = Tick::new(Input::Collect);
    tick.reset(0);
    group.append_to(&mut tick);
    let row = &tick.rows()[0];
    let mut texts = Vec::new();
    for (index, series) in row.members.series.iter().enumerate() {
        if row.is_present(index) {
            let mut text = format!("{series} ");
            format_value(&mut text, row.values[index]);
            texts.push(text);
        }
    }
    texts
}

/// Asserts that `update` rejects each text with the given line and message.
pub(crate) fn update_fails(
    update: impl Fn(&[u8]) -> Result<(), ProcParseError>,
    cases: &[(&str, usize, &'static str)],
) {
    for &(text, line, what) in cases {
        assert_eq!(
            update(text.as_bytes()),
            Err(ProcParseError::Malformed { line, what }),
            "{text:?}"
        );
    }
}
