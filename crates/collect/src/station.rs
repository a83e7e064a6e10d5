use std::error::Error;
use std::time::Duration;

use pegel_metric::{Group, Level, Millis, Tick};

use crate::figures::CollectorFigures;
use crate::{Collector, Context, Entry, Opened, State};

/// How long to wait before an absent source is looked for again, or a failed one opened again.
const ABSENT_WAIT: Duration = Duration::from_secs(60);
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
}

#[derive(Debug)]
struct Work {
    collector: Box<dyn Collector>,
    group: Group,
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
        }
    }

    pub(crate) fn open(&mut self, context: &Context, figures: &CollectorFigures) {
        self.opened = context.clock.monotonic();
        let at = context.clock.utc();
        match (self.entry.open)(context) {
            Ok(Opened::Active(collector)) => {
                // The new collector declares its series from the beginning.
                let group = Group::new(self.entry.name, self.level, self.live_for);
                self.work = Some(Work { collector, group });
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
            Err(error) => self.fail(&error, at, figures),
        }
    }

    /// Takes one pass; opens the source again where it is time.
    pub(crate) fn pass(&mut self, context: &Context, figures: &CollectorFigures) {
        let wait = match self.state {
            State::Active => Duration::MAX,
            State::Disabled => return,
            State::Absent => ABSENT_WAIT,
            State::Failed => FAILED_WAIT,
        };
        if self.state != State::Active
            && context.clock.monotonic().saturating_sub(self.opened) >= wait
        {
            self.open(context, figures);
        }
        let Some(Work { collector, group }) = &mut self.work else {
            return;
        };
        group.clear();
        match collector.collect(group) {
            Ok(()) if self.state == State::Active => {}
            Ok(()) => {
                tracing::info!(collector = self.entry.name, "a collector works again");
                self.turn(State::Active, None, context.clock.utc(), figures);
            }
            Err(error) => {
                group.clear();
                self.fail(&error, context.clock.utc(), figures);
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

    fn fail(&mut self, error: &dyn Error, at: Millis, figures: &CollectorFigures) {
        let reason = chain(error);
        if self.state == State::Failed && self.reason == reason {
            return;
        }
        tracing::warn!(
            collector = self.entry.name,
            reason,
            "a collector failed and is tried again"
        );
        self.reason.clone_from(&reason);
        self.turn(State::Failed, Some(reason), at, figures);
    }

    fn turn(&mut self, to: State, note: Option<String>, at: Millis, figures: &CollectorFigures) {
        self.state = to;
        figures.turned(to, at, note);
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
