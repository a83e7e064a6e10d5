//! An agent that may load eBPF counts for users who may not.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pegel_testkit::{AgentBuilder, AgentProcess, Finished, Process, Stranger, TempDir, eventually};
use serde_json::json;

use crate::wrapped::{BOUND, PEGEL, Way, compile, copy_pegel, isolate, read_report};

/// An agent of root, and a place from which another user runs programs.
struct Scene {
    agent: AgentProcess,
    stranger: Stranger,
    home: TempDir,
    binary: PathBuf,
}

impl Scene {
    /// None where this machine does not allow it.
    fn new(allowed: &[u32]) -> Option<Scene> {
        let stranger = Stranger::new()?;
        if !Way::counting().contains(&Way::Ebpf) {
            return None;
        }
        let home = TempDir::new();
        open_to_all(home.path(), 0o1777);
        let binary = home.join("pegel");
        copy_pegel(&binary);
        open_to_all(&binary, 0o755);
        let sockets = home.join("sockets");
        fs::create_dir(&sockets).expect("made");
        open_to_all(&sockets, 0o755);
        let builder = AgentBuilder::new(PEGEL)
            .socket(sockets.join("push.sock"))
            .config(&format!("allow_users: {}\n", json!(allowed)));
        let lanes = builder.lanes();
        let agent = builder.start();
        open_to_all(&lanes, 0o1777);
        for above in lanes.ancestors().skip(1).take(1) {
            open_to_all(above, 0o755);
        }
        Some(Scene {
            agent,
            stranger,
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
            .uid(Stranger::UID)
            .gid(Stranger::UID)
            .current_dir(self.home.path());
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        Process::start(&mut self.command(args)).wait(BOUND)
    }

    fn watched(&self) -> u64 {
        let programs = &self.agent.status()["watching"]["programs"];
        programs.as_u64().expect("a number")
    }

    /// What is said to the lines of another user.
    fn say(&self, lines: &[&str]) -> Vec<String> {
        let socket = &self.agent.socket;
        self.stranger.act(|| {
            let mut stream = UnixStream::connect(socket).expect("the socket is open to all");
            let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
            let ask = |line: &&str| {
                writeln!(stream, "{line}").expect("written");
                let mut answer = String::new();
                answers.read_line(&mut answer).expect("an answer");
                answer.trim_end().to_owned()
            };
            lines.iter().map(ask).collect()
        })
    }
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
}

fn value(agent: &AgentProcess, series: &str) -> Option<f64> {
    let text = agent.get("/metrics").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}

#[test]
fn it_counts_for_a_user_without_rights() {
    let Some(scene) = Scene::new(&[Stranger::UID]) else {
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
        let said = "system calls are counted by eBPF of the agent";
        assert!(finished.stderr.contains(said), "{finished}");
        let calls = read_report(&scene.home.join("report.json"));
        assert_eq!(calls["getppid"], [260, 0, 0]);
        assert_eq!(calls["write"], [260, 7 * 260, 0]);
        assert_eq!(calls["read"][2], 260);
        assert_eq!(calls["execve"][0], 2);
        let hits = value(&scene.agent, "strace_hits_total{scall=\"getppid\"}");
        assert_eq!(hits, Some(260.0 * round), "when the command returns");
        fs::remove_file(scene.home.join("report.json")).expect("a new one each time");
    }
    eventually("nobody is watched any more", || match scene.watched() {
        0 => Ok(()),
        other => Err(other),
    });
    scene.agent.assert_conserved();
}

#[test]
fn it_counts_many_at_a_time_and_their_children() {
    let Some(scene) = Scene::new(&[Stranger::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "known", &[]) else {
        return;
    };
    let script = format!("{0}; {0}; exit 7", program.display());
    let args = ["-s", "--", "sh", "-c", &script];
    let start = |_| Process::start(&mut scene.command(&args));
    let programs: Vec<Process> = (0..12).map(start).collect();
    for program in programs {
        let finished = program.wait(BOUND);
        assert_eq!(finished.code(), Some(7), "{finished}");
        assert_eq!(finished.stderr, "");
    }
    let hits = value(&scene.agent, "strace_hits_total{scall=\"getppid\"}");
    // The shell asks for its parent once itself, or not.
    let hits = hits.expect("counted");
    assert!(hits >= 2.0 * 12.0 * 260.0, "{hits}");
    assert!(hits <= 2.0 * 12.0 * 260.0 + 12.0, "{hits}");
}

#[test]
fn it_does_not_count_for_whom_it_does_not_know() {
    let Some(scene) = Scene::new(&[]) else {
        return;
    };
    let finished = scene.run(&["-v", "-s", "--", "sh", "-c", "exit 5"]);
    assert_eq!(finished.code(), Some(5), "{finished}");
    assert!(
        finished.stderr.contains("not by eBPF: no permission"),
        "{finished}"
    );
    assert!(finished.stderr.contains("counted by ptrace"), "{finished}");
}

#[test]
fn programs_with_rights_of_their_own_get_them_and_are_not_counted() {
    let Some(scene) = Scene::new(&[Stranger::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "ids", &[]) else {
        return;
    };
    open_to_all(&program, 0o4755);
    let program = program.display();
    let script = format!("getconf ARG_MAX >/dev/null; {program}; {program} & wait; exec {program}");
    let args = ["-s", "--report", "report.json", "--", "sh", "-c", &script];
    let finished = scene.run(&args);
    assert_eq!(finished.code(), Some(42), "{finished}");
    let count = finished.stdout.matches("uid 65534 euid 0").count();
    assert_eq!(count, 3, "{finished}");
    let calls = read_report(&scene.home.join("report.json"));
    // The shell, and the one ordinary program that it starts. The others are let go when their exec is done.
    assert_eq!(calls["execve"][0], 2, "{calls:?}");
}

#[test]
fn a_running_process_is_counted_for_its_user() {
    let Some(scene) = Scene::new(&[Stranger::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "steps", &[]) else {
        return;
    };
    let place = scene.home.join("place");
    fs::create_dir(&place).expect("made");
    open_to_all(&place, 0o777);
    let mut target = Command::new(&program);
    target.arg(&place).uid(Stranger::UID).gid(Stranger::UID);
    let target = Process::start(&mut target);
    let pid = target.pid().to_string();
    let watcher = ["-v", "-S", &pid, "--report", "report.json"];
    let watcher = Process::start(&mut scene.command(&watcher));
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
fn when_it_is_killed_the_program_goes_on() {
    let Some(scene) = Scene::new(&[Stranger::UID]) else {
        return;
    };
    let Some(program) = compile(&scene.home, "steps", &[]) else {
        return;
    };
    let place = scene.home.join("place");
    fs::create_dir(&place).expect("made");
    open_to_all(&place, 0o777);
    let (program, at) = (program.display().to_string(), place.display().to_string());
    let args = ["-v", "-s", "--report", "report.json", "--", &program, &at];
    let process = Process::start(&mut scene.command(&args));
    fs::write(place.join("first"), "").expect("written");
    eventually("the first thousand", || {
        match value(&scene.agent, "strace_hits_total{scall=\"getppid\"}") {
            Some(1000.0) => Ok(()),
            other => Err(other),
        }
    });
    scene.agent.kill();
    fs::write(place.join("second"), "").expect("written");
    let finished = process.wait(BOUND);
    assert_eq!(finished.code(), Some(42), "{finished}");
    eventually("counts end with the last reading", || {
        match scene.home.join("report.json").exists() {
            true => Ok(()),
            false => Err("no report"),
        }
    });
    let calls = read_report(&scene.home.join("report.json"));
    assert_eq!(calls["getppid"], [1000, 0, 0]);
}

#[test]
fn it_tells_nothing_about_processes_of_others() {
    let Some(scene) = Scene::new(&[Stranger::UID]) else {
        return;
    };
    let own = std::process::id();
    let stat = fs::read_to_string("/proc/self/stat").expect("there");
    let behind = stat.rsplit(')').next().expect("a name");
    let start = behind.split_whitespace().nth(19).expect("a start");
    let answers = scene.say(&[
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
    let not_yours = format!("error process {own} is not yours");
    assert_eq!(answers[0], not_yours);
    assert_eq!(answers[1], not_yours);
    assert!(
        answers[2].contains("is not here, or not the one"),
        "{answers:?}"
    );
    assert!(answers[3].contains("is not here"), "{answers:?}");
    let form = "error not `watch exec|now PID START [untimed]`";
    assert_eq!(&answers[4..6], [form, form]);
    assert!(answers[6].starts_with("error "), "{answers:?}");
    assert!(answers[7].starts_with("error "), "{answers:?}");
    assert_eq!(answers[8], "ok", "a metric may be called so");
    assert_eq!(scene.watched(), 0);
}
