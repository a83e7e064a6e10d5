//! The state of the node as known to `pegel top`: series, their last changes, rates and histories.
//! It is updated from the agent's responses and read by the screen, and does no I/O.

mod agent;
mod calls;
mod cpu;
mod devices;
mod gpu;
mod history;
mod memory;
mod processes;
mod series_track;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use pegel_metric::{Family, Input, MetricKind, Series};

use crate::api_values::{SeriesInfo, SeriesValue};
pub(super) use agent::AgentSummary;
pub(super) use calls::{CallSort, CallUsage, calls, has_calls};
pub(super) use cpu::{CpuMode, CpuShares, CpuUsage};
pub(super) use devices::{
    DiskUsage, FilesystemUsage, InterfaceUsage, disks, filesystems, interfaces,
};
pub(super) use gpu::{GpuUsage, gpus};
pub(super) use history::{HISTORY_SECONDS, History};
pub(crate) use memory::{MemoryUsage, PressureStall, pressure};
pub(super) use processes::{
    ListedProcess, PROCESSES_MAX, ProcessList, ProcessListState, ProcessQuery, ProcessSort,
    TopGrouping,
};
pub(super) use series_track::{SeriesTrack, ValueChange};

/// Maximum number of series with a history: the visible ones and some that were visible before.
const HISTORIES_MAX: usize = 512;
/// After a longer gap in the stream, changes may be missing.
const STREAM_GAP_SECONDS: f64 = 5.0;

#[derive(Debug, Default)]
pub(super) struct NodeModel {
    pub agent: AgentSummary,
    pub processes: ProcessListState,
    /// By text, so that the series of one name are adjacent.
    tracks: BTreeMap<Box<str>, SeriesTrack>,
    families: HashMap<Box<str>, Arc<Family>>,
    /// The shortest time between two changes, by name: an estimate of the sampling interval.
    periods: HashMap<Box<str>, f64>,
    histories: HashMap<Box<str>, History>,
    /// The time of the node's newest samples, in seconds.
    now: Option<f64>,
    /// Interval between steps of the stream.
    step_seconds: f64,
}

impl NodeModel {
    /// Creates an empty model for a stream with this interval between steps.
    pub(super) fn new(step_seconds: f64) -> NodeModel {
        NodeModel {
            step_seconds,
            ..NodeModel::default()
        }
    }

    /// Returns the time of the newest samples.
    pub(super) fn now(&self) -> Option<f64> {
        self.now
    }

    pub(super) fn second(&self) -> i64 {
        self.now.unwrap_or_default().floor() as i64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tracks.is_empty()
    }

    pub(super) fn tracks(&self) -> impl Iterator<Item = &SeriesTrack> {
        self.tracks.values()
    }

    pub(super) fn track(&self, text: &str) -> Option<&SeriesTrack> {
        self.tracks.get(text)
    }

    /// Returns all series of exactly this name.
    pub(super) fn tracks_named<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a SeriesTrack> {
        let unlabelled = self.tracks.get(name);
        let start = format!("{name}{{");
        let labelled = self
            .tracks
            .range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded))
            .map(|(_, track)| track)
            .take_while(move |track| track.series.name() == name);
        unlabelled.into_iter().chain(labelled)
    }

    /// Returns the current value of a series.
    pub(crate) fn value(&self, text: &str) -> Option<f64> {
        self.tracks.get(text)?.last().map(|last| last.value)
    }

    /// Returns the series whose names start with `prefix` and that have the labels of `track`.
    pub(crate) fn labelled<'a>(
        &'a self,
        prefix: &'static str,
        track: &'a SeriesTrack,
    ) -> LabelledSeries<'a> {
        LabelledSeries {
            model: self,
            prefix,
            labels: track.series.labels_text(),
        }
    }

    pub(super) fn rate(&self, track: &SeriesTrack) -> Option<f64> {
        let period = self.periods.get(track.series.name()).copied();
        track.rate(self.now?, period)
    }

    /// Returns the value that a history shows: the rate of a counter, else the value.
    pub(super) fn displayed_value(&self, track: &SeriesTrack) -> Option<f64> {
        if track.is_counter() {
            self.rate(track)
        } else {
            track.last().map(|last| last.value)
        }
    }

    pub(super) fn history(&self, text: &str) -> Option<&History> {
        self.histories.get(text)
    }

    /// Starts histories of these series. Returns the new ones, whose past the agent has to provide.
    pub(super) fn start_histories(&mut self, texts: &[String]) -> Vec<String> {
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

    /// Adds a series' past from the agent to its history.
    pub(super) fn add_history(&mut self, text: &str, samples: &[(f64, f64)]) {
        let now = self.second();
        let is_counter = self.track(text).is_some_and(SeriesTrack::is_counter);
        if let Some(history) = self.histories.get_mut(text) {
            history.prepend(samples, is_counter, now);
        }
    }

    /// Replaces the list of series. Series missing from it are removed.
    pub(super) fn set_series_list(&mut self, listed: Vec<SeriesInfo>) {
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
            // Skip a malformed series; no agent sends one.
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

    /// Applies one step of the stream. Returns whether it contains a series that is not in the
    /// list.
    pub(super) fn apply_step(&mut self, readings: &[SeriesValue]) -> bool {
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

    /// Discards rates and histories after an interruption of the stream, because changes may be
    /// missing.
    pub(super) fn invalidate_rates(&mut self) {
        let now = self.now.unwrap_or(f64::INFINITY);
        self.tracks
            .values_mut()
            .for_each(|track| track.invalidate_rate(now));
        self.histories.clear();
    }

    /// Advances the current time by the node's own samples; timestamps of programs may be
    /// arbitrary.
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
        let gap_max = STREAM_GAP_SECONDS.max(3.0 * self.step_seconds);
        let is_set_back = newest < now - gap_max;
        if newest > now || is_set_back {
            self.now = Some(newest);
        }
        if newest > now + gap_max || is_set_back {
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

/// Series with equal labels and a common start of their names, such as those of one disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LabelledSeries<'a> {
    model: &'a NodeModel,
    prefix: &'static str,
    labels: &'a str,
}

impl LabelledSeries<'_> {
    pub(crate) fn text(&self, suffix: &str) -> String {
        format!("{}{suffix}{}", self.prefix, self.labels)
    }

    pub(crate) fn value(&self, suffix: &str) -> Option<f64> {
        self.model.value(&self.text(suffix))
    }

    pub(crate) fn rate(&self, suffix: &str) -> Option<f64> {
        self.model.rate(self.model.track(&self.text(suffix))?)
    }
}

/// Returns whether a series is from a program: its name is neither the node's nor the agent's.
pub(super) fn is_program_series(text: &str) -> bool {
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

fn parse_kind(word: &str) -> MetricKind {
    MetricKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == word)
        .unwrap_or(MetricKind::Unknown)
}

#[cfg(test)]
pub(super) mod fixture;
#[cfg(test)]
pub(super) mod node_fixture;
#[cfg(test)]
pub(super) mod process_fixture;
#[cfg(test)]
mod tests;
