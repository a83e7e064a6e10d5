//! Writes the response of `/api/query` as JSON, series by series while they are evaluated. An error
//! after the first series leaves an incomplete document, which the caller must not deliver as
//! complete.

use std::io::Write;
use std::time::{Duration, Instant};

use pegel_metric::{Millis, format_value};
use serde::Serialize;

use crate::annotations::Annotation;
use crate::downsample::FillPolicy;
use crate::engine::QueryEngine;
use crate::error::OpentsdbError;
use crate::evaluate::{ResultSeries, evaluate};
use crate::request::{GapFormat, QueryRequest, SubQuery};

/// Writes one response.
pub(crate) struct ResponseWriter<'a> {
    pub out: &'a mut dyn Write,
    pub request: &'a QueryRequest,
    /// Those of the whole time range, if requested.
    pub global_annotations: Vec<Annotation>,
    is_first: bool,
    point_count: u64,
    write_time: Duration,
    /// Reused for the text of each point.
    buffer: String,
}

impl QueryEngine {
    /// Answers a request as JSON.
    pub fn query(&self, request: &QueryRequest, out: &mut dyn Write) -> Result<(), OpentsdbError> {
        let started = Instant::now();
        let deadline = self.deadline();
        let mut answer = ResponseWriter::new(self, request, out);
        let mut samples = 0;
        answer.begin()?;
        for query in &request.queries {
            let visit = &mut |line: ResultSeries| answer.write_series(self, query, &line);
            samples += evaluate(self, request, query, deadline, visit)?;
        }
        if request.options.summary || request.options.stats {
            answer.write_summary(samples, started.elapsed())?;
        }
        answer.end()
    }

    pub(crate) fn wants_tsuids(&self, request: &QueryRequest) -> bool {
        let wants_annotations = !request.options.no_annotations && !self.annotations.is_empty();
        request.options.tsuids || wants_annotations
    }
}

impl<'a> ResponseWriter<'a> {
    pub(crate) fn new(
        engine: &QueryEngine,
        request: &'a QueryRequest,
        out: &'a mut dyn Write,
    ) -> ResponseWriter<'a> {
        let show = &request.options;
        let mut global_annotations = if show.global_annotations && !show.no_annotations {
            engine
                .annotations
                .for_series("", request.start, request.end)
        } else {
            Vec::new()
        };
        if show.annotation_seconds {
            global_annotations
                .iter_mut()
                .for_each(Annotation::round_to_seconds);
        }
        ResponseWriter {
            out,
            request,
            global_annotations,
            is_first: true,
            point_count: 0,
            write_time: Duration::ZERO,
            buffer: String::new(),
        }
    }

    pub(crate) fn begin(&mut self) -> Result<(), OpentsdbError> {
        self.write_text("[")
    }

    pub(crate) fn end(&mut self) -> Result<(), OpentsdbError> {
        self.write_text("]")
    }

    fn write_text(&mut self, text: &str) -> Result<(), OpentsdbError> {
        self.out
            .write_all(text.as_bytes())
            .map_err(OpentsdbError::Write)
    }

    fn write_field(&mut self, name: &str, value: &impl Serialize) -> Result<(), OpentsdbError> {
        self.write_text(name)?;
        serde_json::to_writer(&mut *self.out, value)
            .map_err(|error| OpentsdbError::Write(error.into()))
    }

    pub(crate) fn write_series(
        &mut self,
        engine: &QueryEngine,
        query: &SubQuery,
        line: &ResultSeries,
    ) -> Result<(), OpentsdbError> {
        let started = Instant::now();
        let request = self.request;
        let begin = if std::mem::take(&mut self.is_first) {
            "{\"metric\":"
        } else {
            ",{\"metric\":"
        };
        self.write_field(begin, &line.metric)?;
        self.write_field(",\"tags\":", &line.tags)?;
        self.write_field(",\"aggregateTags\":", &line.aggregate_tags)?;
        if request.options.query {
            self.write_field(",\"query\":", &query.echo)?;
        }
        if request.options.tsuids {
            self.write_field(",\"tsuids\":", &line.tsuids)?;
        }
        if !request.options.no_annotations {
            let mut annotations =
                engine
                    .annotations
                    .for_several_series(&line.tsuids, request.start, request.end);
            if request.options.annotation_seconds {
                annotations
                    .iter_mut()
                    .for_each(Annotation::round_to_seconds);
            }
            if !annotations.is_empty() {
                self.write_field(",\"annotations\":", &annotations)?;
            }
            if !self.global_annotations.is_empty() {
                let annotations = std::mem::take(&mut self.global_annotations);
                self.write_field(",\"globalAnnotations\":", &annotations)?;
                self.global_annotations = annotations;
            }
        }
        self.write_points(query, line)?;
        self.write_text("}")?;
        self.write_time += started.elapsed();
        Ok(())
    }

    fn write_points(&mut self, query: &SubQuery, line: &ResultSeries) -> Result<(), OpentsdbError> {
        let is_array = self.request.options.arrays;
        self.write_text(if is_array { ",\"dps\":[" } else { ",\"dps\":{" })?;
        let fill = query.downsample.as_ref().map(|given| given.fill);
        let nan = match (self.request.gap_format, fill) {
            (GapFormat::Omitted, _) => None,
            (GapFormat::Null, _) | (_, Some(FillPolicy::Null)) => Some("null"),
            _ => Some("\"NaN\""),
        };
        let mut text = std::mem::take(&mut self.buffer);
        let mut is_first = true;
        for (index, &(time, value)) in line.points.iter().enumerate() {
            let stamp = self.timestamp(time);
            // A JSON object has one point per second: the last one.
            let next = line
                .points
                .get(index + 1)
                .map(|point| self.timestamp(point.0));
            if next == Some(stamp) {
                continue;
            }
            text.clear();
            if !is_first {
                text.push(',');
            }
            write_timestamp(&mut text, stamp, is_array);
            match (value.is_finite(), nan) {
                (true, _) => format_value(&mut text, value),
                (false, Some(nan)) => text.push_str(nan),
                (false, None) => continue,
            }
            if is_array {
                text.push(']');
            }
            is_first = false;
            self.point_count += 1;
            self.write_text(&text)?;
        }
        self.buffer = text;
        self.write_text(if is_array { "]" } else { "}" })
    }

    fn timestamp(&self, time: Millis) -> Millis {
        if self.request.options.ms_resolution {
            time
        } else {
            time.div_euclid(1_000)
        }
    }

    fn write_summary(&mut self, samples: u64, total: Duration) -> Result<(), OpentsdbError> {
        let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
        let summary = serde_json::json!({"statsSummary": {
            "datapoints": self.point_count,
            "rawDatapoints": samples,
            "aggregationTime": millis(total.saturating_sub(self.write_time)),
            "serializationTime": millis(self.write_time),
            "storageTime": millis(total.saturating_sub(self.write_time)),
            "timeTotal": millis(total),
        }});
        let begin = if std::mem::take(&mut self.is_first) {
            ""
        } else {
            ","
        };
        self.write_field(begin, &summary)
    }
}

fn write_timestamp(text: &mut String, stamp: Millis, is_array: bool) {
    use std::fmt::Write;
    // Writing to a String cannot fail.
    let _ = if is_array {
        write!(text, "[{stamp},")
    } else {
        write!(text, "\"{stamp}\":")
    };
}
