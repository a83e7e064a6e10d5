//! What ingest reads back, and the patterns of its rules.

use pegel_ingest::lanes::amount::{Amount, CounterKind};
use pegel_ingest::lanes::journal::{Kept, KeptLane, KeptSeries, read};
use pegel_ingest::rules::Pattern;

use super::Target;
use crate::memory::bounded;

/// The journal of lanes, from a disk that may have changed anything.
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
    let Ok((kept, whole)) = bounded(64 * bytes.len() + (1 << 16), || read(bytes)) else {
        return;
    };
    assert_eq!(kept.torn, (bytes.len() - whole) as u64);
    let (again, all) = read(&bytes[..whole]).expect("the same format");
    assert_eq!(all, whole);
    assert_eq!(again.lanes.len(), kept.lanes.len());
    // What is written anew says the same.
    let (third, _) = read(&again.to_bytes()).expect("our own format");
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
    let Ok(pattern) = pattern.parse::<Pattern>() else {
        return;
    };
    if let Some(parts) = pattern.parts(name) {
        for (part, text) in parts {
            assert!(pattern.has_part(part));
            assert!(!text.is_empty() && name.contains(text));
        }
    }
}

fn small_journal() -> Vec<u8> {
    let mut kept = Kept::default();
    let series = KeptSeries {
        text: "steps_total{phase=\"a\"}".to_owned(),
        help: "Steps.".to_owned(),
        kind: CounterKind::Whole,
        level: 1,
    };
    kept.series.insert(0, series.clone());
    let seconds = KeptSeries {
        text: "seconds_total".to_owned(),
        kind: CounterKind::Float,
        ..series
    };
    kept.series.insert(1, seconds);
    kept.base.insert(0, Amount::Whole(7));
    let lane = KeptLane {
        has_ended: true,
        position: 3,
        amounts: vec![(0, Amount::Whole(5)), (1, Amount::Float(0.5))],
        before: vec![(0, Amount::Whole(2))],
    };
    kept.lanes.insert([9; 16], lane);
    kept.to_bytes()
}
