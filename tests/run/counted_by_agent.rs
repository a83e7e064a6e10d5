//! An agent that can load eBPF counts on behalf of users who cannot.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use pegel_testkit::{
    AgentProcess, ChildProcess, FinishedProcess, OtherUser, TempDir, eventually, need,
    need_hardware, set_mode,
};
use rustix::process::Signal;
use serde_json::json;

use crate::PEGEL;
use crate::run_mode::{BOUND, RunMode, compile, isolate, read_report, value};

/// An agent of root, and a directory from which another user runs programs.
struct OtherUserSetup {
    agent: AgentProcess,
    other_user: OtherUser,
    home: TempDir,
    binary: PathBuf,
}

impl OtherUserSetup {
    /// Returns `None`, with the skip recorded, if this machine does not permit it.
    #[track_caller]
    fn new(allowed: &[u32]) -> Option<OtherUserSetup> {
        let other_user = OtherUser::new()?;
        let has_ebpf = RunMode::counting().contains(&RunMode::Ebpf);
        need_hardware(has_ebpf, "privilege to load eBPF programs")?;
        let home = TempDir::new();
        set_mode(home.path(), 0o1777);
        let binary = home.join("pegel");
        PEGEL.copy_to(&binary);
        set_mode(&binary, 0o755);
        let sockets = home.join("sockets");
        fs::create_dir(&sockets).expect("made");
        set_mode(&sockets, 0o755);
        let builder = PEGEL
            .agent()
            .socket(sockets.join("push.sock"))
            .config(&format!("allow_users: {}\n", json!(allowed)));
        let lanes = builder.lanes();
        let agent = builder.start();
        set_mode(&lanes, 0o1777);
        for above in lanes.ancestors().skip(1).take(1) {
            set_mode(above, 0o755);
        }
        Some(OtherUserSetup {
            agent,
            other_user,
            home,
            binary,
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("run").arg("-u").arg(&self.agent.socket);
        command.args(args);
        isolate(&mut command, &self.home);
        command
            .env_remove("PEGEL_LANES")
            .env_remove("XDG_RUNTIME_DIR")
            .uid(OtherUser::UID)
            .gid(OtherUser::UID)
            .current_dir(self.home.path());
        command
    }

    fn run(&self, args: &[&str]) -> FinishedProcess {
        ChildProcess::start(&mut self.command(args)).wait(BOUND)
    }

    fn watched(&self) -> u64 {
        let programs = &self.agent.status()["watching"]["programs"];
        programs.as_u64().expect("a number")
    }

    fn wait_until_nobody_is_watched(&self) {
        eventually("nobody is watched", || match self.watched() {
            0 => Ok(()),
            other => Err(other),
        });
    }

    /// Creates a directory that the other user can write to.
    fn lanes_dir(&self) -> PathBuf {
        let place = self.home.join("place");
        fs::create_dir(&place).expect("made");
        set_mode(&place, 0o777);
        place
    }

    /// Connects as the other user: the kernel records the connecting user.
    fn connect(&self) -> UnixStream {
        let socket = &self.agent.socket;
        let connect = || UnixStream::connect(socket).expect("the socket is open to all");
        self.other_user.run_as(connect)
    }

    /// Returns the reply to lines sent by another user.
    fn exchange(&self, lines: &[&str]) -> Vec<String> {
        let mut stream = self.connect();
        let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
        let ask = |line: &&str| {
            writeln!(stream, "{line}").expect("written");
            let mut answer = String::new();
            answers.read_line(&mut answer).expect("an answer");
            answer.trim_end().to_owned()
        };
        lines.iter().map(ask).collect()
    }
}

#[test]
fn the_agent_counts_for_an_unprivileged_user() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "known", &[]) else {
        return;
    };
    assert_eq!(scene.agent.status()["watching"]["ebpf"], json!(true));
    let program = program.display().to_string();
    for (round, timed) in [(1.0, true), (2.0, true), (3.0, false)] {
        let more: &[&str] = if timed { &[] } else { &["--no-time"] };
        let args = [
            &["-v", "-s", "--report", "report.json"],
            more,
            &["--", &program],
        ]
        .concat();
        let finished = scene.run(&args);
        assert_eq!(finished.code(), Some(42), "{finished}");
        let said = "system calls are counted by eBPF in the agent";
        assert!(finished.stderr.contains(said), "{finished}");
        let calls = read_report(&scene.home.join("report.json"));
        assert_eq!(calls["getppid"], [260, 0, 0]);
        assert_eq!(calls["write"], [260, 7 * 260, 0]);
        assert_eq!(calls["read"][2], 260);
        assert_eq!(calls["execve"][0], 2);
        let hits = value(
            &scene.agent,
            "strace_hits_total{scall=\"getppid\",user=\"nobody\"}",
        );
        assert_eq!(hits, Some(260.0 * round), "when the command returns");
        fs::remove_file(scene.home.join("report.json")).expect("a new one each time");
    }
    scene.wait_until_nobody_is_watched();
    scene.agent.assert_conserved();
}

#[test]
fn the_agent_counts_many_programs_and_their_children() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "known", &[]) else {
        return;
    };
    let script = format!("{0}; {0}; exit 7", program.display());
    let args = ["-s", "--", "sh", "-c", &script];
    let start = |_| ChildProcess::start(&mut scene.command(&args));
    let programs: Vec<ChildProcess> = (0..12).map(start).collect();
    for program in programs {
        let finished = program.wait(BOUND);
        assert_eq!(finished.code(), Some(7), "{finished}");
        assert_eq!(finished.stderr, "");
    }
    let hits = value(
        &scene.agent,
        "strace_hits_total{scall=\"getppid\",user=\"nobody\"}",
    );
    // The shell itself may call getppid once.
    let hits = hits.expect("counted");
    assert!(hits >= 2.0 * 12.0 * 260.0, "{hits}");
    assert!(hits <= 2.0 * 12.0 * 260.0 + 12.0, "{hits}");
}

#[test]
fn the_agent_does_not_count_for_users_who_are_not_allowed() {
    let Some(scene) = OtherUserSetup::new(&[]) else {
        return;
    };
    let finished = scene.run(&["-v", "-s", "--", "sh", "-c", "exit 5"]);
    assert_eq!(finished.code(), Some(5), "{finished}");
    assert!(
        finished.stderr.contains("not using eBPF: no permission"),
        "{finished}"
    );
    assert!(finished.stderr.contains("counted by ptrace"), "{finished}");
}

#[test]
fn privileged_programs_keep_their_privileges_and_are_not_counted() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "ids", &[]) else {
        return;
    };
    set_mode(&program, 0o4755);
    let program = program.display();
    let script = format!("getconf ARG_MAX >/dev/null; {program}; {program} & wait; exec {program}");
    let args = ["-s", "--report", "report.json", "--", "sh", "-c", &script];
    let finished = scene.run(&args);
    assert_eq!(finished.code(), Some(42), "{finished}");
    let count = finished.stdout.matches("uid 65534 euid 0").count();
    assert_eq!(count, 3, "{finished}");
    let calls = read_report(&scene.home.join("report.json"));
    // The shell and the one ordinary program that it starts. The others are detached after their
    // exec.
    assert_eq!(calls["execve"][0], 2, "{calls:?}");
}

#[test]
fn a_running_process_is_counted_for_its_user() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "steps", &[]) else {
        return;
    };
    let place = scene.lanes_dir();
    let mut target = Command::new(&program);
    target.arg(&place).uid(OtherUser::UID).gid(OtherUser::UID);
    let target = ChildProcess::start(&mut target);
    let pid = target.pid().to_string();
    let watcher = ["-v", "-S", &pid, "--report", "report.json"];
    let watcher = ChildProcess::start(&mut scene.command(&watcher));
    eventually("it is taken", || {
        let said = format!("process {pid}: one thread, counted by eBPF");
        watcher
            .stderr()
            .contains(&said)
            .then_some(())
            .ok_or(watcher.output())
    });
    fs::write(place.join("first"), "").expect("written");
    fs::write(place.join("second"), "").expect("written");
    assert_eq!(target.wait(BOUND).code(), Some(42));
    let finished = watcher.wait(BOUND);
    assert_eq!(finished.code(), Some(0), "{finished}");
    let calls = read_report(&scene.home.join("report.json"));
    assert_eq!(calls["getppid"], [2000, 0, 0]);
}

#[test]
fn the_program_continues_when_the_agent_is_killed() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "steps", &[]) else {
        return;
    };
    let place = scene.lanes_dir();
    let (program, at) = (program.display().to_string(), place.display().to_string());
    let args = ["-v", "-s", "--report", "report.json", "--", &program, &at];
    let process = ChildProcess::start(&mut scene.command(&args));
    fs::write(place.join("first"), "").expect("written");
    eventually("the first thousand", || {
        match value(
            &scene.agent,
            "strace_hits_total{scall=\"getppid\",user=\"nobody\"}",
        ) {
            Some(1000.0) => Ok(()),
            other => Err(other),
        }
    });
    scene.agent.kill();
    fs::write(place.join("second"), "").expect("written");
    let finished = process.wait(BOUND);
    assert_eq!(finished.code(), Some(42), "{finished}");
    eventually("counts end with the last reading", || {
        if scene.home.join("report.json").exists() {
            Ok(())
        } else {
            Err("no report")
        }
    });
    let calls = read_report(&scene.home.join("report.json"));
    assert_eq!(calls["getppid"], [1000, 0, 0]);
}

#[test]
fn the_agent_reveals_nothing_about_processes_of_other_users() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let own = std::process::id();
    let start = start_of(own);
    let answers = scene.exchange(&[
        &format!("watch now {own} {start}"),
        &format!("watch exec {own} {start}"),
        &format!("watch now {own} 1"),
        "watch now 4194305 1",
        "watch now x 1",
        "watch now 1 1 sometimes",
        "counts",
        "release",
        "watch out:1|c",
    ]);
    let not_yours =
        format!("error process {own} is not owned by this user, or has gained privileges");
    assert_eq!(answers[0], not_yours);
    assert_eq!(answers[1], not_yours);
    assert!(
        answers[2].contains("is not visible to the agent, or its start time differs"),
        "{answers:?}"
    );
    assert!(
        answers[3].contains("is not visible to the agent"),
        "{answers:?}"
    );
    let form = "error expected `watch exec|now PID START [untimed]`";
    assert_eq!(&answers[4..6], [form, form]);
    assert!(answers[6].starts_with("error "), "{answers:?}");
    assert!(answers[7].starts_with("error "), "{answers:?}");
    assert_eq!(answers[8], "ok", "a metric may be called so");
    assert_eq!(scene.watched(), 0);
}

/// A process of the other user, with the data that identifies it.
struct WatchableProcess {
    child: Child,
    pid: u32,
    start: String,
}

impl WatchableProcess {
    fn start(program: &Path) -> WatchableProcess {
        let mut command = Command::new(program);
        command.arg("1000").uid(OtherUser::UID).gid(OtherUser::UID);
        let child = command.spawn().expect("started");
        let pid = child.id();
        WatchableProcess {
            child,
            pid,
            start: start_of(pid),
        }
    }

    fn watch(&self, how: &str) -> String {
        format!("watch {how} {} {}", self.pid, self.start)
    }

    fn status(&self, key: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("it is there");
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.expect("a line").trim().to_owned()
    }
}

impl Drop for WatchableProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let behind = stat.rsplit(')').next().expect("a name");
    behind
        .split_whitespace()
        .nth(19)
        .expect("a start")
        .to_owned()
}

fn find(program: &str) -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&paths).map(|dir| dir.join(program));
    places
        .find(|path| path.is_file())
        .expect("an ordinary program")
}

#[test]
fn processes_that_cannot_be_counted_are_refused() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let sleeper = find("sleep");
    let copy = scene.home.join("set-gid");
    fs::copy(&sleeper, &copy).expect("copied");
    set_mode(&copy, 0o2755);
    let group = WatchableProcess::start(&copy);
    eventually("it has other groups", || {
        if group.status("Gid:").starts_with("65534\t0") {
            Ok(())
        } else {
            Err(group.status("Gid:"))
        }
    });
    let mut zombie = WatchableProcess::start(&sleeper);
    zombie.child.kill().expect("ours");
    eventually("it is dead", || {
        if zombie.status("State:").starts_with('Z') {
            Ok(())
        } else {
            Err(zombie.status("State:"))
        }
    });
    for (named, words) in [(&group, "is not owned"), (&zombie, "is not")] {
        for how in ["now", "exec"] {
            let answers = scene.exchange(&[&named.watch(how)]);
            assert!(answers[0].starts_with("error "), "{answers:?}");
            assert!(answers[0].contains(words), "{answers:?}");
        }
    }
    assert_eq!(group.status("TracerPid:"), "0");
    assert_eq!(scene.watched(), 0);
}

/// Two clients counting the same process would each get a part.
#[test]
fn a_process_is_watched_once_and_released_with_its_connection() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let process = WatchableProcess::start(&find("sleep"));
    let request = process.watch("exec");
    let mut stream = scene.connect();
    writeln!(stream, "{request}").expect("written");
    let mut answer = String::new();
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
    answers.read_line(&mut answer).expect("an answer");
    assert_eq!(answer, "ok\n");
    assert_ne!(process.status("TracerPid:"), "0", "a thread of the agent");
    let second = scene.exchange(&[&process.watch("now"), &request]);
    assert!(
        second.iter().all(|answer| answer.starts_with("error ")),
        "{second:?}"
    );
    drop((stream, answers));
    eventually("nobody holds it", || {
        match process.status("TracerPid:").as_str() {
            "0" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
    scene.wait_until_nobody_is_watched();
    assert_eq!(scene.exchange(&[&request]), ["ok"], "once more");
}

/// Detaching a program waits for the kernel: a separate thread does it, not those that serve
/// connections.
#[test]
fn connections_that_end_do_not_delay_others() {
    let (Some(scene), Some(strace)) = (OtherUserSetup::new(&[OtherUser::UID]), need("strace"))
    else {
        return;
    };
    let sleeper = find("sleep");
    let processes: Vec<WatchableProcess> =
        (0..32).map(|_| WatchableProcess::start(&sleeper)).collect();
    let watch = |process: &WatchableProcess| {
        let mut stream = scene.connect();
        writeln!(stream, "{}", process.watch("exec")).expect("written");
        let mut answer = [0; 3];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"ok\n");
        stream
    };
    let streams: Vec<UnixStream> = processes.iter().map(watch).collect();
    assert_eq!(scene.watched(), 32);
    let trace = scene.home.join("trace");
    let pid = scene.agent.pid().to_string();
    let mut command = Command::new(strace);
    command
        .args(["-f", "-e", "trace=bpf", "-p", &pid, "-o"])
        .arg(&trace);
    let tracer = ChildProcess::start(&mut command);
    eventually("it is traced", || match tracer.stderr() {
        said if said.contains("attached") => Ok(()),
        said => Err(said),
    });
    let threads = thread_ids(&pid);
    drop(streams);
    let mut answers = 0;
    while scene.watched() > 0 {
        assert_eq!(scene.agent.get("/healthz").status, 200);
        answers += 1;
        assert!(answers < 10_000, "they are never let go");
    }
    for process in &processes {
        assert_eq!(process.status("TracerPid:"), "0");
    }
    tracer.signal(Signal::INT);
    tracer.wait(BOUND);
    let trace = fs::read_to_string(trace).expect("written by strace");
    let deletes: Vec<&str> = trace
        .lines()
        .filter(|line| line.contains("bpf(BPF_MAP_DELETE_ELEM"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(deletes.len(), 2 * processes.len(), "{trace}");
    let by_servers = deletes.iter().filter(|id| threads.contains(**id)).count();
    assert_eq!(by_servers, 0, "{trace}");
}

fn thread_ids(pid: &str) -> HashSet<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let names = tasks.map(|task| task.expect("read").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// The client may be stuck or stopped.
#[test]
fn the_end_of_a_process_is_not_delayed_for_long() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    let mut process = WatchableProcess::start(&find("sleep"));
    let mut stream = scene.connect();
    writeln!(stream, "{}", process.watch("exec")).expect("written");
    let mut answer = [0; 3];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"ok\n");
    process.child.kill().expect("ours");
    eventually("its parent knows", || {
        match process.child.try_wait().expect("ours") {
            Some(_) => Ok(()),
            None => Err("it is held"),
        }
    });
}

/// As with Ctrl-C right after the start: neither the program nor its counting process remains.
#[test]
fn a_wrapper_killed_at_its_start_leaves_no_process() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    for millis in 0..24 {
        let mut child = scene
            .command(&["-s", "--", "sleep", "0"])
            .spawn()
            .expect("started");
        std::thread::sleep(std::time::Duration::from_millis(millis));
        child.kill().expect("ours");
        std::thread::sleep(std::time::Duration::from_millis(20));
        child.wait().expect("ours");
    }
    scene.wait_until_nobody_is_watched();
}

#[test]
fn an_unresponsive_agent_prevents_no_program_from_starting() {
    let Some(scene) = OtherUserSetup::new(&[OtherUser::UID]) else {
        return;
    };
    scene.agent.freeze();
    // More connections than the listen queue holds.
    let socket = &scene.agent.socket;
    let waiting: Vec<_> = (0..300).map_while(|_| connect_at_once(socket)).collect();
    assert!(
        waiting.len() > 50 && waiting.len() < 300,
        "{}",
        waiting.len()
    );
    for args in [
        &["-s", "--", "true"][..],
        &["--", "true"],
        &["-v", "-m", "--", "true"],
    ] {
        let finished = scene.run(args);
        assert_eq!(finished.code(), Some(0), "{finished}");
    }
    scene.agent.signal(Signal::CONT);
}

/// Connects without waiting; returns `None` if the listen queue is full.
fn connect_at_once(path: &Path) -> Option<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let kind = SocketType::STREAM;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).expect("made");
    let address = SocketAddrUnix::new(path).expect("a path");
    rustix::net::connect(&socket, &address).ok()?;
    Some(socket)
}
