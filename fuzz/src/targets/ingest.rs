//! The files that ingest reads back, and the patterns of its rules.

use pegel_ingest::lanes::amount::{CounterAmount, CounterKind};
use pegel_ingest::lanes::journal::{JournalContents, JournalLane, JournalSeries, parse_journal};
use pegel_ingest::rules::NamePattern;

use super::Target;
use crate::memory::bounded;

/// The lane journal, with arbitrary corruption.
pub(super) const JOURNAL: Target = Target {
    name: "journal",
    run: journal,
    dictionary: &[&[0], &[1], &[2], &[3], &[4], &[5, 0, 0, 0], b"steps_total"],
    seeds: || vec![Vec::new(), small_journal()],
};

/// A pattern on the first line, a name on the rest.
pub(super) const PATTERN: Target = Target {
    name: "pattern",
    run: pattern,
    dictionary: &[b"{rank:int}", b"{rest:any}", b"{a}", b"*", b"?", b"."],
    seeds: || {
        let texts = [
            "flux.{rank:int}.{rest:any}\nflux.0.kvs.size",
            "*a*b?{x}\nzzabcd",
            "{\n{",
        ];
        texts.map(|text| text.as_bytes().to_vec()).to_vec()
    },
};

fn journal(bytes: &[u8]) {
    let Ok((kept, whole)) = bounded(64 * bytes.len() + (1 << 16), || parse_journal(bytes)) else {
        return;
    };
    assert_eq!(kept.torn_bytes, (bytes.len() - whole) as u64);
    let (again, all) = parse_journal(&bytes[..whole]).expect("the same format");
    assert_eq!(all, whole);
    assert_eq!(again.lanes.len(), kept.lanes.len());
    // The rewritten file has the same content.
    let (third, _) = parse_journal(&again.to_bytes()).expect("our own format");
    assert_eq!(third, again);
}

fn pattern(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (pattern, name) = text.split_once('\n').unwrap_or((text, ""));
    if name.len() > 2000 {
        return;
    }
    let Ok(pattern) = pattern.parse::<NamePattern>() else {
        return;
    };
    if let Some(parts) = pattern.captures(name) {
        for (part, text) in parts {
            assert!(pattern.has_capture(part));
            assert!(!text.is_empty() && name.contains(text));
        }
    }
}

fn small_journal() -> Vec<u8> {
    let mut kept = JournalContents::default();
    let series = JournalSeries {
        text: "steps_total{phase=\"a\"}".to_owned(),
        help: "Steps.".to_owned(),
        kind: CounterKind::Whole,
        level: 1,
    };
    kept.series.insert(0, series.clone());
    let seconds = JournalSeries {
        text: "seconds_total".to_owned(),
        kind: CounterKind::Float,
        ..series
    };
    kept.series.insert(1, seconds);
    kept.base.insert(0, CounterAmount::Whole(7));
    let lane = JournalLane {
        has_ended: true,
        position: 3,
        amounts: vec![(0, CounterAmount::Whole(5)), (1, CounterAmount::Float(0.5))],
        counted_elsewhere: vec![(0, CounterAmount::Whole(2))],
    };
    kept.lanes.insert([9; 16], lane);
    kept.to_bytes()
}
