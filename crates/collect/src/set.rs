use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{Clock, Ledger, Level, Millis, Tick};

use crate::aside::{Aside, Note};
use crate::figures::CollectorFigures;
use crate::procfile::SharedFile;
use crate::station::Station;
use crate::{
    CollectorStatus, Context, Entry, Figures, Host, Own, Pace, REGISTRY, Settings, SettingsError,
};

/// All collectors of a node, opened, each with its state. Belongs to one thread.
#[derive(Debug)]
pub struct CollectorSet {
    context: Context,
    /// In the order of the registry; `None` for those that are disabled.
    stations: Vec<Option<Seat>>,
    rates: Vec<Duration>,
}

#[derive(Debug)]
struct Seat {
    place: Place,
    /// Its rate, as a position in `rates`.
    track: usize,
}

/// Where a collector runs.
#[derive(Debug)]
enum Place {
    Here(Station),
    Aside(Aside),
}

impl Place {
    fn open(
        entry: &'static Entry,
        level: Level,
        rate: Duration,
        context: &Context,
        figures: &CollectorFigures,
    ) -> Place {
        match entry.pace {
            Pace::Here => {
                let mut station = Station::new(entry, level, rate);
                station.open(context, figures);
                Place::Here(station)
            }
            Pace::Aside => Place::Aside(Aside::new(entry, level, rate, context, figures)),
        }
    }

    /// Takes or picks up one pass. Returns how many series have a value, and what the pass cost
    /// where that is not the time spent here.
    fn pass(
        &mut self,
        context: &Context,
        figures: &CollectorFigures,
        tick: &mut Tick,
    ) -> (u64, Option<Duration>) {
        match self {
            Place::Here(station) => {
                station.pass(context, figures);
                (station.append_to(tick), None)
            }
            Place::Aside(aside) => aside.pass(context, figures, tick),
        }
    }
}

impl CollectorSet {
    /// Opens every collector that the settings and the level allow.
    pub fn open(
        settings: &Settings,
        host: Host,
        level: Level,
        own: Vec<Arc<dyn Own>>,
        ledger: Arc<Ledger>,
        clock: Arc<dyn Clock>,
    ) -> Result<CollectorSet, SettingsError> {
        settings.check()?;
        let figures = Arc::new(Figures::new(REGISTRY.iter().map(|entry| entry.name)));
        let stat = Arc::new(SharedFile::new(host.proc.join("stat")));
        let context = Context {
            host,
            clock,
            ledger,
            own,
            figures,
            supervisor: settings.supervisor.clone(),
            note: Note::default(),
            stat,
        };
        let mut rates: Vec<Duration> = Vec::new();
        let mut stations = Vec::new();
        for (entry, figures) in REGISTRY.iter().zip(context.figures.collectors()) {
            if !settings.is_enabled(entry) || entry.level > level {
                stations.push(None);
                continue;
            }
            let rate = settings.rate_of(entry);
            let track = rates
                .iter()
                .position(|other| *other == rate)
                .unwrap_or_else(|| {
                    rates.push(rate);
                    rates.len() - 1
                });
            let place = Place::open(entry, level, rate, &context, figures);
            stations.push(Some(Seat { place, track }));
        }
        Ok(CollectorSet {
            context,
            stations,
            rates,
        })
    }

    /// The different rates. A collector's track is the position of its rate.
    pub fn rates(&self) -> &[Duration] {
        &self.rates
    }

    /// Runs the collectors of the tracks in `due` and makes `tick` the samples of `time`.
    pub fn sample(&mut self, time: Millis, due: &[usize], tick: &mut Tick) {
        self.context.stat.begin_pass();
        tick.reset(time);
        let clock = &self.context.clock;
        let mut before = clock.monotonic();
        for (seat, figures) in self
            .stations
            .iter_mut()
            .zip(self.context.figures.collectors())
        {
            let Some(seat) = seat else { continue };
            if due.contains(&seat.track) {
                let (series, cost) = seat.place.pass(&self.context, figures, tick);
                let after = clock.monotonic();
                let cost = cost.unwrap_or_else(|| after.saturating_sub(before));
                figures.passed(cost, series);
                before = after;
            }
        }
    }

    /// Runs all collectors, whatever their rates.
    pub fn sample_all(&mut self, time: Millis, tick: &mut Tick) {
        // At most one track per collector: a small list, made where nothing is hot.
        let all: Vec<usize> = (0..self.rates.len()).collect();
        self.sample(time, &all, tick);
    }

    /// Waits until each collector that runs aside has a reading that was not published yet; at most
    /// `bound` in all.
    pub fn settle(&self, bound: Duration) {
        let deadline = Instant::now() + bound;
        for seat in self.stations.iter().flatten() {
            if let Place::Aside(aside) = &seat.place {
                aside.settle(deadline);
            }
        }
    }

    pub fn figures(&self) -> &Arc<Figures> {
        &self.context.figures
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.context.clock
    }

    pub fn status(&self) -> Vec<CollectorStatus> {
        self.context.figures.status()
    }
}
