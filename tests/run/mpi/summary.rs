//! One summary for all ranks on a node, and one report for each rank.

use std::path::{Path, PathBuf};

use pegel_testkit::{ChildProcess, eventually_within};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::launch::{MpiLibrary, MpiRun};
use super::{BOUND, ranks_at_work};
use crate::PEGEL;

/// Returns `pegel run` with these options, as a command for `mpirun`.
fn wrapped<'a>(options: &[&'a str], program: &[&'a Path]) -> Vec<&'a Path> {
    let words = options.iter().map(|word| Path::new(*word));
    let start = [Path::new(PEGEL.path()), Path::new("run")].into_iter();
    start.chain(words).chain(program.iter().copied()).collect()
}

/// The wrapper preloads the library, not the test.
const NO_PRELOAD: (&str, &str) = ("LD_PRELOAD", "");

fn read_report(path: PathBuf) -> Value {
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

fn hits(calls: &Value, name: &str) -> Option<u64> {
    let calls = calls.as_array().expect("a list");
    let call = calls.iter().find(|call| call["call"] == name)?;
    call["hits"].as_u64()
}

#[test]
fn the_ranks_of_a_node_have_one_summary_and_a_report_each() {
    for library in MpiLibrary::BOTH {
        for options in [
            &["-m", "-s"][..],
            &["-m"],
            &["-m", "-s", "--method", "ptrace"],
        ] {
            let Some(scene) = MpiRun::new(library) else {
                return;
            };
            let Some(program) = scene.compile("mpicc", "plain.c", &[]) else {
                return;
            };
            let more = ["--summary", "--report", "r.json", "--"];
            let options = [options, &more].concat();
            let finished = scene.run(3, &[NO_PRELOAD], &wrapped(&options, &[&program]));
            assert!(finished.stdout.starts_with("3 ranks, sum 3"), "{finished}");
            let summary = &finished.stderr;
            assert_eq!(summary.matches("pegel: plain-c: ").count(), 1, "{finished}");
            assert!(
                summary.contains(" s, 3 ranks on "),
                "{library:?} {options:?}: {finished}"
            );
            assert!(summary.contains(" in all ranks\n"), "{finished}");
            assert!(
                summary.contains(" s in 3 processes\n"),
                "{library:?} {options:?}: {finished}"
            );
            assert!(summary.contains("pegel:     MPI_Init "), "{finished}");
            let counted = options.contains(&"-s");
            assert_eq!(summary.contains(" system calls in "), counted, "{finished}");
            for rank in 0..3 {
                let report = read_report(scene.dir.join(format!("r.{rank}.json")));
                assert_eq!(report["rank"], rank.to_string().as_str());
                assert_eq!(report["mpi"]["processes"], 1, "{report}");
                assert_eq!(
                    hits(&report["mpi"]["calls"], "MPI_Send"),
                    Some(10),
                    "{report}"
                );
                assert!(report["mpi"]["seconds"].as_f64() > Some(0.0), "{report}");
                assert!(
                    report["memory"]["peak_bytes"].as_u64() > Some(1 << 20),
                    "{report}"
                );
                assert!(report["cpu"]["user_seconds"].is_f64(), "{report}");
                assert_eq!(
                    hits(&report["calls"], "execve").is_some(),
                    counted,
                    "{report}"
                );
            }
            assert!(!scene.dir.join("r.json").exists());
            // Nothing but the group's counter stays, until the launcher is known to have ended.
            let directory = scene.dir.join("pegel");
            let lists = std::fs::read_dir(directory).expect("there").flatten();
            let names: Vec<_> = lists.map(|entry| entry.file_name()).collect();
            let is_list = |name: &&std::ffi::OsString| name.to_string_lossy().ends_with(".lanes");
            assert_eq!(names.iter().find(is_list), None);
        }
    }
}

#[test]
fn a_wrapped_launcher_has_the_counts_of_its_ranks() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let Some(program) = scene.compile("mpicc", "plain.c", &[]) else {
            return;
        };
        let launcher = scene.mpirun(3, &[], &[&program]);
        let mut command = PEGEL.command(&scene.dir);
        command
            .args(["run", "-m", "-s", "--summary", "--report", "r.json", "--"])
            .arg(launcher.get_program())
            // Without the library that the test would preload.
            .args(
                launcher
                    .get_args()
                    .filter(|word| !word.to_string_lossy().contains("LD_PRELOAD=")),
            )
            .envs(
                launcher
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
        let finished = ChildProcess::start(&mut command).wait(BOUND);
        assert!(finished.status.success(), "{finished}");
        assert!(
            finished.stderr.contains(" s in 3 processes\n"),
            "{library:?}: {finished}"
        );
        let report = read_report(scene.dir.join("r.json"));
        assert_eq!(report["mpi"]["processes"], 3);
        assert_eq!(hits(&report["mpi"]["calls"], "MPI_Send"), Some(30));
        assert_eq!(report["mpi"]["unread_processes"], 0);
    }
}

/// Ranks end one after the other, the first or the last one first, or all at once.
#[test]
fn the_last_rank_prints_in_any_order_of_ends() {
    for library in MpiLibrary::BOTH {
        for script in [
            "sleep 0.$RANK",
            "sleep 0.$((9 - RANK))",
            "exit $RANK",
            "kill -KILL $$",
        ] {
            // MPICH's launcher kills all processes of the job then, those that print included; so
            // does that of Open MPI unless the end of the program waits for them.
            let is_spared = library == MpiLibrary::OpenMpi && rustix::process::geteuid().is_root();
            if script.starts_with("kill") && !is_spared {
                continue;
            }
            let Some(scene) = MpiRun::new(library) else {
                return;
            };
            // A rank that starts more than a second late is not waited for.
            let all_run = "until [ -e run.0 -a -e run.1 -a -e run.2 ]; do sleep 0.02; done";
            let rank = "RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; touch run.$RANK";
            let script = format!(
                "cd {}; {rank}; {all_run}; {script}",
                scene.dir.path().display()
            );
            let words = ["sh", "-c", &script].map(Path::new);
            let command = wrapped(&["--summary", "--"], &words);
            let mut command = scene.mpirun(3, &[NO_PRELOAD], &command);
            let finished = ChildProcess::start(&mut command).wait(BOUND);
            let text = &finished.stderr;
            let titles: Vec<&str> = text
                .lines()
                .filter(|line| line.contains("pegel: sh: "))
                .collect();
            assert_eq!(titles.len(), 1, "{library:?} {script}: {finished}");
            assert!(
                titles[0].contains(" s, 3 ranks on "),
                "{library:?} {script}: {finished}"
            );
        }
    }
}

#[test]
fn a_rank_that_is_killed_is_part_of_the_summary() {
    for library in MpiLibrary::BOTH {
        for options in [&["-m", "-s"][..], &["-m", "-s", "--method", "ptrace"]] {
            let Some(scene) = MpiRun::new(library) else {
                return;
            };
            let Some(program) = scene.compile("mpicc", "endless.c", &[]) else {
                return;
            };
            // To a file: a launcher may discard the output of a job that it aborts.
            let options = [options, &["--summary=s.txt", "--"]].concat();
            let command = wrapped(&options, &[&program]);
            let process = ChildProcess::start(&mut scene.mpirun(3, &[NO_PRELOAD], &command));
            let ranks = ranks_at_work(&scene, 3);
            kill_process(ranks[0].1, Signal::KILL).expect("ours");
            assert!(!process.wait(BOUND).status.success());
            let text = eventually_within(BOUND, "the summary", || {
                let text = std::fs::read_to_string(scene.dir.join("s.txt")).unwrap_or_default();
                text.contains("MPI_Allreduce")
                    .then_some(text.clone())
                    .ok_or(text)
            });
            assert_eq!(
                text.matches("pegel: endless-c: ").count(),
                1,
                "{library:?}: {text}"
            );
            assert!(text.contains(" s, 3 ranks on "), "{library:?}: {text}");
            let killed = format!("rank {} killed by SIGKILL", ranks[0].0);
            assert!(text.contains(&killed), "{library:?}: {text}");
            assert!(text.contains(" s in 3 processes\n"), "{library:?}: {text}");
        }
    }
}

/// Returns the helpers of wrapped commands that contain a word.
fn helpers(word: &str) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").expect("procfs").flatten();
    let found = processes.filter_map(|process| {
        let pid: i32 = process.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(process.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).into_owned();
        let is_helper = words.starts_with(PEGEL.path()) && words.contains(word);
        Pid::from_raw(pid).filter(|_| is_helper)
    });
    found.collect()
}

#[test]
fn a_rank_whose_helper_is_killed_is_stated_as_missing() {
    for library in MpiLibrary::BOTH {
        let Some(scene) = MpiRun::new(library) else {
            return;
        };
        let go = scene.dir.join("go").display().to_string();
        let script = format!("touch {go}.$$; until [ -e {go} ]; do sleep 0.02; done");
        let words = ["sh", "-c", &script].map(Path::new);
        let command = wrapped(&["--summary", "--"], &words);
        let process = ChildProcess::start(&mut scene.mpirun(2, &[NO_PRELOAD], &command));
        eventually_within(BOUND, "both ranks run", || {
            let files = std::fs::read_dir(scene.dir.path())
                .expect("readable")
                .flatten();
            let started =
                files.filter(|file| file.file_name().to_string_lossy().starts_with("go."));
            (started.count() == 2).then_some(()).ok_or("not yet")
        });
        let helpers = helpers(&go);
        assert_eq!(helpers.len(), 2, "{library:?}");
        kill_process(helpers[0], Signal::KILL).expect("ours");
        // Its lock is held until its end, which may come later than that of the other rank.
        eventually_within(BOUND, "its end", || {
            let stat = format!("/proc/{}/stat", helpers[0].as_raw_nonzero());
            let stat = std::fs::read_to_string(stat).unwrap_or_default();
            let has_ended = stat.is_empty() || stat.contains(") Z ");
            has_ended.then_some(()).ok_or(stat)
        });
        std::fs::write(&go, "").expect("written");
        let finished = process.wait(BOUND);
        assert!(finished.status.success(), "{library:?}: {finished}");
        assert_eq!(
            finished.stderr.matches("pegel: sh: ").count(),
            1,
            "{finished}"
        );
        assert!(
            finished.stderr.contains(" s, 1 of 2 ranks on "),
            "{library:?}: {finished}"
        );
    }
}
