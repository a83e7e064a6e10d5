//! Moves points from a lane's ring to the store. Each point is stored or counted as dropped.

use pegel_lane::reader::RingPoint;
use pegel_metric::{DropReason, MetricKind, Millis};

use super::contribution::borrow_labels;
use super::open_lane::OpenLane;
use crate::admission::Admission;
use crate::point_writer::{IncomingPoint, PointWriter};

pub(super) fn store_points(
    lane: &OpenLane,
    points: &[RingPoint],
    store: &PointWriter,
    admission: &Admission,
    now: Millis,
) {
    let parts = points
        .iter()
        .map(|point| (point, lane.point_series(point.series)));
    let (known, unknown): (Vec<_>, Vec<_>) = parts.partition(|(_, part)| part.is_some());
    // The series was not admitted, which was counted once for the series.
    admission.count_received(&lane.sender, unknown.len() as u64);
    admission.count_dropped(&lane.sender, DropReason::BadName, unknown.len() as u64);
    if known.is_empty() {
        return;
    }
    let labels: Vec<Vec<(&str, &str)>> = known
        .iter()
        .filter_map(|(_, part)| part.map(|part| borrow_labels(&part.labels)))
        .collect();
    let offered: Vec<IncomingPoint<'_>> = known
        .iter()
        .zip(&labels)
        .filter_map(|((point, part), labels)| {
            let part = (*part)?;
            Some(IncomingPoint {
                name: &part.name,
                labels,
                help: &part.help,
                kind: MetricKind::Unknown,
                level: part.level,
                time: point.time_ms,
                value: point.value,
            })
        })
        .collect();
    // Counted by the store and by admission; a full queue is a drop with its reason.
    if let Err(error) = store.write(&lane.sender, &offered, now) {
        tracing::warn!(%error, "cannot store points of a lane");
    }
}
