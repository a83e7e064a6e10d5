//! Jobs on this machine, over ssh and with mpirun: nodes, trees, variables and messages.

use std::fs;
use std::path::Path;

use pegel_testkit::{ChildProcess, eventually, eventually_within, need, need_hardware, set_mode};

use crate::PEGEL;
use crate::ssh_server::SshServer;
use crate::test_job::{BEGIN, TestJob, processes_of};

#[test]
fn a_command_runs_on_this_machine_with_its_variables_and_its_exit_code() {
    let job = TestJob::new();
    let script = format!(
        "{BEGIN}echo out; echo level $DRAGON_TELEMETRY_LEVEL; test -S $PEGEL_SOCKET && \
         {PEGEL} push depth=4 && {PEGEL} nodes --check >/dev/null && exit 7"
    );
    let ended = job.run(&["--level", "2"], &["sh", "-c", &script]);
    assert_eq!(ended.code(), Some(7), "{ended}");
    assert_eq!(ended.stdout, "out\nlevel 2\n", "{ended}");
    assert!(
        ended.stderr.contains("pegel: 1 of 1 nodes up in "),
        "{ended}"
    );
    assert!(ended.stderr.contains(" · 1 node"), "{ended}");
    job.leaves_nothing("");
}

#[test]
fn agents_started_over_ssh_form_a_tree_with_levels() {
    let Some(server) = SshServer::start(4) else {
        return;
    };
    let job = TestJob::new();
    let script = format!(
        "{BEGIN}{PEGEL} nodes --check && for n in $(seq 160); do \
         {PEGEL} tree | grep -q '(3 nodes: 3 up)' && break; sleep 0.5; done; {PEGEL} tree && \
         {PEGEL} values node_load1 --per-node | wc -l"
    );
    let out = job.home.join("out").display().to_string();
    let options = [
        "--launcher",
        &server.ssh(),
        "--hosts",
        &server.hosts(),
        "--fan-out",
        "2",
        "--out",
        &out,
    ];
    let ended = job.run(&options, &["sh", "-c", &script]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(
        ended.stderr.contains("pegel: 5 of 5 nodes up in "),
        "{ended}"
    );
    assert!(ended.stderr.contains(" · 5 nodes · CPU "), "{ended}");
    // The head has two children, and the first of them has the other two.
    let first = format!("├─ {} (3 nodes: 3 up)", server.address(0));
    assert!(ended.stdout.contains(&first), "{ended}");
    for node in server.hosts().split(',') {
        assert!(
            job.home.join("out").join(node).join("log").is_dir(),
            "{node}: {ended}"
        );
    }
    job.leaves_nothing(&server.mark());
}

#[test]
fn a_missing_node_is_named_with_the_reason_and_the_job_goes_on() {
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    let hosts = format!("{},127.255.255.253", server.hosts());
    let ended = job.run(
        &["--launcher", &server.ssh(), "--hosts", &hosts],
        &["sh", "-c", BEGIN],
    );
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(
        ended.stderr.contains("pegel: 2 of 3 nodes up in "),
        "{ended}"
    );
    assert!(
        ended.stderr.contains("pegel: missing: 127.255.255.253\n"),
        "{ended}"
    );
    assert!(ended.stderr.contains("Connection refused"), "{ended}");
    assert!(ended.stderr.contains(" · 2 of 3 nodes · "), "{ended}");
    job.leaves_nothing(&server.mark());
}

#[test]
fn a_launcher_that_is_missing_or_fails_ends_the_job_with_its_own_message() {
    let job = TestJob::new();
    let mut command = job.command(&["--hosts", "a,b"], &["touch", "ran"]);
    command.env("PATH", "/nonexistent");
    let ended = ChildProcess::start(&mut command).wait(crate::ssh_server::JOB_TIME);
    assert_eq!(ended.code(), Some(2), "{ended}");
    assert!(
        ended.stderr.contains("cannot start ssh: No such file"),
        "{ended}"
    );
    job.leaves_nothing("");
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let launcher = format!("{} -i /nonexistent/key -o IdentityFile=none", server.ssh());
    let launcher = launcher.replace(
        "-F ",
        "-o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -F ",
    );
    let ended = job.run(
        &["--launcher", &launcher, "--hosts", &server.hosts()],
        &["touch", "ran"],
    );
    assert_eq!(ended.code(), Some(2), "{ended}");
    assert!(
        ended.stderr.contains("Host key verification failed"),
        "{ended}"
    );
    assert!(
        !job.home.join("ran").exists(),
        "the command was not started"
    );
    job.leaves_nothing(&server.mark());
}

#[test]
fn bad_input_is_refused_before_anything_is_started() {
    let job = TestJob::new();
    for (options, message) in [
        (["--hosts", "n[1-"], "bracket"),
        (["--hosts=-oProxyCommand=x", "-q"], "host name"),
        (["--hostfile", "/nonexistent/hosts"], "/nonexistent/hosts"),
        (["--launcher", "rsh"], "--launcher rsh"),
        (["--level", "9"], "level"),
        (["--interface", "nonexistent0"], "--interface nonexistent0"),
        (["--out", "/proc/x"], "--out /proc/x"),
    ] {
        let more: &[&str] = match options[0] {
            "--interface" => &["--hosts", "a,b"],
            _ => &[],
        };
        let ended = job.run(&[&options[..], more].concat(), &["touch", "ran"]);
        assert_eq!(ended.code(), Some(2), "{options:?}: {ended}");
        assert!(ended.stderr.contains(message), "{options:?}: {ended}");
    }
    assert!(!job.home.join("ran").exists());
    job.leaves_nothing("");
}

#[test]
fn no_secret_is_on_a_command_line_or_in_the_output() {
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    let script = format!("{BEGIN}while [ ! -e go ]; do sleep 0.1; done");
    let mut running = job.start(
        &["--launcher", &server.ssh(), "--hosts", &server.hosts()],
        &["sh", "-c", &script],
    );
    job.wait_for_command(&mut running);
    let dir = fs::read_dir(job.home.path()).expect("listed").flatten();
    let dir = dir
        .map(|entry| entry.path())
        .find(|path| path.display().to_string().contains("pegel-job-"));
    let dir = dir.expect("the directory of the job");
    let token = fs::read_to_string(dir.join("head/token")).expect("the token");
    assert_eq!(token.trim().len(), 64);
    let lines = processes_of(job.home.path(), &server.mark());
    assert!(lines.len() >= 3, "head, agent, ssh: {lines:?}");
    for line in lines {
        assert!(!line.contains(token.trim()), "{line}");
    }
    fs::write(job.home.join("go"), "").expect("written");
    let ended = running.wait(crate::ssh_server::JOB_TIME);
    assert!(!ended.to_string().contains(token.trim()), "{ended}");
    job.leaves_nothing(&server.mark());
}

#[test]
fn dragons_database_files_are_read_by_python() {
    if need("python3").is_none() {
        return;
    }
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    fs::write(
        job.home.join("dragon.yaml"),
        "dump_dir: dump\ndump_node: login1\n",
    )
    .expect("written");
    let script = format!("{BEGIN}{PEGEL} push depth=4 --tag gpu=1 && sleep 1.5");
    let (ssh, hosts) = (server.ssh(), server.hosts());
    let options = [
        "--launcher",
        &ssh,
        "--hosts",
        &hosts,
        "--out",
        "out",
        "--sqlite",
        "--config",
        "dragon.yaml",
    ];
    let ended = job.run(&options, &["sh", "-c", &script]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    let program = r#"
import glob, json, sqlite3, sys
for path in glob.glob("out/ts_*.db") + glob.glob("dump/telemetry/ts_*.db"):
    db = sqlite3.connect(path)
    loads = db.execute("SELECT timestamp, value, tags FROM datapoints WHERE metric = 'node_load1'").fetchall()
    assert loads and all(int(t) > 1e9 and v >= 0 and json.loads(g) == {} for t, v, g in loads), loads
    dps, = db.execute("SELECT dps FROM metrics WHERE metric = 'node_load1'").fetchone()
    assert json.loads(dps) == {t: v for t, v, g in loads}, dps
    assert db.execute("SELECT count(*) FROM flags").fetchone() == (0,)
    depth = db.execute("SELECT value, tags FROM datapoints WHERE metric = 'depth'").fetchall()
    print(path.split("/")[-1].split("_2")[0], len(depth) > 0, {v for v, g in depth} <= {4.0})
"#;
    let mut python = std::process::Command::new("python3");
    let read = python
        .args(["-c", program])
        .current_dir(job.home.path())
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(
        read.status.success(),
        "{}",
        String::from_utf8_lossy(&read.stderr)
    );
    let other = server.address(0);
    assert!(text.contains("ts_localhost.db True True\n"), "{text}");
    assert!(
        text.contains(&format!("ts_{other}.db False True\n")),
        "{text}"
    );
    assert_eq!(
        text.lines().count(),
        4,
        "two of --sqlite, two of dump_dir: {text}"
    );
    job.leaves_nothing(&server.mark());
}

#[test]
fn open_mpi_starts_the_agents() {
    if need("mpirun.openmpi").is_none() || need("unshare").is_none() {
        return;
    }
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to give processes other host names").is_none() {
        return;
    }
    let job = TestJob::new();
    // Stands for ssh: runs the daemon of Open MPI here, under the name of its node.
    let agent = job.home.join("rsh");
    let script = "#!/bin/sh\nname=$1; shift\nexec unshare --uts sh -c \"hostname $name; $*\"\n";
    fs::write(&agent, script).expect("written");
    set_mode(&agent, 0o755);
    let launcher = format!(
        "mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent {} --mca plm rsh",
        agent.display()
    );
    let script = format!("{BEGIN}{PEGEL} nodes --check");
    let ended = job.run(
        &[
            "--launcher",
            &launcher,
            "--hosts",
            "localhost,pegel-n1,pegel-n2",
        ],
        &["sh", "-c", &script],
    );
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(
        ended.stderr.contains("pegel: 3 of 3 nodes up in "),
        "{ended}"
    );
    job.leaves_nothing("");
}

/// Returns the names and sizes of all files below a directory.
fn listing(dir: &Path) -> Vec<(String, u64)> {
    let mut files = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).expect("listed").flatten() {
            let found = entry.metadata().expect("there");
            match found.is_dir() {
                true => left.push(entry.path()),
                false => files.push((entry.path().display().to_string(), found.len())),
            }
        }
    }
    files.sort();
    files
}

#[test]
fn collected_samples_are_served_by_view_and_not_changed() {
    let Some(server) = SshServer::start(1) else {
        return;
    };
    let job = TestJob::new();
    let script = format!("{BEGIN}{PEGEL} push depth=4 && sleep 1.5");
    let (ssh, hosts) = (server.ssh(), server.hosts());
    let options = ["--launcher", &ssh, "--hosts", &hosts, "--out", "out"];
    let ended = job.run(&options, &["sh", "-c", &script]);
    assert_eq!(ended.code(), Some(0), "{ended}");
    job.leaves_nothing(&server.mark());
    let before = listing(&job.home.join("out"));
    assert!(!before.is_empty());
    let mut command = PEGEL.command(&job.home);
    command.args(["view", "out", "--dir"]).arg(job.home.path());
    let view = ChildProcess::start(&mut command);
    let socket = eventually_within(crate::ssh_server::JOB_TIME, "the addresses", || {
        let text = view.stderr();
        let socket = text
            .split("pegel: socket: ")
            .nth(1)
            .and_then(|rest| rest.lines().next());
        socket.map(str::to_owned).ok_or(text)
    });
    assert!(
        view.stderr().contains("pegel: 2 nodes, samples from 20"),
        "{}",
        view.stderr()
    );
    let query = |expression: &str| {
        let mut command = PEGEL.command(&job.home);
        let run = command.args(["query", expression, "-f", "csv", "-u", &socket]);
        let output = run.output().expect("it starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let loads = query("count(count_over_time(node_load1[1h]))");
    assert!(loads.contains('2'), "both nodes: {loads}");
    let depth = query("max_over_time(depth[1h])");
    assert!(
        depth.contains("localhost") && depth.contains('4'),
        "{depth}"
    );
    // Nothing of this machine is sampled: the newest sample becomes older.
    eventually("no sample is added", || {
        let old = query("time() - max(timestamp(node_load1)) > 3");
        (old.lines().count() > 1).then_some(()).ok_or(old)
    });
    let again = job.run(&options, &["touch", "ran"]);
    assert_eq!(again.code(), Some(2), "samples are not mixed: {again}");
    assert!(again.stderr.contains("exists already"), "{again}");
    view.signal(rustix::process::Signal::INT);
    let ended = view.wait(crate::ssh_server::JOB_TIME);
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert_eq!(listing(&job.home.join("out")), before);
    job.leaves_nothing("");
    let bad = PEGEL
        .command(&job.home)
        .args(["view", "lanes"])
        .output()
        .expect("it starts");
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
}
