//! Loads the recorded hour into other stores and queries it.

use pegel_bench::{PeerKind, PeerStore, RecordedHour, timed_exposition};
use pegel_metric::{Millis, Selector};
use pegel_testkit::get;

/// Starts a peer with the hour; `None` if it is not installed.
pub(crate) fn load(kind: PeerKind, hour: &RecordedHour) -> Option<PeerStore> {
    let range = (hour.start, hour.start + RecordedHour::MILLIS);
    let exposition = |unit| timed_exposition(&hour.store, Selector::all(), range, unit);
    let peer = PeerStore::load(kind, &[&exposition])?;
    let has_data = !query(&peer, "node_load1", hour.start).is_empty();
    assert!(has_data, "{} has the data", kind.name());
    Some(peer)
}

/// Runs a range query over the hour, in steps of ten seconds; returns an empty text if there is no
/// result.
pub(crate) fn query(peer: &PeerStore, query: &str, start: Millis) -> String {
    let encoded = query.replace('[', "%5B").replace(']', "%5D");
    let end = start + RecordedHour::MILLIS - 10_000;
    let path = format!(
        "/api/v1/query_range?query={encoded}&start={}&end={}&step=10s&nocache=1",
        start as f64 / 1e3,
        end as f64 / 1e3
    );
    let answer = get(&peer.address(), &path).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text().to_owned();
    if text.contains("\"result\":[]") {
        String::new()
    } else {
        text
    }
}
