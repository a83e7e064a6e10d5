//! Parses the requests that Dragon's telemetry posts to a node's store.
//!
//! ```text
//! POST /api/metrics       {"timestamp": 1713379493, "dps": [{"metric": "m", "value": 1.5, "tags": {"gpu": 0}}]}
//! POST /api/tsdb_cleanup  {"start_time": 1713379493}
//! POST /api/token         {"auth_key": "K"}
//! ```

use std::borrow::Cow;

use pegel_metric::Millis;

use crate::json::{JsonReader, JsonSyntaxError, JsonValue};
use crate::point::{self, PointBatch, PointDialect, PointFault, PointTimes};

const DIALECT: PointDialect = PointDialect {
    times: PointTimes::Shared,
    quoted_values: false,
};

/// The error for a body that is malformed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DragonBodyError {
    #[error(transparent)]
    Syntax(#[from] JsonSyntaxError),
    #[error("missing list \"dps\" of points")]
    NoPoints,
    #[error("start_time: {0}")]
    StartTime(PointFault),
    #[error("missing string \"auth_key\"")]
    NoKey,
}

/// Parses the points of `POST /api/metrics`. All have the body's time, or none if the body has
/// none.
pub fn metrics(body: &[u8]) -> Result<PointBatch<'_>, DragonBodyError> {
    let mut reader = JsonReader::new(body);
    let mut batch = PointBatch::default();
    let (mut time, mut has_points) = (Ok(None), false);
    reader.map(|reader, key| {
        match key.as_deref() {
            Some("timestamp") => {
                time = match reader.value()? {
                    JsonValue::Null => Ok(None),
                    value => point::time(&value).map(Some),
                }
            }
            Some("dps") if reader.peek() == Some(b'[') => {
                has_points = true;
                batch = PointBatch::default();
                reader.list(|reader| point::read_point(reader, DIALECT, &mut batch))?;
            }
            _ => drop(reader.value()?),
        }
        Ok(())
    })?;
    reader.end()?;
    if !has_points {
        return Err(DragonBodyError::NoPoints);
    }
    for point in &mut batch.points {
        match (time, &mut *point) {
            (Ok(time), Ok(point)) => point.time = time,
            (Err(fault), Ok(_)) => *point = Err(fault),
            (_, Err(_)) => {}
        }
    }
    Ok(batch)
}

/// Parses the time before which `POST /api/tsdb_cleanup` removes samples.
pub fn cleanup_time(body: &[u8]) -> Result<Millis, DragonBodyError> {
    let mut start = Err(PointFault::TimeMissing);
    read_field(body, "start_time", |value| start = point::time(&value))?;
    start.map_err(DragonBodyError::StartTime)
}

/// Parses the key in `POST /api/token`.
pub fn auth_key(body: &[u8]) -> Result<Cow<'_, str>, DragonBodyError> {
    let mut key = Err(DragonBodyError::NoKey);
    read_field(body, "auth_key", |value| {
        if let JsonValue::Text(Some(text)) = value {
            key = Ok(text);
        }
    })?;
    key
}

fn read_field<'a>(
    body: &'a [u8],
    wanted: &str,
    mut found: impl FnMut(JsonValue<'a>),
) -> Result<(), JsonSyntaxError> {
    let mut reader = JsonReader::new(body);
    reader.map(|reader, key| {
        let value = reader.value()?;
        if key.as_deref() == Some(wanted) {
            found(value);
        }
        Ok(())
    })?;
    reader.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::NumberFault;

    #[test]
    fn points_get_the_time_of_the_body() {
        let body = br#"{"dps":[{"metric":"m","value":1.5,"tags":{"gpu":0,"none":null}},{"metric":"n","value":2,"telemetry_level":4}],"timestamp":1713379493}"#;
        let batch = metrics(body).expect("readable");
        let points: Vec<_> = batch
            .points
            .iter()
            .map(|p| p.as_ref().expect("good"))
            .collect();
        assert!(
            points
                .iter()
                .all(|point| point.time == Some(1_713_379_493_000))
        );
        assert_eq!((&*points[0].name, points[0].value), ("m", 1.5));
        let labels = &batch.labels()[batch.labels_of(points[0])];
        assert_eq!(labels, [("gpu".into(), "0".into())]);
        assert_eq!((points[0].level, points[1].level), (None, Some(4)));
        let now = metrics(br#"{"dps":[{"metric":"m","value":1}]}"#).expect("readable");
        assert_eq!(now.points[0].as_ref().expect("good").time, None);
    }

    #[test]
    fn what_is_no_number_fails_by_itself() {
        let body = br#"{"timestamp":1,"dps":[{"metric":"m","value":"1"},{"metric":"m","value":true},{"metric":"m","value":NaN},{"metric":"m","value":3}]}"#;
        let batch = metrics(body).expect("readable");
        let no_number = Err(PointFault::Value(NumberFault::NotANumber));
        assert_eq!(batch.points[0], no_number);
        assert_eq!(batch.points[1], no_number);
        assert_eq!(
            batch.points[2],
            Err(PointFault::Value(NumberFault::NotFinite))
        );
        assert!(batch.points[3].is_ok());
        let batch = metrics(br#"{"timestamp":"x","dps":[{"metric":"m","value":3},7]}"#);
        let batch = batch.expect("readable");
        assert_eq!(
            batch.points,
            [Err(PointFault::Time), Err(PointFault::NotAPoint)]
        );
    }

    #[test]
    fn bodies_without_points_are_refused() {
        for body in ["{}", r#"{"dps":{}}"#, r#"{"dps":null,"timestamp":1}"#] {
            assert_eq!(
                metrics(body.as_bytes()).err(),
                Some(DragonBodyError::NoPoints),
                "{body}"
            );
        }
        for body in ["", "[]", "{", r#"{"dps":[}"#, r#"{"dps":[]} x"#] {
            let error = metrics(body.as_bytes()).err();
            assert!(matches!(error, Some(DragonBodyError::Syntax(_))), "{body}");
        }
    }

    #[test]
    fn a_cleanup_names_its_time_and_a_token_its_key() {
        assert_eq!(
            cleanup_time(br#"{"start_time":1713379493}"#),
            Ok(1_713_379_493_000)
        );
        assert_eq!(
            cleanup_time(b"{}"),
            Err(DragonBodyError::StartTime(PointFault::TimeMissing))
        );
        assert_eq!(
            cleanup_time(br#"{"start_time":"soon"}"#),
            Err(DragonBodyError::StartTime(PointFault::Time))
        );
        assert_eq!(auth_key(br#"{"auth_key":"k\n"}"#).as_deref(), Ok("k\n"));
        assert_eq!(auth_key(br#"{"auth_key":7}"#), Err(DragonBodyError::NoKey));
    }
}
