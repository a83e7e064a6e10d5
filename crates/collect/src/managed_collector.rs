use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use pegel_config::with_causes;
use pegel_metric::{Level, Millis, SampleGroup, Tick};
use pegel_supervisor::panic_message;

use crate::stats::CollectorStats;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, CollectorState, Context,
    OpenOutcome,
};

/// How long to wait before an absent source is looked for again, or a failed one opened again.
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
    /// Set from the first time that it could be opened.
    open_collector: Option<OpenCollector>,
    /// The monotonic time at which it was last opened.
    opened_at: Duration,
    /// Failed in a part only: it has values, and is not opened again.
    is_partial: bool,
}

#[derive(Debug)]
struct OpenCollector {
    collector: Box<dyn Collector>,
    group: SampleGroup,
    /// After this a new collector has to begin anew.
    must_reopen: bool,
}

impl OpenCollector {
    /// After an error there are no values. A collector that broke off while it declared series, or
    /// panicked, is spoiled: it no longer knows which slots are its own, and would declare more of
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
        // Three passes may be missing before the last values are taken for gone.
        let live_for = (3 * rate).max(Duration::from_secs(5));
        ManagedCollector {
            entry,
            level,
            stale_after: live_for.as_millis() as Millis,
            state: CollectorState::Disabled,
            reason: String::new(),
            open_collector: None,
            opened_at: Duration::ZERO,
            is_partial: false,
        }
    }

    pub(crate) fn open(&mut self, context: &Context, figures: &CollectorStats) {
        self.opened_at = context.clock.monotonic();
        let at = context.clock.utc();
        match self.try_open(context) {
            Ok(OpenOutcome::Active(collector)) => {
                // The new collector declares its series from the beginning.
                let group = SampleGroup::new(self.entry.name, self.level, self.stale_after);
                self.open_collector = Some(OpenCollector {
                    collector,
                    group,
                    must_reopen: false,
                });
                if self.state != CollectorState::Failed {
                    self.set_state(CollectorState::Active, None, at, figures);
                }
            }
            Ok(OpenOutcome::Absent { looked_for }) => {
                self.open_collector = None;
                self.set_state(
                    CollectorState::Absent,
                    Some(looked_for.display().to_string()),
                    at,
                    figures,
                );
            }
            Err(error) => self.fail(with_causes(&error), at, figures),
        }
    }

    fn try_open(&self, context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
        // What was half made when it panicked is dropped on the way.
        catch_unwind(AssertUnwindSafe(|| (self.entry.open)(context)))
            .unwrap_or_else(|panic| Err(CollectError::Panic(panic_message(&*panic)).into()))
    }

    /// Takes one pass; opens the source again where it is time.
    pub(crate) fn pass(&mut self, context: &Context, figures: &CollectorStats) {
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
            self.open(context, figures);
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
                tracing::info!(collector = self.entry.name, "a collector works again");
                self.set_state(CollectorState::Active, None, context.clock.utc(), figures);
            }
            (Ok(()), Some(reason)) => self.fail(reason, context.clock.utc(), figures),
            (Err(error), _) => {
                if work.must_reopen {
                    self.open_collector = None;
                }
                self.fail(with_causes(&error), context.clock.utc(), figures);
            }
        }
    }

    /// Puts the values of the last pass into `tick`; returns how many there are. A failed collector puts none, so that its old
    /// values are not taken for current ones.
    pub(crate) fn append_to(&mut self, tick: &mut Tick) -> u64 {
        let Some(work) = &mut self.open_collector else {
            return 0;
        };
        work.group.append_to(tick);
        tick.rows().last().map_or(0, |row| row.present_count())
    }

    fn fail(&mut self, reason: String, at: Millis, figures: &CollectorStats) {
        if self.state == CollectorState::Failed && self.reason == reason {
            return;
        }
        tracing::warn!(
            collector = self.entry.name,
            reason,
            "a collector failed, wholly or in part, and is tried again"
        );
        self.reason.clone_from(&reason);
        self.set_state(CollectorState::Failed, Some(reason), at, figures);
    }

    fn set_state(
        &mut self,
        to: CollectorState,
        note: Option<String>,
        at: Millis,
        figures: &CollectorStats,
    ) {
        self.state = to;
        figures.set_state(to, at, note);
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

    /// A station, and what it needs for a pass.
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
            let mut station = ManagedCollector::new(entry, 4, Duration::from_secs(1));
            station.open(&context, &context.stats.collectors()[0]);
            ManagedFixture {
                context,
                clock,
                collector: station,
            }
        }

        /// A pass one second later: how many series it declared, how many have a value, the failure.
        fn pass(&mut self) -> (usize, u64, Option<String>) {
            self.clock.0.fetch_add(1_000, Relaxed);
            let mut tick = Tick::new(Input::Collect);
            tick.reset(0);
            let figures = &self.context.stats.collectors()[0];
            self.collector.pass(&self.context, figures);
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
        let mut stand = ManagedFixture::new(&ENTRY);
        assert_eq!(stand.pass(), (1, 1, None));
        let (_, present, error) = stand.pass();
        assert_eq!(present, 0);
        let error = error.expect("failed");
        assert!(
            error.starts_with("panicked: ") && error.contains("pass two"),
            "{error}"
        );
        for _ in 0..2 {
            assert_eq!(stand.pass().1, 0, "nothing until it is opened again");
        }
        assert_eq!(
            stand.pass(),
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
        let mut stand = ManagedFixture::new(&ENTRY);
        assert_eq!(stand.pass(), (0, 0, Some("panicked: not yet".to_owned())));
        let recovered = (0..4).any(|_| stand.pass() == (1, 1, None));
        assert!(recovered, "{:?}", stand.context.stats.status());
    }

    /// Says in its second pass that a part is missing.
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
        let mut stand = ManagedFixture::new(&ENTRY);
        assert_eq!(stand.pass(), (1, 1, None));
        for _ in 2..9 {
            let reason = Some("a part is missing".to_owned());
            assert_eq!(stand.pass(), (1, 1, reason), "longer than five seconds");
        }
        assert_eq!(stand.pass(), (1, 1, None));
    }

    /// Declares a series and breaks off, each time.
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
        let mut stand = ManagedFixture::new(&ENTRY);
        for _ in 0..20 {
            let (declared, present, error) = stand.pass();
            assert!(declared <= 1 && present == 0, "{declared} series");
            assert_eq!(error.as_deref(), Some("x has more than 7 names"));
        }
    }
}
