use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use pegel_config::with_causes;
use pegel_metric::{Group, Level, Millis, Tick};
use pegel_supervisor::panic_message;

use crate::figures::CollectorFigures;
use crate::{CollectError, Collector, Context, Entry, OpenError, Opened, State};

/// How long to wait before an absent source is looked for again, or a failed one opened again.
pub(crate) const ABSENT_WAIT: Duration = Duration::from_secs(60);
const FAILED_WAIT: Duration = Duration::from_secs(5);

/// One collector with its group of series and its state.
#[derive(Debug)]
pub(crate) struct Station {
    entry: &'static Entry,
    level: Level,
    live_for: Millis,
    state: State,
    reason: String,
    /// Set from the first time that it could be opened.
    work: Option<Work>,
    /// The monotonic time at which it was last opened.
    opened: Duration,
    /// Failed in a part only: it has values, and is not opened again.
    is_partial: bool,
}

#[derive(Debug)]
struct Work {
    collector: Box<dyn Collector>,
    group: Group,
    /// After this a new collector has to begin anew.
    is_spoiled: bool,
}

impl Work {
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
            self.is_spoiled = panicked || !Arc::ptr_eq(&members, self.group.members());
        }
        result
    }
}

impl Station {
    pub(crate) fn new(entry: &'static Entry, level: Level, rate: Duration) -> Station {
        // Three passes may be missing before the last values are taken for gone.
        let live_for = (3 * rate).max(Duration::from_secs(5));
        Station {
            entry,
            level,
            live_for: live_for.as_millis() as Millis,
            state: State::Disabled,
            reason: String::new(),
            work: None,
            opened: Duration::ZERO,
            is_partial: false,
        }
    }

    pub(crate) fn open(&mut self, context: &Context, figures: &CollectorFigures) {
        self.opened = context.clock.monotonic();
        let at = context.clock.utc();
        match self.try_open(context) {
            Ok(Opened::Active(collector)) => {
                // The new collector declares its series from the beginning.
                let group = Group::new(self.entry.name, self.level, self.live_for);
                self.work = Some(Work {
                    collector,
                    group,
                    is_spoiled: false,
                });
                if self.state != State::Failed {
                    self.turn(State::Active, None, at, figures);
                }
            }
            Ok(Opened::Absent { looked_for }) => {
                self.work = None;
                self.turn(
                    State::Absent,
                    Some(looked_for.display().to_string()),
                    at,
                    figures,
                );
            }
            Err(error) => self.fail(with_causes(&error), at, figures),
        }
    }

    fn try_open(&self, context: &Context) -> Result<Opened, OpenError> {
        // What was half made when it panicked is dropped on the way.
        catch_unwind(AssertUnwindSafe(|| (self.entry.open)(context)))
            .unwrap_or_else(|panic| Err(CollectError::Panic(panic_message(&*panic)).into()))
    }

    /// Takes one pass; opens the source again where it is time.
    pub(crate) fn pass(&mut self, context: &Context, figures: &CollectorFigures) {
        let wait = match self.state {
            State::Active => Duration::MAX,
            State::Disabled => return,
            State::Absent => ABSENT_WAIT,
            State::Failed if self.is_partial => Duration::MAX,
            State::Failed => FAILED_WAIT,
        };
        if self.state != State::Active
            && context.clock.monotonic().saturating_sub(self.opened) >= wait
        {
            self.open(context, figures);
        }
        let Some(work) = &mut self.work else { return };
        let result = work.pass();
        let trouble = work.collector.trouble().map(str::to_owned);
        self.is_partial = result.is_ok() && trouble.is_some();
        match (result, trouble) {
            (Ok(()), None) if self.state == State::Active => {}
            (Ok(()), None) => {
                tracing::info!(collector = self.entry.name, "a collector works again");
                self.turn(State::Active, None, context.clock.utc(), figures);
            }
            (Ok(()), Some(reason)) => self.fail(reason, context.clock.utc(), figures),
            (Err(error), _) => {
                if work.is_spoiled {
                    self.work = None;
                }
                self.fail(with_causes(&error), context.clock.utc(), figures);
            }
        }
    }

    /// Puts the values of the last pass into `tick`; returns how many there are. A failed collector puts none, so that its old
    /// values are not taken for current ones.
    pub(crate) fn append_to(&mut self, tick: &mut Tick) -> u64 {
        let Some(work) = &mut self.work else { return 0 };
        work.group.append_to(tick);
        tick.rows().last().map_or(0, |row| row.present_count())
    }

    fn fail(&mut self, reason: String, at: Millis, figures: &CollectorFigures) {
        if self.state == State::Failed && self.reason == reason {
            return;
        }
        tracing::warn!(
            collector = self.entry.name,
            reason,
            "a collector failed, wholly or in part, and is tried again"
        );
        self.reason.clone_from(&reason);
        self.turn(State::Failed, Some(reason), at, figures);
    }

    fn turn(&mut self, to: State, note: Option<String>, at: Millis, figures: &CollectorFigures) {
        self.state = to;
        figures.turned(to, at, note);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};

    use pegel_metric::{Family, Input, Kind, Ledger};
    use pegel_supervisor::Supervisor;

    use super::*;
    use crate::collectors::testing::SettableClock;
    use crate::procfile::SharedFile;
    use crate::scan::Fault;
    use crate::single::Single;
    use crate::{Figures, Host, Note, Pace, Tier};

    /// A station, and what it needs for a pass.
    struct Stand {
        context: Context,
        clock: Arc<SettableClock>,
        station: Station,
    }

    impl Stand {
        fn new(entry: &'static Entry) -> Stand {
            let clock = Arc::new(SettableClock(AtomicI64::new(1_000)));
            let context = Context {
                host: Host::at(Path::new("/nonexistent")),
                clock: clock.clone(),
                ledger: Arc::new(Ledger::default()),
                own: Vec::new(),
                figures: Arc::new(Figures::new([entry.name].into_iter())),
                supervisor: Supervisor::default(),
                note: Note::default(),
                stat: Arc::new(SharedFile::new("/nonexistent".into())),
            };
            let mut station = Station::new(entry, 4, Duration::from_secs(1));
            station.open(&context, &context.figures.collectors()[0]);
            Stand {
                context,
                clock,
                station,
            }
        }

        /// A pass one second later: how many series it declared, how many have a value, the failure.
        fn pass(&mut self) -> (usize, u64, Option<String>) {
            self.clock.0.fetch_add(1_000, Relaxed);
            let mut tick = Tick::new(Input::Collect);
            tick.reset(0);
            let figures = &self.context.figures.collectors()[0];
            self.station.pass(&self.context, figures);
            let present = self.station.append_to(&mut tick);
            let row = tick.rows().last();
            let declared = row.map_or(0, |row| row.members.series.len());
            (
                declared,
                present,
                self.context.figures.status()[0].error.clone(),
            )
        }
    }

    static FAMILY: Family = Family::new("x", Kind::Gauge, "", 0, "X.");

    const fn entry(open: fn(&Context) -> Result<Opened, OpenError>) -> Entry {
        Entry {
            name: "x",
            tier: Tier::Fast,
            pace: Pace::Here,
            level: 0,
            families: &[],
            open,
        }
    }

    /// Sets one series; panics in its second pass.
    #[derive(Debug, Default)]
    struct Second(u32);

    impl Collector for Second {
        fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
            self.0 += 1;
            assert_ne!(self.0, 2, "pass two");
            let slot = out.declare(&Arc::new(FAMILY.clone()), &[]);
            let slot = slot.map_err(|error| Fault::from(error).at(Path::new("x")))?;
            out.set(slot, 1.0);
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_a_failure_of_that_collector_and_it_is_opened_anew() {
        static ENTRY: Entry = entry(|_| Ok(Opened::Active(Box::<Second>::default())));
        let mut stand = Stand::new(&ENTRY);
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
        static ENTRY: Entry = entry(|_| {
            assert!(OPENED.fetch_add(1, Relaxed) > 0, "not yet");
            Ok(Opened::Active(Box::<Second>::default()))
        });
        let mut stand = Stand::new(&ENTRY);
        assert_eq!(stand.pass(), (0, 0, Some("panicked: not yet".to_owned())));
        let recovered = (0..4).any(|_| stand.pass() == (1, 1, None));
        assert!(recovered, "{:?}", stand.context.figures.status());
    }

    /// Says in its second pass that a part is missing.
    #[derive(Debug)]
    struct Partial(u32, Single);

    impl Collector for Partial {
        fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
            self.0 += 1;
            self.1.set(out, f64::from(self.0)).expect("valid");
            Ok(())
        }

        fn trouble(&self) -> Option<&str> {
            (2..9).contains(&self.0).then_some("a part is missing")
        }
    }

    #[test]
    fn a_partial_failure_keeps_the_values_and_the_collector() {
        static ENTRY: Entry =
            entry(|_| Ok(Opened::Active(Box::new(Partial(0, Single::new(&FAMILY))))));
        let mut stand = Stand::new(&ENTRY);
        assert_eq!(stand.pass(), (1, 1, None));
        for _ in 2..9 {
            let reason = Some("a part is missing".to_owned());
            assert_eq!(stand.pass(), (1, 1, reason), "longer than five seconds");
        }
        assert_eq!(stand.pass(), (1, 1, None));
    }

    /// Declares a series and breaks off, each time.
    #[derive(Debug)]
    struct Broken;

    impl Collector for Broken {
        fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
            let declared = out.declare(&Arc::new(FAMILY.clone()), &[]);
            declared.map_err(|error| Fault::from(error).at(Path::new("x")))?;
            Err(Fault::Many(7).at(Path::new("x")))
        }
    }

    #[test]
    fn a_collector_that_breaks_off_does_not_declare_series_without_end() {
        static ENTRY: Entry = entry(|_| Ok(Opened::Active(Box::new(Broken))));
        let mut stand = Stand::new(&ENTRY);
        for _ in 0..20 {
            let (declared, present, error) = stand.pass();
            assert!(declared <= 1 && present == 0, "{declared} series");
            assert_eq!(error.as_deref(), Some("x has more than 7 names"));
        }
    }
}
