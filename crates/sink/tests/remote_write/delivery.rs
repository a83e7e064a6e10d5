//! Receivers that fail, agents that end, and limits.

use std::time::{Duration, Instant};

use pegel_testkit::{FaultyFiles, FileFault, FileOperation, WriteFault, WriteReceiver, eventually};
use rustix::io::Errno;

use crate::fixture::{RemoteWriteFixture, START, assert_in_order, values};

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
    // Also if the connection was open and the request is repeated at once.
    fixture.push(&store, "p", &[(5, 5.0)]);
    fixture.until_sent(&store, &output);
    fixture.receiver.fail_next(WriteFault::LostAnswer);
    fixture.receiver.fail_next(WriteFault::Status(400, ""));
    fixture.push(&store, "p", &[(6, 6.0)]);
    let counts = fixture.until(&output, "refused again", |counts| counts.refused_again == 2);
    assert_eq!((counts.refused, counts.sent), (2, 2));
    // An answer that limits the rate proves that nothing was stored.
    fixture.receiver.fail_next(WriteFault::Status(429, ""));
    fixture.receiver.fail_next(WriteFault::Status(400, ""));
    fixture.push(&store, "p", &[(7, 7.0)]);
    let counts = fixture.until(&output, "refused", |counts| counts.refused == 3);
    assert_eq!((counts.refused_again, counts.sent), (2, 2));
    fixture.push(&store, "p", &[(8, 8.0)]);
    fixture.until_sent(&store, &output);
    assert_eq!(
        values(&fixture.receiver.samples(), "p{")
            .last()
            .map(String::as_str),
        Some("8=8")
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

/// Expired credentials and a wrong path say nothing about the samples: they wait.
#[test]
fn samples_wait_while_a_receiver_rejects_every_request() {
    for (status, message) in [(401, "HTTP status 401"), (403, "403"), (404, "404")] {
        let fixture = RemoteWriteFixture::new();
        let store = fixture.open();
        for _ in 0..100 {
            fixture.receiver.fail_next(WriteFault::Status(status, ""));
        }
        let output = fixture.start(&store, "");
        fixture.push(&store, "p", &[(1, 1.0), (2, 2.0)]);
        let counts = fixture.until(&output, "the error is shown", |counts| {
            counts.last_error.is_some()
        });
        let error = counts.last_error.expect("an error");
        assert!(error.contains(message), "{error}");
        fixture.receiver.clear_faults();
        let counts = fixture.until_sent(&store, &output);
        assert_eq!((counts.sent, counts.refused), (2, 0));
        assert_eq!(values(&fixture.receiver.samples(), "p{"), ["1=1", "2=2"]);
    }
}

/// The receiver answers, but would need a minute for everything that waits.
#[test]
fn the_end_of_the_agent_does_not_wait_for_a_backlog() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    let points: Vec<(i64, f64)> = (1..=60).map(|n| (n, n as f64)).collect();
    fixture.set_clock(60);
    fixture.push(&store, "p", &points);
    for _ in 0..points.len() {
        let slow = WriteFault::Slow(Duration::from_secs(1));
        fixture.receiver.fail_next(slow);
    }
    let output = fixture.start(&store, ", max_samples_per_send: 1");
    fixture.until(&output, "it is being sent", |counts| counts.sent > 0);
    let began = Instant::now();
    drop(output);
    let elapsed = began.elapsed();
    assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
    assert!(fixture.receiver.sample_count() < points.len());
    fixture.receiver.clear_faults();
    let output = fixture.start(&store, ", max_samples_per_send: 1");
    fixture.until_sent(&store, &output);
    // Some twice, each at least once, and new ones in order.
    let mut sent = values(&fixture.receiver.samples(), "p{");
    let mut seen = std::collections::HashSet::new();
    sent.retain(|sample| seen.insert(sample.clone()));
    let expected: Vec<String> = points.iter().map(|(n, _)| format!("{n}={n}")).collect();
    assert_eq!(sent, expected);
}

/// The receiver accepts the connection and never answers the TLS handshake.
#[test]
fn the_end_of_the_agent_does_not_wait_for_a_handshake() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let keys = ", verify_peer: false, timeout: 10m";
    let output = fixture.start_at(&store, &format!("https://{address}/"), keys);
    fixture.push(&store, "p", &[(1, 1.0)]);
    let _open = listener.accept().expect("connected");
    let began = Instant::now();
    drop(output);
    let elapsed = began.elapsed();
    assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
}

#[test]
fn samples_that_were_read_before_a_read_error_are_sent() {
    let fixture = RemoteWriteFixture::new();
    let files = FaultyFiles::new();
    let store = fixture.open_on(&files);
    fixture.receiver.set_down(true);
    let output = fixture.start(&store, ", max_samples_per_send: 100000");
    fixture.push(&store, "first", &[(0, 0.0)]);
    fixture.until(&output, "a round is being sent", |counts| counts.errors > 0);
    // More than a reader of the log reads at once, with values that do not compress.
    for series in 0..200 {
        let value = |at: i64| ((at * 7919 + series) as f64).sqrt();
        let points: Vec<(i64, f64)> = (0..300).map(|at| (at, value(at))).collect();
        fixture.push(&store, &format!("p{series}"), &points);
    }
    // The first part of the segment is read; the second one is not, at first.
    files.inject(FileFault {
        skip: 1,
        times: 2,
        ..FileFault::always(FileOperation::Read, Errno::IO)
    });
    fixture.receiver.set_down(false);
    let counts = fixture.until_sent(&store, &output);
    assert_eq!((counts.sent, counts.damaged), (60_001, 0), "{counts:?}");
    let sent = fixture.receiver.samples();
    assert_in_order(&sent);
    assert_eq!(fixture.receiver.sample_count(), 60_001);
}

/// A log that cannot be read is kept until `lag` is exceeded, and then skipped.
#[test]
fn segments_that_cannot_be_read_are_skipped_beyond_the_lag() {
    let fixture = RemoteWriteFixture::new();
    fixture.receiver.set_down(true);
    let files = FaultyFiles::new();
    let store = fixture.open_on(&files);
    let output = fixture.start(&store, ", lag: 4KiB");
    fixture.push(&store, "p", &[(1, 1.0)]);
    fixture.until(&output, "it fails", |counts| counts.errors > 0);
    files.inject(FileFault::always(FileOperation::Read, Errno::IO));
    for second in 2..400_i64 {
        fixture.set_clock(second);
        let value = ((second * 7919) as f64).sqrt();
        fixture.push(&store, "p", &[(second, value)]);
        if second % 50 == 0 {
            store.flush_to_blocks();
        }
    }
    fixture.until(&output, "segments are skipped", |counts| counts.damaged > 0);
    files.clear_faults();
    fixture.receiver.set_down(false);
    fixture.push(&store, "p", &[(400, 400.0)]);
    fixture.until_sent(&store, &output);
    let sent = fixture.receiver.samples();
    assert_in_order(&sent);
    assert_eq!(
        values(&sent, "p{").last().map(String::as_str),
        Some("400=400")
    );
}

#[test]
fn a_position_of_a_log_that_was_removed_skips_no_sample() {
    let fixture = RemoteWriteFixture::new();
    let store = fixture.open();
    let output = fixture.start(&store, "");
    for second in 1..6 {
        fixture.push(&store, "p", &[(second, 1.0)]);
        store.flush_to_blocks();
    }
    fixture.until_sent(&store, &output);
    drop(output);
    store.close();
    drop(store);
    fixture.remove_samples();
    let store = fixture.open();
    fixture.push(&store, "p", &[(9, 9.0)]);
    let output = fixture.start(&store, "");
    let counts = fixture.until(&output, "it is sent", |counts| counts.sent == 1);
    assert_eq!(
        counts.damaged, 1,
        "samples of the removed log may be missing"
    );
    let sent = fixture.receiver.samples();
    assert_eq!(values(&sent, "p{").last().map(String::as_str), Some("9=9"));
}

/// One receiver does not delay another; one that is removed from the configuration keeps nothing on
/// disk, and continues when it returns.
#[test]
fn receivers_are_independent_and_may_leave_and_return() {
    let fixture = RemoteWriteFixture::new();
    let other = WriteReceiver::start();
    fixture.receiver.set_down(true);
    let mut store = fixture.open();
    let keys = "interval: 100ms";
    let of_other = format!("{{url: '{}', name: other, {keys}}}", other.url);
    let of_both = format!(
        "{{url: '{}', name: t, {keys}}}, {of_other}",
        fixture.receiver.url
    );
    let both = fixture.start_targets(&store, &of_both);
    fixture.push(&store, "p", &[(1, 1.0)]);
    eventually("the other receiver has it", || match other.sample_count() {
        1 => Ok(()),
        count => Err(count),
    });
    // The failing one keeps its segments, and the other one alone does not.
    for second in 2..12 {
        fixture.push(&store, "p", &[(second, 1.0)]);
        store.flush_to_blocks();
    }
    let kept = store.log_segments().len();
    assert!(kept >= 10, "{kept}");
    drop(both);
    store.close();
    drop(store);
    store = fixture.open();
    let alone = fixture.start_targets(&store, &of_other);
    fixture.until_sent(&store, &alone);
    let mut second = 12;
    eventually("segments are removed", || {
        // Segments are removed when their samples are written to blocks.
        fixture.push(&store, "p", &[(second, 1.0)]);
        store.flush_to_blocks();
        second += 1;
        match store.log_segments().len() {
            count if count < kept => Ok(()),
            count => Err(count),
        }
    });
    drop(alone);
    // It returns: what is left of the log arrives, and the gap is counted.
    fixture.receiver.set_down(false);
    let both = fixture.start_targets(&store, &of_both);
    fixture.set_clock(3_600);
    fixture.push(&store, "p", &[(3_600, 50.0)]);
    let counts = fixture.until(&both, "it arrives", |counts| {
        counts.newest_sent == Some(START + 3_600_000)
    });
    assert_eq!(counts.damaged, 1, "{counts:?}");
    let sent = values(&fixture.receiver.samples(), "p{");
    assert_eq!(sent.last().map(String::as_str), Some("3600=50"));
}
