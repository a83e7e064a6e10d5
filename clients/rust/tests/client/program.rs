//! The example as a separate process, as users run it: what it counts is in its lane.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use pegel_lane::reader::LaneValue;
use pegel_testkit::{ChildProcess, FinishedProcess, TempDir, need, need_hardware, open_lanes};

fn solver() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a file");
    let built = own.ancestors().nth(2).expect("target/PROFILE/deps");
    built.join("examples/solver")
}

fn run(command: &mut Command) -> FinishedProcess {
    ChildProcess::start(command).wait(Duration::from_secs(60))
}

#[test]
fn marks_and_values_go_to_other_sockets_as_datagrams() {
    let dir = TempDir::new();
    let agent = UnixDatagram::bind(dir.join("statsd.sock")).expect("bound");
    let server = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let address = server.local_addr().expect("bound").to_string();
    let finished = run(Command::new(solver())
        .arg("50")
        .env("PEGEL_LANES", dir.join("lanes"))
        .env("PEGEL_SOCKET", dir.join("push.sock"))
        .env("PEGEL_STATSD", address)
        .env("PEGEL_STATSD_LABELS", "tags")
        .env("OMPI_COMM_WORLD_RANK", "3"));
    assert_eq!(finished.code(), Some(0), "{finished}");
    // Everything was sent before the program ended.
    agent.set_nonblocking(true).expect("set");
    server.set_nonblocking(true).expect("set");
    let mut bytes = [0; 65_536];
    let mut events = Vec::new();
    while let Ok(length) = agent.recv(&mut bytes) {
        events.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
    }
    let expected = [
        (
            "_e{13,0}:solver starts||d:",
            "|#kind:mark,program:solver,rank:3",
        ),
        ("_e{5,0}:solve||d:", "|#kind:phase,state:begin,id:"),
        ("_e{5,0}:solve||d:", "|#kind:phase,state:end,id:"),
    ];
    assert_eq!(events.len(), expected.len(), "{events:?}");
    for (event, (start, inside)) in events.iter().zip(expected) {
        assert!(
            event.starts_with(start) && event.contains(inside),
            "{event}"
        );
    }
    let length = server.recv(&mut bytes).expect("sent at the exit");
    let lines = std::str::from_utf8(&bytes[..length]).expect("text");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines[0], "solver_iterations_total:50|c|#phase:solve");
    for line in ["solver_step_seconds.count:50|c", "solver_change.count:50|c"] {
        assert!(lines.contains(&line), "{lines:?}");
    }
    let residual =
        |line: &&str| line.starts_with("solver_residual:") && line.ends_with("|g|#rank:3");
    assert!(lines.iter().any(residual), "{lines:?}");
}

#[test]
fn a_program_leaves_what_it_counted() {
    let dir = TempDir::new();
    let finished = run(Command::new(solver())
        .arg("50")
        .env("PEGEL_LANES", dir.join("lanes"))
        .env("SLURM_JOB_ID", "4711")
        .env("OMPI_COMM_WORLD_RANK", "3"));
    assert_eq!(finished.stdout, "50 steps, published: true\n", "{finished}");
    let mut lanes = open_lanes(dir.join("lanes"));
    assert_eq!(lanes.len(), 2);
    let header = lanes[0].header();
    assert_eq!((header.job.as_str(), header.rank.as_str()), ("4711", "3"));
    assert_eq!(header.command, "solver");
    assert!(lanes[0].is_ended().expect("asked"));
    let mut buffer = Vec::new();
    let view = lanes[0].read(&mut buffer).expect("readable");
    let names: Vec<&str> = (0..view.len())
        .map(|index| view.series(index).expect("described").name)
        .collect();
    assert_eq!(
        names,
        [
            "solver_iterations_total",
            "solver_busy_seconds_total",
            "solver_residual",
            "solver_step_seconds",
            "solver_change"
        ]
    );
    assert_eq!(view.value(0), Some(LaneValue::Counter(50)));
    let series = view.series(0).expect("described");
    assert_eq!(series.labels, [("phase", "solve")]);
    assert_eq!(series.help, "Iterations of the solver.");
    assert!(view.series(2).expect("described").with_rank);
    for index in [3, 4] {
        let Some(LaneValue::Distribution(values)) = view.value(index) else {
            panic!("no distribution");
        };
        assert_eq!(values.count(), 50);
    }
    let mut points = Vec::new();
    lanes[1].read(&mut buffer).expect("readable");
    lanes[1]
        .points(&mut buffer, true, &mut points)
        .expect("readable");
    assert_eq!(points.len(), 50);
}

#[test]
fn a_variable_disables_counting() {
    let dir = TempDir::new();
    for (value, is_published) in [("1", false), ("yes", false), ("0", true), ("", true)] {
        let finished = run(Command::new(solver())
            .arg("2")
            .env("PEGEL_LANES", dir.path())
            .env("PEGEL_DISABLE", value));
        assert_eq!(
            finished.stdout,
            format!("2 steps, published: {is_published}\n"),
            "PEGEL_DISABLE={value:?}: {finished}"
        );
        assert_eq!(open_lanes(&dir).is_empty(), !is_published);
    }
}

#[test]
fn an_unusable_directory_does_not_disturb_the_program() {
    let dir = TempDir::new();
    std::fs::write(dir.join("file"), "").expect("a file");
    for place in ["file", "file/below", "no/such/place"] {
        let finished = run(Command::new(solver())
            .arg("2")
            .env("PEGEL_LANES", dir.join(place)));
        assert_eq!(
            finished.stdout, "2 steps, published: false\n",
            "{place}: {finished}"
        );
        assert_eq!((finished.code(), finished.stderr.as_str()), (Some(0), ""));
    }
}

/// Runs in its own mount namespace, so that no other shared memory is filled.
fn in_full_memory(script: &str) -> Option<FinishedProcess> {
    need("unshare")?;
    let is_root = rustix_is_root();
    need_hardware(is_root, "privilege to mount")?;
    let dir = TempDir::new();
    let script = format!(
        "mount -t tmpfs -o size=1m,mode=1777 none /dev/shm && mount -t tmpfs none /run && {script}"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &script])
        .env_remove("PEGEL_LANES")
        .env("SOLVER", solver())
        .current_dir(dir.path());
    Some(run(&mut command))
}

fn rustix_is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn full_shared_memory_does_not_disturb_the_program() {
    let script = r#"
        head -c 1048576 /dev/zero > /dev/shm/filler; "$SOLVER" 20; echo "code $?"; ls -A /dev/shm/pegel.0"#;
    let Some(finished) = in_full_memory(script) else {
        return;
    };
    // Nothing is left behind, not even a temporary file.
    assert_eq!(
        finished.stdout, "20 steps, published: false\ncode 0\n",
        "{finished}"
    );
}

#[test]
fn shared_memory_that_fills_up_takes_as_many_as_fit() {
    // 32 KiB and a ring of 80 KiB each: nine fit into one MiB, and those lanes are complete.
    let script = r#"
        for i in $(seq 30); do "$SOLVER" 5 || exit 1; done | sort | uniq -c | sed 's/^ *//'
        find /dev/shm/pegel.0 -name '*.lane' | wc -l; find /dev/shm/pegel.0 -name '*.tmp' | wc -l
        stat -c '%a %U' /dev/shm/pegel.0"#;
    let Some(finished) = in_full_memory(script) else {
        return;
    };
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let count = |ending: &str| -> u32 {
        let line = lines.iter().find(|line| line.ends_with(ending));
        let number = line.and_then(|line| line.split(' ').next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let (published, private) = (count("published: true"), count("published: false"));
    assert_eq!(published + private, 30, "{finished}");
    assert!(published >= 9 && private > 0, "{finished}");
    assert_eq!(lines[3], "0", "temporary files were left: {finished}");
    assert_eq!(lines[4], "700 root", "{finished}");
}

#[test]
fn a_directory_of_another_user_is_skipped() {
    for squat in [
        "mkdir -m 777 /dev/shm/pegel.0",
        "mkdir -m 700 /dev/shm/pegel.0 && chown nobody /dev/shm/pegel.0",
        "mkdir -m 700 /dev/shm/real && ln -s real /dev/shm/pegel.0",
        "touch /dev/shm/pegel.0",
    ] {
        let script = format!(
            r#"{squat} && "$SOLVER" 2; ls -A /dev/shm/real 2>/dev/null
            ls /dev/shm/pegel.0 | grep -c '[.]lane'; stat -c '%a %U' /dev/shm/pegel.0.1"#
        );
        let Some(finished) = in_full_memory(&script) else {
            return;
        };
        assert_eq!(
            finished.stdout, "2 steps, published: true\n0\n700 root\n",
            "{squat}: {finished}"
        );
    }
}

#[test]
fn the_systems_directory_comes_before_the_users() {
    let script = r#"
        mkdir -p /run/pegel/lanes && chown nobody /run/pegel/lanes && chmod 1733 /run/pegel/lanes
        umask 077; "$SOLVER" 2; ls -A /dev/shm; stat -c %a /run/pegel/lanes/*.lane | sort -u"#;
    let Some(finished) = in_full_memory(script) else {
        return;
    };
    // Readable by an agent of any user; no other user can list the directory.
    assert_eq!(
        finished.stdout, "2 steps, published: true\n644\n",
        "{finished}"
    );
}
