use super::*;

fn chunk(id: u64, size: usize, is_last: bool) -> ResponseChunk {
    ResponseChunk {
        id,
        data: vec![7; size].into(),
        is_last,
        error: String::new(),
    }
}

fn link() -> (ChildLink, mpsc::Receiver<Bytes>) {
    let (sender, receiver) = mpsc::channel(4);
    (
        ChildLink::new("n1".to_owned(), 1, 1, false, sender),
        receiver,
    )
}

#[tokio::test]
async fn a_child_cannot_send_more_than_its_credit() {
    let (link, _outgoing) = link();
    let mut response = link.request_stream(1, Bytes::new());
    link.on_head(ResponseHead {
        id: 1,
        status: 200,
        headers: Vec::new(),
    });
    assert_eq!(
        response.head.await.expect("sent").expect("a head").status,
        200
    );
    let all = STREAM_CREDIT as usize;
    assert_eq!(link.on_chunk(chunk(1, all, false)), Ok(()));
    assert_eq!(link.on_chunk(chunk(1, 1, false)), Err(CreditExceeded));
    link.grant(1, 1);
    assert_eq!(link.on_chunk(chunk(1, 1, true)), Ok(()));
    let sizes = [response.parts.recv().await, response.parts.recv().await];
    let sizes = sizes.map(|part| part.expect("a part").expect("bytes").len());
    assert_eq!(sizes, [all, 1]);
    assert_eq!(response.parts.recv().await, None);
    assert_eq!(
        link.on_chunk(chunk(1, 5, false)),
        Ok(()),
        "not expected any more"
    );
}

#[tokio::test]
async fn a_fan_out_ends_when_all_children_responded_or_failed() {
    let (one, mut outgoing) = link();
    let (two, _kept) = link();
    let collector = FanOutCollector::new(2, 100);
    one.request_collected(5, Bytes::from_static(b"q"), collector.clone(), 0, 200);
    two.request_collected(5, Bytes::from_static(b"q"), collector.clone(), 1, 200);
    assert_eq!(outgoing.recv().await.as_deref(), Some(&b"q"[..]));
    assert_eq!(one.on_chunk(chunk(5, 101, true)), Ok(()));
    two.fail_all();
    collector.complete().await;
    let results = collector.take();
    assert!(
        matches!(&results[0], Some(Err(TreeCallError::Failed { message, .. })) if message.contains("exceeds 100 bytes")),
        "{results:?}"
    );
    assert!(matches!(
        &results[1],
        Some(Err(TreeCallError::NotConnected(_)))
    ));
    let later = FanOutCollector::new(1, 100);
    two.request_collected(6, Bytes::new(), later.clone(), 0, 200);
    later.complete().await;
}

#[tokio::test]
async fn a_child_that_does_not_read_fails_at_once() {
    let (link, _outgoing) = link();
    let collector = FanOutCollector::new(5, 100);
    for index in 0..5 {
        link.request_collected(index as u64, Bytes::new(), collector.clone(), index, 200);
    }
    let results = collector.take();
    assert!(matches!(
        &results[4],
        Some(Err(TreeCallError::Failed { .. }))
    ));
    assert!(results[..4].iter().all(Option::is_none));
}

#[test]
fn a_flood_of_bytes_that_are_not_expected_ends_the_stream() {
    let (link, _outgoing) = link();
    let collector = FanOutCollector::new(1, 100);
    link.request_collected(5, Bytes::new(), collector, 0, 200);
    assert_eq!(link.on_chunk(chunk(5, 150, false)), Ok(()), "too large");
    // What was on its way, and no more.
    assert_eq!(
        link.on_chunk(chunk(5, 50 + UNEXPECTED_BYTES_MAX, false)),
        Ok(())
    );
    assert_eq!(link.on_chunk(chunk(5, 1, false)), Err(CreditExceeded));
    let collector = FanOutCollector::new(1, 1000);
    link.request_collected(6, Bytes::new(), collector, 0, 200);
    assert_eq!(link.on_chunk(chunk(6, 201, false)), Err(CreditExceeded));
}

#[tokio::test]
async fn a_flood_fails_alone_and_large_responses_fail_together() {
    let links: Vec<_> = (0..3).map(|_| link()).collect();
    let collector = FanOutCollector::new(3, 100);
    for (index, (link, _)) in links.iter().enumerate() {
        link.request_collected(5, Bytes::new(), collector.clone(), index, 200);
    }
    let send = |index: usize, size, is_last| {
        let (link, _) = &links[index];
        assert_eq!(link.on_chunk(chunk(5, size, is_last)), Ok(()));
    };
    send(0, 90, false);
    send(1, 5, false);
    send(0, 9, false);
    send(1, 55, true);
    send(0, 2, false);
    send(2, 60, true);
    collector.complete().await;
    let results = collector.take();
    let is_flood = matches!(&results[0], Some(Err(TreeCallError::Failed { .. })));
    assert!(is_flood, "{results:?}");
    assert!(matches!(&results[1], Some(Ok(_))), "{results:?}");
    let is_large = matches!(&results[2], Some(Err(TreeCallError::TooLarge { .. })));
    assert!(is_large, "{results:?}");
}
