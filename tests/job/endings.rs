//! How jobs end, and that they leave nothing behind.

use std::fs;
use std::time::Duration;

use pegel_testkit::{ChildProcess, FinishedProcess, need};
use rustix::process::{Pid, Signal, kill_process};

use crate::ssh_server::{JOB_TIME, SshServer};
use crate::test_job::{BEGIN, TestJob, processes_of};

/// What happens to a job, and the exit code that follows; `None` for a signal.
type Ending = (
    &'static str,
    &'static str,
    fn(&TestJob, &ChildProcess),
    Option<i32>,
);

const LONG: &str = "exec sleep 1000";

fn nothing(_: &TestJob, _: &ChildProcess) {}

/// Sends a signal to the processes of the job whose command line contains a text.
fn signal_agents(job: &TestJob, text: &str, signal: Signal) {
    for line in processes_of(job.home.path(), "") {
        let pid = line.split(':').next().and_then(|pid| pid.parse().ok());
        if let (true, Some(pid)) = (line.contains(text), pid.and_then(Pid::from_raw)) {
            let _ = kill_process(pid, signal);
        }
    }
}

const ENDINGS: [Ending; 10] = [
    ("the command succeeds", "true", nothing, Some(0)),
    ("the command fails", "exit 3", nothing, Some(3)),
    ("the command is killed", "kill -9 $$", nothing, Some(137)),
    (
        "the command leaves a daemon",
        "setsid sleep 2 >/dev/null 2>&1 & exit 4",
        nothing,
        Some(4),
    ),
    (
        "interrupt",
        LONG,
        |_, job| job.signal(Signal::INT),
        Some(130),
    ),
    (
        "termination",
        LONG,
        |_, job| job.signal(Signal::TERM),
        Some(143),
    ),
    ("hang-up", LONG, |_, job| job.signal(Signal::HUP), Some(129)),
    (
        "pegel job is killed",
        "exec sleep 5",
        |_, job| job.signal(Signal::KILL),
        None,
    ),
    (
        "the head is killed",
        "sleep 3; exit 6",
        |job, _| signal_agents(job, "--head", Signal::KILL),
        Some(6),
    ),
    (
        "an agent is stopped",
        "sleep 1; exit 5",
        |job, _| signal_agents(job, "--node", Signal::TERM),
        Some(5),
    ),
];

#[test]
fn twenty_jobs_that_end_in_different_ways_leave_nothing() {
    let Some(server) = SshServer::start(2) else {
        return;
    };
    let job = TestJob::new();
    let (ssh, hosts) = (server.ssh(), server.hosts());
    let remote = ["--launcher", &ssh, "--hosts", &hosts];
    for (what, script, act, code) in ENDINGS {
        for options in [&[][..], &remote] {
            let script = format!("{BEGIN}{script}");
            let mut running = job.start(options, &["sh", "-c", &script]);
            if code.is_none_or(|code| code > 4) {
                job.wait_for_command(&mut running);
            }
            act(&job, &running);
            let ended = running.wait(JOB_TIME);
            assert_eq!(ended.code(), code, "{what}: {ended}");
            job.leaves_nothing(&server.mark());
        }
    }
}

#[test]
fn a_job_that_is_interrupted_before_its_nodes_are_up_starts_no_command() {
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    // A connection that never gets an answer.
    let launcher = format!("{} -o ProxyCommand=cat", server.ssh());
    let mut running = job.start(
        &["--launcher", &launcher, "--hosts", &server.hosts()],
        &["touch", "ran"],
    );
    pegel_testkit::eventually("ssh runs", || {
        assert!(!running.has_ended(), "{}", running.output());
        let all = processes_of(job.home.path(), &server.mark());
        (all.len() > 1).then_some(()).ok_or(all)
    });
    running.signal(Signal::TERM);
    let ended = running.wait(JOB_TIME);
    assert_eq!(ended.code(), Some(143), "{ended}");
    assert!(!job.home.join("ran").exists());
    job.leaves_nothing(&server.mark());
}

#[test]
fn two_jobs_run_at_the_same_time() {
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    let (ssh, hosts) = (server.ssh(), server.hosts());
    let options = ["--launcher", &ssh, "--hosts", &hosts];
    let script = format!("{BEGIN}while [ ! -e go ]; do sleep 0.1; done");
    let mut first = job.start(&options, &["sh", "-c", &script]);
    job.wait_for_command(&mut first);
    let second = job.run(&options, &["sh", "-c", BEGIN]);
    assert_eq!(second.code(), Some(0), "{second}");
    assert!(second.stderr.contains("2 of 2 nodes up"), "{second}");
    fs::write(job.home.join("go"), "").expect("written");
    let first = first.wait(JOB_TIME);
    assert_eq!(first.code(), Some(0), "{first}");
    job.leaves_nothing(&server.mark());
}

fn run_requests(requests: &str) -> Option<(TestJob, FinishedProcess)> {
    need("curl")?;
    let job = TestJob::new();
    let script = format!(
        "{BEGIN}ask() {{ curl -s --unix-socket $PEGEL_SOCKET \"$@\"; echo; }}\n{requests}\n\
         for n in $(seq 300); do [ -S $PEGEL_SOCKET ] || break; sleep 0.1; done\n\
         [ -S $PEGEL_SOCKET ] && exit 9; sleep 0.5; echo went on; exit 3"
    );
    let ended = job.run(&[], &["sh", "-c", &script]);
    Some((job, ended))
}

#[test]
fn the_telemetry_ends_on_request_and_the_command_continues() {
    let request = "ask -X POST http://localhost/api/set_telemetry_shutdown";
    let Some((job, ended)) = run_requests(request) else {
        return;
    };
    assert_eq!(ended.code(), Some(3), "{ended}");
    assert!(ended.stdout.contains("\"shutdown_begin\":true"), "{ended}");
    assert!(ended.stdout.ends_with("went on\n"), "{ended}");
    assert!(ended.stderr.contains(" · 1 node"), "the summary: {ended}");
    job.leaves_nothing("");
}

#[test]
fn a_command_that_ends_while_its_agents_end_is_not_missed() {
    if need("curl").is_none() {
        return;
    }
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    let script = format!(
        "{BEGIN}curl -s --unix-socket $PEGEL_SOCKET http://localhost/api/telemetry_shutdown; \
         sleep 0.8; exit 5"
    );
    let (ssh, hosts) = (server.ssh(), server.hosts());
    let options = ["--launcher", &ssh, "--hosts", &hosts];
    let ended = job.run(&options, &["sh", "-c", &script]);
    assert_eq!(ended.code(), Some(5), "{ended}");
    job.leaves_nothing(&server.mark());
}

#[test]
fn the_telemetry_ends_when_all_participants_are_done() {
    let body = |state: &str, id: &str| {
        format!(
            "ask -d '{{\"id\":\"{id}\",\"pid\":1,\"state\":\"{state}\"}}' http://localhost/api/v1/participants\n"
        )
    };
    let requests = [
        body("active", "a"),
        body("active", "b"),
        body("done", "a"),
        "sleep 3; [ -S $PEGEL_SOCKET ] || exit 8\n".to_owned(),
        body("done", "b"),
    ];
    let Some((job, ended)) = run_requests(&requests.concat()) else {
        return;
    };
    assert_eq!(ended.code(), Some(3), "{ended}");
    assert!(
        ended.stderr.contains("all participants are done"),
        "{ended}"
    );
    job.leaves_nothing("");
}

#[test]
fn directories_of_killed_agents_are_removed_by_the_next_job() {
    let job = TestJob::new();
    // A command outlives a killed job.
    let script = format!("echo $$ > pid; {BEGIN}exec sleep 1000");
    let mut running = job.start(&[], &["sh", "-c", &script]);
    job.wait_for_command(&mut running);
    signal_agents(&job, "--head", Signal::KILL);
    running.signal(Signal::KILL);
    drop(running.wait(JOB_TIME));
    let command = fs::read_to_string(job.home.join("pid")).expect("read");
    let command = command
        .trim()
        .parse()
        .ok()
        .and_then(Pid::from_raw)
        .expect("a pid");
    kill_process(command, Signal::KILL).expect("it runs");
    pegel_testkit::eventually("the head is gone", || {
        let left = processes_of(job.home.path(), "");
        left.is_empty().then_some(()).ok_or(left)
    });
    let entries = fs::read_dir(job.home.path()).expect("listed").flatten();
    let left = entries.map(|entry| entry.path());
    let left = left.filter(|path| path.display().to_string().contains("/pegel-job-"));
    let left: Vec<_> = left.collect();
    assert_eq!(left.len(), 1, "head and job were killed at once: {left:?}");
    // A killed process has no descriptors in /proc before the last of its threads has ended.
    let lock = fs::File::open(left[0].join("head/lock")).expect("opened");
    pegel_testkit::eventually("the lock is released", || lock.try_lock());
    drop(lock);
    let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    let dir = fs::File::open(&left[0]).expect("opened");
    dir.set_modified(hour_ago).expect("set");
    let lanes = fs::read_to_string(job.home.join("lanes-of-job")).expect("read");
    let lanes = fs::File::open(lanes.trim()).expect("opened");
    lanes.set_modified(hour_ago).expect("set");
    let ended = job.run(&[], &["sh", "-c", BEGIN]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    job.leaves_nothing("");
}
