//! Lists of all series within the limit of a response. Users other than the agent's can have more
//! names, labels and help texts than a response has room for: then their help texts are left out,
//! and as many of their series as necessary, so that the series of the node and of the agent's user
//! are always listed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use pegel_metric::prometheus_names::{UNTRUSTED_RANK, collision_rank};
use pegel_metric::{Family, Series};

use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;

/// The most bytes of a series in a response besides its name and labels: keys, time, value.
const SERIES_BYTES: usize = 160;

/// Writes a list of series with `write`; if it is too large, a shorter one. `write` also gets the
/// number of series that are left out; `None` for the whole list.
pub(super) fn write_reduced<T: Clone>(
    buffer: &mut ResponseBuffer,
    found: &[(Arc<Series>, T)],
    mut write: impl FnMut(
        &mut ResponseBuffer,
        &[(Arc<Series>, T)],
        Option<usize>,
    ) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let mut result = write(buffer, found, None);
    for bytes_max in [buffer.bytes_max(), 0] {
        match &result {
            Err(failure) if buffer.is_too_large(failure) => {}
            _ => break,
        }
        let reduced = reduced(found, bytes_max);
        let left_out = found.len() - reduced.len();
        result = write(buffer, &reduced, Some(left_out));
        buffer.set_left_out(left_out);
    }
    result
}

/// Returns whether a series may be left out: any user may have sent it.
fn is_foreign(series: &Series) -> bool {
    collision_rank(series) >= UNTRUSTED_RANK
}

/// Returns the series of the node and of the agent's user, and those of others that fit, without
/// their help texts and in the same order.
fn reduced<T: Clone>(found: &[(Arc<Series>, T)], bytes_max: usize) -> Vec<(Arc<Series>, T)> {
    let own = found.iter().filter(|(series, _)| !is_foreign(series));
    let own: usize = own.map(|(series, _)| bytes_of(series)).sum();
    let mut left = bytes_max.saturating_sub(own);
    let mut families = HashMap::new();
    let mut kept = Vec::new();
    for (series, value) in found {
        if !is_foreign(series) {
            kept.push((series.clone(), value.clone()));
            continue;
        }
        let Some(short) = without_help(series, &mut families) else {
            continue;
        };
        if let Some(rest) = left.checked_sub(bytes_of(&short)) {
            left = rest;
            kept.push((short, value.clone()));
        }
    }
    kept
}

/// Returns about the most bytes that a series takes: JSON escapes a quote with one more byte, and
/// the text formats write the name three times.
fn bytes_of(series: &Series) -> usize {
    let family = series.family();
    SERIES_BYTES
        + 2 * (series.text().len() + family.help.len() + family.unit.len())
        + series.name().len()
}

/// Returns the same series with a family without help text. `families` has those made so far.
fn without_help(
    series: &Arc<Series>,
    families: &mut HashMap<*const Family, Arc<Family>>,
) -> Option<Arc<Series>> {
    let family = series.family();
    if family.help.is_empty() {
        return Some(series.clone());
    }
    let short = families.entry(Arc::as_ptr(family)).or_insert_with(|| {
        Arc::new(Family {
            help: Cow::Borrowed(""),
            ..Family::clone(family)
        })
    });
    let series = Series::parse(series.text(), |_| short.clone());
    series.ok().map(Arc::new)
}
