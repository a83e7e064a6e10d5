//! Changed values in column form: `{"at","new":[name,…],"ids":[…],"ago":[…],"values":[…]}`.
//!
//! A series is named once, in `new`, and is identified by the next free number from then on; `ids`
//! holds such numbers. `at` is the time of the latest change in the event, in milliseconds, and
//! `ago` is how much earlier each value changed: mostly 0, because the values of a tick change
//! together.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::StatusCode;
use pegel_metric::{Millis, Selector, Series};
use pegel_store::{LatestValue, Store};
use serde::Serialize;

use super::values::{WrittenChanges, changed_after};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;

/// How many series one client may follow in this form: their numbers are kept until it disconnects.
const SERIES_MAX: usize = 20_000;

/// The series numbers that one client knows.
#[derive(Debug, Default)]
pub(super) struct ColumnEncoder {
    ids: HashMap<Arc<Series>, u32>,
}

#[derive(Serialize)]
struct ColumnEvent<'a> {
    at: Millis,
    new: Vec<&'a str>,
    ids: Vec<u32>,
    ago: Vec<Millis>,
    /// Values that are not finite become null.
    values: Vec<f64>,
}

impl ColumnEncoder {
    /// Writes the values that changed after change number `after`.
    pub(super) fn write(
        &mut self,
        buffer: &mut ResponseBuffer,
        store: &Store,
        selector: &Selector,
        after: u64,
    ) -> Result<WrittenChanges, ApiError> {
        let (found, change) = changed_after(store, selector, after)?;
        let count = found.len();
        buffer.json(&self.event(&found)?)?;
        Ok(WrittenChanges { count, change })
    }

    /// Writes the values that changed on nodes.
    pub(super) fn write_values(
        &mut self,
        buffer: &mut ResponseBuffer,
        found: &[(Arc<Series>, LatestValue)],
    ) -> Result<(), ApiError> {
        buffer.json(&self.event(found)?)
    }

    fn event<'a>(
        &mut self,
        found: &'a [(Arc<Series>, LatestValue)],
    ) -> Result<ColumnEvent<'a>, ApiError> {
        let changed = found.iter().map(|(_, latest)| latest.last_changed);
        let at = changed.max().unwrap_or(0);
        let mut event = ColumnEvent {
            at,
            new: Vec::new(),
            ids: Vec::with_capacity(found.len()),
            ago: Vec::with_capacity(found.len()),
            values: Vec::with_capacity(found.len()),
        };
        for (series, latest) in found {
            let id = match self.ids.get(series) {
                Some(id) => *id,
                None => {
                    event.new.push(series.text());
                    self.assign_id(series)?
                }
            };
            event.ids.push(id);
            event.ago.push(at - latest.last_changed);
            event.values.push(latest.value);
        }
        Ok(event)
    }

    fn assign_id(&mut self, series: &Arc<Series>) -> Result<u32, ApiError> {
        let id = self.ids.len();
        if id >= SERIES_MAX {
            let message = format!("a stream of columns is limited to {SERIES_MAX} series");
            let failure = ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message);
            return Err(failure.hint("select fewer series, or omit form="));
        }
        self.ids.insert(series.clone(), id as u32);
        Ok(id as u32)
    }
}

#[cfg(test)]
mod tests {
    use pegel_metric::{Family, Input, MetricKind};

    use super::*;

    fn found(name: &str, changed: Millis, value: f64) -> (Arc<Series>, LatestValue) {
        let family = Family {
            name: name.to_owned().into(),
            kind: MetricKind::Gauge,
            help: "".into(),
            unit: "".into(),
            level: 1,
            input: Input::Collect,
        };
        let series = Series::new(family.into(), &[]).expect("valid");
        let latest = LatestValue {
            value,
            last_changed: changed,
            last_sampled: changed,
        };
        (Arc::new(series), latest)
    }

    fn text(columns: &mut ColumnEncoder, found: &[(Arc<Series>, LatestValue)]) -> String {
        serde_json::to_string(&columns.event(found).expect("room")).expect("written")
    }

    #[test]
    fn a_name_is_sent_once_and_is_a_number_from_then_on() {
        let mut columns = ColumnEncoder::default();
        let first = [found("a", 1000, 1.0), found("b", 400, f64::NAN)];
        assert_eq!(
            text(&mut columns, &first),
            r#"{"at":1000,"new":["a","b"],"ids":[0,1],"ago":[0,600],"values":[1.0,null]}"#
        );
        let second = [found("c", 1500, 3.0), found("b", 1500, 2.0)];
        assert_eq!(
            text(&mut columns, &second),
            r#"{"at":1500,"new":["c"],"ids":[2,1],"ago":[0,0],"values":[3.0,2.0]}"#
        );
        assert_eq!(
            text(&mut columns, &[]),
            r#"{"at":0,"new":[],"ids":[],"ago":[],"values":[]}"#
        );
    }

    #[test]
    fn a_client_cannot_follow_series_without_end() {
        let mut columns = ColumnEncoder::default();
        let many: Vec<_> = (0..=SERIES_MAX)
            .map(|at| found(&format!("m{at}"), 1, 0.0))
            .collect();
        assert!(columns.event(&many[..SERIES_MAX]).is_ok());
        assert!(columns.event(&many).is_err());
    }
}
