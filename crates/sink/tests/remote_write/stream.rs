//! What is sent: the samples of the log as PromQL shows them.

use std::collections::BTreeSet;

use pegel_testkit::Rng;

use crate::fixture::{
    OF_NODE, OF_PROGRAM, RemoteWriteFixture, assert_in_order, assert_same, values,
};

#[test]
fn ends_of_series_and_values_of_idle_groups_are_sent() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    let output = fixture.start(&store, "");
    let (disk, steps) = (("disk", &OF_NODE), ("steps", &OF_PROGRAM));
    fixture.row(&store, 0, disk, &[("a", 1.0), ("b", 1.0)]);
    fixture.row(&store, 5, steps, &[("a", 1.0)]);
    fixture.row(&store, 10, disk, &[("b", 2.0)]);
    fixture.row(&store, 20, disk, &[("a", 3.0), ("b", 3.0)]);
    fixture.row(&store, 47, steps, &[("a", 2.0)]);
    // Longer than an idle group waits: the agent did not run.
    fixture.row(&store, 200, steps, &[("a", 3.0)]);
    fixture.until_sent(&store, &output);
    let sent = fixture.receiver.samples();
    assert_eq!(
        values(&sent, "node_disk{device=\"a\""),
        ["0=1", "10=stale", "20=3"]
    );
    assert_eq!(
        values(&sent, "node_disk{device=\"b\""),
        ["0=1", "10=2", "20=3"]
    );
    assert_eq!(
        values(&sent, "steps"),
        ["5=1", "10=1", "20=1", "30=1", "47=2", "200=3"]
    );
    assert_eq!(sent, fixture.promql(&store));
}

/// Groups of the node and of programs whose series come and go, with flushes to blocks and
/// restarts between them: what arrives is what PromQL shows.
#[test]
fn a_receiver_gets_what_promql_shows() {
    let mut rng = Rng::from_env();
    for version in ["prometheus.WriteRequest", "io.prometheus.write.v2.Request"] {
        let fixture = RemoteWriteFixture::new();
        let keys = format!(", protobuf_message: {version}, shards: 3, max_samples_per_send: 7");
        let mut store = fixture.open();
        let mut output = Some(fixture.start(&store, &keys));
        let mut seconds = 0;
        for step in 0..120 {
            seconds += rng.between(1..30);
            let group = match rng.chance(2) {
                true => ("disk", &OF_NODE),
                false => ("steps", &OF_PROGRAM),
            };
            let devices: BTreeSet<&str> = { ["a", "b", "c", "d"].into_iter() }
                .filter(|_| !rng.chance(4))
                .collect();
            let row: Vec<(&str, f64)> = { devices.into_iter() }
                .map(|device| (device, rng.unit()))
                .collect();
            if row.is_empty() {
                continue;
            }
            fixture.row(&store, seconds, group, &row);
            fixture.push(&store, "points", &[(seconds, rng.unit())]);
            if rng.chance(15) {
                store.flush_to_blocks();
            }
            if rng.chance(20) {
                drop(output.take());
                store.close();
                drop(store);
                store = fixture.open();
                output = Some(fixture.start(&store, &keys));
            }
            if rng.chance(40) && step < 110 {
                let output = output.as_ref().expect("running");
                fixture.until_sent(&store, output);
            }
        }
        // Idle values are sent with the next row of the programs.
        fixture.row(&store, seconds + 1, ("disk", &OF_NODE), &[("a", 1.0)]);
        fixture.row(&store, seconds + 1, ("steps", &OF_PROGRAM), &[("a", 1.0)]);
        let output = output.expect("running");
        let counts = fixture.until_sent(&store, &output);
        assert_eq!((counts.refused, counts.damaged), (0, 0), "{counts:?}");
        let sent = fixture.receiver.samples();
        assert_in_order(&sent);
        assert_same(&sent, &fixture.promql(&store));
        let versions = fixture.receiver.requests();
        let expected = if version.contains("v2") { 2 } else { 1 };
        assert!(versions.iter().all(|request| request.version == expected));
    }
}

#[test]
fn late_points_are_sent_in_requests_of_their_own() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    let output = fixture.start(&store, "");
    fixture.set_clock(1_000);
    fixture.push(&store, "p", &[(100, 1.0), (200, 2.0)]);
    fixture.push(&store, "q", &[(100, 1.0)]);
    fixture.until_sent(&store, &output);
    fixture.push(
        &store,
        "p",
        &[(150, 3.0), (50, 4.0), (150, 5.0), (300, 6.0)],
    );
    fixture.push(&store, "q", &[(100, 7.0)]);
    let counts = fixture.until_sent(&store, &output);
    assert_eq!((counts.sent_late, counts.replaced), (3, 1));
    assert_eq!(counts.sent, 7);
    let sent = fixture.receiver.samples();
    assert_eq!(
        values(&sent, "p{"),
        ["100=1", "200=2", "300=6", "50=4", "150=5"]
    );
    assert_eq!(values(&sent, "q{"), ["100=1", "100=7"]);
    let last = fixture.receiver.requests().pop().expect("requests");
    let of_late: Vec<usize> = { last.series.iter() }.map(|(_, list)| list.len()).collect();
    assert_eq!(of_late, [2, 1]);
}

#[test]
fn rules_choose_and_labels_are_added() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    let keys = ", keep: ['{__name__=~\"a.*\"}'], drop: ['ab'], external_labels: {cluster: c1}";
    let output = fixture.start(&store, keys);
    for name in ["aa", "ab", "ba"] {
        fixture.push(&store, name, &[(1, 1.0)]);
    }
    fixture.until_sent(&store, &output);
    let sent: Vec<String> = fixture.receiver.samples().into_keys().collect();
    assert_eq!(
        sent,
        ["aa{cluster=\"c1\",instance=\"n1:1337\",job=\"node\"}"]
    );
}
