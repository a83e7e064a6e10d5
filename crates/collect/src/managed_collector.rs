//! One collector with its state: opens it, runs its passes, catches its panics, and reopens it
//! after a failure or when an absent source may have appeared.
//!
//! The set of collectors holds one for each enabled collector. An inline collector runs here, on
//! the sampler thread. The passes of a threaded one run on its [`CollectorThread`], which holds a
//! `ManagedCollector` in turn; here its completed passes are published. A failed pass publishes
//! no values and never affects other collectors. State changes go to [`CollectorStats`], and a
//! failure is logged once per distinct reason.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{Level, Millis, SampleGroup, Tick, with_causes};
use pegel_supervisor::panic_message;

use crate::collector_thread::CollectorThread;
use crate::pass_ticks::PassTicks;
use crate::stats::CollectorStats;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorState, Context, Execution, OpenOutcome,
    OpenResult,
};

/// How long to wait before an absent source or a failed collector is opened again.
pub(crate) const ABSENT_RETRY: Duration = Duration::from_secs(60);
const FAILED_RETRY: Duration = Duration::from_secs(5);

/// One collector with its state.
#[derive(Debug)]
pub(crate) struct ManagedCollector {
    entry: &'static CollectorEntry,
    level: Level,
    rate: Duration,
    state: CollectorState,
    source: CollectorSource,
    /// The monotonic time at which it was last opened.
    opened_at: Duration,
    /// The failure is partial: values are published, and the collector is not reopened.
    is_partial: bool,
}

/// Where the values of a collector come from.
#[derive(Debug)]
enum CollectorSource {
    /// Not open: absent or failed.
    Closed,
    /// An open collector with the group of its series.
    Open(Box<dyn Collector>, SampleGroup),
    Thread(CollectorThread),
}

impl ManagedCollector {
    /// Creates a collector that runs on the calling thread; its first pass opens it.
    pub(crate) fn new(
        entry: &'static CollectorEntry,
        level: Level,
        rate: Duration,
    ) -> ManagedCollector {
        ManagedCollector {
            entry,
            level,
            rate,
            state: CollectorState::Disabled,
            source: CollectorSource::Closed,
            opened_at: Duration::ZERO,
            is_partial: false,
        }
    }

    /// Opens a collector on the thread that its [`Execution`] selects.
    pub(crate) fn start(
        entry: &'static CollectorEntry,
        level: Level,
        rate: Duration,
        context: &Context,
        stats: &CollectorStats,
    ) -> ManagedCollector {
        let mut collector = ManagedCollector::new(entry, level, rate);
        match entry.execution {
            Execution::Inline => collector.open(context, stats),
            Execution::Threaded => {
                let thread = CollectorThread::start(entry, level, rate, context, stats);
                collector.source = CollectorSource::Thread(thread);
            }
        }
        collector
    }

    /// Runs a pass and appends the values to the tick of the time at which they were read. A thread
    /// is requested to run one, which is published when it is complete. Returns how many series
    /// have a value, and the cost of the pass if that is not the time spent here; `None` if nothing
    /// was published.
    pub(crate) fn pass(
        &mut self,
        context: &Context,
        stats: &CollectorStats,
        ticks: &mut PassTicks,
    ) -> Option<(u64, Option<Duration>)> {
        if let CollectorSource::Thread(thread) = &mut self.source {
            return thread.pass(context, stats, ticks);
        }
        if self.is_open_due(context) {
            self.open(context, stats);
        }
        let before = context.clock.monotonic();
        self.run(context, stats);
        let read_at = match &self.source {
            CollectorSource::Open(collector, _) => collector.read_at(),
            CollectorSource::Closed | CollectorSource::Thread(_) => None,
        };
        // The thread may be preempted anywhere between the two.
        let read_at = read_at.unwrap_or_else(|| (before + context.clock.monotonic()) / 2);
        let tick = ticks.tick_of_pass(read_at, self.rate);
        Some((self.append_to(tick), None))
    }

    /// Returns whether a pass of its thread was requested and not published yet.
    pub(crate) fn is_pass_pending(&self) -> bool {
        match &self.source {
            CollectorSource::Thread(thread) => thread.is_pass_pending(),
            CollectorSource::Closed | CollectorSource::Open(..) => false,
        }
    }

    /// Publishes the requested pass of its thread if it is complete. Returns what
    /// [`ManagedCollector::pass`] returns; `None` if there is none.
    pub(crate) fn publish_completed(
        &mut self,
        context: &Context,
        stats: &CollectorStats,
        ticks: &mut PassTicks,
    ) -> Option<(u64, Option<Duration>)> {
        match &mut self.source {
            CollectorSource::Thread(thread) => thread.publish_completed(context, stats, ticks),
            CollectorSource::Closed | CollectorSource::Open(..) => None,
        }
    }

    /// Waits until its thread, if it has one, has completed a pass that was not published yet; at
    /// most until `deadline`.
    pub(crate) fn wait_for_thread(&self, deadline: Instant) {
        if let CollectorSource::Thread(thread) = &self.source {
            thread.wait_for_pass(deadline);
        }
    }

    /// Returns whether the source is to be opened: for the first time, or again after its retry
    /// interval.
    fn is_open_due(&self, context: &Context) -> bool {
        let wait = match self.state {
            CollectorState::Disabled => return true,
            CollectorState::Active => return false,
            CollectorState::Absent => ABSENT_RETRY,
            CollectorState::Failed if self.is_partial => return false,
            CollectorState::Failed => FAILED_RETRY,
        };
        context.clock.monotonic().saturating_sub(self.opened_at) >= wait
    }

    fn open(&mut self, context: &Context, stats: &CollectorStats) {
        self.opened_at = context.clock.monotonic();
        // Unwinding drops a partially opened collector.
        let opened: OpenResult = catch_unwind(AssertUnwindSafe(|| (self.entry.open)(context)))
            .unwrap_or_else(|panic| Err(CollectError::Panic(panic_message(&*panic)).into()));
        match opened {
            Ok(OpenOutcome::Active(collector)) => {
                // The new collector declares all its series again.
                let group = SampleGroup::new(self.entry.name, self.level, self.stale_after());
                self.source = CollectorSource::Open(collector, group);
                if self.state != CollectorState::Failed {
                    self.set_state(CollectorState::Active, None, context, stats);
                }
            }
            Ok(OpenOutcome::Absent { looked_for }) => {
                self.source = CollectorSource::Closed;
                let path = looked_for.to_string_lossy();
                self.set_state(CollectorState::Absent, Some(&path), context, stats);
            }
            Err(error) => self.fail(&with_causes(&error), context, stats),
        }
    }

    /// Returns after which time the last values are stale: up to three passes may be missing.
    fn stale_after(&self) -> Millis {
        (3 * self.rate).max(Duration::from_secs(5)).as_millis() as Millis
    }

    fn run(&mut self, context: &Context, stats: &CollectorStats) {
        let CollectorSource::Open(collector, group) = &mut self.source else {
            return;
        };
        let (result, is_usable) = run_pass(&mut **collector, group);
        let trouble = collector.partial_failure().map(str::to_owned);
        match (result, trouble) {
            (Ok(()), None) => {
                self.is_partial = false;
                if self.state != CollectorState::Active {
                    tracing::info!(collector = self.entry.name, "collector recovered");
                    self.set_state(CollectorState::Active, None, context, stats);
                }
            }
            (Ok(()), Some(reason)) => {
                self.is_partial = true;
                self.fail(&reason, context, stats);
            }
            (Err(error), _) => {
                self.is_partial = false;
                if !is_usable {
                    self.source = CollectorSource::Closed;
                }
                self.fail(&with_causes(&error), context, stats);
            }
        }
    }

    /// Appends the values of the last pass to `tick` and returns their number. A failed collector
    /// appends none, so that its old values do not appear current.
    fn append_to(&mut self, tick: &mut Tick) -> u64 {
        let CollectorSource::Open(_, group) = &mut self.source else {
            return 0;
        };
        group.append_to(tick);
        tick.rows().last().map_or(0, |row| row.present_count())
    }

    fn fail(&mut self, reason: &str, context: &Context, stats: &CollectorStats) {
        if self.set_state(CollectorState::Failed, Some(reason), context, stats) {
            tracing::warn!(
                collector = self.entry.name,
                reason,
                "collector failed or is incomplete; retrying"
            );
        }
    }

    /// Changes the state. Returns false if it and its detail are the same as before.
    fn set_state(
        &mut self,
        state: CollectorState,
        detail: Option<&str>,
        context: &Context,
        stats: &CollectorStats,
    ) -> bool {
        self.state = state;
        stats.set_state(state, detail, &*context.clock)
    }
}

/// Runs one pass; after an error the group has no values. Also returns whether the collector can go
/// on: one that failed while declaring series, or panicked, no longer knows its slots and would
/// declare more of them in each pass.
fn run_pass(
    collector: &mut dyn Collector,
    group: &mut SampleGroup,
) -> (Result<(), CollectError>, bool) {
    group.clear();
    let members = group.members().clone();
    match catch_unwind(AssertUnwindSafe(|| collector.collect(group))) {
        Ok(Ok(())) => (Ok(()), true),
        Ok(Err(error)) => {
            group.clear();
            (Err(error), Arc::ptr_eq(&members, group.members()))
        }
        Err(panic) => {
            group.clear();
            let message = panic_message(&*panic);
            (Err(CollectError::Panic(message)), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

    use pegel_metric::{Family, MetricKind};

    use super::*;
    use crate::Tier;
    use crate::collectors::testing::{SettableClock, context_without_files};
    use crate::proc_parse::ProcParseError;
    use crate::unlabelled_series::UnlabelledSeries;

    /// A collector and the context that it needs for a pass.
    struct ManagedFixture {
        context: Context,
        clock: Arc<SettableClock>,
        collector: ManagedCollector,
    }

    impl ManagedFixture {
        fn new(entry: &'static CollectorEntry) -> ManagedFixture {
            let clock = Arc::new(SettableClock(AtomicI64::new(1_000)));
            let context = context_without_files(clock.clone());
            let stats = &context.stats.collectors()[0];
            let rate = Duration::from_secs(1);
            let collector = ManagedCollector::start(entry, 4, rate, &context, stats);
            ManagedFixture {
                context,
                clock,
                collector,
            }
        }

        /// Runs a pass one second later; returns the declared series, the series with a value, and
        /// the error.
        fn pass(&mut self) -> (usize, u64, Option<String>) {
            self.clock.0.fetch_add(1_000, Relaxed);
            let mut ticks = PassTicks::new();
            let stats = &self.context.stats.collectors()[0];
            let published = self.collector.pass(&self.context, stats, &mut ticks);
            let present = published.map_or(0, |(present, _)| present);
            let row = ticks.nominal().rows().last();
            let declared = row.map_or(0, |row| row.members.series.len());
            (
                declared,
                present,
                self.context.stats.status()[0].error.clone(),
            )
        }
    }

    static FAMILY: Family = Family::new("x", MetricKind::Gauge, "", 0, "X.");

    const fn entry(open: fn(&Context) -> OpenResult) -> CollectorEntry {
        CollectorEntry::inline("x", Tier::Fast, &[], open)
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
            entry(|_| OpenOutcome::active(PanicsInSecondPass::default()));
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
            OpenOutcome::active(PanicsInSecondPass::default())
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
            OpenOutcome::active(PartlyFailingCollector(0, UnlabelledSeries::new(&FAMILY)))
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
        static ENTRY: CollectorEntry = entry(|_| OpenOutcome::active(BrokenCollector));
        let mut fixture = ManagedFixture::new(&ENTRY);
        for _ in 0..20 {
            let (declared, present, error) = fixture.pass();
            assert!(declared <= 1 && present == 0, "{declared} series");
            assert_eq!(error.as_deref(), Some("x has more than 7 names"));
        }
    }
}
