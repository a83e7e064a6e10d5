//! Receivers that fail, agents that end, and limits.

use std::time::{Duration, Instant};

use pegel_testkit::{WriteFault, eventually};

use crate::fixture::{RemoteWriteFixture, assert_in_order, values};

#[test]
fn failures_are_repeated_and_refusals_are_counted() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    for fault in [
        WriteFault::Status(500, ""),
        WriteFault::Status(429, "Retry-After: 1\r\n"),
        WriteFault::Status(307, "Location: /elsewhere\r\n"),
    ] {
        fixture.receiver.fail_next(fault);
    }
    let began = Instant::now();
    let output = fixture.start(&store, "");
    fixture.push(&store, "p", &[(1, 1.0)]);
    let counts = fixture.until_sent(&store, &output);
    assert_eq!((counts.sent, counts.errors, counts.refused), (1, 3, 0));
    assert!(began.elapsed() >= Duration::from_secs(1), "Retry-After");
    assert_eq!(counts.last_error, None);
    let attempts = fixture.receiver.requests();
    let attempts = attempts.iter().map(|one| one.headers.get("retry-attempt"));
    let attempts: Vec<Option<&str>> = attempts.map(|one| one.map(String::as_str)).collect();
    assert_eq!(attempts, [None, Some("1"), Some("2"), Some("3")]);

    fixture.receiver.fail_next(WriteFault::Status(400, ""));
    fixture.push(&store, "p", &[(2, 2.0), (3, 3.0)]);
    let counts = fixture.until(&output, "it is refused", |counts| counts.refused == 2);
    let refusal = counts.last_refusal.expect("a message");
    assert_eq!(refusal, "HTTP status 400: fault");
    // Refused after its answer was lost: it may be stored.
    fixture.receiver.fail_next(WriteFault::LostAnswer);
    fixture.receiver.fail_next(WriteFault::LostAnswer);
    fixture.receiver.fail_next(WriteFault::Status(400, ""));
    fixture.push(&store, "p", &[(4, 4.0)]);
    let counts = fixture.until(&output, "refused again", |counts| counts.refused_again == 1);
    assert_eq!((counts.refused, counts.sent), (2, 1));
    fixture.push(&store, "p", &[(5, 5.0)]);
    fixture.until_sent(&store, &output);
    assert_eq!(
        values(&fixture.receiver.samples(), "p{")
            .last()
            .map(String::as_str),
        Some("5=5")
    );
}

#[test]
fn a_receiver_without_version_2_gets_version_1() {
    for fault in [WriteFault::Status(415, ""), WriteFault::Status(204, "")] {
        let fixture = RemoteWriteFixture::new();
        let store = fixture.open();
        fixture.receiver.fail_next(fault);
        let output = fixture.start(&store, ", protobuf_message: io.prometheus.write.v2.Request");
        fixture.push(&store, "p", &[(1, 1.0)]);
        let counts = fixture.until_sent(&store, &output);
        assert_eq!((counts.version, counts.sent), ("1.0", 1));
        let versions = fixture.receiver.requests();
        let versions: Vec<u8> = versions.iter().map(|request| request.version).collect();
        assert_eq!(versions, [2, 1]);
    }
}

#[test]
fn a_request_whose_answer_is_lost_is_repeated_as_it_was() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    for _ in 0..3 {
        fixture.receiver.fail_next(WriteFault::LostAnswer);
    }
    let keys = ", shards: 2, max_samples_per_send: 3";
    let output = fixture.start(&store, keys);
    for name in ["a", "b", "c", "d", "e"] {
        fixture.push(&store, name, &[(1, 1.0), (2, 2.0), (3, 3.0)]);
    }
    fixture.until_sent(&store, &output);
    let requests = fixture.receiver.requests();
    let contents = requests.iter();
    let contents = contents.map(|request| format!("{:?}", request.series));
    let mut contents: Vec<String> = contents.collect();
    let all = contents.len();
    contents.sort();
    contents.dedup();
    assert_eq!(all - contents.len(), 3, "three are repeated, bit for bit");
    assert_eq!(fixture.receiver.samples().len(), 5);
}

/// The agent ends while a round is under way, with some of its requests stored: the next one sends
/// the same requests, also with other settings.
#[test]
fn a_round_that_was_begun_is_repeated_as_the_same_requests() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    let names: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    for name in &names {
        fixture.push(&store, name, &[(1, 1.0), (2, 2.0)]);
    }
    // The first of the requests is stored, the next ones fail until the end.
    fixture.receiver.fail_next(WriteFault::Slow(Duration::ZERO));
    for _ in 0..40 {
        fixture.receiver.fail_next(WriteFault::Status(503, ""));
    }
    let output = fixture.start(&store, ", shards: 4, max_samples_per_send: 10");
    fixture.until(&output, "some fail", |counts| counts.errors >= 3);
    drop(output);
    fixture.receiver.clear_faults();
    let before = fixture.receiver.requests();
    store.close();
    drop(store);
    let store = fixture.open();
    // Written after the round: not part of its requests.
    fixture.push(&store, "m0", &[(3, 3.0)]);
    let output = fixture.start(&store, ", shards: 1, max_samples_per_send: 1000");
    let counts = fixture.until_sent(&store, &output);
    assert_eq!(counts.refused, 0);
    let requests = fixture.receiver.requests();
    let after = &requests[before.len()..];
    let stored: Vec<_> = before.iter().filter(|one| one.is_stored).collect();
    assert!(!stored.is_empty());
    for request in stored {
        let repeated = after.iter().filter(|one| one.series == request.series);
        assert_eq!(repeated.count(), 1, "{request:?}");
    }
    let all = fixture.receiver.samples();
    assert_eq!(all.len(), names.len());
    assert_eq!(values(&all, "m0{").last().map(String::as_str), Some("3=3"));
}

#[test]
fn an_outage_is_bridged_from_the_log_and_across_restarts() {
    let fixture = RemoteWriteFixture::new();
    fixture.receiver.set_down(true);
    let mut store = fixture.open();
    let mut output = fixture.start(&store, ", max_samples_per_send: 50");
    let mut expected = Vec::new();
    // An hour, in which the head is written to blocks every five minutes and the agent ends twice.
    for minute in 0..60 {
        for second in 0..6 {
            let at = minute * 60 + second * 10;
            fixture.set_clock(at);
            fixture.push(&store, "p", &[(at, at as f64)]);
            expected.push(format!("{at}={at}"));
        }
        if minute % 5 == 4 {
            store.flush_to_blocks();
        }
        if minute % 20 == 19 {
            drop(output);
            store.close();
            drop(store);
            store = fixture.open();
            output = fixture.start(&store, ", max_samples_per_send: 50");
        }
    }
    let counts = fixture.until(&output, "it fails", |counts| counts.last_error.is_some());
    assert_eq!((counts.sent, counts.dropped_lag), (0, 0));
    assert!(fixture.receiver.samples().is_empty());
    fixture.receiver.set_down(false);
    let counts = fixture.until_sent(&store, &output);
    assert_eq!((counts.refused, counts.dropped_lag), (0, 0));
    let sent = fixture.receiver.samples();
    assert_in_order(&sent);
    assert_eq!(values(&sent, "p{"), expected);
    // What is confirmed is removed, but for the segment before the position.
    let few = || {
        // Maintenance removes them.
        store.flush_to_blocks();
        let segments = store.log_segments();
        if segments.len() <= 6 {
            Ok(())
        } else {
            Err(segments)
        }
    };
    eventually("segments are removed", few);
}

#[test]
fn what_exceeds_the_lag_is_dropped_and_counted() {
    let fixture = RemoteWriteFixture::new();
    fixture.receiver.set_down(true);
    let store = fixture.open();
    let output = fixture.start(&store, ", lag: 4KiB");
    let mut pushed = 0;
    for second in 0..400 {
        fixture.set_clock(second);
        let name = format!("p{}", second % 7);
        // Values that do not compress.
        let value = f64::from(second as i32 * 7919).sqrt();
        fixture.push(&store, &name, &[(second, value)]);
        pushed += 1;
        if second % 50 == 0 {
            store.flush_to_blocks();
        }
    }
    let counts = fixture.until(&output, "some are dropped", |counts| counts.dropped_lag > 0);
    assert_eq!(counts.sent, 0);
    fixture.receiver.set_down(false);
    let counts = fixture.until_sent(&store, &output);
    assert!(counts.sent > 0, "{counts:?}");
    assert_eq!(counts.sent + counts.dropped_lag, pushed, "{counts:?}");
    let sent = fixture.receiver.samples();
    assert_in_order(&sent);
    assert_eq!(fixture.receiver.sample_count() as u64, counts.sent);
}

#[test]
fn the_end_of_the_agent_does_not_wait_for_a_receiver_that_hangs() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    fixture
        .receiver
        .fail_next(WriteFault::Slow(Duration::from_secs(50)));
    let output = fixture.start(&store, "");
    fixture.push(&store, "p", &[(1, 1.0)]);
    fixture.until(&output, "it is being sent", |counts| counts.pending == 1);
    let began = Instant::now();
    drop(output);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    // And what is left is sent if the receiver answers.
    let output = fixture.start(&store, ", interval: 1h");
    fixture.until(&output, "sent", |counts| counts.sent == 1);
    fixture.push(&store, "p", &[(2, 2.0)]);
    drop(output);
    let sent = fixture.receiver.samples();
    assert_eq!(values(&sent, "p{").last().map(String::as_str), Some("2=2"));
}
