//! What is known about the node: pure state, fed by the agent's answers, asked by the screen.

mod agent;
mod cpu;
mod devices;
mod gpu;
mod history;
mod memory;
mod series_track;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use pegel_metric::{Family, Input, Kind, Series};

use crate::api_values::{SeriesInfo, SeriesValue};
pub use agent::AgentSummary;
pub use cpu::{CpuMode, CpuShares, CpuUsage};
pub use devices::{DiskUsage, FilesystemUsage, InterfaceUsage, disks, filesystems, interfaces};
pub use gpu::{GpuUsage, gpus};
pub use history::{HISTORY_SECONDS, History};
pub use memory::{MemoryUsage, pressure};
pub use series_track::{SeriesTrack, ValueChange};

/// Series with a history: those on the screen and some that were there just before.
const HISTORIES_MAX: usize = 512;
/// A stream that was silent for longer may have left changes out.
const STREAM_GAP_SECONDS: f64 = 5.0;

#[derive(Debug, Default)]
pub struct NodeModel {
    pub agent: AgentSummary,
    /// By text, so that the series of one name stand together.
    tracks: BTreeMap<Box<str>, SeriesTrack>,
    families: HashMap<Box<str>, Arc<Family>>,
    /// The shortest time between two changes, by name: how often its series are sampled.
    periods: HashMap<Box<str>, f64>,
    histories: HashMap<Box<str>, History>,
    /// The time of the node's newest samples, in seconds.
    now: Option<f64>,
    /// How often steps are asked for.
    step_seconds: f64,
}

impl NodeModel {
    /// For a stream with that long between two steps.
    pub fn new(step_seconds: f64) -> NodeModel {
        NodeModel {
            step_seconds,
            ..NodeModel::default()
        }
    }

    /// The time of the newest samples.
    pub fn now(&self) -> Option<f64> {
        self.now
    }

    pub fn second(&self) -> i64 {
        self.now.unwrap_or_default().floor() as i64
    }

    pub fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    pub fn tracks(&self) -> impl Iterator<Item = &SeriesTrack> {
        self.tracks.values()
    }

    pub fn track(&self, text: &str) -> Option<&SeriesTrack> {
        self.tracks.get(text)
    }

    /// All series of exactly this name.
    pub fn tracks_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a SeriesTrack> {
        let bare = self.tracks.get(name);
        let start = format!("{name}{{");
        let labelled = self
            .tracks
            .range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded))
            .map(|(_, track)| track)
            .take_while(move |track| track.series.name() == name);
        bare.into_iter().chain(labelled)
    }

    /// The current value of a series without labels.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.tracks.get(name)?.last().map(|last| last.value)
    }

    pub fn rate(&self, track: &SeriesTrack) -> Option<f64> {
        let period = self.periods.get(track.series.name()).copied();
        track.rate(self.now?, period)
    }

    /// What a history shows: the rate of a counter, the value of anything else.
    pub fn displayed_value(&self, track: &SeriesTrack) -> Option<f64> {
        if track.is_counter() {
            self.rate(track)
        } else {
            track.last().map(|last| last.value)
        }
    }

    pub fn history(&self, text: &str) -> Option<&History> {
        self.histories.get(text)
    }

    /// From now on a history is kept of these. Returns those that the agent should be asked about.
    pub fn start_histories(&mut self, texts: &[String]) -> Vec<String> {
        let new: Vec<String> = texts
            .iter()
            .filter(|text| !self.histories.contains_key(text.as_str()))
            .cloned()
            .collect();
        if self.histories.len() + new.len() > HISTORIES_MAX {
            self.histories
                .retain(|text, _| texts.iter().any(|kept| **kept == **text));
        }
        for text in &new {
            self.histories
                .insert(text.as_str().into(), History::default());
        }
        new
    }

    /// What the agent remembers of a series.
    pub fn add_history(&mut self, text: &str, samples: &[(f64, f64)]) {
        let now = self.second();
        let is_counter = self.track(text).is_some_and(SeriesTrack::is_counter);
        if let Some(history) = self.histories.get_mut(text) {
            history.prepend(samples, is_counter, now);
        }
    }

    /// Everything that exists. What is not listed any more goes.
    pub fn set_series_list(&mut self, listed: Vec<SeriesInfo>) {
        let mut tracks = BTreeMap::new();
        for item in listed {
            let known = self.tracks.remove(item.name.as_str());
            let family = |name: &str| {
                let family = Family {
                    name: name.to_owned().into(),
                    kind: parse_kind(&item.kind),
                    help: item.doc.clone().into(),
                    unit: item.unit.clone().into(),
                    level: 0,
                    input: Input::Collect,
                };
                let shared = self.families.get(name).filter(|known| ***known == family);
                let family = shared.cloned().unwrap_or_else(|| Arc::new(family));
                self.families.insert(name.into(), family.clone());
                family
            };
            // A text that is no series cannot be shown; no agent sends one.
            let Ok(series) = Series::parse(&item.name, family) else {
                continue;
            };
            let track = match known {
                Some(track) => track.with_series(series),
                None => SeriesTrack::new(series),
            };
            tracks.insert(item.name.into(), track);
        }
        self.tracks = tracks;
        let names: HashMap<Box<str>, Arc<Family>> = self
            .tracks
            .values()
            .map(|track| (track.series.name().into(), track.series.family().clone()))
            .collect();
        self.periods.retain(|name, _| names.contains_key(name));
        self.families = names;
    }

    /// Takes one step of the stream in. Returns whether it named a series that is not listed.
    pub fn apply_step(&mut self, readings: &[SeriesValue]) -> bool {
        self.advance(readings);
        let mut has_unlisted = false;
        for reading in readings {
            let Some(track) = self.tracks.get_mut(reading.name.as_str()) else {
                has_unlisted = true;
                continue;
            };
            let change = ValueChange {
                ts: reading.ts,
                value: reading.value,
            };
            let gap = track.push(change);
            let name = track.series.name();
            let known = self.periods.get(name).copied();
            if let Some(gap) = gap.filter(|gap| known.is_none_or(|known| *gap < known)) {
                self.periods.insert(name.into(), gap);
            }
            if let Some(now) = self.now {
                let period = self.periods.get(track.series.name()).copied();
                track.prune(now - 2.0 * series_track::averaging_window(period));
            }
        }
        self.update_histories();
        has_unlisted
    }

    /// Changes may have been missed: the stream was interrupted.
    pub fn invalidate_rates(&mut self) {
        let now = self.now.unwrap_or(f64::INFINITY);
        self.tracks
            .values_mut()
            .for_each(|track| track.invalidate_rate(now));
        self.histories.clear();
    }

    /// Only the node's own samples tell the time: those of programs may carry any.
    fn advance(&mut self, readings: &[SeriesValue]) {
        let newest = readings
            .iter()
            .filter(|reading| !is_program_series(&reading.name))
            .map(|reading| reading.ts)
            .fold(f64::NEG_INFINITY, f64::max);
        let Some(now) = self.now else {
            self.now = newest.is_finite().then_some(newest);
            return;
        };
        if !newest.is_finite() {
            return;
        }
        let hole = STREAM_GAP_SECONDS.max(3.0 * self.step_seconds);
        let is_set_back = newest < now - hole;
        if newest > now || is_set_back {
            self.now = Some(newest);
        }
        if newest > now + hole || is_set_back {
            self.invalidate_rates();
        }
    }

    fn update_histories(&mut self) {
        let second = self.second();
        let mut histories = std::mem::take(&mut self.histories);
        for (text, history) in &mut histories {
            let shown = self
                .tracks
                .get(text)
                .and_then(|track| self.displayed_value(track));
            if let Some(value) = shown {
                history.push(second, value);
            }
        }
        self.histories = histories;
    }
}

/// Whether a name is neither the node's nor the agent's own.
pub fn is_program_series(text: &str) -> bool {
    const DRAGON: [&str; 7] = [
        "load_average",
        "used_RAM",
        "cpu_percent",
        "num_running_processes",
        "DeviceUtilization",
        "DeviceMemoryUtilization",
        "DevicePowerUsage",
    ];
    let name = text.split('{').next().unwrap_or_default();
    !(name.starts_with("node_") || name.starts_with("pegel_") || DRAGON.contains(&name))
}

fn parse_kind(word: &str) -> Kind {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == word)
        .unwrap_or(Kind::Unknown)
}

#[cfg(test)]
pub mod fixture;
#[cfg(test)]
mod tests;
