use std::sync::Arc;
use std::time::Duration;

use pegel_metric::{Clock, Ledger, Level, Millis, Tick};

use crate::procfile::SharedFile;
use crate::station::Station;
use crate::{CollectorStatus, Context, Figures, Host, Own, REGISTRY, Settings, SettingsError};

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
    station: Station,
    /// Its rate, as a position in `rates`.
    track: usize,
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
            let mut station = Station::new(entry, level, rate);
            station.open(&context, figures);
            stations.push(Some(Seat { station, track }));
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
                seat.station.pass(&self.context, figures);
                let series = seat.station.append_to(tick);
                let after = clock.monotonic();
                figures.passed(after.saturating_sub(before), series);
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
