//! InfluxDB's line protocol over HTTP: `POST /write` of version 1, which Slurm's
//! `acct_gather_profile/influxdb` uses, and `POST /api/v2/write`.
//!
//! Databases, buckets, organisations and retention policies have no meaning here and are ignored;
//! so are user names and passwords: access is decided as for all routes. Malformed lines are
//! reported as InfluxDB reports a partial write; the others are stored.

use std::io;
use std::sync::Arc;

use pegel_metric::{DropReason, Input};
use pegel_wire::influx::{self, TimePrecision};
use pegel_wire::{InputError, InputReply, InputRequest, PointBatch, PointFault, RequestHandler};
use serde_json::json;

use super::{not_stored, write_json};
use crate::Ingest;
use crate::point_batch::{BatchPointError, BatchResult, PointDefaults};

/// The part of a malformed line that a response quotes.
const QUOTED_CHARS_MAX: usize = 200;

const DEFAULTS: PointDefaults<'static> = PointDefaults {
    help: "Sent by a program in InfluxDB's line protocol.",
    level: 1,
    not_before: None,
};

/// The version of InfluxDB whose errors a route returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InfluxVersion {
    V1,
    V2,
}

/// Handles a write route of one version.
#[derive(Debug)]
pub struct InfluxWrite {
    pub ingest: Arc<Ingest>,
    pub version: InfluxVersion,
}

impl RequestHandler for InfluxWrite {
    fn handle(
        &self,
        request: InputRequest<'_>,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let sender = self.ingest.sender(Input::Influx, request.sender);
        let refuse = |status, message: String, response: &mut dyn io::Write| {
            self.ingest.count_refused(&sender, DropReason::Malformed);
            self.version.write_error(status, &message, response)
        };
        let Some(precision) = parse_precision(request.query) else {
            return refuse(400, "invalid precision".to_owned(), response);
        };
        let batch = match influx::parse(request.body, precision) {
            Ok(batch) => batch,
            Err(error) => return refuse(413, error.to_string(), response),
        };
        let result = self.ingest.store_batch(&sender, &batch, DEFAULTS);
        let result = result.map_err(not_stored)?;
        match partial_write(&result, &batch, request.body) {
            None => Ok(InputReply::new(204)),
            Some(message) => self.version.write_error(400, &message, response),
        }
    }

    fn count_refused(&self, sender: &str, reason: DropReason) {
        let sender = self.ingest.sender(Input::Influx, sender);
        self.ingest.count_refused(&sender, reason);
    }
}

impl InfluxVersion {
    fn write_error(
        self,
        status: u16,
        message: &str,
        response: &mut dyn io::Write,
    ) -> Result<InputReply, InputError> {
        let body = match (self, status) {
            (InfluxVersion::V1, _) => json!({"error": message}),
            (InfluxVersion::V2, 413) => json!({"code": "request too large", "message": message}),
            (InfluxVersion::V2, _) => json!({"code": "invalid", "message": message}),
        };
        write_json(response, &body)?;
        Ok(InputReply::new(status))
    }
}

/// Parses the parameter `precision`; nanoseconds without one.
fn parse_precision(query: &str) -> Option<TimePrecision> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    match pairs.find(|(key, _)| *key == "precision") {
        None | Some((_, "")) => Some(TimePrecision::default()),
        Some((_, name)) => TimePrecision::from_name(name),
    }
}

/// Describes refused fields as InfluxDB does; `None` if all were stored. Fields with text are
/// counted but not reported: InfluxDB accepts them, and clients that send them always do.
fn partial_write(result: &BatchResult, batch: &PointBatch<'_>, body: &[u8]) -> Option<String> {
    let is_text =
        |error: &BatchPointError| matches!(error, BatchPointError::Fault(PointFault::TextField));
    let mut reported = result.refused.iter().filter(|(_, error)| !is_text(error));
    let (index, first) = reported.next()?;
    let dropped = 1 + reported.count();
    let what = match (first, &batch.points[*index]) {
        (BatchPointError::Fault(fault), _) => {
            let (start, end) = batch.spans[*index];
            let line = String::from_utf8_lossy(&body[start..end]);
            let line: String = line.trim_end().chars().take(QUOTED_CHARS_MAX).collect();
            format!("unable to parse '{line}': {fault}")
        }
        (error, Ok(point)) => format!("{}: {error}", point.name),
        (error, Err(_)) => error.to_string(),
    };
    Some(format!("partial write: {what} dropped={dropped}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_precision_is_a_parameter() {
        let seconds = "db=slurm&precision=s&rp=autogen";
        assert_eq!(parse_precision(seconds), Some(TimePrecision::Seconds));
        assert_eq!(parse_precision("db=x"), Some(TimePrecision::Nanoseconds));
        assert_eq!(parse_precision(""), Some(TimePrecision::Nanoseconds));
        assert_eq!(parse_precision("precision=d"), None);
    }
}
