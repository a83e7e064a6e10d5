//! The recorder thread of a session: adds the samples of the store to the record at each flush,
//! documents when the snapshot, the task or the cloud's scheduled events change, and the end on
//! request.
//!
//! Samples are read from the store by time, from the newest sample in the record on. They are in
//! the store's log before they are in a record, so that an agent that was killed continues without
//! a gap. A sample that arrives with a time before the last flush is not in the record; flushes
//! therefore leave out the newest samples, up to [`WINDOW_DELAY_MAX`], until the record ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_metric::{Millis, with_causes};
use pegel_record::RecordSamples;
use pegel_store::QueryError;
use serde_json::{Value, json};

use crate::aggregate::{aggregate, interval_end};
use crate::description::{RequestedEnd, SessionDescription, SessionEndReason};
use crate::sample_source::SampleSource;
use crate::session::Session;
use crate::session_record::SessionRecordError;
use crate::task::{AutopsyCause, TaskExit, TaskWatch};

/// How long samples of programs may take to reach the store; less if flushes are frequent.
const WINDOW_DELAY_MAX: Duration = Duration::from_secs(2);
const WINDOW_DELAY_SHARE: u32 = 5;
/// How often the task, the snapshot and the cloud's scheduled events are polled, and the delay
/// before a failed flush is retried.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The memory peak of a task is written to the disk when it has grown by a 20th.
const PEAK_GROWTH: u64 = 20;
/// The longest window that is read at once, after an outage of the agent.
const WINDOW_MAX: Millis = 600_000;
/// A window shorter than this is not divided further.
const WINDOW_MIN: Millis = 1_000;

/// The reason why a flush failed. It is retried; nothing is lost as long as the store keeps the
/// samples.
#[derive(Debug, thiserror::Error)]
enum FlushError {
    #[error("cannot read the samples")]
    Query(#[from] QueryError),
    #[error(transparent)]
    Record(#[from] SessionRecordError),
}

/// The state of the recorder thread of one session.
pub(crate) struct Recorder<'a> {
    session: &'a Session,
    source: SampleSource,
    aggregate: Option<Millis>,
    /// The age of samples that a flush leaves out, and the time between two flushes: together the
    /// most that is lost with the node.
    window_delay: Duration,
    flush_period: Duration,
    next_flush: Instant,
    /// The last snapshot in the record.
    snapshot: Option<Arc<str>>,
    scheduled_events: Vec<String>,
    watch: Option<TaskWatch>,
    /// Whether the state of a task that failed is in the record: an end may be repeated.
    is_failure_written: bool,
    /// The memory peak in the description on the disk.
    durable_peak: u64,
}

impl Recorder<'_> {
    pub(crate) fn new(session: &Session) -> Recorder<'_> {
        let context = &session.context;
        let settings = &context.settings;
        let description = session.read(|shared| shared.description.clone());
        let default = description.place.default_flush_interval();
        let flush_interval = settings.flush_interval(default);
        let window_delay = WINDOW_DELAY_MAX.min(flush_interval / WINDOW_DELAY_SHARE);
        let flush_period = flush_interval.saturating_sub(window_delay);
        let watch = { description.task }.and_then(|task| context.resume_watch(task));
        Recorder {
            source: context.source(),
            aggregate: settings.aggregate_millis(),
            next_flush: Instant::now() + flush_period,
            window_delay,
            flush_period,
            snapshot: None,
            scheduled_events: Vec::new(),
            watch,
            is_failure_written: false,
            durable_peak: 0,
            session,
        }
    }

    /// Writes the first blocks of a new record: the session with the snapshot, and the values at
    /// its start. They are on the disk when this returns.
    pub(crate) fn begin(
        &mut self,
        mut samples: Vec<RecordSamples>,
    ) -> Result<(), SessionRecordError> {
        let context = &self.session.context;
        self.snapshot = context.host.snapshot();
        let description = self.session.read(|shared| shared.description.clone());
        let mut document = json!({
            "type": "session",
            "workflow": description.identity.workflow,
            "task": description.identity.task,
            "attempt": description.identity.attempt,
            "slot": description.slot,
            "user": description.uid,
            "node": context.node,
            "version": context.version,
            "begin": description.begin,
            "aggregate_ms": self.aggregate,
            "processes": self.watch.as_ref().map(TaskWatch::scope),
        });
        document["snapshot"] = self.snapshot_json();
        self.write_document(description.begin, &document)?;
        // Later samples are in the first window.
        if let Some(interval) = self.aggregate {
            let until = interval_end(description.begin, interval);
            samples = aggregate(&samples, interval, until);
        }
        self.write_samples(&samples)?;
        self.publish(None, None);
        Ok(())
    }

    /// Records until the record has ended or the agent stops.
    pub(crate) fn run(&mut self) {
        loop {
            let (flush_requested, end, is_stopping) = self.wait();
            let now = self.session.context.clock.utc();
            let is_urgent = self.observe(now);
            let is_due = Instant::now() >= self.next_flush;
            let mut done = Ok(());
            if let Some(end) = &end {
                done = self.end(end);
            } else if flush_requested.is_some() || is_stopping {
                done = self.flush_now();
            } else if is_due || is_urgent {
                let delay = i64::try_from(self.window_delay.as_millis()).unwrap_or(i64::MAX);
                done = self.flush(now.saturating_sub(delay), false);
            }
            self.next_flush = match &done {
                Ok(()) if is_due => Instant::now() + self.flush_period,
                Ok(()) => self.next_flush,
                Err(_) => Instant::now() + POLL_INTERVAL,
            };
            self.publish(done.as_ref().err(), flush_requested);
            if (end.is_some() && done.is_ok()) || is_stopping {
                break;
            }
        }
        self.session
            .update(|shared| shared.has_recorder_stopped = true);
    }

    /// Waits for the next flush, a request, or the next poll of the task.
    fn wait(&self) -> (Option<u64>, Option<RequestedEnd>, bool) {
        let deadline = self.next_flush.min(Instant::now() + POLL_INTERVAL);
        // After a failed end the next attempt is due at `next_flush`.
        let is_waiting = |problem: &Option<String>| problem.is_some() && Instant::now() < deadline;
        self.session.wait_until(deadline, |shared| {
            shared.stop_at.is_some()
                || !is_waiting(&shared.problem)
                    && (shared.flushes_requested > shared.flushes_done
                        || shared.description.requested_end.is_some())
        });
        self.session.read(|shared| {
            let is_requested = shared.flushes_requested > shared.flushes_done;
            let end = shared.description.requested_end.clone();
            let flush = is_requested.then_some(shared.flushes_requested);
            (flush, end, shared.stop_at.is_some())
        })
    }

    /// Publishes the result of a pass to requests and the upload thread.
    fn publish(&self, error: Option<&FlushError>, flushed: Option<u64>) {
        let record = self.session.record.lock();
        let (recorded_until, is_ended) = (record.samples_end(), record.has_ended());
        drop(record);
        let peaks = self.watch.as_ref().map(|watch| watch.peaks().clone());
        self.session.update(|shared| {
            shared.problem = error.map(|error| with_causes(error));
            shared.recorded_until = recorded_until;
            shared.peaks = peaks;
            if let (Some(number), None) = (flushed, error) {
                shared.flushes_done = number;
            }
            shared.is_ended = is_ended;
        });
    }

    /// Polls the task, the snapshot and the cloud's scheduled events. Returns whether a change
    /// requires a flush: the end of the task, an out-of-memory kill, a scheduled event.
    fn observe(&mut self, now: Millis) -> bool {
        let mut is_urgent = false;
        let snapshot = self.session.context.host.snapshot();
        if snapshot.is_some() && snapshot != self.snapshot {
            self.snapshot = snapshot;
            let document = json!({"type": "snapshot", "snapshot": self.snapshot_json()});
            self.log_failure(self.write_document(now, &document));
        }
        let events = self.session.context.host.scheduled_events();
        if events != self.scheduled_events {
            is_urgent = !events.is_empty();
            let document = json!({"type": "event", "event": "scheduled", "events": events});
            self.log_failure(self.write_document(now, &document));
            self.scheduled_events = events;
        }
        self.observe_task(now) || is_urgent
    }

    /// Samples the task. Writes its state after an out-of-memory kill, and its end. Returns whether
    /// one of them happened.
    fn observe_task(&mut self, now: Millis) -> bool {
        let Some(watch) = &mut self.watch else {
            return false;
        };
        // Before the sample: the killed processes are still known.
        let kills = watch.check().new_oom_kills;
        if kills > 0 {
            self.write_autopsy(now, AutopsyCause::OomKill { kills });
        }
        let has_ended = self.watch.as_mut().is_some_and(|watch| {
            watch.sample(now);
            watch.has_ended()
        });
        self.keep_peak();
        let is_known = { self.session }.read(|shared| shared.description.task_end.is_some());
        if has_ended && !is_known {
            self.record_task_end(now);
        }
        kills > 0 || (has_ended && !is_known)
    }

    /// Writes what the task used when its memory has grown: a peak survives a kill of the agent.
    fn keep_peak(&mut self) {
        let Some(watch) = &self.watch else {
            return;
        };
        let peak = watch.peaks().memory_bytes.unwrap_or_default();
        if peak > self.durable_peak + self.durable_peak / PEAK_GROWTH {
            let checkpoint = watch.checkpoint();
            self.durable_peak = peak;
            self.change_description(|description| description.task = Some(checkpoint));
        }
    }

    fn record_task_end(&mut self, now: Millis) {
        let exit = self.watch.as_ref().and_then(TaskWatch::exit);
        match exit {
            Some(TaskExit::Status(status)) if status != 0 => {
                let status = i32::from(status);
                self.write_autopsy(now, AutopsyCause::Exit { status });
                self.is_failure_written = true;
            }
            Some(TaskExit::Signal(signal)) => {
                let signal = i32::from(signal);
                self.write_autopsy(now, AutopsyCause::Signal { signal });
                self.is_failure_written = true;
            }
            _ => {}
        }
        let peaks = self.watch.as_ref().map(TaskWatch::peaks);
        let document = json!({"type": "event", "event": "task-end", "exit": exit, "peaks": peaks});
        self.log_failure(self.write_document(now, &document));
        self.change_description(|description| {
            description.task_end = Some(now);
            description.task_exit = exit;
        });
    }

    /// Changes the description of the session. Best effort: a restarted agent detects it again.
    fn change_description(&self, change: impl FnOnce(&mut SessionDescription)) {
        if let Err(error) = self.session.change_description(change) {
            tracing::warn!(%error, "cannot write the description of a session");
        }
    }

    /// Writes the state of the task. If samples are aggregated, also writes those of the last
    /// minute at full rate, as a part of it.
    fn write_autopsy(&mut self, now: Millis, cause: AutopsyCause) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let mut document = watch.autopsy(cause);
        watch.sample(now);
        document["peaks"] = json!(watch.peaks());
        if self.aggregate.is_some() {
            document["samples"] = self.last_minute(now);
        }
        let mut record = self.session.record.lock();
        let written = record.write_autopsy(now, &document.to_string());
        drop(record);
        self.session.update(|shared| shared.blocks += 1);
        self.log_failure(written);
    }

    /// Returns the samples of the last minute. They are a part of the text, because blocks of
    /// samples tell up to which time an aggregated record is complete.
    fn last_minute(&self, now: Millis) -> Value {
        let samples = self.source.window(now.saturating_sub(60_000), now);
        let samples = samples.inspect_err(|error| {
            tracing::warn!(%error, "cannot read the samples of an autopsy");
        });
        let samples = samples.unwrap_or_default();
        let samples = samples
            .iter()
            .map(|one| json!({"series": &*one.series, "times": &*one.times, "values": one.values}));
        samples.collect()
    }

    /// Logs a failure to write a block: the record continues without it.
    fn log_failure(&self, written: Result<(), SessionRecordError>) {
        if let Err(error) = written {
            let error = with_causes(&error);
            tracing::warn!(error, "a block is missing in the record of a session");
        }
    }

    /// Takes a sample and writes everything up to now.
    fn flush_now(&mut self) -> Result<(), FlushError> {
        self.session.context.host.sample_now();
        let now = self.session.context.clock.utc();
        self.flush(now, false)
    }

    /// Ends the record: a last sample, all samples, the state of a failed task, the summary.
    fn end(&mut self, end: &RequestedEnd) -> Result<(), FlushError> {
        self.session.context.host.sample_now();
        let now = self.session.context.clock.utc();
        self.flush(now, true)?;
        if let Some(watch) = &mut self.watch {
            watch.sample(now);
        }
        let failure = end.exit_status.filter(|status| *status != 0);
        if let Some(status) = failure.filter(|_| !self.is_failure_written) {
            self.is_failure_written = true;
            let cause = match status {
                // A shell reports signal N as 128 + N.
                129..=192 => AutopsyCause::Signal {
                    signal: status - 128,
                },
                _ => AutopsyCause::Exit { status },
            };
            self.write_autopsy(now, cause);
        }
        let summary = self.summary(end, now);
        let mut record = self.session.record.lock();
        record.end(now, &summary.to_string())?;
        Ok(())
    }

    fn summary(&self, end: &RequestedEnd, now: Millis) -> Value {
        let shared = self.session.read(Clone::clone);
        let description = &shared.description;
        let task_end = description.task_end.or(match end.reason {
            SessionEndReason::Stop => Some(end.time),
            _ => None,
        });
        let exit_status = end.exit_status.or(match description.task_exit {
            Some(TaskExit::Status(status)) => Some(i32::from(status)),
            Some(TaskExit::Signal(signal)) => Some(128 + i32::from(signal)),
            None => None,
        });
        json!({
            "workflow": description.identity.workflow,
            "task": description.identity.task,
            "attempt": description.identity.attempt,
            "node": self.session.context.node,
            "version": self.session.context.version,
            "begin": description.begin,
            "end": now,
            "end_reason": end.reason,
            "task_end": task_end,
            "exit_status": exit_status,
            "peaks": self.watch.as_ref().map(TaskWatch::peaks),
        })
    }

    /// Writes the samples that are not in the record yet, up to `until`; `is_last` also writes an
    /// incomplete interval of aggregation and the last values of idle series.
    fn flush(&mut self, until: Millis, is_last: bool) -> Result<(), FlushError> {
        let until = match self.aggregate {
            Some(interval) if !is_last => interval_end(until, interval) - interval,
            _ => until,
        };
        let begin = self.session.read(|shared| shared.description.begin);
        let mut after = self.session.record.lock().samples_end().unwrap_or(begin);
        while after < until {
            let window_end = until.min(after.saturating_add(WINDOW_MAX));
            let is_last = is_last && window_end == until;
            self.write_window(after, window_end, is_last)?;
            after = window_end;
        }
        // What the task used survives a restart of the agent.
        if let Some(watch) = &self.watch {
            let checkpoint = watch.checkpoint();
            self.change_description(|description| description.task = Some(checkpoint));
        }
        Ok(())
    }

    /// Writes one window; divides it if it has more samples than a query returns.
    fn write_window(
        &mut self,
        after: Millis,
        until: Millis,
        is_last: bool,
    ) -> Result<(), FlushError> {
        let mut samples = match self.source.window(after, until) {
            Err(QueryError::TooLarge(_)) if until - after > WINDOW_MIN => {
                let middle = self.window_middle(after, until);
                self.write_window(after, middle, false)?;
                return self.write_window(middle, until, is_last);
            }
            samples => samples?,
        };
        if is_last {
            self.source.add_current(&mut samples, after, until);
        }
        if let Some(interval) = self.aggregate {
            samples = aggregate(&samples, interval, until);
        }
        Ok(self.write_samples(&samples)?)
    }

    /// Returns where to divide a window: between two intervals of aggregation.
    fn window_middle(&self, after: Millis, until: Millis) -> Millis {
        let middle = after + (until - after) / 2;
        match self.aggregate {
            Some(interval) => interval_end(middle, interval).clamp(after + 1, until - 1),
            None => middle,
        }
    }

    fn write_samples(&self, samples: &[RecordSamples]) -> Result<(), SessionRecordError> {
        if samples.is_empty() {
            return Ok(());
        }
        self.session.record.lock().write_samples(samples)?;
        let count: usize = samples.iter().map(|one| one.values.len()).sum();
        self.session.update(|shared| {
            shared.blocks += 1;
            shared.samples += count as u64;
        });
        Ok(())
    }

    fn write_document(&self, time: Millis, document: &Value) -> Result<(), SessionRecordError> {
        let mut record = self.session.record.lock();
        record.write_document(time, &document.to_string())?;
        drop(record);
        self.session.update(|shared| shared.blocks += 1);
        Ok(())
    }

    fn snapshot_json(&self) -> Value {
        let text = self.snapshot.as_deref().unwrap_or("null");
        serde_json::from_str(text).unwrap_or_default()
    }
}
