//! Agents for tests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pegel_metric::{
    Clock, Family, Input, MetricKind, Millis, Point, Selector, Series, SystemClock,
};
use pegel_store::{RangeQuery, Store, StoreOptions};
use pegel_supervisor::Supervisor;
use pegel_testkit::{TempDir, eventually_within};
use pegel_tree::{LocalUserPolicy, RunningTree, Tree, TreeOptions, TreeSettings, TreeStartError};
use pegel_tree_protocol::{
    BodyParts, BoxFuture, LocalServer, NodeRow, NodeTree, TreeCallError, TreeRequest, TreeResponse,
};

pub(crate) const INTERVAL_MS: Millis = 200;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The settings of a parent on loopback.
pub(crate) fn accepting() -> TreeSettings {
    TreeSettings {
        accept: Some("127.0.0.1:0".parse().expect("an address")),
        interval: Duration::from_millis(INTERVAL_MS as u64).into(),
        ..TreeSettings::default()
    }
}

/// The settings of a child.
pub(crate) fn reporting(parents: &[SocketAddr]) -> TreeSettings {
    let parents = parents.iter().map(|address| address.to_string().parse());
    TreeSettings {
        parents: parents.collect::<Result<_, _>>().expect("addresses"),
        interval: Duration::from_millis(INTERVAL_MS as u64).into(),
        ..TreeSettings::default()
    }
}

/// Reports one user as the owner of all connections, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedUser(pub Option<u32>);

/// The user of all agents, unless a test sets another one.
pub(crate) const AGENT_UID: u32 = 1000;

impl LocalUserPolicy for FixedUser {
    fn owner_of(&self, _: SocketAddr, _: SocketAddr) -> Option<u32> {
        self.0
    }

    fn admits(&self, uid: u32) -> bool {
        uid == AGENT_UID
    }
}

/// An agent with a tree, and its store, which outlives the tree.
pub(crate) struct TestAgent {
    pub(crate) node: String,
    dir: Arc<TempDir>,
    pub(crate) store: Store,
    pub(crate) supervisor: Supervisor,
    pub(crate) tree: Option<RunningTree>,
    pub(crate) nodes: Option<Arc<dyn NodeTree>>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) server: Arc<FakeLocalServer>,
    /// The user of children that connect.
    pub(crate) peer_user: FixedUser,
    /// `limits.series`.
    pub(crate) series_max: usize,
}

impl TestAgent {
    pub(crate) fn new(node: &str) -> TestAgent {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("a store");
        TestAgent {
            node: node.to_owned(),
            dir: Arc::new(dir),
            store,
            supervisor: Supervisor::default(),
            tree: None,
            nodes: None,
            address: None,
            server: Arc::new(FakeLocalServer {
                node: node.to_owned(),
                running: AtomicUsize::new(0),
            }),
            peer_user: FixedUser(Some(AGENT_UID)),
            series_max: 200_000,
        }
    }

    pub(crate) fn start(node: &str, settings: TreeSettings) -> TestAgent {
        let mut agent = TestAgent::new(node);
        agent.run(settings);
        agent
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn bind(&self, settings: TreeSettings) -> Result<Tree, TreeStartError> {
        Tree::bind(TreeOptions {
            settings,
            node: self.node.clone(),
            version: "1.2.3".to_owned(),
            dir: self.dir.path().to_owned(),
            store: self.store.clone(),
            clock: Arc::new(SystemClock),
            supervisor: self.supervisor.clone(),
            started: SystemClock.utc(),
            sample_interval: Duration::from_secs(1),
            local_users: Arc::new(self.peer_user),
            series_max: self.series_max,
        })
    }

    pub(crate) fn run(&mut self, settings: TreeSettings) {
        self.stop();
        let tree = self.bind(settings).expect("settings");
        self.nodes = tree.node_tree();
        self.address = tree.accept_address();
        self.tree = Some(tree.start(self.server.clone()).expect("threads"));
    }

    /// Stops the tree; the store stays.
    pub(crate) fn stop(&mut self) {
        self.tree = None;
        self.nodes = None;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address.expect("it accepts children")
    }

    pub(crate) fn nodes(&self) -> &dyn NodeTree {
        &**self.nodes.as_ref().expect("it accepts children")
    }

    /// Stores one value.
    pub(crate) fn put(&self, name: &str, kind: MetricKind, value: f64) {
        self.put_at(name, kind, SystemClock.utc(), value);
    }

    pub(crate) fn put_at(&self, name: &str, kind: MetricKind, time: Millis, value: f64) {
        let family = Family::new("", kind, "", 0, "Test.").of_input(Input::Put);
        let series = Series::named(Arc::new(family), name, &[]).expect("a name");
        let point = Point {
            series: Arc::new(series),
            time,
            value,
        };
        self.store.push(Input::Put, vec![point]).expect("stored");
    }

    /// Returns the stored samples of a series.
    pub(crate) fn samples(&self, text: &str) -> Vec<(Millis, f64)> {
        let now = SystemClock.utc();
        let selector = Selector::parse(text).expect("a selector");
        let query = RangeQuery::new(selector, now - 3_600_000, now + 60_000, None);
        let mut samples = Vec::new();
        let read = self.store.query_range(&query, &mut |_, points| {
            samples.extend_from_slice(points);
        });
        read.expect("a result");
        samples
    }

    #[track_caller]
    pub(crate) fn wait_for_last(&self, text: &str, value: f64) {
        eventually_within(PATIENCE, &format!("{text} is {value}"), || {
            match self.samples(text).last() {
                Some((_, last)) if *last == value => Ok(()),
                other => Err(format!("{other:?}, {:?}", self.problems())),
            }
        });
    }

    /// Waits until the newest tick after now has the value.
    #[track_caller]
    pub(crate) fn wait_for_next(&self, text: &str, value: f64) {
        let now = SystemClock.utc();
        eventually_within(PATIENCE, &format!("{text} is {value} again"), || match self
            .samples(text)
            .last()
        {
            Some((time, last)) if *time > now && *last == value => Ok(()),
            other => Err(format!("{other:?}, {:?}", self.problems())),
        });
    }

    fn problems(&self) -> serde_json::Value {
        match &self.nodes {
            Some(nodes) => nodes.tree_json(),
            None => self
                .tree
                .as_ref()
                .map_or_else(Default::default, RunningTree::status_json),
        }
    }

    /// Waits until the rows of `/api/v1/nodes` satisfy a condition.
    #[track_caller]
    pub(crate) fn wait_for_nodes(&self, what: &str, test: impl Fn(&[NodeRow]) -> bool) {
        eventually_within(PATIENCE, what, || {
            let rows = self.nodes().nodes();
            if test(&rows) { Ok(()) } else { Err(rows) }
        });
    }

    #[track_caller]
    pub(crate) fn wait_for_up(&self, nodes: &[&str]) {
        self.wait_for_nodes(&format!("{nodes:?} are up"), |rows| {
            nodes.iter().all(|node| {
                rows.iter().any(|row| {
                    row.node == *node && row.status.as_str() == "up" && row.lag_ms.is_some()
                })
            })
        });
    }

    /// Waits until a problem is listed.
    #[track_caller]
    pub(crate) fn wait_for_problem(&self, reason: &str, part: &str) {
        eventually_within(PATIENCE, &format!("{reason}: {part}"), || {
            let tree = self.nodes().tree_json();
            let problems = tree["problems"].as_array().cloned().unwrap_or_default();
            let is_found = problems.iter().any(|problem| {
                problem["reason"] == reason
                    && problem["message"]
                        .as_str()
                        .is_some_and(|text| text.contains(part))
            });
            if is_found { Ok(()) } else { Err(problems) }
        });
    }

    /// Waits until the child's first parent has this error.
    #[track_caller]
    pub(crate) fn wait_for_error(&self, part: &str) {
        eventually_within(PATIENCE, part, || {
            let status = self.tree.as_ref().expect("it runs").status_json();
            let error = status["parents"][0]["last_error"]
                .as_str()
                .unwrap_or_default();
            if error.contains(part) {
                Ok(())
            } else {
                Err(status)
            }
        });
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The HTTP server of an agent.
pub(crate) struct FakeLocalServer {
    node: String,
    /// Responses that are being produced.
    pub(crate) running: AtomicUsize,
}

/// A body of many parts.
struct Parts {
    left: usize,
    size: usize,
}

impl BodyParts for Parts {
    fn next_part(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TreeCallError>>> {
        let part = self.left.checked_sub(1).map(|left| {
            self.left = left;
            Ok(Bytes::from(vec![left as u8; self.size]))
        });
        Box::pin(std::future::ready(part))
    }
}

/// A body of one part.
struct Text(Option<Bytes>);

impl BodyParts for Text {
    fn next_part(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TreeCallError>>> {
        Box::pin(std::future::ready(self.0.take().map(Ok)))
    }
}

impl LocalServer for FakeLocalServer {
    fn respond(&self, request: TreeRequest) -> BoxFuture<'_, TreeResponse> {
        Box::pin(async move {
            let text = |status, text: String| TreeResponse {
                status,
                headers: vec![("x-node".to_owned(), self.node.clone())],
                body: Box::new(Text(Some(text.into()))),
            };
            match &*request.target {
                "/name" => text(200, format!("{} {}", self.node, request.method)),
                "/large" => TreeResponse {
                    status: 200,
                    headers: Vec::new(),
                    body: Box::new(Parts {
                        left: 100,
                        size: 10_000,
                    }),
                },
                "/hang" => {
                    self.running.fetch_add(1, Ordering::SeqCst);
                    let _guard = CountGuard(&self.running);
                    std::future::pending::<()>().await;
                    text(200, String::new())
                }
                _ => text(404, String::new()),
            }
        })
    }
}

struct CountGuard<'a>(&'a AtomicUsize);

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) fn get(target: &str, deadline: Duration) -> TreeRequest {
    TreeRequest {
        method: "GET".to_owned(),
        target: target.to_owned(),
        headers: vec![("accept".to_owned(), "text/plain".to_owned())],
        body: Bytes::new(),
        deadline,
        is_owner: false,
    }
}

/// Reads a body to its end.
pub(crate) async fn read_body(mut response: TreeResponse) -> Result<Vec<u8>, TreeCallError> {
    let mut body = Vec::new();
    while let Some(part) = response.body.next_part().await {
        body.extend_from_slice(&part?);
    }
    Ok(body)
}
