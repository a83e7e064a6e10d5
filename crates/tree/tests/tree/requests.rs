//! Requests down the tree.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pegel_testkit::eventually_within;
use pegel_tree_protocol::TreeCallError;

use crate::support::{PATIENCE, TestAgent, accepting, get, read_body, reporting};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A root, a parent below it and a leaf below that.
fn three_levels() -> (TestAgent, TestAgent, TestAgent) {
    let root = TestAgent::start("root", accepting());
    let mut settings = reporting(&[root.address()]);
    settings.accept = accepting().accept;
    let middle = TestAgent::start("middle", settings);
    let leaf = TestAgent::start("leaf", reporting(&[middle.address()]));
    root.wait_for_up(&["middle", "leaf"]);
    (root, middle, leaf)
}

#[test]
fn a_node_answers_through_two_levels() {
    let (root, _middle, leaf) = three_levels();
    runtime().block_on(async {
        for node in ["leaf", "middle"] {
            let request = get("/name", Duration::from_secs(5));
            let response = root
                .nodes()
                .request_node(node, request)
                .await
                .expect("an answer");
            assert_eq!(response.status, 200);
            assert_eq!(response.headers, [("x-node".to_owned(), node.to_owned())]);
            let body = read_body(response).await.expect("a body");
            assert_eq!(body, format!("{node} GET").into_bytes());
        }
        // 1 MB through windows of 64 KiB, at each level.
        let request = get("/large", Duration::from_secs(10));
        let response = root
            .nodes()
            .request_node("leaf", request)
            .await
            .expect("an answer");
        let body = read_body(response).await.expect("a body");
        assert_eq!(body.len(), 1_000_000);
        let expected = (0..100u8).rev().flat_map(|part| vec![part; 10_000]);
        assert!(body.iter().copied().eq(expected), "in order");

        let unknown = root
            .nodes()
            .request_node("missing", get("/name", PATIENCE))
            .await;
        assert_eq!(
            unknown.err(),
            Some(TreeCallError::UnknownNode("missing".to_owned()))
        );
    });
    assert_eq!(leaf.server.running.load(Ordering::SeqCst), 0);
}

#[test]
fn a_request_that_is_dropped_is_canceled_at_the_node() {
    let (root, _middle, leaf) = three_levels();
    let running = || leaf.server.running.load(Ordering::SeqCst);
    runtime().block_on(async {
        let request = root.nodes().request_node("leaf", get("/hang", PATIENCE));
        let waited = tokio::time::timeout(Duration::from_millis(500), request).await;
        assert!(waited.is_err(), "it hangs");
    });
    eventually_within(PATIENCE, "the request is canceled", || match running() {
        0 => Ok(()),
        count => Err(count),
    });
    runtime().block_on(async {
        let deadline = Duration::from_millis(300);
        let began = Instant::now();
        let late = root
            .nodes()
            .request_node("leaf", get("/hang", deadline))
            .await;
        match late {
            Err(TreeCallError::TimedOut(_)) => {}
            Ok(response) => assert_eq!(response.status, 504),
            Err(other) => panic!("{other}"),
        }
        assert!(began.elapsed() < Duration::from_secs(3));
    });
}

#[test]
fn a_hung_child_delays_a_fan_out_only_until_its_deadline() {
    let root = TestAgent::start("root", accepting());
    let children = ["a", "b", "c"].map(|node| TestAgent::start(node, reporting(&[root.address()])));
    root.wait_for_up(&["a", "b", "c"]);
    runtime().block_on(async {
        let all = root
            .nodes()
            .fan_out(&[], get("/name", Duration::from_secs(5)), 1 << 20)
            .await;
        let mut bodies: Vec<_> = { all.answers.iter() }
            .map(|answer| String::from_utf8_lossy(&answer.body).into_owned())
            .collect();
        bodies.sort();
        assert_eq!(bodies, ["a GET", "b GET", "c GET"]);
        assert!(all.failed.is_empty());

        let began = Instant::now();
        let deadline = Duration::from_millis(1000);
        let hung = root
            .nodes()
            .fan_out(&["b".to_owned()], get("/hang", deadline), 1 << 20)
            .await;
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        // The child gives up before its parent does, or the parent at its deadline.
        let status = hung.answers.first().map(|answer| answer.status);
        assert!(status == Some(504) || hung.failed.len() == 1, "{hung:?}");

        let too_large = root
            .nodes()
            .fan_out(&[], get("/large", deadline), 100_000)
            .await;
        assert!(too_large.answers.is_empty(), "{too_large:?}");
        let is_too_large =
            |error: &TreeCallError| error.to_string().contains("exceeds 100000 bytes");
        assert!(
            too_large
                .failed
                .iter()
                .all(|(error, _)| is_too_large(error)),
            "{too_large:?}"
        );
    });
    drop(children);
    root.wait_for_nodes("all are lost", |rows| {
        rows.iter()
            .filter(|row| row.status.as_str() == "lost")
            .count()
            == 3
    });
    runtime().block_on(async {
        let none = root
            .nodes()
            .fan_out(&[], get("/name", Duration::from_secs(1)), 1 << 20)
            .await;
        assert_eq!((none.answers.len(), none.failed.len()), (0, 3), "{none:?}");
    });
}
