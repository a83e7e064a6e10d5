//! A panic in a thread of the agent stops the agent with the reason. The panic is real: the clock
//! or the disk that the thread uses panics.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pegel_agent::{AgentSettings, ConfigArgument, RunningAgent, load_config};
use pegel_metric::{Clock, Millis, SystemClock};
use pegel_testkit::{
    AgentAddress, FileFailure, FileHook, FileOperation, HookedFiles, TempDir, check_conserved,
    eventually, get,
};

/// Panics when the thread with this name uses it.
#[derive(Debug)]
struct PanicHook {
    thread: &'static str,
    is_armed: AtomicBool,
}

impl PanicHook {
    fn check(&self) {
        let thread = std::thread::current();
        let is_meant = thread.name() == Some(self.thread);
        assert!(
            !(is_meant && self.is_armed.load(Ordering::Relaxed)),
            "caught in the trap"
        );
    }

    /// Makes some of the store's threads panic while they use the disk.
    fn check_clock(&self) {
        if !["store-log", "store-syncer", "store-maintain"].contains(&self.thread) {
            self.check();
        }
    }
}

impl FileHook for PanicHook {
    fn before(&self, _: FileOperation) -> Result<(), FileFailure> {
        self.check();
        Ok(())
    }
}

impl Clock for PanicHook {
    fn utc(&self) -> Millis {
        self.check_clock();
        SystemClock.utc()
    }

    fn utc_nanos(&self) -> i64 {
        SystemClock.utc_nanos()
    }

    fn monotonic(&self) -> Duration {
        self.check_clock();
        SystemClock.monotonic()
    }
}

fn start(dir: &TempDir, trap: &Arc<PanicHook>) -> RunningAgent {
    let argument = |key, texts: &[&str]| ConfigArgument {
        key,
        flag: "--test",
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
    };
    let store = dir.join("store").display().to_string();
    let socket = dir.join("run/push.sock").display().to_string();
    let arguments = [
        argument("dir", &[&store]),
        argument("socket", &[&socket]),
        argument("listen", &["127.0.0.1:0"]),
        argument("statsd", &["udp:127.0.0.1:0"]),
        argument("rate", &["100ms"]),
    ];
    let lanes = dir.join("lanes").into_os_string();
    let environment = move |name: &str| (name == "PEGEL_LANES").then(|| OsString::from(&lanes));
    let loaded = load_config(None, &arguments, &environment).expect("valid");
    let mut plan = AgentSettings::new(&loaded, &environment);
    plan.store.files = Arc::new(HookedFiles::with(trap.clone()));
    plan.store.clock = trap.clone();
    plan.store.keep.memory = Duration::from_millis(300).into();
    RunningAgent::start(plan).expect("started")
}

fn ends_with_the_reason(thread: &'static str) {
    let dir = TempDir::new();
    let trap = Arc::new(PanicHook {
        thread,
        is_armed: AtomicBool::new(false),
    });
    let mut node = start(&dir, &trap);
    let address = AgentAddress::Tcp(node.http_addresses()[0]);
    let health = get(&address, "/healthz").expect("an answer");
    assert_eq!(health.status, 200, "{}", health.text());
    trap.is_armed.store(true, Ordering::Relaxed);
    let error = node.wait(None).expect_err("it cannot go on");
    let reason = format!("thread {thread} panicked: caught in the trap");
    assert_eq!(error.to_string(), reason);

    // It still responds, and reports the failure.
    let health = get(&address, "/healthz").expect("an answer");
    assert_eq!(health.status, 503);
    assert!(health.text().contains(&reason), "{}", health.text());
    eventually("received = kept + dropped", || {
        let status = get(&address, "/status").expect("an answer").json();
        check_conserved(&status)
    });
    node.stop();
}

#[test]
fn the_end_of_the_stores_writer_ends_the_agent() {
    ends_with_the_reason("store-writer");
}

#[test]
fn the_end_of_the_logs_thread_ends_the_agent() {
    ends_with_the_reason("store-log");
}

#[test]
fn the_end_of_the_stores_syncer_ends_the_agent() {
    ends_with_the_reason("store-syncer");
}

#[test]
fn the_end_of_the_stores_maintenance_ends_the_agent() {
    ends_with_the_reason("store-maintain");
}

#[test]
fn the_end_of_the_sampler_ends_the_agent() {
    ends_with_the_reason("sampler");
}

#[test]
fn the_end_of_the_program_sampler_ends_the_agent() {
    ends_with_the_reason("programs");
}
