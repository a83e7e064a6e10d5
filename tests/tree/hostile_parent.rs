//! Parents that break the protocol: a child goes on sampling and serving, and its memory is
//! bounded, whatever its parent sends.

use std::net::SocketAddr;
use std::time::Duration;

use pegel_testkit::{eventually, resident_bytes};
use pegel_tree_protocol::child_message::Kind as FromChild;
use pegel_tree_protocol::parent_message::Kind as FromParent;
use pegel_tree_protocol::{
    Cancel, Message, NodeMoved, Ping, Refusal, Request, ResponseCredit, SelectRequest, TickCredit,
    Welcome, select_request::Content,
};
use pegel_tree_simulator::{ScriptedParent, welcome};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::tree_agent::{TreeAgent, loopback_address};

const PATIENCE: Duration = Duration::from_secs(30);
const GROWTH_MAX: u64 = 200 << 20;

/// A child, and its parent in the hands of the test.
struct ParentScene {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    child: TreeAgent,
    memory: u64,
}

impl ParentScene {
    fn new(is_parent: bool) -> ParentScene {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let address = loopback_address();
        let listener = runtime.block_on(TcpListener::bind(address));
        let child = match is_parent {
            true => TreeAgent::middle("child", &[address]).0,
            false => TreeAgent::child("child", &[address]),
        };
        child.counter("hits_total").add(7);
        child.shows("match=hits_total", &[("hits_total", 7.0)]);
        ParentScene {
            memory: resident_bytes(child.agent().pid()),
            runtime,
            listener: listener.expect("bound"),
            address,
            child,
        }
    }

    /// Waits for the child and answers its Hello.
    async fn accept(&self, answer: FromParent) -> ScriptedParent {
        let accepted = timeout(PATIENCE, ScriptedParent::accept(&self.listener)).await;
        let mut parent = accepted.expect("it connects").expect("a connection");
        let hello = parent.receive().await.expect("a message");
        assert!(matches!(hello, Some(FromChild::Hello(_))), "{hello:?}");
        parent.send(answer).await;
        parent
    }

    async fn welcome(&self) -> ScriptedParent {
        self.accept(FromParent::Welcome(welcome("top"))).await
    }

    fn last_error(&self) -> String {
        eventually("the child reports an error", || {
            let tree = self.child.get("/api/v1/tree").json();
            let error = tree["parents"][0]["last_error"].as_str();
            error.map(str::to_owned).ok_or(tree)
        })
    }

    /// Checks that the child samples and serves, with bounded memory.
    #[track_caller]
    fn expect_unharmed(&self) {
        let counter = self.child.counter("later_total");
        counter.add(3);
        self.child
            .shows("match=later_total", &[("later_total", 3.0)]);
        self.child.shows("match=hits_total", &[("hits_total", 7.0)]);
        let grown = resident_bytes(self.child.agent().pid()).saturating_sub(self.memory);
        assert!(grown < GROWTH_MAX, "{} MB more", grown >> 20);
        let log = self.child.agent().stderr();
        assert!(!log.contains("panic"), "{log}");
        assert!(log.lines().count() < 100, "{log}");
        assert!(self.address.ip().is_loopback());
    }
}

fn request(id: u64, target: &str) -> Request {
    Request {
        id,
        method: "GET".to_owned(),
        target: target.to_owned(),
        deadline_ms: u32::MAX,
        credit: u32::MAX,
        ..Request::default()
    }
}

#[test]
fn an_interval_that_would_overload_the_child_is_refused() {
    let scene = ParentScene::new(false);
    for interval_ms in [0, 1, 99] {
        let refused = Welcome {
            interval_ms,
            ..welcome("top")
        };
        scene
            .runtime
            .block_on(scene.accept(FromParent::Welcome(refused)));
        let error = scene.last_error();
        assert!(error.contains("interval_ms"), "{error}");
    }
    scene.expect_unharmed();
}

#[test]
fn messages_of_a_parent_are_shown_without_control_characters() {
    let scene = ParentScene::new(false);
    let refusal = Refusal {
        reason: 0,
        message: "\u{1b}[2J\u{202e}no\r\nforged line".to_owned(),
    };
    scene
        .runtime
        .block_on(scene.accept(FromParent::Refusal(refusal)));
    assert!(scene.last_error().contains("no"));
    for arguments in [&["tree"][..], &["doctor"]] {
        let printed = scene.child.agent().client(arguments);
        let text = format!("{}{}", printed.stdout, printed.stderr);
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{text:?}");
        assert!(!text.contains("\nforged line"), "{text}");
    }
    scene.expect_unharmed();
}

#[test]
fn requests_without_end_cost_the_child_little() {
    let scene = ParentScene::new(true);
    scene.runtime.block_on(async {
        let mut parent = scene.welcome().await;
        let wide = SelectRequest {
            content: Content::Partials.into(),
            start_ms: 0,
            end_ms: i64::MAX,
            step_ms: 1,
            bytes_max: u64::MAX,
            ..SelectRequest::default()
        };
        let many_ticks = SelectRequest {
            end_ms: 3599,
            ..wide.clone()
        };
        let selectors = SelectRequest {
            selectors: vec!["*".repeat(16_000); 256],
            end_ms: 1000,
            ..wide.clone()
        };
        let mut id = 0;
        // A child that is behind stops reading: the flood ends with its time.
        let flood = async {
            for _ in 0..100 {
                for select in [&wide, &many_ticks, &selectors] {
                    id += 1;
                    parent
                        .send(FromParent::Request(Request {
                            method: "POST".to_owned(),
                            body: select.encode_to_vec().into(),
                            ..request(id, "/tree/select")
                        }))
                        .await;
                }
                id += 1;
                // Streams that never end, and one that may send nothing.
                parent
                    .send(FromParent::Request(request(id, "/api/v1/stream?match=*")))
                    .await;
                id += 1;
                parent
                    .send(FromParent::Request(Request {
                        credit: 0,
                        deadline_ms: 0,
                        ..request(id, "/metrics")
                    }))
                    .await;
                for bytes in [u32::MAX; 4] {
                    let credit = ResponseCredit { id, bytes };
                    parent.send(FromParent::ResponseCredit(credit)).await;
                }
                let ticks = u32::MAX;
                parent
                    .send(FromParent::TickCredit(TickCredit { ticks }))
                    .await;
                let ping = Ping { sent_ms: i64::MIN };
                parent.send(FromParent::Ping(ping)).await;
                let moved = NodeMoved {
                    node: "child".to_owned(),
                    epoch: u64::MAX,
                };
                parent.send(FromParent::Moved(moved)).await;
                // The parent reads slowly.
                let _ = timeout(Duration::from_millis(5), parent.receive()).await;
            }
            for id in 0..id {
                parent.send(FromParent::Cancel(Cancel { id })).await;
            }
        };
        let _ = timeout(Duration::from_secs(10), flood).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    });
    scene.expect_unharmed();
}

#[test]
fn a_parent_cannot_write_through_a_child() {
    let scene = ParentScene::new(false);
    let statuses = scene.runtime.block_on(async {
        let mut parent = scene.welcome().await;
        let requests = [
            ("POST", "/api/metrics"),
            ("POST", "/api/put"),
            ("PUT", "/api/v1/marks"),
            ("POST", "/api/v1/sessions"),
            ("POST", "/api/v1/write"),
            ("DELETE", "/api/annotation"),
            ("GET", "/tree/select"),
            ("GET", "/nodes/child/nodes/child/tree/select"),
            ("POST", "/login"),
        ];
        for (id, (method, target)) in requests.iter().enumerate() {
            parent
                .send(FromParent::Request(Request {
                    method: (*method).to_owned(),
                    is_owner: true,
                    deadline_ms: 5000,
                    body: b"{}".to_vec().into(),
                    ..request(id as u64, target)
                }))
                .await;
        }
        let mut statuses = vec![0; requests.len()];
        while statuses.contains(&0) {
            let received = timeout(PATIENCE, parent.receive()).await.expect("answers");
            match received.expect("the stream goes on") {
                Some(FromChild::Response(head)) => statuses[head.id as usize] = head.status,
                Some(_) => {}
                None => break,
            }
        }
        statuses
    });
    assert!(
        statuses.iter().all(|status| (400..500).contains(status)),
        "{statuses:?}"
    );
    scene.expect_unharmed();
}
