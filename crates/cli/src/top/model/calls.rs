//! System calls and MPI calls of wrapped programs: time, counts and bytes, one row for each call.

use super::{NodeModel, SeriesTrack};

/// The column by which calls are ordered, highest first; names in alphabetical order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CallSort {
    #[default]
    Time,
    Calls,
    Bytes,
    Errors,
    Name,
}

impl CallSort {
    pub(crate) const ALL: [CallSort; 5] = [
        CallSort::Time,
        CallSort::Calls,
        CallSort::Bytes,
        CallSort::Errors,
        CallSort::Name,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            CallSort::Time => "time",
            CallSort::Calls => "calls",
            CallSort::Bytes => "bytes",
            CallSort::Errors => "errors",
            CallSort::Name => "name",
        }
    }
}

/// One call with all its labels. Rates are per second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CallUsage<'a> {
    /// The text of the series that represents the call: its time, else its count.
    pub key: &'a str,
    /// The call, followed by its other labels.
    pub name: String,
    /// Seconds inside the call per second; above one with several threads.
    pub time: Option<f64>,
    /// Fraction of the time in all calls of the same kind.
    pub share: Option<f64>,
    pub calls: Option<f64>,
    pub bytes: Option<f64>,
    pub errors: Option<f64>,
    pub total_time: Option<f64>,
    pub total_calls: Option<f64>,
}

/// The common start of the names, the name of the counts, and the label that holds the call.
const KINDS: [(&str, &str, &str); 2] = [
    ("mpi_", "mpi_hits_total", "call"),
    ("strace_", "strace_hits_total", "scall"),
];

/// Returns all calls in the given order.
pub(crate) fn calls(model: &NodeModel, sort: CallSort) -> Vec<CallUsage<'_>> {
    let mut all: Vec<CallUsage<'_>> = Vec::new();
    for (prefix, counts, label) in KINDS {
        let first = all.len();
        let counts = model.tracks_named(counts);
        let counts = counts.filter(|track| track.last().is_some());
        all.extend(counts.map(|track| call(model, track, prefix, label)));
        set_shares(&mut all[first..]);
    }
    let key = |call: &CallUsage<'_>| match sort {
        CallSort::Time => (call.time, call.total_time),
        CallSort::Calls => (call.calls, call.total_calls),
        CallSort::Bytes => (call.bytes, None),
        CallSort::Errors => (call.errors, None),
        CallSort::Name => (None, None),
    };
    let known = |value: Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
    all.sort_by(|a, b| {
        let (a_key, b_key) = (key(a), key(b));
        known(b_key.0)
            .total_cmp(&known(a_key.0))
            .then(known(b_key.1).total_cmp(&known(a_key.1)))
            .then_with(|| a.name.cmp(&b.name))
    });
    all
}

/// Returns whether any call is known.
pub(crate) fn has_calls(model: &NodeModel) -> bool {
    let mut counts = KINDS
        .iter()
        .flat_map(|(_, counts, _)| model.tracks_named(counts));
    counts.any(|track| track.last().is_some())
}

fn call<'a>(
    model: &'a NodeModel,
    counts: &'a SeriesTrack,
    prefix: &'static str,
    label: &str,
) -> CallUsage<'a> {
    let series = model.labelled(prefix, counts);
    let time = model.track(&series.text("time_total"));
    let mut name = counts.series.label(label).unwrap_or_default().into_owned();
    for (key, value) in counts.series.labels().filter(|(key, _)| *key != label) {
        name.push_str(&format!("  {key}={value}"));
    }
    CallUsage {
        key: time.unwrap_or(counts).series.text(),
        name,
        time: series.rate("time_total"),
        share: None,
        calls: series.rate("hits_total"),
        bytes: series.rate("size_total"),
        errors: series.rate("errors_total"),
        total_time: series.value("time_total"),
        total_calls: series.value("hits_total"),
    }
}

fn set_shares(calls: &mut [CallUsage<'_>]) {
    let sum: f64 = calls.iter().filter_map(|call| call.time).sum();
    for call in calls {
        call.share = call.time.filter(|_| sum > 0.0).map(|time| time / sum);
    }
}
