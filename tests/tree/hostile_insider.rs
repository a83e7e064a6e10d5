//! Children with valid credentials that try to harm other nodes: with names, nodes and answers that
//! are not theirs, with numbers at the limits of their types, and with memory.

use std::time::Duration;

use pegel_testkit::{eventually, eventually_within, now_millis, resident_bytes};
use pegel_tree_protocol::child_message::Kind as FromChild;
use pegel_tree_protocol::parent_message::Kind as FromParent;
use pegel_tree_protocol::{
    Hello, NodeOverview, NodeUpdate, NodeUpdates, PartialCell, PartialTickEncoder, Pong, Request,
    ResponseChunk, ResponseHead, SelectEnd, SelectWriter, Tick, ValueTickEncoder, node_update,
};
use pegel_tree_simulator::{ScriptedChild, hello};
use tokio::time::timeout;

use crate::hostile::{HostileScene, definition, definitions, ended, this_tick};
use crate::tree_agent::TreeAgent;

/// The time for one attack.
const ATTACK_MAX: Duration = Duration::from_secs(15);

/// Connects as a parent that is accepted.
async fn accepted_parent(scene: &HostileScene, node: &str) -> ScriptedChild {
    let mut child = scene
        .connect(Hello {
            is_parent: true,
            ..hello(node)
        })
        .await;
    let answer = child.receive().await.expect("an answer");
    assert!(matches!(answer, Some(FromParent::Welcome(_))), "{answer:?}");
    child
}

fn update(node: &str, parent: &str) -> NodeUpdate {
    NodeUpdate {
        node: node.to_owned(),
        parent: parent.to_owned(),
        state: node_update::State::Up.into(),
        epoch: u64::MAX,
        instance: vec![9; 16].into(),
        ..NodeUpdate::default()
    }
}

fn nodes(nodes: Vec<NodeUpdate>) -> FromChild {
    FromChild::Nodes(NodeUpdates {
        is_complete: false,
        nodes,
    })
}

/// Answers a request with this status and body, in parts.
async fn respond(child: &ScriptedChild, request: &Request, status: u32, body: &[u8]) -> bool {
    let id = request.id;
    let head = ResponseHead {
        id,
        status,
        headers: Vec::new(),
    };
    let mut is_open = child.send(FromChild::Response(head)).await;
    for part in body.chunks(32 << 10) {
        let chunk = ResponseChunk {
            id,
            data: part.to_vec().into(),
            is_last: false,
            error: String::new(),
        };
        is_open = is_open && child.send(FromChild::Chunk(chunk)).await;
    }
    let last = ResponseChunk {
        id,
        is_last: true,
        ..ResponseChunk::default()
    };
    is_open && child.send(FromChild::Chunk(last)).await
}

#[test]
fn numbers_at_the_limits_of_their_types_harm_nobody() {
    let scene = HostileScene::new();
    scene.attack(async {
        let child = accepted_parent(&scene, "extreme").await;
        for sent_ms in [i64::MIN, i64::MAX, 0, now_millis()] {
            for child_ms in [i64::MIN, i64::MAX] {
                child
                    .send(FromChild::Pong(Pong { sent_ms, child_ms }))
                    .await;
            }
        }
        let extremes = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX];
        let wild = extremes
            .iter()
            .enumerate()
            .map(|(number, value)| NodeUpdate {
                lag_ms: i32::MIN,
                clock_offset_ms: i32::MIN,
                overview: Some(NodeOverview {
                    busy: *value,
                    memory: -*value,
                    load: *value,
                    ..NodeOverview::default()
                }),
                ..update(&format!("wild{number}"), "extreme")
            });
        child.send(nodes(wild.collect())).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    });
    let listed = scene.head.get("/api/v1/nodes").json();
    assert!(listed.to_string().contains("wild3"), "{listed}");
    for arguments in [&["nodes"][..], &["tree"], &["nodes", "-f", "csv"]] {
        let printed = scene.head.agent().client(arguments);
        assert_eq!(printed.code(), Some(0), "{printed}");
    }
    scene.expect_unharmed();
    let log = scene.head.agent().stderr();
    assert!(!log.contains("panic"), "{log}");
}

#[test]
fn counts_of_partial_results_are_limited_by_the_nodes() {
    let scene = HostileScene::new();
    // A consistent sketch: one bucket with the count.
    let mut sketch = vec![0x81, 0x01];
    let mut count = u64::MAX;
    while count >= 0x80 {
        sketch.push(count as u8 | 0x80);
        count >>= 7;
    }
    sketch.push(count as u8);
    scene.attack(async {
        let mut child = accepted_parent(&scene, "inflated").await;
        child
            .send(definitions(vec![definition(0, "hits_total".to_owned())]))
            .await;
        let cell = PartialCell {
            count: u64::MAX,
            sum: 1.0,
            min: 1.0,
            max: 1.0,
            total: 0.0,
            sketch: sketch.clone().into(),
        };
        let values = PartialTickEncoder::new().encode(&[(0, cell)]);
        child
            .send(FromChild::Tick(Tick {
                time_ms: this_tick(),
                nodes: 3,
                values,
                overview: None,
            }))
            .await;
        let ended = timeout(ATTACK_MAX, ended(&mut child)).await;
        assert!(ended.is_ok(), "the stream goes on");
    });
    scene.expect_named("inflated", "malformed");
    scene.expect_unharmed();
    scene.head.reduces("hits_total:rate:count", 1.0);
}

#[test]
fn sketches_without_end_cost_bounded_memory() {
    let scene = HostileScene::new();
    // 1024 buckets in 1 KiB, which take 16 KiB in memory.
    let sketch: Vec<u8> = vec![2; 1024];
    let series: u32 = 100_000;
    scene.attack(async {
        let mut child = accepted_parent(&scene, "sketches").await;
        for first in (0..series).step_by(10_000) {
            let ids = first..first + 10_000;
            let ids = ids.map(|id| definition(id, format!("s{{id=\"{id}\"}}")));
            child.send(definitions(ids.collect())).await;
        }
        let mut encoder = PartialTickEncoder::new();
        let mut cells: Vec<(u32, PartialCell)> = Vec::new();
        let begin = this_tick() - 60_000;
        for number in 0..series / 2000 {
            let ids = number * 2000..(number + 1) * 2000;
            cells.extend(ids.map(|id| {
                let cell = PartialCell {
                    count: 1024,
                    sum: 1.0,
                    min: 1.0,
                    max: 1.0,
                    total: 0.0,
                    sketch: sketch.clone().into(),
                };
                (id, cell)
            }));
            let tick = Tick {
                time_ms: begin + i64::from(number) * 1000,
                nodes: 2000,
                values: encoder.encode(&cells),
                overview: None,
            };
            if !child.send(FromChild::Tick(tick)).await {
                break;
            }
        }
        ended(&mut child).await
    });
    scene.expect_named("sketches", "malformed");
    scene.expect_unharmed();
}

#[test]
fn a_child_with_very_many_series_leaves_room_for_those_of_others() {
    let scene = HostileScene::new();
    let _many = scene.attack(async {
        let child = scene.accepted("many").await;
        for first in (0..200_000_u32).step_by(10_000) {
            let ids = first..first + 10_000;
            let ids = ids.map(|id| definition(id, format!("many{{id=\"{id}\"}}")));
            assert!(child.send(definitions(ids.collect())).await);
        }
        child
    });
    eventually("the series are known", || {
        let tree = scene.head.get("/api/v1/tree").json();
        let count = tree["reduced_series"].as_u64().unwrap_or_default();
        (count > 2_000).then_some(()).ok_or(count)
    });
    // Series that did not exist before, of a child that did not.
    let late = TreeAgent::child("late", &[scene.address]);
    late.counter("late_total").add(3);
    scene.good.counter("late_total").add(4);
    scene.head.reduces("late_total:sum", 7.0);
    scene.head.reduces("hits_total:sum", 7.0);
}

#[test]
fn claims_of_many_nodes_and_levels_delay_nobody() {
    let scene = HostileScene::new();
    let _liar = scene.attack(async {
        let child = accepted_parent(&scene, "liar").await;
        let mut name = "liar".to_owned();
        for part in 0..5 {
            let chain = (0..10_000).map(|number| {
                let node = format!("ghost{part}-{number}");
                update(&node, &std::mem::replace(&mut name, node.clone()))
            });
            let chain: Vec<NodeUpdate> = chain.collect();
            child.send(nodes(chain)).await;
        }
        child
    });
    scene.expect_named("liar", "nodes");
    let listed = scene.head.node_states().len();
    assert!(listed <= 20_000 + 3, "{listed} nodes");
    // Reduced values of the others are as new as before.
    let counter = scene.good.counter("later_total");
    counter.add(5);
    let began = std::time::Instant::now();
    scene.head.reduces("later_total:sum", 5.0);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let newest = scene.head.stored("hits_total:sum");
    let lag = now_millis() - newest.last().map_or(0, |point| point.0);
    assert!(lag < 15_000, "{lag} ms behind");
}

#[test]
fn a_claim_on_a_node_of_another_child_does_not_stop_the_back_fill() {
    let mut scene = HostileScene::new();
    let liar = scene.attack(accepted_parent(&scene, "liar"));
    let (outgoing, mut incoming) = liar.split();
    // Answers every request for partial results with nothing, in the name of the good child.
    let answering = scene.runtime.spawn(async move {
        let mut body = SelectWriter::new(1 << 20).finish(SelectEnd {
            nodes: vec!["good".to_owned(), "liar".to_owned()],
            late: vec!["nobody".to_owned(), "head".to_owned()],
            ..SelectEnd::default()
        });
        while let Ok(Some(message)) = incoming.message().await {
            let Some(FromParent::Request(request)) = message.kind else {
                continue;
            };
            let send = |kind| pegel_tree_protocol::ChildMessage { kind: Some(kind) };
            let head = ResponseHead {
                id: request.id,
                status: 200,
                headers: Vec::new(),
            };
            let _ = outgoing.send(send(FromChild::Response(head))).await;
            let data = body.split_to(body.len());
            body = data.clone();
            let chunk = ResponseChunk {
                id: request.id,
                data,
                is_last: true,
                error: String::new(),
            };
            let _ = outgoing.send(send(FromChild::Chunk(chunk))).await;
        }
    });
    // The good child is away for a while.
    let counter = scene.good.counter("gap_total");
    counter.add(1);
    scene.head.reduces("gap_total:sum", 1.0);
    scene.good.kill();
    std::thread::sleep(Duration::from_secs(3));
    scene.good.start();
    scene.head.reduces("gap_total:sum", 1.0);
    // The parent may wait a minute: the node could be moving.
    eventually_within(
        Duration::from_secs(150),
        "nothing is left to fill in",
        || {
            let tree = scene.head.get("/api/v1/tree").json();
            let dirty = tree["dirty_ticks"].as_u64().unwrap_or(u64::MAX);
            (dirty == 0).then_some(()).ok_or(tree["problems"].clone())
        },
    );
    scene.expect_named("liar", "duplicate");
    answering.abort();
}

#[test]
fn past_ticks_are_computed_again_only_so_often() {
    let scene = HostileScene::new();
    let backfilled = || {
        let status = scene.head.get("/status").json();
        status["tree"]["backfilled_ticks"].as_u64().unwrap_or(0)
    };
    scene.attack(async {
        let child = scene.accepted("again").await;
        for number in 0..60_000 {
            let time_ms = this_tick() - 3_000_000 + number % 2900 * 1000;
            let mark = Tick {
                time_ms,
                ..Tick::default()
            };
            if !child.send(FromChild::Tick(mark)).await {
                break;
            }
        }
    });
    scene.expect_named("again", "changes");
    let before = backfilled();
    scene.expect_unharmed();
    assert!(backfilled() >= before);
}

#[test]
fn names_that_come_and_go_cost_bounded_memory() {
    let scene = HostileScene::new();
    for part in 0..8 {
        scene.attack(async {
            for number in 0..400 {
                let name = format!("churn{part}-{number}-{}", "x".repeat(200));
                let _ = scene.accepted(&name).await;
            }
        });
    }
    let listed = scene.head.node_states().len();
    assert!(listed < 1500, "{listed} nodes");
    scene.expect_unharmed();
}

#[test]
fn help_texts_cannot_forge_lines_of_metrics() {
    let scene = HostileScene::new();
    let child = scene.attack(async {
        let child = scene.accepted("forger").await;
        let mut series = definition(0, "forged_total".to_owned());
        series.help = "x\nnode_load1:sum 99\n\u{1b}[31m\u{202e}".to_owned();
        child.send(definitions(vec![series])).await;
        child
    });
    let sending = scene.runtime.spawn(async move {
        let (mut encoder, mut last) = (ValueTickEncoder::new(), 0);
        for _ in 0..600 {
            let time_ms = this_tick();
            if time_ms > last {
                last = time_ms;
                let values = encoder.encode(&[(0, 1.0)]);
                let (nodes, overview) = (1, None);
                let tick = Tick {
                    time_ms,
                    nodes,
                    values,
                    overview,
                };
                child.send(FromChild::Tick(tick)).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    scene.head.reduces("forged_total:sum", 1.0);
    let metrics = scene.head.get("/metrics").text().to_owned();
    assert!(!metrics.contains("\nnode_load1:sum 99\n"), "a forged line");
    let listed = scene.head.agent().client(&["list", "--match", "forged*"]);
    for text in [&metrics, &listed.stdout] {
        assert!(
            !text.contains(['\u{1b}', '\u{202e}']),
            "a control character"
        );
    }
    sending.abort();
}

#[test]
fn a_connection_without_a_child_does_not_stay() {
    let scene = HostileScene::new();
    let before = descriptors(scene.head.agent().pid());
    // Valid credentials, and names that are refused.
    scene.attack(async {
        let mut children = Vec::new();
        for _ in 0..100 {
            children.push(scene.connect(hello("good")).await);
        }
        for child in &mut children {
            ended(child).await;
        }
        eventually("the connections are closed", || {
            let now = descriptors(scene.head.agent().pid());
            (now < before + 20).then_some(()).ok_or(now)
        });
        drop(children);
    });
    scene.expect_unharmed();
    assert!(resident_bytes(scene.head.agent().pid()) > 0);
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("it runs")
        .count()
}

#[test]
fn a_response_that_a_node_made_up_is_no_page() {
    let scene = HostileScene::new();
    let mut child = scene.attack(scene.accepted("evil"));
    let answering = scene.runtime.spawn(async move {
        while let Ok(Some(message)) = child.receive().await {
            if let FromParent::Request(request) = message {
                respond(&child, &request, 200, b"<script>alert(1)</script>").await;
            }
        }
    });
    let answer = scene.head.get("/nodes/evil/api/v1/values?match=x");
    let policy = answer.header("content-security-policy");
    assert_eq!(policy, Some("default-src 'none'; sandbox"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    // The page of the node is the head's own.
    let page = scene.head.get("/nodes/evil/");
    assert!(!page.text().contains("alert(1)"), "{}", page.text());
    scene.expect_unharmed();
    answering.abort();
}
