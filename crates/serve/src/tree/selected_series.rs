//! Converts between series and the form in which they travel through the tree.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use pegel_metric::{Family, Input, MetricKind, Millis, Series};
use pegel_store::{LatestValue, QueryError, TimeLimit};
use pegel_tree_protocol::{
    Kind, SelectedSeries, decode_times, decode_values, encode_times, encode_values,
};

/// Returns a series without samples, for a parent.
pub(crate) fn to_selected(series: &Series, host: &str) -> SelectedSeries {
    let family = series.family();
    let kind = match family.kind {
        MetricKind::Counter => Kind::Counter,
        MetricKind::Gauge => Kind::Gauge,
        MetricKind::Unknown => Kind::Unknown,
    };
    SelectedSeries {
        host: host.to_owned(),
        text: series.text().to_owned(),
        kind: kind as u32,
        unit: family.unit.to_string(),
        help: family.help.to_string(),
        input: family.input.as_str().to_owned(),
        ..SelectedSeries::default()
    }
}

/// Returns the columns of a current value: the time of its last change, if that is not the time of
/// the last sample, and the time of the last sample.
pub(crate) fn latest_columns(latest: LatestValue) -> (Bytes, Bytes) {
    let times = [latest.last_changed, latest.last_sampled];
    let from = usize::from(times[0] >= times[1]);
    let values = [latest.value; 2];
    let (times, values) = (&times[from..], &values[from..]);
    (encode_times(times).into(), encode_values(values).into())
}

/// The times and values of a series.
type SampleColumnPair = (Arc<[Millis]>, Vec<f64>);

/// Decodes series of nodes, within limits on memory and time: also after all responses have
/// arrived, a query ends at its deadline. Malformed series are left out and counted.
#[derive(Debug)]
pub(super) struct SelectedDecoder {
    limit: TimeLimit,
    families: HashMap<(String, u32, Input), Arc<Family>>,
    bytes_max: usize,
    bytes_left: usize,
    /// The times of the series before, which often are those of the next one.
    times: (Bytes, Arc<[Millis]>),
    pub malformed: usize,
}

/// The memory of a series besides its text and samples.
const SERIES_BYTES: usize = 128;

/// The work for a series besides its text: it is decoded, gets the label `host` and is matched.
const SERIES_WORK: usize = 4 * TimeLimit::STEP;

impl SelectedDecoder {
    pub(super) fn new(bytes_max: usize, limit: TimeLimit) -> SelectedDecoder {
        SelectedDecoder {
            limit,
            families: HashMap::new(),
            bytes_max,
            bytes_left: bytes_max,
            times: (Bytes::new(), Arc::new([])),
            malformed: 0,
        }
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), QueryError> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or(QueryError::TooLarge(self.bytes_max))?;
        Ok(())
    }

    /// Returns the series as its node has it; `None` if it is malformed.
    pub(super) fn series(
        &mut self,
        selected: &SelectedSeries,
    ) -> Result<Option<Series>, QueryError> {
        self.limit.spend(SERIES_WORK + selected.text.len())?;
        self.reserve(SERIES_BYTES + 2 * selected.text.len())?;
        let mut inputs = Input::ALL.iter().copied();
        let input = inputs.find(|input| input.as_str() == selected.input);
        let input = input.unwrap_or(Input::Collect);
        let series = Series::parse(&selected.text, |name| self.family(name, selected, input));
        self.malformed += usize::from(series.is_err());
        Ok(series.ok())
    }

    fn family(&mut self, name: &str, selected: &SelectedSeries, input: Input) -> Arc<Family> {
        let new = || {
            let kind = match Kind::try_from(selected.kind as i32) {
                Ok(Kind::Counter) => MetricKind::Counter,
                Ok(Kind::Gauge) => MetricKind::Gauge,
                Ok(Kind::Unknown) | Err(_) => MetricKind::Unknown,
            };
            Arc::new(Family {
                name: name.to_owned().into(),
                kind,
                help: selected.help.clone().into(),
                unit: selected.unit.clone().into(),
                level: 1,
                input,
            })
        };
        let key = (name.to_owned(), selected.kind, input);
        self.families.entry(key).or_insert_with(new).clone()
    }

    /// Returns the samples of a series; `None` if they are malformed.
    pub(super) fn columns(
        &mut self,
        selected: &SelectedSeries,
    ) -> Result<Option<SampleColumnPair>, QueryError> {
        self.limit
            .spend(selected.times.len() + selected.values.len())?;
        let samples_max = self.bytes_left / size_of::<(Millis, f64)>();
        if self.times.0 != selected.times {
            let Ok(times) = decode_times(&selected.times, samples_max) else {
                return self.refused_column(&selected.times, samples_max);
            };
            self.times = (selected.times.clone(), times.into());
        }
        let times = self.times.1.clone();
        let Ok(values) = decode_values(&selected.values, times.len()) else {
            self.malformed += 1;
            return Ok(None);
        };
        if values.len() != times.len() {
            self.malformed += 1;
            return Ok(None);
        }
        self.reserve(values.len() * size_of::<(Millis, f64)>())?;
        Ok(Some((times, values)))
    }

    /// Distinguishes a column that exceeds the memory from a malformed one.
    fn refused_column<T>(
        &mut self,
        times: &[u8],
        samples_max: usize,
    ) -> Result<Option<T>, QueryError> {
        match decode_times(times, samples_max) {
            Err(pegel_tree_protocol::TickCodecError::TooMany { .. }) => {
                Err(QueryError::TooLarge(self.bytes_max))
            }
            _ => {
                self.malformed += 1;
                Ok(None)
            }
        }
    }

    /// Returns the current value of a series; `None` if it is malformed.
    pub(super) fn latest(
        &mut self,
        selected: &SelectedSeries,
    ) -> Result<Option<LatestValue>, QueryError> {
        let Some((times, values)) = self.columns(selected)? else {
            return Ok(None);
        };
        let (Some(first), Some(last), Some(value)) = (times.first(), times.last(), values.last())
        else {
            self.malformed += 1;
            return Ok(None);
        };
        Ok(Some(LatestValue {
            value: *value,
            last_changed: *first,
            last_sampled: *last,
        }))
    }
}

impl Drop for SelectedDecoder {
    fn drop(&mut self) {
        if self.malformed > 0 {
            tracing::warn!(
                series = self.malformed,
                "malformed series of nodes left out"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use pegel_store::QueryCancellation;

    use super::*;

    fn selected(latest: LatestValue) -> SelectedSeries {
        let (times, values) = latest_columns(latest);
        SelectedSeries {
            text: "m{a=\"1\"}".into(),
            kind: Kind::Counter as u32,
            input: "statsd".into(),
            times,
            values,
            ..SelectedSeries::default()
        }
    }

    fn in_time() -> TimeLimit {
        let deadline = Instant::now() + Duration::from_secs(60);
        TimeLimit::until(deadline, QueryCancellation::default())
    }

    #[test]
    fn series_are_not_decoded_after_the_deadline() {
        let received = vec![SelectedSeries::default(); 100_000];
        let cancellation = QueryCancellation::default();
        let deadline = Instant::now() - Duration::from_millis(1);
        let late = TimeLimit::until(deadline, cancellation.clone());
        let mut decoder = SelectedDecoder::new(usize::MAX, late);
        let decoded = received.iter().map(|one| decoder.series(one));
        let first_error = decoded.enumerate().find(|(_, result)| result.is_err());
        assert!(matches!(first_error, Some((0, Err(QueryError::TooLong)))));
        // A canceled query ends soon, and not only at the end of the series.
        let deadline = Instant::now() + Duration::from_secs(60);
        let limit = TimeLimit::until(deadline, cancellation.clone());
        let mut decoder = SelectedDecoder::new(usize::MAX, limit);
        decoder.series(&received[0]).expect("in time");
        cancellation.cancel();
        let mut decoded = received.iter().map(|one| decoder.series(one));
        let first_error = decoded.position(|result| result.is_err());
        assert!(first_error.is_some_and(|at| at < 100), "{first_error:?}");
    }

    #[test]
    fn current_values_keep_both_times() {
        let mut decoder = SelectedDecoder::new(1 << 20, in_time());
        for (last_changed, last_sampled) in [(5, 9), (9, 9)] {
            let latest = LatestValue {
                value: 2.5,
                last_changed,
                last_sampled,
            };
            let sent = selected(latest);
            assert_eq!(decoder.latest(&sent).expect("room"), Some(latest));
            let series = decoder.series(&sent).expect("room").expect("valid");
            assert_eq!(series.family().input, Input::Statsd);
            assert_eq!(series.family().kind, MetricKind::Counter);
            let again = to_selected(&series, "n1");
            assert_eq!((again.text, again.kind), (sent.text, sent.kind));
        }
    }

    #[test]
    fn what_is_malformed_or_too_large_is_refused() {
        let mut decoder = SelectedDecoder::new(1_000, in_time());
        let broken = SelectedSeries {
            text: "m{".into(),
            times: vec![0xff].into(),
            ..SelectedSeries::default()
        };
        assert!(decoder.series(&broken).expect("room").is_none());
        assert!(decoder.columns(&broken).expect("room").is_none());
        assert_eq!(decoder.malformed, 2);
        let many = SelectedSeries {
            times: encode_times(&(0..1_000).collect::<Vec<i64>>()).into(),
            values: encode_values(&[0.0; 1_000]).into(),
            ..SelectedSeries::default()
        };
        assert!(matches!(
            decoder.columns(&many),
            Err(QueryError::TooLarge(1_000))
        ));
    }
}
