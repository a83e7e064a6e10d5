//! One collector with its life cycle: opens it, runs its passes, catches its panics, and reopens it after a
//! failure or when an absent source may have appeared.
//!
//! Used on the sampler thread for inline collectors and on their own thread for threaded ones. A failed pass
//! publishes no values and never affects other collectors. State changes go to [`CollectorStats`], and a failure
//! is logged once per distinct reason.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Level, Millis, SampleGroup, Tick, with_causes};
use pegel_supervisor::panic_message;

use crate::stats::CollectorStats;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, CollectorState, Context,
    OpenOutcome,
};

/// How long to wait before an absent source or a failed collector is opened again.
pub(crate) const ABSENT_RETRY: Duration = Duration::from_secs(60);
const FAILED_RETRY: Duration = Duration::from_secs(5);

/// One collector with its group of series and its state.
#[derive(Debug)]
pub(crate) struct ManagedCollector {
    entry: &'static CollectorEntry,
    level: Level,
    stale_after: Millis,
    state: CollectorState,
    reason: String,
    /// `None` until it was opened successfully.
    open_collector: Option<OpenCollector>,
    /// The monotonic time at which it was last opened.
    opened_at: Duration,
    /// The failure is partial: values are published, and the collector is not reopened.
    is_partial: bool,
}

#[derive(Debug)]
struct OpenCollector {
    collector: Box<dyn Collector>,
    group: SampleGroup,
    /// The collector is unusable after the last pass and must be replaced.
    must_reopen: bool,
}

impl OpenCollector {
    /// Runs one pass; after an error the group has no values. A collector that failed while declaring
    /// series, or panicked, must be reopened: it no longer knows its slots and would declare more of
    /// them in each pass.
    fn pass(&mut self) -> Result<(), CollectError> {
        self.group.clear();
        let members = self.group.members().clone();
        let (collector, group) = (&mut self.collector, &mut self.group);
        let result = catch_unwind(AssertUnwindSafe(|| collector.collect(group)));
        let panicked = result.is_err();
        let result =
            result.unwrap_or_else(|panic| Err(CollectError::Panic(panic_message(&*panic))));
        if result.is_err() {
            self.group.clear();
            self.must_reopen = panicked || !Arc::ptr_eq(&members, self.group.members());
        }
        result
    }
}

impl ManagedCollector {
    pub(crate) fn new(
        entry: &'static CollectorEntry,
        level: Level,
        rate: Duration,
    ) -> ManagedCollector {
        // Up to three passes may be missing before the last values become stale.
        let stale_after = (3 * rate).max(Duration::from_secs(5));
        ManagedCollector {
            entry,
            level,
            stale_after: stale_after.as_millis() as Millis,
            state: CollectorState::Disabled,
            reason: String::new(),
            open_collector: None,
            opened_at: Duration::ZERO,
            is_partial: false,
        }
    }

    pub(crate) fn open(&mut self, context: &Context, stats: &CollectorStats) {
        self.opened_at = context.clock.monotonic();
        let at = context.clock.utc();
        match self.try_open(context) {
            Ok(OpenOutcome::Active(collector)) => {
                // The new collector declares all its series again.
                let group = SampleGroup::new(self.entry.name, self.level, self.stale_after);
                self.open_collector = Some(OpenCollector {
                    collector,
                    group,
                    must_reopen: false,
                });
                if self.state != CollectorState::Failed {
                    self.set_state(CollectorState::Active, None, at, stats);
                }
            }
            Ok(OpenOutcome::Absent { looked_for }) => {
                self.open_collector = None;
                self.set_state(
                    CollectorState::Absent,
                    Some(looked_for.display().to_string()),
                    at,
                    stats,
                );
            }
            Err(error) => self.fail(with_causes(&error), at, stats),
        }
    }

    fn try_open(&self, context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
        // Unwinding drops a partially opened collector.
        catch_unwind(AssertUnwindSafe(|| (self.entry.open)(context)))
            .unwrap_or_else(|panic| Err(CollectError::Panic(panic_message(&*panic)).into()))
    }

    /// Runs one pass; reopens the source first if its retry interval has passed.
    pub(crate) fn pass(&mut self, context: &Context, stats: &CollectorStats) {
        let wait = match self.state {
            CollectorState::Active => Duration::MAX,
            CollectorState::Disabled => return,
            CollectorState::Absent => ABSENT_RETRY,
            CollectorState::Failed if self.is_partial => Duration::MAX,
            CollectorState::Failed => FAILED_RETRY,
        };
        if self.state != CollectorState::Active
            && context.clock.monotonic().saturating_sub(self.opened_at) >= wait
        {
            self.open(context, stats);
        }
        let Some(work) = &mut self.open_collector else {
            return;
        };
        let result = work.pass();
        let trouble = work.collector.partial_failure().map(str::to_owned);
        self.is_partial = result.is_ok() && trouble.is_some();
        match (result, trouble) {
            (Ok(()), None) if self.state == CollectorState::Active => {}
            (Ok(()), None) => {
                tracing::info!(collector = self.entry.name, "collector recovered");
                self.set_state(CollectorState::Active, None, context.clock.utc(), stats);
            }
            (Ok(()), Some(reason)) => self.fail(reason, context.clock.utc(), stats),
            (Err(error), _) => {
                if work.must_reopen {
                    self.open_collector = None;
                }
                self.fail(with_causes(&error), context.clock.utc(), stats);
            }
        }
    }

    /// Appends the values of the last pass to `tick` and returns their number. A failed collector appends none, so
    /// that its old values do not appear current.
    pub(crate) fn append_to(&mut self, tick: &mut Tick) -> u64 {
        let Some(work) = &mut self.open_collector else {
            return 0;
        };
        work.group.append_to(tick);
        tick.rows().last().map_or(0, |row| row.present_count())
    }

    fn fail(&mut self, reason: String, at: Millis, stats: &CollectorStats) {
        if self.state == CollectorState::Failed && self.reason == reason {
            return;
        }
        tracing::warn!(
            collector = self.entry.name,
            reason,
            "collector failed or is incomplete; retrying"
        );
        self.reason.clone_from(&reason);
        self.set_state(CollectorState::Failed, Some(reason), at, stats);
    }

    fn set_state(
        &mut self,
        to: CollectorState,
        detail: Option<String>,
        at: Millis,
        stats: &CollectorStats,
    ) {
        self.state = to;
        stats.set_state(to, at, detail);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

    use pegel_metric::{Family, Input, Ledger, MetricKind};
    use pegel_supervisor::Supervisor;

    use super::*;
    use crate::collectors::testing::SettableClock;
    use crate::proc_file::SharedFile;
    use crate::proc_parse::ProcParseError;
    use crate::unlabelled_series::UnlabelledSeries;
    use crate::{CurrentOperation, Execution, Host, SamplerStats, Tier};

    /// A collector and the context that it needs for a pass.
    struct ManagedFixture {
        context: Context,
        clock: Arc<SettableClock>,
        collector: ManagedCollector,
    }

    impl ManagedFixture {
        fn new(entry: &'static CollectorEntry) -> ManagedFixture {
            let clock = Arc::new(SettableClock(AtomicI64::new(1_000)));
            let context = Context {
                host: Host::at(Path::new("/nonexistent")),
                clock: clock.clone(),
                ledger: Arc::new(Ledger::default()),
                self_metrics: Vec::new(),
                stats: Arc::new(SamplerStats::new([entry.name].into_iter())),
                supervisor: Supervisor::default(),
                operation: CurrentOperation::default(),
                proc_stat: Arc::new(SharedFile::new("/nonexistent".into())),
            };
            let mut collector = ManagedCollector::new(entry, 4, Duration::from_secs(1));
            collector.open(&context, &context.stats.collectors()[0]);
            ManagedFixture {
                context,
                clock,
                collector,
            }
        }

        /// Runs a pass one second later; returns the declared series, the series with a value, and the error.
        fn pass(&mut self) -> (usize, u64, Option<String>) {
            self.clock.0.fetch_add(1_000, Relaxed);
            let mut tick = Tick::new(Input::Collect);
            tick.reset(0);
            let stats = &self.context.stats.collectors()[0];
            self.collector.pass(&self.context, stats);
            let present = self.collector.append_to(&mut tick);
            let row = tick.rows().last();
            let declared = row.map_or(0, |row| row.members.series.len());
            (
                declared,
                present,
                self.context.stats.status()[0].error.clone(),
            )
        }
    }

    static FAMILY: Family = Family::new("x", MetricKind::Gauge, "", 0, "X.");

    const fn entry(
        open: fn(&Context) -> Result<OpenOutcome, CollectorOpenError>,
    ) -> CollectorEntry {
        CollectorEntry {
            name: "x",
            tier: Tier::Fast,
            execution: Execution::Inline,
            level: 0,
            families: &[],
            open,
        }
    }

    /// Sets one series; panics in its second pass.
    #[derive(Debug, Default)]
    struct PanicsInSecondPass(u32);

    impl Collector for PanicsInSecondPass {
        fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
            self.0 += 1;
            assert_ne!(self.0, 2, "pass two");
            let slot = out.declare(&Arc::new(FAMILY.clone()), &[]);
            let slot = slot.map_err(|error| ProcParseError::from(error).at_path(Path::new("x")))?;
            out.set(slot, 1.0);
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_a_failure_of_that_collector_and_it_is_opened_anew() {
        static ENTRY: CollectorEntry =
            entry(|_| Ok(OpenOutcome::Active(Box::<PanicsInSecondPass>::default())));
        let mut fixture = ManagedFixture::new(&ENTRY);
        assert_eq!(fixture.pass(), (1, 1, None));
        let (_, present, error) = fixture.pass();
        assert_eq!(present, 0);
        let error = error.expect("failed");
        assert!(
            error.starts_with("panicked: ") && error.contains("pass two"),
            "{error}"
        );
        for _ in 0..2 {
            assert_eq!(fixture.pass().1, 0, "nothing until it is opened again");
        }
        assert_eq!(
            fixture.pass(),
            (1, 1, None),
            "five seconds after it was opened"
        );
    }

    #[test]
    fn a_panic_while_opening_is_a_failure_too() {
        static OPENED: AtomicU32 = AtomicU32::new(0);
        static ENTRY: CollectorEntry = entry(|_| {
            assert!(OPENED.fetch_add(1, Relaxed) > 0, "not yet");
            Ok(OpenOutcome::Active(Box::<PanicsInSecondPass>::default()))
        });
        let mut fixture = ManagedFixture::new(&ENTRY);
        assert_eq!(fixture.pass(), (0, 0, Some("panicked: not yet".to_owned())));
        let recovered = (0..4).any(|_| fixture.pass() == (1, 1, None));
        assert!(recovered, "{:?}", fixture.context.stats.status());
    }

    /// Reports a partial failure from its second pass on.
    #[derive(Debug)]
    struct PartlyFailingCollector(u32, UnlabelledSeries);

    impl Collector for PartlyFailingCollector {
        fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
            self.0 += 1;
            self.1.set(out, f64::from(self.0)).expect("valid");
            Ok(())
        }

        fn partial_failure(&self) -> Option<&str> {
            (2..9).contains(&self.0).then_some("a part is missing")
        }
    }

    #[test]
    fn a_partial_failure_keeps_the_values_and_the_collector() {
        static ENTRY: CollectorEntry = entry(|_| {
            Ok(OpenOutcome::Active(Box::new(PartlyFailingCollector(
                0,
                UnlabelledSeries::new(&FAMILY),
            ))))
        });
        let mut fixture = ManagedFixture::new(&ENTRY);
        assert_eq!(fixture.pass(), (1, 1, None));
        for _ in 2..9 {
            let reason = Some("a part is missing".to_owned());
            assert_eq!(fixture.pass(), (1, 1, reason), "longer than five seconds");
        }
        assert_eq!(fixture.pass(), (1, 1, None));
    }

    /// Declares a series and fails, in every pass.
    #[derive(Debug)]
    struct BrokenCollector;

    impl Collector for BrokenCollector {
        fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
            let declared = out.declare(&Arc::new(FAMILY.clone()), &[]);
            declared.map_err(|error| ProcParseError::from(error).at_path(Path::new("x")))?;
            Err(ProcParseError::TooManyNames(7).at_path(Path::new("x")))
        }
    }

    #[test]
    fn a_collector_that_breaks_off_does_not_declare_series_without_end() {
        static ENTRY: CollectorEntry =
            entry(|_| Ok(OpenOutcome::Active(Box::new(BrokenCollector))));
        let mut fixture = ManagedFixture::new(&ENTRY);
        for _ in 0..20 {
            let (declared, present, error) = fixture.pass();
            assert!(declared <= 1 && present == 0, "{declared} series");
            assert_eq!(error.as_deref(), Some("x has more than 7 names"));
        }
    }
}
