//! Caches answers of the engine within a bound of memory. The reader adds only complete answers for
//! ranges that are settled. All of them expire: the engine may get old samples late, after an
//! outage or from an import, and drops others. The least recently used answers are dropped first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pegel_query::promql::LabelSet;

use crate::piece::{HistoryPiece, Span};

/// How long a list of series is valid: it becomes shorter when the engine drops samples.
const LIST_TTL: Duration = Duration::from_secs(300);
/// How long samples are valid.
const SAMPLES_TTL: Duration = Duration::from_secs(3_600);
/// The memory of an entry besides its answer.
const ENTRY_BYTES: usize = 200;
/// The largest number of entries. Finding the least recently used one scans all of them.
const ENTRIES_MAX: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CacheKey {
    selector: Arc<str>,
    span: Span,
    is_list: bool,
}

#[derive(Debug, Clone)]
enum CachedAnswer {
    Samples(Arc<HistoryPiece>),
    Labels(Arc<Vec<LabelSet>>),
}

#[derive(Debug)]
struct CacheEntry {
    answer: CachedAnswer,
    expires: Instant,
    bytes: usize,
    /// The value of `AnswerCache::uses` at the last use.
    used: u64,
}

/// A bounded cache of answers.
#[derive(Debug)]
pub(crate) struct AnswerCache {
    entries: HashMap<CacheKey, CacheEntry>,
    bytes: usize,
    bytes_max: usize,
    uses: u64,
}

impl AnswerCache {
    pub(crate) fn new(bytes_max: usize) -> AnswerCache {
        AnswerCache {
            entries: HashMap::new(),
            bytes: 0,
            bytes_max,
            uses: 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn piece(&mut self, selector: &Arc<str>, span: Span) -> Option<Arc<HistoryPiece>> {
        match self.get(selector, span, false)? {
            CachedAnswer::Samples(piece) => Some(piece),
            CachedAnswer::Labels(_) => None,
        }
    }

    pub(crate) fn add_piece(&mut self, selector: &Arc<str>, span: Span, piece: &Arc<HistoryPiece>) {
        let answer = CachedAnswer::Samples(piece.clone());
        self.add(selector, span, answer, piece.bytes);
    }

    pub(crate) fn list(&mut self, selector: &Arc<str>, span: Span) -> Option<Arc<Vec<LabelSet>>> {
        match self.get(selector, span, true)? {
            CachedAnswer::Labels(labels) => Some(labels),
            CachedAnswer::Samples(_) => None,
        }
    }

    pub(crate) fn add_list(
        &mut self,
        selector: &Arc<str>,
        span: Span,
        labels: &Arc<Vec<LabelSet>>,
    ) {
        let bytes = labels.iter().map(LabelSet::bytes).sum();
        let answer = CachedAnswer::Labels(labels.clone());
        self.add(selector, span, answer, bytes);
    }

    fn get(&mut self, selector: &Arc<str>, span: Span, is_list: bool) -> Option<CachedAnswer> {
        self.uses += 1;
        let key = CacheKey {
            selector: selector.clone(),
            span,
            is_list,
        };
        let entry = self.entries.get_mut(&key)?;
        if Instant::now() >= entry.expires {
            self.remove(&key);
            return None;
        }
        entry.used = self.uses;
        Some(entry.answer.clone())
    }

    fn add(&mut self, selector: &Arc<str>, span: Span, answer: CachedAnswer, bytes: usize) {
        let bytes = bytes + ENTRY_BYTES + selector.len();
        // One answer must not displace everything else.
        if bytes > self.bytes_max / 2 {
            return;
        }
        let key = CacheKey {
            selector: selector.clone(),
            span,
            is_list: matches!(answer, CachedAnswer::Labels(_)),
        };
        self.remove(&key);
        while self.bytes + bytes > self.bytes_max || self.entries.len() >= ENTRIES_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.remove(&oldest);
        }
        self.uses += 1;
        let used = self.uses;
        let ttl = if key.is_list { LIST_TTL } else { SAMPLES_TTL };
        self.bytes += bytes;
        self.entries.insert(
            key,
            CacheEntry {
                answer,
                expires: Instant::now() + ttl,
                bytes,
                used,
            },
        );
    }

    fn remove(&mut self, key: &CacheKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: usize) -> Arc<HistoryPiece> {
        Arc::new(HistoryPiece {
            series: Vec::new(),
            bytes,
            partial: None,
        })
    }

    fn span(start: i64) -> Span {
        Span {
            start,
            end: start + 1,
        }
    }

    #[test]
    fn the_least_recently_used_answers_are_dropped() {
        let mut cache = AnswerCache::new(5_000);
        let selector: Arc<str> = "m".into();
        for at in 0..4 {
            cache.add_piece(&selector, span(at), &piece(1_000));
        }
        assert!(cache.piece(&selector, span(0)).is_some());
        cache.add_piece(&selector, span(4), &piece(1_000));
        assert!(cache.piece(&selector, span(0)).is_some());
        assert!(cache.piece(&selector, span(1)).is_none());
        assert!(cache.piece(&"n".into(), span(0)).is_none());
        assert!(cache.bytes() <= 5_000);
        // Replacing an answer does not count it twice.
        let before = cache.bytes();
        cache.add_piece(&selector, span(4), &piece(1_000));
        assert_eq!(cache.bytes(), before);
        // One that is too large is not kept.
        cache.add_piece(&selector, span(9), &piece(4_000));
        assert!(cache.piece(&selector, span(9)).is_none());
    }

    #[test]
    fn answers_expire() {
        let mut cache = AnswerCache::new(5_000);
        let selector: Arc<str> = "m".into();
        let labels = Arc::new(vec![LabelSet::new([("__name__", "m")])]);
        cache.add_piece(&selector, span(0), &piece(1_000));
        cache.add_list(&selector, span(0), &labels);
        let found = |cache: &mut AnswerCache| {
            let piece = cache.piece(&selector, span(0)).is_some();
            (piece, cache.list(&selector, span(0)).is_some())
        };
        assert_eq!(found(&mut cache), (true, true));
        let now = Instant::now();
        let entries = cache.entries.values_mut();
        entries.for_each(|entry| entry.expires = entry.expires.min(now));
        assert_eq!(found(&mut cache), (false, false));
        assert_eq!(cache.bytes(), 0, "expired answers are dropped");
    }

    #[test]
    fn lists_and_samples_are_different_answers() {
        let mut cache = AnswerCache::new(5_000);
        let selector: Arc<str> = "m".into();
        let labels = Arc::new(vec![LabelSet::new([("__name__", "m")])]);
        cache.add_list(&selector, span(0), &labels);
        assert!(cache.piece(&selector, span(0)).is_none());
        assert_eq!(cache.list(&selector, span(0)), Some(labels));
    }
}
