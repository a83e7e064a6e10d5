//! Sends the requests of a round, and repeats those that fail.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::super::request::{PlannedRequest, RequestBytes, plan_requests};
use super::super::retry::RetryPause;
use super::super::sender::{PostOutcome, WriteSender};
use super::super::series_table::TargetSeries;
use super::{LAG_CHECK_INTERVAL, RoundShape, SendEnd, Shard, TargetThread};

impl TargetThread<'_> {
    /// Sends the samples of the round: shards at the same time, the requests of a shard one after
    /// the other.
    pub(super) fn send(&mut self, table: &TargetSeries, shape: RoundShape) -> SendEnd {
        let counters = &self.shared.counters;
        let in_order = self.round.series_in_order(table);
        let (late, replaced) = self.round.late_series(table);
        counters.replaced.fetch_add(replaced, Ordering::Relaxed);
        let to_send = self.round.len() as u64 - replaced;
        counters.pending.store(to_send, Ordering::Relaxed);
        let RoundShape {
            shards,
            samples_per_request,
            is_repeated,
        } = shape;
        let lists = (&in_order, &late);
        let planned = plan_requests(lists, table, shards, samples_per_request);
        let (settings, abort) = (&self.options.settings, &self.shared.abort);
        while self.shards.len() < planned.len() {
            self.shards.push(Shard {
                sender: WriteSender::new(settings, abort),
                bytes: RequestBytes::default(),
            });
        }
        let mut shards = std::mem::take(&mut self.shards);
        let this = &*self;
        let mut busy: Vec<(&mut Shard, Vec<PlannedRequest<'_>>)> = { shards.iter_mut() }
            .zip(planned)
            .filter(|(_, requests)| !requests.is_empty())
            .collect();
        let ended = match busy.pop() {
            None => SendEnd::Done,
            // The last shard is sent on this thread.
            Some((last, of_last)) => thread::scope(|scope| {
                let others = busy.into_iter().map(|(shard, requests)| {
                    scope.spawn(move || this.send_shard(shard, &requests, table, is_repeated))
                });
                let others: Vec<_> = others.collect();
                let mut ended = this.send_shard(last, &of_last, table, is_repeated);
                for other in others {
                    match other.join() {
                        Ok(end) => ended = ended.max(end),
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
                ended
            }),
        };
        self.shards = shards;
        ended
    }

    /// Sends the requests of one shard.
    fn send_shard(
        &self,
        shard: &mut Shard,
        requests: &[PlannedRequest<'_>],
        table: &TargetSeries,
        is_repeated: bool,
    ) -> SendEnd {
        for (at, request) in requests.iter().enumerate() {
            let ended = self.send_request(shard, request, table, is_repeated);
            if ended == SendEnd::LagExceeded {
                let dropped = requests[at..].iter().map(|request| request.samples);
                let counters = &self.shared.counters;
                counters
                    .dropped_lag
                    .fetch_add(dropped.sum(), Ordering::Relaxed);
            }
            if ended != SendEnd::Done {
                return ended;
            }
        }
        SendEnd::Done
    }

    /// Sends a request until the receiver accepts or refuses it.
    fn send_request(
        &self,
        shard: &mut Shard,
        request: &PlannedRequest<'_>,
        table: &TargetSeries,
        mut is_repeated: bool,
    ) -> SendEnd {
        let counters = &self.shared.counters;
        let mut pause = RetryPause::default();
        let is_v2 = || counters.speaks_v2.load(Ordering::Relaxed);
        let mut encoded = (is_v2(), shard.bytes.encode(request, table, is_v2()));
        for attempt in 0.. {
            if self.shared.abort.load(Ordering::Relaxed) {
                return SendEnd::Stopping;
            }
            if encoded.0 != is_v2() {
                encoded = (is_v2(), shard.bytes.encode(request, table, is_v2()));
            }
            let (was_v2, body) = &encoded;
            let outcome = shard.sender.post(body, *was_v2, attempt, &mut is_repeated);
            match outcome {
                PostOutcome::Stored => {
                    self.count_stored(request, encoded.1.len());
                    return SendEnd::Done;
                }
                PostOutcome::Refused { message, written } => {
                    self.count_refused(request, &message, written, is_repeated);
                    return SendEnd::Done;
                }
                PostOutcome::NoVersion2 => {
                    if counters.speaks_v2.swap(false, Ordering::Relaxed) {
                        let receiver = &self.shared.name;
                        tracing::warn!(
                            receiver,
                            "the receiver does not read remote write 2.0; sending 1.0"
                        );
                    }
                }
                PostOutcome::Retry { message, after } => {
                    self.shared.set_error(&message);
                    let ended = self.pause(pause.next(after));
                    if ended != SendEnd::Done {
                        return ended;
                    }
                }
            }
        }
        SendEnd::Done
    }

    /// Waits before the next attempt, unless the agent stops or `lag` is exceeded.
    fn pause(&self, pause: Duration) -> SendEnd {
        let until = Instant::now() + pause;
        loop {
            if self.is_lag_exceeded() {
                return SendEnd::LagExceeded;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !self.shared.wait(left.min(LAG_CHECK_INTERVAL)) {
                return SendEnd::Stopping;
            }
            if Instant::now() >= until {
                return SendEnd::Done;
            }
        }
    }

    fn count_stored(&self, request: &PlannedRequest<'_>, bytes: usize) {
        let counters = &self.shared.counters;
        counters.sent.fetch_add(request.samples, Ordering::Relaxed);
        if request.is_late {
            counters
                .sent_late
                .fetch_add(request.samples, Ordering::Relaxed);
        }
        counters
            .pending
            .fetch_sub(request.samples, Ordering::Relaxed);
        counters.requests.fetch_add(1, Ordering::Relaxed);
        counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        counters
            .newest_sent
            .fetch_max(request.newest(), Ordering::Relaxed);
        self.shared.clear_error();
    }

    fn count_refused(
        &self,
        request: &PlannedRequest<'_>,
        message: &str,
        written: u64,
        is_repeated: bool,
    ) {
        let counters = &self.shared.counters;
        let written = written.min(request.samples);
        counters.sent.fetch_add(written, Ordering::Relaxed);
        let count = match is_repeated {
            true => &counters.refused_again,
            false => &counters.refused,
        };
        count.fetch_add(request.samples - written, Ordering::Relaxed);
        counters
            .pending
            .fetch_sub(request.samples, Ordering::Relaxed);
        self.shared.clear_error();
        let mut last = counters.last_refusal.lock();
        if last.as_deref() != Some(message) {
            tracing::warn!(
                receiver = self.shared.name,
                samples = request.samples,
                answer = message,
                "the receiver refused samples"
            );
            *last = Some(message.to_owned());
        }
    }
}
