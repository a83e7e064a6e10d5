//! A task of the tree's runtime that ends unexpectedly is a failure of the agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pegel_metric::{Clock, Millis, SystemClock};
use pegel_supervisor::Supervisor;
use pegel_testkit::eventually;
use pegel_tree::{Tree, TreeOptions};

use crate::support::{TestAgent, accepting, reporting};

/// A clock that panics once, on a thread of the tree's runtime.
#[derive(Debug, Default)]
struct FaultyClock {
    has_panicked: AtomicBool,
}

impl Clock for FaultyClock {
    fn utc(&self) -> Millis {
        let is_of_tree = std::thread::current().name() == Some("tree");
        if is_of_tree && !self.has_panicked.swap(true, Ordering::SeqCst) {
            panic!("the clock is broken");
        }
        SystemClock.utc()
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

#[test]
fn a_panic_of_a_task_is_a_failure_of_the_agent() {
    let agent = TestAgent::new("head");
    let supervisor = Supervisor::default();
    let tree = Tree::bind(TreeOptions {
        settings: accepting(),
        node: "head".to_owned(),
        version: "1.2.3".to_owned(),
        dir: agent.path("."),
        store: agent.store.clone(),
        clock: Arc::new(FaultyClock::default()),
        supervisor: supervisor.clone(),
        started: SystemClock.utc(),
        sample_interval: Duration::from_secs(1),
        local_users: Arc::new(agent.peer_user),
        series_max: agent.series_max,
    });
    let running = tree.expect("settings").start(agent.server.clone());
    let running = running.expect("threads");
    let failure = eventually("a failure", || supervisor.failure().ok_or("none"));
    let expected = "thread tree-backfill panicked: the clock is broken";
    assert_eq!(failure.to_string(), expected);
    drop(running);
}

#[test]
fn tasks_that_are_asked_to_end_are_no_failure() {
    let parent = TestAgent::start("head", accepting());
    let mut child = TestAgent::new("a");
    let supervisor = child.supervisor.clone();
    child.run(reporting(&[parent.address()]));
    parent.wait_for_up(&["a"]);
    child.stop();
    assert_eq!(supervisor.failure(), None);
}
