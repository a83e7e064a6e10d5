//! Reads ranges of samples and lists of series, from the cache or from the engine. `pegel-query`
//! calls it through [`HistoryReader`], on the thread of a query. Pieces are read from the newest to
//! the oldest; the first one that fails ends the range.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pegel_metric::Millis;
use pegel_query::promql::{LabelSet, format_time};
use pegel_query::{
    HistoryAnswer, HistoryProblem, HistoryProblemKind, HistoryReader, HistoryRequest, HistorySeries,
};
use pegel_wire::prompb::Message;

use crate::answer::{AnswerBuilder, AnswerError};
use crate::cache::AnswerCache;
use crate::client::{EngineClient, EngineRefusal, EngineRequest, EngineResponse, RequestLimit};
use crate::counters::{HistoryCounters, HistoryStatus};
use crate::matrix::read_matrix;
use crate::piece::{HistoryPiece, LENGTH_MIN, PieceLength, Span};
use crate::remote_read::read_response;
use crate::selector::EngineSelector;
use crate::series_list::read_series;
use crate::settings::{HistoryApi, HistorySettings};

/// The age at which samples are assumed to have arrived in the engine.
const SETTLED_AGE: Millis = 600_000;

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");
const REMOTE_READ: [(&str, &str); 4] = [
    ("Content-Type", "application/x-protobuf"),
    ("Content-Encoding", "snappy"),
    ("Accept-Encoding", "snappy"),
    ("X-Prometheus-Remote-Read-Version", "0.1.0"),
];

/// An engine with Prometheus' HTTP API.
#[derive(Debug)]
pub struct PrometheusHistory {
    client: EngineClient,
    cache: Mutex<AnswerCache>,
    counters: Arc<HistoryCounters>,
    /// The API in use, as the position in [`APIS`].
    api: AtomicU8,
}

const APIS: [HistoryApi; 3] = [HistoryApi::Auto, HistoryApi::RemoteRead, HistoryApi::Query];

/// The parts of one request that do not change from piece to piece.
struct ReadPlan<'a> {
    selector: EngineSelector<'a>,
    text: Arc<str>,
    limit: RequestLimit,
    /// Samples before this time are assumed to have arrived in the engine.
    settled: Millis,
}

impl PrometheusHistory {
    /// Returns `None` if no engine is configured.
    pub fn new(settings: &HistorySettings) -> Option<PrometheusHistory> {
        let url = settings.url.clone()?;
        let api = APIS.iter().position(|api| *api == settings.api);
        Some(PrometheusHistory {
            cache: Mutex::new(AnswerCache::new(settings.cache.as_usize())),
            counters: Arc::default(),
            api: AtomicU8::new(api.unwrap_or_default() as u8),
            client: EngineClient::new(settings.clone(), url),
        })
    }

    pub fn status(&self) -> HistoryStatus {
        HistoryStatus {
            address: self.client.address.clone(),
            api: self.api().as_str(),
            cache_bytes: self.cache.lock().bytes() as u64,
            ..self.counters.status()
        }
    }

    fn api(&self) -> HistoryApi {
        let at = usize::from(self.api.load(Ordering::Relaxed));
        APIS.get(at).copied().unwrap_or(HistoryApi::Auto)
    }

    fn use_api(&self, api: HistoryApi) {
        let at = APIS.iter().position(|known| *known == api);
        self.api
            .store(at.unwrap_or_default() as u8, Ordering::Relaxed);
    }

    fn plan<'a>(&'a self, request: &HistoryRequest<'_>) -> Option<ReadPlan<'a>> {
        let settings = self.client.settings();
        let selector = EngineSelector::new(request, &settings.external_labels)?;
        let timeout = settings.timeout.duration();
        Some(ReadPlan {
            text: selector.text().into(),
            selector,
            limit: RequestLimit {
                deadline: request.deadline.min(Instant::now() + timeout),
                stop: request.cancellation.flag(),
                bytes_max: settings.bytes.as_usize().min(request.bytes_max),
            },
            settled: request.now.saturating_sub(SETTLED_AGE),
        })
    }

    /// Returns the newest piece before `end`: any length from the cache, or `length` from the
    /// engine.
    fn piece_before(
        &self,
        plan: &ReadPlan<'_>,
        end: Millis,
        length: PieceLength,
        bytes_left: usize,
    ) -> Result<(Arc<HistoryPiece>, Span), HistoryProblem> {
        {
            let mut cache = self.cache.lock();
            for length in PieceLength::all() {
                let span = length.piece_before(end);
                if let Some(piece) = cache.piece(&plan.text, span) {
                    self.counters.count_cached(true);
                    return Ok((piece, span));
                }
            }
        }
        self.counters.count_cached(false);
        let mut span = length.piece_before(end);
        let is_settled = span.end <= plan.settled;
        if !is_settled {
            span.end = span.end.min(end);
        }
        let piece = Arc::new(self.fetch(plan, span, bytes_left)?);
        if is_settled && piece.partial.is_none() {
            self.cache.lock().add_piece(&plan.text, span, &piece);
        }
        Ok((piece, span))
    }

    fn fetch(
        &self,
        plan: &ReadPlan<'_>,
        span: Span,
        bytes_left: usize,
    ) -> Result<HistoryPiece, HistoryProblem> {
        let range = (span.start, span.end - 1);
        let mut builder = AnswerBuilder::new(&plan.selector, range, bytes_left);
        let mut partial = None;
        let api = self.api();
        if api != HistoryApi::Query {
            match self.remote_read(plan, range, &mut builder) {
                Ok(()) => self.use_api(HistoryApi::RemoteRead),
                Err(refusal) if api == HistoryApi::Auto && is_unknown_path(&refusal) => {
                    partial = self.query(plan, range, &mut builder)?;
                    self.use_api(HistoryApi::Query);
                }
                Err(refusal) => return Err(refusal.problem),
            }
        } else {
            partial = self.query(plan, range, &mut builder)?;
        }
        let (series, bytes) = builder.finish();
        let samples: usize = series.iter().map(|one| one.times.len()).sum();
        self.counters.count_answer(samples as u64);
        Ok(HistoryPiece {
            series,
            bytes,
            partial,
        })
    }

    fn remote_read(
        &self,
        plan: &ReadPlan<'_>,
        (start, end): (Millis, Millis),
        builder: &mut AnswerBuilder<'_>,
    ) -> Result<(), EngineRefusal> {
        let message = plan.selector.read_request(start, end).encode_to_vec();
        let packed = snap::raw::Encoder::new().compress_vec(&message);
        let request = EngineRequest {
            path: "/api/v1/read",
            headers: &REMOTE_READ,
            // Compression fails only beyond four gigabytes.
            body: packed.unwrap_or_default(),
        };
        let mut response = self.client.post(&request, &plan.limit, &self.counters)?;
        let mut body = Vec::new();
        let read = response.body.read_to_end(&mut body);
        let read = read
            .map_err(|error| AnswerError::malformed(error.to_string()))
            .and_then(|_| read_response(&body, plan.limit.bytes_max, builder));
        let checked = self.checked(plan, &response, read);
        checked.map_err(|problem| EngineRefusal {
            status: None,
            problem,
        })
    }

    /// Reads samples with a range selector. Returns why the answer is incomplete.
    fn query(
        &self,
        plan: &ReadPlan<'_>,
        (start, end): (Millis, Millis),
        builder: &mut AnswerBuilder<'_>,
    ) -> Result<Option<String>, HistoryProblem> {
        // Prometheus 3 and VictoriaMetrics exclude the start of the range, Prometheus 2 includes
        // it: the builder ignores the additional millisecond.
        let range = end - start + 1;
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", &format!("{}[{range}ms]", plan.text))
            .append_pair("time", &seconds(end))
            .finish();
        let mut response = self.form(plan, "/api/v1/query", body)?;
        let nan_is_stale = response.is_victoria_metrics;
        let read = read_matrix(&mut response.body, nan_is_stale, builder);
        let checked = self.checked(plan, &response, read);
        checked.map(|notes| notes.partial)
    }

    fn fetch_list(
        &self,
        plan: &ReadPlan<'_>,
        span: Span,
    ) -> Result<(Vec<LabelSet>, Option<String>), HistoryProblem> {
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("match[]", &plan.text)
            .append_pair("start", &seconds(span.start))
            .append_pair("end", &seconds(span.end))
            .finish();
        let mut response = self.form(plan, "/api/v1/series", body)?;
        let read = read_series(&mut response.body, &plan.selector, plan.limit.bytes_max);
        let (notes, found) = self.checked(plan, &response, read)?;
        self.counters.count_answer(0);
        Ok((found, notes.partial))
    }

    fn form(
        &self,
        plan: &ReadPlan<'_>,
        path: &str,
        body: String,
    ) -> Result<EngineResponse<'_>, HistoryProblem> {
        let request = EngineRequest {
            path,
            headers: &[FORM],
            body: body.into_bytes(),
        };
        let response = self.client.post(&request, &plan.limit, &self.counters);
        response.map_err(|refusal| refusal.problem)
    }

    /// Returns what was parsed, or why it cannot be used. After a malformed response and a
    /// connection that fails while it is read, further requests are refused for a while.
    fn checked<T>(
        &self,
        plan: &ReadPlan<'_>,
        response: &EngineResponse<'_>,
        read: Result<T, AnswerError>,
    ) -> Result<T, HistoryProblem> {
        let error = match read {
            Ok(read) => {
                self.client.unblock();
                return Ok(read);
            }
            Err(error) => error,
        };
        let kind = response.body.get_ref().failure;
        let problem = match (kind, error) {
            (Some(HistoryProblemKind::TooLarge), _) | (None, AnswerError::TooLarge) => {
                self.client.unblock();
                let bytes = &self.client.settings().bytes;
                let message =
                    format!("the answer exceeds history.bytes ({bytes}) or the query's memory");
                return Err(self.client.problem(HistoryProblemKind::TooLarge, message));
            }
            (Some(HistoryProblemKind::Timeout), _) => {
                let message = "no complete response within the timeout";
                self.client.problem(HistoryProblemKind::Timeout, message)
            }
            (Some(kind), _) => self.client.problem(kind, "the connection was lost"),
            (None, AnswerError::Malformed(message)) => {
                let message = format!("malformed answer: {message}");
                self.client.problem(HistoryProblemKind::Malformed, message)
            }
        };
        self.client
            .note_failure(&problem, response.began, &plan.limit.stop);
        Err(problem)
    }

    /// Ends a request. The problems of a cancelled query are not counted: its client is gone, and
    /// the engine may be well.
    fn finish<T>(
        &self,
        request: &HistoryRequest<'_>,
        series: Vec<T>,
        complete_from: Millis,
        problem: Option<HistoryProblem>,
    ) -> HistoryAnswer<T> {
        if let Some(problem) = &problem
            && !request.cancellation.is_canceled()
        {
            self.counters.count_problem(problem);
        }
        HistoryAnswer {
            series,
            complete_from,
            problem,
        }
    }

    fn partial(&self, message: &str) -> HistoryProblem {
        let message = format!("the engine reports an incomplete answer: {message}");
        self.client.problem(HistoryProblemKind::Partial, message)
    }
}

impl HistoryReader for PrometheusHistory {
    fn read(&self, request: &HistoryRequest<'_>) -> HistoryAnswer<HistorySeries> {
        let Some(plan) = self.plan(request) else {
            return self.finish(request, Vec::new(), request.start, None);
        };
        let oldest = self.oldest(request.now);
        let mut problem = (request.start < oldest).then(|| {
            let message = format!("not read before {} (history.reach)", format_time(oldest));
            self.client.problem(HistoryProblemKind::Reach, message)
        });
        let (start, mut end) = (request.start.max(oldest), request.end.saturating_add(1));
        let mut length = PieceLength::first(end.saturating_sub(start));
        let mut bytes_left = plan.limit.bytes_max;
        let mut pieces: Vec<(Arc<HistoryPiece>, Span)> = Vec::new();
        while end > start {
            match self.piece_before(&plan, end, length, bytes_left) {
                Ok((piece, _)) if piece.bytes > bytes_left => {
                    let message = "the samples exceed history.bytes or the query's memory";
                    problem = Some(self.client.problem(HistoryProblemKind::TooLarge, message));
                    break;
                }
                Ok((piece, span)) => {
                    bytes_left -= piece.bytes;
                    let used = Span {
                        start: span.start.max(start),
                        end: span.end.min(end),
                    };
                    problem = { piece.partial.as_deref() }
                        .map(|text| self.partial(text))
                        .or(problem);
                    length = length.after(piece.bytes, plan.limit.bytes_max, span.start);
                    end = used.start;
                    pieces.push((piece, used));
                }
                Err(failure) => match length.shorter() {
                    Some(shorter) if failure.kind == HistoryProblemKind::TooLarge => {
                        length = shorter;
                    }
                    _ => {
                        problem = Some(failure);
                        break;
                    }
                },
            }
        }
        self.finish(request, joined_pieces(&pieces), end, problem)
    }

    fn list(&self, request: &HistoryRequest<'_>) -> HistoryAnswer<LabelSet> {
        let Some(plan) = self.plan(request) else {
            return self.finish(request, Vec::new(), request.start, None);
        };
        let span = Span {
            start: request.start.div_euclid(LENGTH_MIN) * LENGTH_MIN,
            end: (request.end.div_euclid(LENGTH_MIN) + 1).saturating_mul(LENGTH_MIN),
        };
        let cached = self.cache.lock().list(&plan.text, span);
        self.counters.count_cached(cached.is_some());
        if let Some(found) = cached {
            return self.finish(request, (*found).clone(), request.start, None);
        }
        match self.fetch_list(&plan, span) {
            Ok((found, None)) => {
                let found = Arc::new(found);
                self.cache.lock().add_list(&plan.text, span, &found);
                self.finish(request, (*found).clone(), request.start, None)
            }
            Ok((found, Some(partial))) => {
                self.finish(request, found, request.start, Some(self.partial(&partial)))
            }
            Err(problem) => self.finish(request, Vec::new(), request.end, Some(problem)),
        }
    }

    fn oldest(&self, now: Millis) -> Millis {
        let reach: Duration = self.client.settings().reach.duration();
        now.saturating_sub(Millis::try_from(reach.as_millis()).unwrap_or(Millis::MAX))
    }

    fn address(&self) -> &str {
        &self.client.address
    }
}

/// Returns whether the engine may lack the API of the request.
fn is_unknown_path(refusal: &EngineRefusal) -> bool {
    matches!(refusal.status, Some(400 | 404 | 405 | 501))
}

/// Joins the samples of pieces, which are sorted from the newest to the oldest.
fn joined_pieces(pieces: &[(Arc<HistoryPiece>, Span)]) -> Vec<HistorySeries> {
    let mut all: HashMap<&LabelSet, HistorySeries> = HashMap::new();
    for (piece, span) in pieces.iter().rev() {
        for series in &piece.series {
            let first = series.times.partition_point(|time| *time < span.start);
            let last = series.times.partition_point(|time| *time < span.end);
            if first >= last {
                continue;
            }
            let joined = all.entry(&series.labels).or_insert_with(|| HistorySeries {
                labels: series.labels.clone(),
                times: Vec::new(),
                values: Vec::new(),
            });
            joined.times.extend_from_slice(&series.times[first..last]);
            joined.values.extend_from_slice(&series.values[first..last]);
        }
    }
    all.into_values().collect()
}

/// Returns a time in seconds, to the millisecond.
fn seconds(time: Millis) -> String {
    format!("{}.{:03}", time.div_euclid(1_000), time.rem_euclid(1_000))
}
