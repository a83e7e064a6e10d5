//! `/api/v1/query`, `/api/v1/query_range` and `/api/v1/query_exemplars`.

use std::sync::Arc;
use std::time::Instant;

use axum::response::Response;
use pegel_metric::Millis;
use pegel_query::promql::{self, PromqlError, QueryOutcome};
use serde_json::{Value, json};

use crate::job_query::{JobOnNodes, JobSeries};
use crate::tree::PromqlSource;

use super::encode::{TRUNCATED, write_result};
use super::parameters::invalid;
use super::{PrometheusFailure, PrometheusRequest, PrometheusWork, respond};

/// Evaluates an expression at `time`, by default now.
pub(super) async fn query(request: PrometheusRequest) -> Response {
    respond(request, |work| {
        let now = work.context.agent.clock.utc();
        let time = work.parameters.time("time")?;
        let time = time.or(work.job.as_ref().map(|job| job.end)).unwrap_or(now);
        let began = Instant::now();
        let expression = work.parameters.get("query").unwrap_or_default();
        let outcome = match &work.job {
            None => promql::instant(&work.source, expression, time, &work.limits),
            Some(job) => {
                promql::instant(&of_job(&work.source, job), expression, time, &work.limits)
            }
        };
        write_outcome(work, began, outcome)
    })
    .await
}

/// Evaluates an expression at every `step` from `start` to `end`.
pub(super) async fn query_range(request: PrometheusRequest) -> Response {
    respond(request, |work| {
        let parameters = &work.parameters;
        let missing =
            |name: &str, kind: &str| invalid(name, &format!("cannot parse \"\" to a valid {kind}"));
        let time = |name, of_job: fn(&JobOnNodes) -> Millis| {
            let default = work.job.as_deref().map(of_job);
            let time = parameters.time(name)?.or(default);
            time.ok_or_else(|| missing(name, "timestamp"))
        };
        let range = (time("start", |job| job.begin)?, time("end", |job| job.end)?);
        let default = work
            .job
            .as_ref()
            .map(|job| default_step(job.end - job.begin));
        let step = parameters.duration("step")?.or(default);
        let step = step.ok_or_else(|| missing("step", "duration"))?;
        let began = Instant::now();
        let expression = parameters.get("query").unwrap_or_default();
        let outcome = match &work.job {
            None => promql::range(&work.source, expression, range, step, &work.limits),
            Some(job) => {
                let range = steps_of_job(job, range, step);
                promql::range(
                    &of_job(&work.source, job),
                    expression,
                    range,
                    step,
                    &work.limits,
                )
            }
        };
        write_outcome(work, began, outcome)
    })
    .await
}

/// Restricts the series to those of a job.
fn of_job<'a>(source: &'a PromqlSource, job: &Arc<JobOnNodes>) -> JobSeries<&'a PromqlSource> {
    JobSeries {
        source,
        job: job.clone(),
    }
}

/// Returns the step of a range over a job: 250 steps, of at least a second.
fn default_step(length: Millis) -> Millis {
    (length / 250).max(1_000)
}

/// Leaves out the steps before and after a job. Those that remain keep their times.
fn steps_of_job(
    job: &JobOnNodes,
    (start, end): (Millis, Millis),
    step: Millis,
) -> (Millis, Millis) {
    if step <= 0 || start > end {
        // The evaluation refuses it.
        return (start, end);
    }
    let skipped = (job.begin - start).max(0);
    let first = start + (skipped + step - 1) / step * step;
    let last = end.min(job.end);
    // A job between two steps is evaluated at its end.
    match first <= last {
        true => (first, last),
        false => (job.end, job.end),
    }
}

/// There are no exemplars. Malformed parameters are errors nevertheless, as in Prometheus.
pub(super) async fn query_exemplars(request: PrometheusRequest) -> Response {
    respond(request, |work| {
        let (start, end) = (work.parameters.time("start")?, work.parameters.time("end")?);
        if start.zip(end).is_some_and(|(start, end)| end < start) {
            let message = "end timestamp must not be before start time";
            return Err(invalid("end", message).into());
        }
        let expression = work.parameters.get("query").unwrap_or_default();
        promql::format_expression(expression)
            .map_err(|error| invalid("query", &error.to_string()))?;
        Ok(work.buffer.json(&json!([]))?)
    })
    .await
}

fn write_outcome(
    work: &mut PrometheusWork<'_>,
    began: Instant,
    outcome: Result<QueryOutcome, PromqlError>,
) -> Result<(), PrometheusFailure> {
    let mut outcome = outcome.map_err(name_parameter)?;
    let limit = work.parameters.limit()?;
    let stats = work
        .parameters
        .get("stats")
        .map(|_| stats(work, began, &outcome));
    let is_truncated = write_result(work.buffer, &outcome, limit, stats.as_ref())?;
    work.warnings.append(&mut outcome.warnings);
    work.infos.append(&mut outcome.infos);
    if is_truncated {
        work.warnings.push(TRUNCATED.into());
    }
    Ok(())
}

/// Adds the name of the parameter to the message about a malformed expression.
fn name_parameter(error: PromqlError) -> PromqlError {
    let message = error.to_string();
    if message.starts_with("parse error") || message.starts_with("invalid expression type") {
        return invalid("query", &message);
    }
    error
}

fn stats(work: &PrometheusWork<'_>, began: Instant, outcome: &QueryOutcome) -> Value {
    let evaluated = began.elapsed().as_secs_f64();
    let waited = work.waited.as_secs_f64();
    json!({
        "timings": {
            "evalTotalTime": evaluated,
            "resultSortTime": 0.0,
            "queryPreparationTime": 0.0,
            "innerEvalTime": evaluated,
            "execQueueTime": waited,
            "execTotalTime": waited + evaluated,
        },
        "samples": {
            "totalQueryableSamples": outcome.samples,
            "peakSamples": outcome.samples,
        },
    })
}
