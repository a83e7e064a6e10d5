use bytes::Bytes;
use prost::Message;

use crate::limits::*;
use crate::{
    ChildMessage, DefinitionCheck, Header, Hello, MessageFault, NodeUpdate, NodeUpdates,
    ParentMessage, Refusal, Request, ResponseChunk, ResponseHead, SelectRequest, SeriesDefinition,
    SeriesDefinitions, SeriesMatcher, Tick, Welcome, check_child_message, check_definitions,
    check_hello, check_message_elements, check_node_name, check_node_updates, check_parent_message,
    check_request, check_response_head, check_select, child_message, parent_message,
    select_request,
};

fn text_of(fault: Result<(), MessageFault>) -> String {
    fault.expect_err("refused").to_string()
}

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        node: "n1".into(),
        instance: Bytes::from_static(&[7; INSTANCE_BYTES]),
        version: "0.1.0".into(),
        ..Hello::default()
    }
}

fn definitions(ids: std::ops::Range<u32>) -> SeriesDefinitions {
    let series = ids.map(|id| SeriesDefinition {
        id,
        text: format!("s{id}"),
        ..SeriesDefinition::default()
    });
    SeriesDefinitions {
        series: series.collect(),
    }
}

fn request() -> Request {
    Request {
        method: "GET".into(),
        target: "/api/v1/list?match=a*".into(),
        headers: vec![Header {
            name: "Accept-Encoding".into(),
            value: "gzip, identity".into(),
        }],
        ..Request::default()
    }
}

#[test]
fn names_of_nodes_are_safe_in_paths_lists_and_headers() {
    for name in [
        "n1",
        "nid0003.cluster.example",
        "a:b",
        "...",
        &"x".repeat(255),
    ] {
        assert_eq!(check_node_name("node", name), Ok(()), "{name}");
    }
    let refused = [
        "",
        ".",
        "..",
        "a/b",
        "a,b",
        "a b",
        "a\tb",
        "a\nb",
        "a\u{7f}",
        "n\u{202e}1",
        "ü",
    ];
    for name in refused {
        assert!(check_node_name("node", name).is_err(), "{name:?}");
    }
    assert_eq!(
        text_of(check_node_name("hello.node", &"x".repeat(256))),
        "hello.node has 256 bytes; at most 255 are accepted"
    );
    assert_eq!(
        text_of(check_node_name("hello.node", "a/b")),
        "hello.node contains '/'; printable ASCII characters except '/' and ',' are accepted"
    );
}

#[test]
fn a_hello_states_name_and_instance() {
    assert_eq!(check_hello(&hello()), Ok(()));
    let refused = Hello {
        instance: Bytes::from_static(&[7; 15]),
        ..hello()
    };
    assert_eq!(
        text_of(check_hello(&refused)),
        "hello.instance has 15 bytes; 16 are required"
    );
    let refused = Hello {
        version: "\u{1b}[31m".into(),
        ..hello()
    };
    assert!(check_hello(&refused).is_err());
}

#[test]
fn definitions_count_up_within_their_limits() {
    assert_eq!(check_definitions(&definitions(5..9)), Ok(()));
    let mut check = DefinitionCheck::new();
    assert_eq!(check.check(&definitions(0..3)), Ok(()));
    assert_eq!(check.check(&definitions(3..4)), Ok(()));
    assert_eq!(check.series(), 4);
    assert_eq!(
        text_of(check.check(&definitions(5..6))),
        "series.id is 5; 4 to 4 are accepted"
    );
    let mut gap = definitions(0..2);
    gap.series[1].id = 2;
    assert!(check_definitions(&gap).is_err());
    let mut empty = definitions(0..1);
    empty.series[0].text.clear();
    assert_eq!(text_of(check_definitions(&empty)), "series.text is empty");
    let mut long = definitions(0..1);
    long.series[0].text = "x".repeat(TEXT_BYTES_MAX + 1);
    assert!(check_definitions(&long).is_err());

    let mut check = DefinitionCheck::new();
    assert_eq!(check.check(&definitions(0..SERIES_MAX as u32)), Ok(()));
    let one_more = definitions(SERIES_MAX as u32..SERIES_MAX as u32 + 1);
    assert_eq!(
        text_of(check.check(&one_more)),
        "series has 200001 elements; at most 200000 are accepted"
    );

    let mut check = DefinitionCheck::new();
    let accepted = (0..10_000).take_while(|&number| {
        let mut large = definitions(number..number + 1);
        large.series[0].text = "x".repeat(TEXT_BYTES_MAX);
        check.check(&large).is_ok()
    });
    let accepted = accepted.count();
    assert_eq!(accepted, DEFINITION_BYTES_MAX / TEXT_BYTES_MAX);
}

#[test]
fn updates_of_nodes_are_limited() {
    let update = NodeUpdate {
        node: "n1".into(),
        parent: "head".into(),
        ..NodeUpdate::default()
    };
    let updates = |nodes| NodeUpdates {
        is_complete: true,
        nodes,
    };
    assert_eq!(check_node_updates(&updates(vec![update.clone()])), Ok(()));
    let too_many = updates(vec![update.clone(); NODES_MAX + 1]);
    assert!(check_node_updates(&too_many).is_err());
    let no_name = NodeUpdate {
        node: String::new(),
        ..update.clone()
    };
    assert!(check_node_updates(&updates(vec![no_name])).is_err());
    let short = NodeUpdate {
        instance: Bytes::from_static(b"x"),
        ..update
    };
    assert!(check_node_updates(&updates(vec![short])).is_err());
}

#[test]
fn requests_have_the_form_of_http() {
    assert_eq!(check_request(&request()), Ok(()));
    let changed = |change: fn(&mut Request)| {
        let mut request = request();
        change(&mut request);
        check_request(&request)
    };
    assert_eq!(changed(|request| request.node = "n1".into()), Ok(()));
    assert!(changed(|request| request.node = "../x".into()).is_err());
    assert!(changed(|request| request.method = "get".into()).is_err());
    assert!(changed(|request| request.method.clear()).is_err());
    assert!(changed(|request| request.target = "http://other/".into()).is_err());
    assert!(changed(|request| request.target = "/a b".into()).is_err());
    assert!(changed(|request| request.target.clear()).is_err());
    assert!(changed(|request| request.headers[0].name = "a:b".into()).is_err());
    assert!(changed(|request| request.headers[0].name.clear()).is_err());
    assert!(changed(|request| request.headers[0].value = "a\r\nb: c".into()).is_err());
    assert!(changed(|request| request.headers[0].value = "x".repeat(8193)).is_err());
    let many = changed(|request| request.headers = vec![request.headers[0].clone(); 65]);
    assert_eq!(
        text_of(many),
        "request.headers has 65 elements; at most 64 are accepted"
    );
    let head = |status| ResponseHead {
        status,
        ..ResponseHead::default()
    };
    assert_eq!(check_response_head(&head(404)), Ok(()));
    assert!(check_response_head(&head(0)).is_err());
    assert!(check_response_head(&head(101)).is_err());
}

#[test]
fn every_kind_of_message_is_checked() {
    use child_message::Kind as Child;
    use parent_message::Kind as Parent;
    let child = |kind| check_child_message(&ChildMessage { kind: Some(kind) });
    assert!(child(Child::Hello(Hello::default())).is_err());
    let mut gap = definitions(0..2);
    gap.series[1].id = 2;
    assert!(child(Child::Series(gap)).is_err());
    let tick = Tick {
        nodes: NODES_MAX as u32 + 1,
        ..Tick::default()
    };
    assert!(child(Child::Tick(tick)).is_err());
    let nodes = vec![NodeUpdate::default()];
    let updates = NodeUpdates {
        nodes,
        ..NodeUpdates::default()
    };
    assert!(child(Child::Nodes(updates)).is_err());
    assert!(child(Child::Response(ResponseHead::default())).is_err());
    let chunk = ResponseChunk {
        data: vec![0; CHUNK_BYTES + 1].into(),
        ..ResponseChunk::default()
    };
    assert!(child(Child::Chunk(chunk)).is_err());
    assert_eq!(check_child_message(&ChildMessage::default()), Ok(()));

    let parent = |kind| check_parent_message(&ParentMessage { kind: Some(kind) });
    // An interval of 0 would be a divisor.
    let welcome = Welcome {
        node: "head".into(),
        ..Welcome::default()
    };
    assert_eq!(
        text_of(parent(Parent::Welcome(welcome))),
        "welcome.interval_ms is 0; 100 to 3600000 are accepted"
    );
    let refusal = Refusal {
        message: "x".repeat(REASON_BYTES_MAX + 1),
        ..Refusal::default()
    };
    assert!(parent(Parent::Refusal(refusal)).is_err());
    assert!(parent(Parent::Request(Request::default())).is_err());
    assert_eq!(check_parent_message(&ParentMessage::default()), Ok(()));
}

#[test]
fn requests_for_samples_are_limited() {
    let valid = SelectRequest {
        content: select_request::Content::Partials.into(),
        matchers: vec![SeriesMatcher {
            label: "__name__".into(),
            value: "up".into(),
            ..SeriesMatcher::default()
        }],
        start_ms: 1000,
        end_ms: 2000,
        step_ms: 1000,
        nodes: vec!["n1".into()],
        ..SelectRequest::default()
    };
    assert_eq!(check_select(&valid), Ok(()));
    assert_eq!(check_select(&SelectRequest::default()), Ok(()));
    let refused: [fn(&mut SelectRequest); 6] = [
        |request| request.end_ms = 999,
        |request| request.step_ms = 0,
        |request| request.step_ms = -1,
        |request| request.nodes[0].clear(),
        |request| request.matchers[0].value = "x".repeat(TEXT_BYTES_MAX + 1),
        |request| request.selectors = vec![String::new(); MATCHERS_MAX + 1],
    ];
    for change in refused {
        let mut request = valid.clone();
        change(&mut request);
        assert!(check_select(&request).is_err(), "{request:?}");
    }
}

#[test]
fn elements_are_counted_before_a_message_is_decoded() {
    use child_message::Kind;
    let series = |count: usize| {
        let definitions = SeriesDefinitions {
            series: vec![SeriesDefinition::default(); count],
        };
        let kind = Some(Kind::Series(definitions));
        check_message_elements(&ChildMessage { kind }.encode_to_vec())
    };
    // The list is an element of the message itself.
    assert_eq!(series(MESSAGE_ELEMENTS_MAX - 1), Ok(()));
    assert_eq!(
        text_of(series(MESSAGE_ELEMENTS_MAX)),
        "message has 50001 elements; at most 50000 are accepted"
    );
    // A decoder joins lists that are sent in pieces.
    let pieces = [0x12, 0x02, 0x0a, 0x00].repeat(MESSAGE_ELEMENTS_MAX);
    assert!(check_message_elements(&pieces).is_err());
    // A decoder skips groups, at both levels, and reads what follows.
    assert!(check_message_elements(&[0x7b, 0x7c]).is_err());
    assert!(check_message_elements(&[0x12, 0x02, 0x7b, 0x7c]).is_err());
    let tick = Tick {
        values: vec![0x7b; 1000].into(),
        time_ms: -1,
        overview: Some(crate::NodeOverview {
            busy: 1.0,
            ..Default::default()
        }),
        ..Tick::default()
    };
    let kind = Some(Kind::Tick(tick));
    let encoded = ChildMessage { kind }.encode_to_vec();
    assert_eq!(check_message_elements(&encoded), Ok(()));
    for length in 0..encoded.len() {
        let _ = check_message_elements(&encoded[..length]);
    }
}
