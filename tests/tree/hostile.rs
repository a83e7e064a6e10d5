//! Children that break the protocol: each is named and counted by its parent, and has no effect on
//! the other nodes.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use pegel_testkit::{PLANTED_TOKEN, eventually, now_millis, resident_bytes};
use pegel_tree_protocol::child_message::Kind as FromChild;
use pegel_tree_protocol::parent_message::Kind as FromParent;
use pegel_tree_protocol::{
    Hello, Kind, NodeUpdate, NodeUpdates, PartialCell, PartialTickEncoder, ResponseChunk,
    ResponseHead, SeriesDefinition, SeriesDefinitions, Tick, ValueTickEncoder, node_update,
    refusal,
};
use pegel_tree_simulator::{ScriptedChild, hello};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::tree_agent::TreeAgent;

/// The memory that a hostile child may cost its parent, in bytes.
const GROWTH_MAX: u64 = 200 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// A parent with one real child, and a hostile one.
pub(crate) struct HostileScene {
    pub head: TreeAgent,
    pub address: SocketAddr,
    pub runtime: Runtime,
    pub good: TreeAgent,
    memory: u64,
}

impl HostileScene {
    pub(crate) fn new() -> HostileScene {
        let (head, address) = TreeAgent::head("head");
        let good = TreeAgent::child("good", &[address]);
        good.counter("hits_total").add(7);
        head.reduces("hits_total:sum", 7.0);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        HostileScene {
            memory: resident_bytes(head.agent().pid()),
            head,
            address,
            runtime: runtime.expect("a runtime"),
            good,
        }
    }

    /// Runs an attack; its end is bounded.
    #[track_caller]
    pub(crate) fn attack<T>(&self, attack: impl Future<Output = T>) -> T {
        let ended = self
            .runtime
            .block_on(async { timeout(PATIENCE, attack).await });
        ended.expect("the attack ends")
    }

    pub(crate) async fn connect(&self, hello: Hello) -> ScriptedChild {
        let first = FromChild::Hello(hello);
        let stream = ScriptedChild::connect(self.address, Some(PLANTED_TOKEN), first).await;
        stream.expect("connected")
    }

    /// Connects as a child that the parent accepts.
    pub(crate) async fn accepted(&self, node: &str) -> ScriptedChild {
        let mut child = self.connect(hello(node)).await;
        let answer = child.receive().await.expect("an answer");
        assert!(matches!(answer, Some(FromParent::Welcome(_))), "{answer:?}");
        child
    }

    /// Returns the newest problem of a node in `/api/v1/tree`.
    pub(crate) fn problem_of(&self, node: &str) -> Value {
        eventually(&format!("{node} is named"), || {
            let tree = self.head.get("/api/v1/tree").json();
            let problems = tree["problems"].as_array().expect("a list");
            let found = problems.iter().find(|problem| problem["node"] == node);
            found.cloned().ok_or(tree["problems"].clone())
        })
    }

    /// Checks that the node is named with a reason and a count, here and in `pegel tree`.
    #[track_caller]
    pub(crate) fn expect_named(&self, node: &str, reason: &str) {
        let problem = self.problem_of(node);
        assert_eq!(problem["reason"], reason, "{problem}");
        assert!(
            problem["count"].as_u64().is_some_and(|count| count >= 1),
            "{problem}"
        );
        assert!(
            !problem["message"].as_str().unwrap_or_default().is_empty(),
            "{problem}"
        );
        let printed = self.head.agent().client(&["tree"]);
        assert!(printed.stdout.contains(node), "{printed}");
    }

    /// Checks that nothing changed for the other nodes, and that the parent's memory is bounded.
    #[track_caller]
    pub(crate) fn expect_unharmed(&self) {
        self.head.shows("match=hits_total", &[("hits_total", 7.0)]);
        self.head.evaluates("sum(hits_total)", 7.0);
        self.head.reduces("hits_total:sum", 7.0);
        let series = self.head.promql("hits_total");
        assert_eq!(series.len(), 1, "{series:?}");
        assert_eq!(series[0].0["host"], "good", "{series:?}");
        let newest = self
            .head
            .stored("hits_total:sum")
            .last()
            .map_or(0, |point| point.0);
        assert!(
            newest <= now_millis() + 1000,
            "a point in the future: {newest}"
        );
        let states = self.head.node_states();
        let is_up = |name: &str| states.contains(&(name.to_owned(), "up".to_owned()));
        assert!(is_up("good") && is_up("head"), "{states:?}");
        let grown = resident_bytes(self.head.agent().pid()).saturating_sub(self.memory);
        assert!(grown < GROWTH_MAX, "{} MB more", grown >> 20);
        assert!(
            self.good.agent().stderr().lines().count() < 100,
            "{}",
            self.good.agent().stderr()
        );
    }
}

pub(crate) fn definition(id: u32, text: String) -> SeriesDefinition {
    SeriesDefinition {
        id,
        text,
        kind: Kind::Counter.into(),
        unit: String::new(),
        help: String::new(),
    }
}

pub(crate) fn definitions(series: Vec<SeriesDefinition>) -> FromChild {
    FromChild::Series(SeriesDefinitions { series })
}

pub(crate) fn tick(time_ms: i64, values: &[(u32, f64)]) -> FromChild {
    FromChild::Tick(Tick {
        time_ms,
        nodes: 1,
        values: ValueTickEncoder::new().encode(values),
        overview: None,
    })
}

/// The newest multiple of the interval.
pub(crate) fn this_tick() -> i64 {
    now_millis() / 1000 * 1000
}

/// Waits until the parent ends the stream; returns the reason of its refusal, if it sent one.
pub(crate) async fn ended(child: &mut ScriptedChild) -> Option<refusal::Reason> {
    loop {
        match child.receive().await {
            Ok(Some(FromParent::Refusal(refusal))) => return Some(refusal.reason()),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

#[test]
fn an_unknown_protocol_version_is_refused() {
    let scene = HostileScene::new();
    let reason = scene.attack(async {
        let mut child = scene
            .connect(Hello {
                protocol: 99,
                ..hello("newer")
            })
            .await;
        ended(&mut child).await
    });
    assert_eq!(reason, Some(refusal::Reason::Version));
    scene.expect_named("newer", "version");
    scene.expect_unharmed();
}

#[test]
fn a_second_claimant_of_a_name_is_refused() {
    let scene = HostileScene::new();
    let reason = scene.attack(async {
        let mut child = scene.connect(hello("good")).await;
        ended(&mut child).await
    });
    assert_eq!(reason, Some(refusal::Reason::Duplicate));
    scene.expect_named("good", "duplicate");
    let reason = scene.attack(async {
        let mut child = scene.connect(hello("head")).await;
        ended(&mut child).await
    });
    assert!(reason.is_some(), "the name of the parent itself");
    scene.expect_unharmed();
}

#[test]
fn malformed_names_are_refused() {
    let scene = HostileScene::new();
    for name in ["", "a/b", "..", &"x".repeat(10_000), "a\nb"] {
        let reason = scene.attack(async {
            let first = FromChild::Hello(hello(name));
            let stream = ScriptedChild::connect(scene.address, Some(PLANTED_TOKEN), first);
            match stream.await {
                Ok(mut child) => ended(&mut child).await,
                Err(_) => Some(refusal::Reason::Malformed),
            }
        });
        assert!(reason.is_some(), "{name:?}");
    }
    let states = scene.head.node_states();
    assert_eq!(states.len(), 2, "{states:?}");
    scene.expect_unharmed();
}

#[test]
fn definitions_beyond_the_limits_end_the_stream() {
    let scene = HostileScene::new();
    let attacks = [
        ("long", vec![definition(0, "x".repeat(1 << 20))]),
        ("gap", vec![definition(7, "x".to_owned())]),
        (
            "twice",
            vec![definition(0, "x".to_owned()), definition(0, "y".to_owned())],
        ),
        ("text", vec![definition(0, "no{series".to_owned())]),
    ];
    for (name, series) in attacks {
        scene.attack(async {
            let mut child = scene.accepted(name).await;
            child.send(definitions(series)).await;
            let ended = timeout(PATIENCE / 2, ended(&mut child)).await;
            assert!(ended.is_ok(), "the stream of {name} goes on");
        });
        scene.expect_named(name, "malformed");
    }
    scene.expect_unharmed();
}

#[test]
fn a_million_series_end_the_stream() {
    let scene = HostileScene::new();
    scene.attack(async {
        let mut child = scene.accepted("many").await;
        for part in 0..100_u32 {
            let ids = part * 10_000..(part + 1) * 10_000;
            let series = ids.map(|id| definition(id, format!("many{{id=\"{id}\"}}")));
            if !child.send(definitions(series.collect())).await {
                break;
            }
        }
        ended(&mut child).await
    });
    scene.expect_named("many", "malformed");
    scene.expect_unharmed();
}

#[test]
fn ticks_of_the_future_and_the_past_are_refused() {
    let scene = HostileScene::new();
    for (name, offset) in [
        ("future", 86_400_000),
        ("past", -86_400_000),
        ("never", i64::MAX / 2),
    ] {
        scene.attack(async {
            let child = scene.accepted(name).await;
            child
                .send(definitions(vec![definition(0, "skewed_total".to_owned())]))
                .await;
            for number in 0..3 {
                let time = (this_tick() + number * 1000).saturating_add(offset) / 1000 * 1000;
                child.send(tick(time, &[(0, 5.0)])).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        let problem = scene.problem_of(name);
        assert!(
            problem["count"].as_u64().is_some_and(|count| count >= 1),
            "{problem}"
        );
        assert_eq!(scene.head.stored("skewed_total:sum"), []);
    }
    scene.expect_unharmed();
}

#[test]
fn ticks_with_unknown_series_or_malformed_bytes_end_the_stream() {
    let scene = HostileScene::new();
    let mut malformed = Tick {
        time_ms: this_tick(),
        nodes: 1,
        values: vec![0xff; 100].into(),
        overview: None,
    };
    for (name, message) in [
        ("unknown", tick(this_tick(), &[(3, 1.0)])),
        ("garbage", FromChild::Tick(malformed.clone())),
        ("crowd", {
            malformed.nodes = u32::MAX;
            FromChild::Tick(malformed)
        }),
    ] {
        scene.attack(async {
            let mut child = scene.accepted(name).await;
            child
                .send(definitions(vec![definition(0, "x_total".to_owned())]))
                .await;
            child.send(message).await;
            let ended = timeout(PATIENCE / 2, ended(&mut child)).await;
            assert!(ended.is_ok(), "the stream of {name} goes on");
        });
        scene.expect_named(name, "malformed");
    }
    scene.expect_unharmed();
}

#[test]
fn impossible_partial_results_spoil_no_sum() {
    let scene = HostileScene::new();
    let cell = |count: u64, sum: f64, total: f64| PartialCell {
        count,
        sum,
        min: sum,
        max: sum,
        total,
        ..PartialCell::default()
    };
    let attacks = [
        ("nan", cell(1, f64::NAN, f64::NAN)),
        ("inflated", cell(u64::MAX, 1.0, 1.0)),
        (
            "sketch",
            PartialCell {
                sketch: vec![0xff; 64].into(),
                ..cell(1, 1.0, 1.0)
            },
        ),
    ];
    for (name, cell) in attacks {
        scene.attack(async {
            let mut child = scene
                .connect(Hello {
                    is_parent: true,
                    ..hello(name)
                })
                .await;
            child.receive().await.expect("an answer");
            child
                .send(definitions(vec![definition(0, "hits_total".to_owned())]))
                .await;
            for number in 0..3 {
                let values = PartialTickEncoder::new().encode(&[(0, cell.clone())]);
                let tick = Tick {
                    time_ms: this_tick() + 1000 * number,
                    nodes: 1,
                    values,
                    overview: None,
                };
                child.send(FromChild::Tick(tick)).await;
            }
            let ended = timeout(PATIENCE / 2, ended(&mut child)).await;
            assert!(ended.is_ok(), "the stream of {name} goes on");
        });
        scene.expect_named(name, "malformed");
    }
    scene.expect_unharmed();
}

#[test]
fn ticks_that_do_not_rise_end_the_stream() {
    let scene = HostileScene::new();
    scene.attack(async {
        let mut child = scene.accepted("flood").await;
        child
            .send(definitions(vec![definition(0, "x_total".to_owned())]))
            .await;
        // Each of them would have a past tick computed again.
        for number in 0..10_000 {
            let time = this_tick() - 600_000 + number % 100 * 1000;
            if !child.send(tick(time, &[(0, 1.0)])).await {
                break;
            }
        }
        ended(&mut child).await
    });
    scene.expect_named("flood", "malformed");
    scene.expect_unharmed();
}

#[test]
fn a_child_cannot_speak_for_other_hosts() {
    let scene = HostileScene::new();
    let child = scene.attack(async {
        let child = scene.accepted("liar").await;
        let texts = ["hits_total{host=\"good\"}", "lies_total"];
        let series = (0..)
            .zip(texts)
            .map(|(id, text)| definition(id, text.to_owned()));
        child.send(definitions(series.collect())).await;
        // Leaves have no nodes below them.
        let update = NodeUpdate {
            node: "good".to_owned(),
            parent: "liar".to_owned(),
            state: node_update::State::Up.into(),
            epoch: u64::MAX,
            instance: vec![9; 16].into(),
            ..NodeUpdate::default()
        };
        let nodes = vec![update];
        child
            .send(FromChild::Nodes(NodeUpdates {
                is_complete: true,
                nodes,
            }))
            .await;
        for number in 0..3 {
            child
                .send(tick(this_tick() + 1000 * number, &[(0, 1e6), (1, 1.0)]))
                .await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        child
    });
    let nodes = scene.head.get("/api/v1/nodes").json();
    let good = nodes["nodes"].as_array().expect("a list").iter();
    let good: Vec<&Value> = good.filter(|node| node["node"] == "good").collect();
    assert_eq!(good.len(), 1, "{nodes}");
    assert_eq!(good[0]["parent"], "head", "{nodes}");
    drop(child);
    scene.problem_of("liar");
    scene.expect_unharmed();
}

#[test]
fn responses_that_were_not_requested_end_the_stream() {
    let scene = HostileScene::new();
    scene.attack(async {
        let child = scene.accepted("talker").await;
        for id in [0, 1, u64::MAX] {
            let head = ResponseHead {
                id,
                status: 200,
                headers: Vec::new(),
            };
            child.send(FromChild::Response(head)).await;
            for _ in 0..100 {
                let data = vec![0; 32 << 10].into();
                let chunk = ResponseChunk {
                    id,
                    data,
                    is_last: false,
                    error: String::new(),
                };
                child.send(FromChild::Chunk(chunk)).await;
            }
        }
    });
    scene.expect_named("talker", "malformed");
    scene.expect_unharmed();
}

#[test]
fn responses_beyond_their_credit_cost_only_the_sender() {
    let scene = HostileScene::new();
    let mut child = scene.attack(scene.accepted("greedy"));
    let flood = scene.runtime.spawn(async move {
        let mut sent = 0_u64;
        while let Ok(Some(message)) = child.receive().await {
            let FromParent::Request(request) = message else {
                continue;
            };
            let head = ResponseHead {
                id: request.id,
                status: 200,
                headers: Vec::new(),
            };
            child.send(FromChild::Response(head)).await;
            // More than the credit of any request.
            for _ in 0..5000 {
                let data = vec![7; 32 << 10].into();
                let (id, error) = (request.id, String::new());
                let chunk = ResponseChunk {
                    id,
                    data,
                    is_last: false,
                    error,
                };
                if !child.send(FromChild::Chunk(chunk)).await {
                    return sent;
                }
                sent += 32 << 10;
            }
        }
        sent
    });
    let answer = scene.head.get("/api/v1/values?match=hits_total");
    let nodes = answer.header("pegel-nodes").unwrap_or_default().to_owned();
    assert!(nodes.contains("late=greedy"), "{nodes}");
    scene.expect_named("greedy", "malformed");
    scene.expect_unharmed();
    flood.abort();
}

#[test]
fn a_child_that_never_reads_delays_nobody() {
    let scene = HostileScene::new();
    let child = scene.attack(scene.accepted("deaf"));
    for _ in 0..20 {
        let path = "/api/v1/query?query=sum(hits_total)&timeout=1s";
        let answer = scene.head.get(path);
        assert!(answer.text().contains("\"7\""), "{}", answer.text());
    }
    scene.expect_unharmed();
    drop(child);
}
