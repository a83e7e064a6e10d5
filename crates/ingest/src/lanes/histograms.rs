//! The buckets of each histogram. Lanes count buckets separately; they are published cumulatively.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pegel_metric::Series;

use super::totals::TotalId;

pub(super) type HistogramId = u32;

#[derive(Debug, Default)]
pub(super) struct Histograms {
    /// By name and labels without `le`.
    ids: HashMap<Box<str>, HistogramId>,
    /// By the bits of the bound, which sort like positive numbers.
    buckets: HashMap<HistogramId, BTreeMap<u64, TotalId>>,
    next: HistogramId,
    changed: BTreeSet<HistogramId>,
}

impl Histograms {
    pub(super) fn add(&mut self, series: &Series, number: TotalId) -> HistogramId {
        let (key, bound) = key_and_bound(series);
        let id = *self.ids.entry(key).or_insert_with(|| {
            self.next = self.next.wrapping_add(1);
            self.next
        });
        self.buckets.entry(id).or_default().insert(bound, number);
        self.changed.insert(id);
        id
    }

    pub(super) fn remove(&mut self, id: HistogramId, series: &Series) {
        let (key, bound) = key_and_bound(series);
        let Some(buckets) = self.buckets.get_mut(&id) else {
            return;
        };
        buckets.remove(&bound);
        // The cumulative buckets above it are smaller from now on.
        self.changed.insert(id);
        if buckets.is_empty() {
            self.buckets.remove(&id);
            self.ids.remove(&key);
        }
    }

    /// Marks a histogram as changed: one of its buckets increased.
    pub(super) fn touch(&mut self, id: HistogramId) {
        self.changed.insert(id);
    }

    /// Returns the buckets of all histograms that changed since the last call, ordered by bound.
    pub(super) fn take_changed(
        &mut self,
    ) -> impl Iterator<Item = impl Iterator<Item = TotalId> + '_> + '_ {
        let changed = std::mem::take(&mut self.changed);
        changed
            .into_iter()
            .filter_map(|id| Some(self.buckets.get(&id)?.values().copied()))
    }
}

/// Returns the key of the histogram that a bucket belongs to, and the bucket's bound.
fn key_and_bound(series: &Series) -> (Box<str>, u64) {
    let mut key = series.name().to_owned();
    let mut bound = f64::INFINITY;
    for (label, value) in series.labels() {
        if label == "le" {
            bound = value.parse().unwrap_or(f64::INFINITY);
        } else {
            key.push_str(&format!("\u{1}{label}\u{1}{value}"));
        }
    }
    (key.into(), bound.to_bits())
}
