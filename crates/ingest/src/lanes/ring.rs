//! Points out of a lane's ring, on their way to the store.

use pegel_lane::reader::Point;
use pegel_metric::{Millis, Reason};

use super::lane::KnownLane;
use super::part::borrowed;
use crate::gate::Gate;
use crate::points::{Offered, Points};

pub(super) fn store_points(
    lane: &KnownLane,
    points: &[Point],
    store: &Points,
    gate: &Gate,
    now: Millis,
) {
    let parts = points
        .iter()
        .map(|point| (point, lane.points_part(point.series)));
    let (known, unknown): (Vec<_>, Vec<_>) = parts.partition(|(_, part)| part.is_some());
    // Their series was not admitted, which was counted once for the series.
    gate.received(&lane.sender, unknown.len() as u64);
    gate.dropped(&lane.sender, Reason::BadName, unknown.len() as u64);
    if known.is_empty() {
        return;
    }
    let labels: Vec<Vec<(&str, &str)>> = known
        .iter()
        .filter_map(|(_, part)| part.map(|part| borrowed(&part.labels)))
        .collect();
    let offered: Vec<Offered<'_>> = known
        .iter()
        .zip(&labels)
        .filter_map(|((point, part), labels)| {
            let part = (*part)?;
            Some(Offered {
                name: &part.name,
                labels,
                help: &part.help,
                level: part.level,
                time: point.time_ms,
                value: point.value,
            })
        })
        .collect();
    // Counted by the store and by the gate; a full queue is a drop under its reason.
    if let Err(error) = store.offer(&lane.sender, &offered, now) {
        tracing::warn!(%error, "points of a lane could not be stored");
    }
}
