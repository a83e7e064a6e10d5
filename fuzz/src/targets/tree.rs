//! The messages between the agents of a tree, in both directions.

use pegel_tree_protocol::{
    ChildMessage, DefinitionCheck, Header, Hello, Message, NodeMoved, NodeOverview, NodeUpdate,
    NodeUpdates, ParentMessage, Ping, Pong, Refusal, Request, ResponseChunk, ResponseCredit,
    ResponseHead, SelectRequest, SeriesDefinition, SeriesDefinitions, SeriesMatcher, Tick,
    TickCredit, Welcome, check_child_message, check_message_elements, check_node_name,
    check_parent_message, check_select, child_message, parent_message, select_request,
};

use super::Target;
use crate::memory::bounded;

pub(super) const BACKFILL_FILE: Target = Target {
    name: "tree_backfill_file",
    run: backfill_file,
    dictionary: &[
        b"\"dirty\":[[1,2]]",
        b"\"nodes\":{\"a\":[\"b\",null]}",
        b"\"changed\"",
    ],
    seeds: || {
        let files = [
            r#"{"version":1,"dirty":[],"nodes":{},"changed":[]}"#,
            r#"{"version":1,"dirty":[[1000,5000]],"nodes":{"m":["m",null],"n":["m",12]},"changed":[[1,1]]}"#,
        ];
        files.map(|file| file.as_bytes().to_vec()).to_vec()
    },
};

/// What is accepted is written as it was read.
fn backfill_file(bytes: &[u8]) {
    let parse = pegel_tree::fuzzing::parse_backfill_file;
    if let Some(written) = parse(bytes) {
        assert_eq!(parse(written.as_bytes()), Some(written));
    }
}

pub(super) const CHILD_MESSAGE: Target = Target {
    name: "tree_child_message",
    run: child_message,
    dictionary: &[b"\x0a\x00", b"\x12\x00", b"n1", b"\xff\xff\xff\xff\x0f"],
    seeds: || {
        let kinds = child_kinds().into_iter();
        let messages = kinds.map(|kind| ChildMessage { kind: Some(kind) });
        messages.map(|message| message.encode_to_vec()).collect()
    },
};

pub(super) const PARENT_MESSAGE: Target = Target {
    name: "tree_parent_message",
    run: parent_message,
    dictionary: &[b"GET", b"/", b"/tree/select", b"\xff\xff\xff\xff\x0f"],
    seeds: || {
        let kinds = parent_kinds().into_iter();
        let messages = kinds.map(|kind| ParentMessage { kind: Some(kind) });
        messages.map(|message| message.encode_to_vec()).collect()
    },
};

pub(super) const SELECT_REQUEST: Target = Target {
    name: "tree_select_request",
    run: select_request,
    dictionary: &[b"__name__", b"\x52\x00", b"\x4a\x02n1", b"\x12\x00"],
    seeds: select_requests,
};

/// The memory limit of counting elements: only the error of a malformed field is allocated.
const ERROR_BYTES: usize = 256;

/// The memory limit of decoding: an empty element of a list has two bytes in the message, and
/// about 200 in memory; a list that grows is copied.
fn bytes_max(input: &[u8]) -> usize {
    400 * input.len() + (1 << 16)
}

fn child_kinds() -> Vec<child_message::Kind> {
    use child_message::Kind;
    let overview = NodeOverview {
        busy: 12.5,
        gpu: f32::NAN,
        ..NodeOverview::default()
    };
    let definition = |id, text: &str| SeriesDefinition {
        id,
        text: text.to_owned(),
        kind: 1,
        unit: "seconds".to_owned(),
        help: "Help.".to_owned(),
    };
    let node = NodeUpdate {
        node: "n1".to_owned(),
        parent: "head".to_owned(),
        state: 1,
        overview: Some(overview),
        lag_ms: 300,
        clock_offset_ms: -5,
        instance: vec![7; 16].into(),
        ..NodeUpdate::default()
    };
    vec![
        Kind::Hello(Hello {
            protocol: 1,
            node: "n1".to_owned(),
            instance: vec![7; 16].into(),
            epoch: 1_700_000_000_000_000_000,
            started_ms: 1_700_000_000_000,
            version: "0.1.0".to_owned(),
            is_parent: true,
        }),
        Kind::Series(SeriesDefinitions {
            series: vec![
                definition(0, "up"),
                definition(1, "cpu_seconds_total{cpu=\"0\"}"),
            ],
        }),
        Kind::Tick(Tick {
            time_ms: 1_700_000_000_000,
            nodes: 1,
            values: vec![0x00, 0xd0, 0x0f].into(),
            overview: Some(overview),
        }),
        Kind::Nodes(NodeUpdates {
            is_complete: true,
            nodes: vec![node.clone(), node],
        }),
        Kind::Response(ResponseHead {
            id: 1,
            status: 200,
            headers: headers(),
        }),
        Kind::Chunk(ResponseChunk {
            id: 1,
            data: b"body".to_vec().into(),
            is_last: true,
            error: "node n2 did not answer in time".to_owned(),
        }),
        Kind::Pong(Pong {
            sent_ms: 1,
            child_ms: 2,
        }),
    ]
}

fn parent_kinds() -> Vec<parent_message::Kind> {
    use parent_message::Kind;
    vec![
        Kind::Welcome(Welcome {
            protocol: 1,
            node: "head".to_owned(),
            interval_ms: 1000,
            tick_credit: 10,
            path: vec!["head".to_owned(), "root".to_owned()],
        }),
        Kind::Refusal(Refusal {
            reason: 2,
            message: "another agent has this name".to_owned(),
        }),
        Kind::TickCredit(TickCredit { ticks: 5 }),
        Kind::Request(Request {
            id: 1,
            node: "n1".to_owned(),
            method: "GET".to_owned(),
            target: "/api/v1/list?match=a*".to_owned(),
            headers: headers(),
            body: b"body".to_vec().into(),
            deadline_ms: 5000,
            credit: 65536,
            is_owner: true,
        }),
        Kind::ResponseCredit(ResponseCredit { id: 1, bytes: 9 }),
        Kind::Ping(Ping { sent_ms: 1 }),
        Kind::Moved(NodeMoved {
            node: "n1".to_owned(),
            epoch: 7,
        }),
    ]
}

fn headers() -> Vec<Header> {
    let header = Header {
        name: "content-type".to_owned(),
        value: "text/plain".to_owned(),
    };
    vec![header]
}

fn select_requests() -> Vec<Vec<u8>> {
    let matcher = |kind: i32, label: &str, value: &str| SeriesMatcher {
        kind,
        label: label.to_owned(),
        value: value.to_owned(),
    };
    let samples = SelectRequest {
        content: select_request::Content::Samples.into(),
        matchers: vec![matcher(0, "__name__", "up"), matcher(2, "job", "a.*")],
        start_ms: 1_700_000_000_000,
        end_ms: 1_700_000_060_000,
        step_ms: 0,
        aggregation: "max".to_owned(),
        completes_ticks: true,
        bytes_max: 1 << 20,
        nodes: vec!["n1".to_owned(), "n2".to_owned()],
        selectors: Vec::new(),
    };
    let partials = SelectRequest {
        content: select_request::Content::Partials.into(),
        matchers: Vec::new(),
        step_ms: 1000,
        selectors: vec!["cpu*".to_owned()],
        ..samples.clone()
    };
    vec![samples.encode_to_vec(), partials.encode_to_vec()]
}

/// Decodes a message. What was decoded is encoded to bytes that decode to the same; floats are
/// compared as bytes.
fn decode<M: Message + Default>(input: &[u8]) -> Option<M> {
    let message = bounded(bytes_max(input), || M::decode(input).ok())?;
    let encoded = message.encode_to_vec();
    let again = M::decode(&encoded[..]).expect("its own encoding");
    assert_eq!(again.encode_to_vec(), encoded);
    Some(message)
}

fn child_message(input: &[u8]) {
    use child_message::Kind;
    let counted = bounded(ERROR_BYTES, || check_message_elements(input));
    let Some(message) = decode::<ChildMessage>(input) else {
        return;
    };
    if counted.is_err() {
        return;
    }
    let checked = check_child_message(&message);
    match message.kind {
        Some(Kind::Hello(hello)) if checked.is_ok() => assert_name(&hello.node),
        Some(Kind::Nodes(updates)) if checked.is_ok() => {
            updates
                .nodes
                .iter()
                .for_each(|node| assert_name(&node.node));
        }
        Some(Kind::Series(definitions)) => {
            // Stricter than the check of one message: the ids of a stream start at 0.
            let mut stream = DefinitionCheck::new();
            if stream.check(&definitions).is_ok() {
                assert_eq!(checked, Ok(()));
                assert_eq!(stream.series(), definitions.series.len());
            }
        }
        _ => {}
    }
}

/// Names stand in paths, in lists with commas and in headers.
fn assert_name(name: &str) {
    assert!(!name.contains(['/', ',', ' ', '\n']) && !name.is_empty() && name != "..");
    assert_eq!(check_node_name("node", name), Ok(()));
}

fn parent_message(input: &[u8]) {
    use parent_message::Kind;
    let counted = bounded(ERROR_BYTES, || check_message_elements(input));
    let Some(message) = decode::<ParentMessage>(input) else {
        return;
    };
    if counted.is_err() {
        return;
    }
    let checked = check_parent_message(&message);
    match message.kind {
        Some(Kind::Request(request)) if checked.is_ok() => {
            assert!(request.target.starts_with('/'));
            let mut headers = request.headers.iter();
            assert!(headers.all(|header| !header.value.contains(['\r', '\n'])));
        }
        Some(Kind::Welcome(welcome)) if checked.is_ok() => assert!(welcome.interval_ms > 0),
        _ => {}
    }
}

fn select_request(input: &[u8]) {
    let Some(request) = decode::<SelectRequest>(input) else {
        return;
    };
    if check_select(&request).is_ok() {
        assert!(request.start_ms <= request.end_ms && request.step_ms >= 0);
        request.nodes.iter().for_each(|node| assert_name(node));
    }
}
