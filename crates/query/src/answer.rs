//! Writes the answer to `/api/query`.

use std::io::Write;
use std::time::{Duration, Instant};

use pegel_metric::{Millis, format_value};
use serde::Serialize;

use crate::annotation::Annotation;
use crate::downsample::Fill;
use crate::engine::Engine;
use crate::evaluate::{Line, evaluate};
use crate::problem::Problem;
use crate::request::{Gaps, Request, Subject};

/// What the writing of one answer needs.
pub(crate) struct Answer<'a> {
    pub out: &'a mut dyn Write,
    pub request: &'a Request,
    /// Of the whole time, where they were asked for.
    pub global_annotations: Vec<Annotation>,
    is_first: bool,
    points: u64,
    writing: Duration,
    /// A number after the other; kept for its memory.
    text: String,
}

impl Engine {
    /// Answers a request, as JSON.
    pub fn query(&self, request: &Request, out: &mut dyn Write) -> Result<(), Problem> {
        let started = Instant::now();
        let deadline = self.deadline();
        let mut answer = Answer::new(self, request, out);
        let mut samples = 0;
        answer.begin()?;
        for query in &request.queries {
            let mut lines = 0;
            let visit = &mut |line: &Line<'_>| {
                lines += 1;
                answer.line(self, line)
            };
            let wants_tsuids = self.wants_tsuids(request);
            samples += evaluate(self, request, query, wants_tsuids, deadline, visit)?;
            if let (0, Subject::Metric(name), false) = (lines, &query.subject, self.dragon_compat) {
                self.check_known(name, deadline)?;
            }
        }
        if request.show.summary || request.show.stats {
            answer.summary(samples, started.elapsed())?;
        }
        answer.end()
    }

    pub(crate) fn wants_tsuids(&self, request: &Request) -> bool {
        let wants_annotations = !request.show.no_annotations && !self.annotations.is_empty();
        request.show.tsuids || wants_annotations
    }
}

impl<'a> Answer<'a> {
    pub fn new(engine: &Engine, request: &'a Request, out: &'a mut dyn Write) -> Answer<'a> {
        let show = &request.show;
        let global_annotations = match show.global_annotations && !show.no_annotations {
            true => engine.annotations.of("", request.start, request.end),
            false => Vec::new(),
        };
        Answer {
            out,
            request,
            global_annotations,
            is_first: true,
            points: 0,
            writing: Duration::ZERO,
            text: String::new(),
        }
    }

    pub fn begin(&mut self) -> Result<(), Problem> {
        self.text("[")
    }

    pub fn end(&mut self) -> Result<(), Problem> {
        self.text("]")
    }

    fn text(&mut self, text: &str) -> Result<(), Problem> {
        self.out.write_all(text.as_bytes()).map_err(Problem::Write)
    }

    fn field(&mut self, name: &str, value: &impl Serialize) -> Result<(), Problem> {
        self.text(name)?;
        serde_json::to_writer(&mut *self.out, value).map_err(|error| Problem::Write(error.into()))
    }

    pub fn line(&mut self, engine: &Engine, line: &Line<'_>) -> Result<(), Problem> {
        let started = Instant::now();
        let request = self.request;
        let begin = if std::mem::take(&mut self.is_first) {
            "{\"metric\":"
        } else {
            ",{\"metric\":"
        };
        self.field(begin, &line.metric)?;
        self.field(",\"tags\":", &line.tags)?;
        self.field(",\"aggregateTags\":", &line.aggregate_tags)?;
        if request.show.query {
            self.field(",\"query\":", &line.query.echo)?;
        }
        if request.show.tsuids {
            self.field(",\"tsuids\":", &line.tsuids)?;
        }
        if !request.show.no_annotations {
            let annotations = engine
                .annotations
                .of_all(&line.tsuids, request.start, request.end);
            if !annotations.is_empty() {
                self.field(",\"annotations\":", &annotations)?;
            }
            if !self.global_annotations.is_empty() {
                let annotations = std::mem::take(&mut self.global_annotations);
                self.field(",\"globalAnnotations\":", &annotations)?;
                self.global_annotations = annotations;
            }
        }
        self.points(line)?;
        self.text("}")?;
        self.writing += started.elapsed();
        Ok(())
    }

    fn points(&mut self, line: &Line<'_>) -> Result<(), Problem> {
        let is_array = self.request.show.arrays;
        self.text(if is_array { ",\"dps\":[" } else { ",\"dps\":{" })?;
        let fill = line.query.downsample.as_ref().map(|given| given.fill);
        let nan = match (self.request.gaps, fill) {
            (Gaps::Omitted, _) => None,
            (Gaps::Null, _) | (_, Some(Fill::Null)) => Some("null"),
            _ => Some("\"NaN\""),
        };
        let mut text = std::mem::take(&mut self.text);
        let mut is_first = true;
        for (index, &(time, value)) in line.points.iter().enumerate() {
            let stamp = self.stamp(time);
            // Of several points in one second an object can hold one: the last.
            let next = line.points.get(index + 1).map(|point| self.stamp(point.0));
            if next == Some(stamp) {
                continue;
            }
            text.clear();
            if !is_first {
                text.push(',');
            }
            write_stamp(&mut text, stamp, is_array);
            match (value.is_finite(), nan) {
                (true, _) => format_value(&mut text, value),
                (false, Some(nan)) => text.push_str(nan),
                (false, None) => continue,
            }
            if is_array {
                text.push(']');
            }
            is_first = false;
            self.points += 1;
            self.text(&text)?;
        }
        self.text = text;
        self.text(if is_array { "]" } else { "}" })
    }

    fn stamp(&self, time: Millis) -> Millis {
        match self.request.show.ms_resolution {
            true => time,
            false => time.div_euclid(1_000),
        }
    }

    fn summary(&mut self, samples: u64, total: Duration) -> Result<(), Problem> {
        let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
        let summary = serde_json::json!({"statsSummary": {
            "datapoints": self.points,
            "rawDatapoints": samples,
            "aggregationTime": millis(total.saturating_sub(self.writing)),
            "serializationTime": millis(self.writing),
            "storageTime": millis(total.saturating_sub(self.writing)),
            "timeTotal": millis(total),
        }});
        let begin = if std::mem::take(&mut self.is_first) {
            ""
        } else {
            ","
        };
        self.field(begin, &summary)
    }
}

fn write_stamp(text: &mut String, stamp: Millis, is_array: bool) {
    use std::fmt::Write;
    // Writing to a String cannot fail.
    let _ = match is_array {
        true => write!(text, "[{stamp},"),
        false => write!(text, "\"{stamp}\":"),
    };
}
